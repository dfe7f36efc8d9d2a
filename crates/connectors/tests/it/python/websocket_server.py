"""Prints its port and each message that arrives, and answers each with `{"event":{"text":"echo","n":LENGTH}}`."""
from websockets.sync.server import serve


def handle(connection):
    for message in connection:
        print(message, flush=True)
        connection.send('{"event":{"text":"echo","n":%d}}' % len(message))


with serve(handle, "127.0.0.1", 0) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
