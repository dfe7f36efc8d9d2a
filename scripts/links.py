"""Links between processes of one machine that can be cut, for scripts that try how programs bear it.

    link = Link(9000)           # forwards what comes to link.port to 127.0.0.1:9000
    link.state = "silent"       # connections stay open, but nothing comes through, as behind a lost route
    link.state = "refused"      # connections are reset, as by a machine whose process is gone
    link.state = "open"
"""

import selectors
import socket
import struct
import threading
import time

CHUNK_BYTES = 64 << 10


class Link:
    """A port that forwards to another one. Threads of it end with the process."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.state = "open"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client):
        while self.state == "silent":
            time.sleep(0.05)
        if self.state == "refused":
            return reset(client)
        try:
            server = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
        except OSError:
            return reset(client)
        server.settimeout(None)
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while self.state != "refused":
                if self.state == "silent":
                    time.sleep(0.05)
                    continue
                for key, _ in selector.select(0.2):
                    try:
                        chunk = key.fileobj.recv(CHUNK_BYTES)
                        if not chunk:
                            selector.unregister(key.fileobj)
                            key.data.shutdown(socket.SHUT_WR)
                            if not selector.get_map():
                                return close(client, server)
                            continue
                        key.data.sendall(chunk)
                    except OSError:
                        return reset(client, server)
        reset(client, server)


def close(*connections):
    for connection in connections:
        connection.close()


def reset(*connections):
    """Closes connections so that the other side gets an error instead of an end."""
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
