#!/usr/bin/env python3
"""Sends commands that ask for too much to the MongoDB listener of a server that has little memory.

    scripts/hostile_mongo.py target/release/tidemill [NAME]

Starts the server on an empty app, lets it have 3 GiB of address space beyond what it holds at rest, and sends every command of
crates/mongo/tests/hostile.txt (or those whose name contains NAME), each with a maxTimeMS of 5 s. Each must end as the file says, in time;
then it sends commands whose clients leave, one that is killed, transactions that stay open, and 20 hostile pipelines at once. Meanwhile `ping`
and a `find` by _id must be answered, 99 of 100 within a second, and at the end it must be the same process. Needs Python 3 and nothing else.
Exit code 0 when everything held. In a debug build a write may take minutes until its steps are counted.
"""

import json
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIME_MS = 5_000
# a write that is in the log is waited for: its budget is counted in steps, which take longer in a debug build
TIMEOUT_S = 300
BEYOND = 3 << 30
ANSWER_S = 1.0
SETTINGS = "[settings]\npartitions = 2\ndurability = 'memory'\nmemory = '2GiB'\n"


def encode(value):
    """A document as BSON."""
    out = b"".join(element(name, item) for name, item in value.items())
    return struct.pack("<i", len(out) + 5) + out + b"\0"


def element(name, value):
    head = name.encode() + b"\0"
    if isinstance(value, bool):
        return b"\x08" + head + bytes([value])
    if isinstance(value, int):
        small = -(2**31) <= value < 2**31
        return (b"\x10" + head + struct.pack("<i", value)) if small else (b"\x12" + head + struct.pack("<q", value))
    if isinstance(value, float):
        return b"\x01" + head + struct.pack("<d", value)
    if isinstance(value, str):
        text = value.encode() + b"\0"
        return b"\x02" + head + struct.pack("<i", len(text)) + text
    if isinstance(value, dict):
        return b"\x03" + head + encode(value)
    if isinstance(value, list):
        return b"\x04" + head + encode({str(at): item for at, item in enumerate(value)})
    if isinstance(value, uuid.UUID):
        return b"\x05" + head + struct.pack("<i", 16) + b"\x04" + value.bytes
    if isinstance(value, Long):
        return b"\x12" + head + struct.pack("<q", value.number)
    assert value is None, value
    return b"\x0a" + head


class Long:
    """A number of 64 bits."""

    def __init__(self, number):
        self.number = number


FIXED = {0x01: "<d", 0x10: "<i", 0x12: "<q", 0x09: "<q", 0x11: "<Q"}


def decode(data, at=0):
    """The document that begins at a byte."""
    end = at + struct.unpack_from("<i", data, at)[0] - 1
    at, found = at + 4, {}
    while at < end:
        kind, stop = data[at], data.index(b"\0", at + 1)
        name, at = data[at + 1 : stop].decode(), stop + 1
        if kind in FIXED:
            (found[name],) = struct.unpack_from(FIXED[kind], data, at)
            at += struct.calcsize(FIXED[kind])
        elif kind in (0x03, 0x04):
            inner = decode(data, at)
            found[name] = list(inner.values()) if kind == 0x04 else inner
            at += struct.unpack_from("<i", data, at)[0]
        elif kind == 0x02:
            (length,) = struct.unpack_from("<i", data, at)
            found[name] = data[at + 4 : at + 3 + length].decode()
            at += 4 + length
        elif kind == 0x05:
            at += 5 + struct.unpack_from("<i", data, at)[0]
        elif kind == 0x08:
            found[name], at = bool(data[at]), at + 1
        elif kind == 0x07:
            at += 12
        elif kind != 0x0A:
            raise ValueError(f"type {kind:#x} of {name}")
    return found


class Connection:
    def __init__(self, address, timeout=TIMEOUT_S):
        self.socket = socket.create_connection(address, timeout)

    def send(self, command):
        body = bytes(4) + b"\0" + encode({**command, "$db": command.get("$db", "docs")})
        self.socket.sendall(struct.pack("<iiii", 16 + len(body), 1, 0, 2013) + body)

    def receive(self):
        head = self.read(16)
        return decode(self.read(struct.unpack_from("<i", head)[0] - 16), 5)

    def read(self, count):
        out = bytearray()
        while len(out) < count:
            part = self.socket.recv(min(count - len(out), 1 << 20))
            if not part:
                raise ConnectionError("the connection was closed")
            out += part
        return bytes(out)

    def run(self, command):
        self.send(command)
        return self.receive()

    def close(self):
        self.socket.close()


def outcome(reply):
    """`ok` or the code of the error, and its message."""
    if reply.get("ok") != 1.0:
        return str(reply.get("code")), reply.get("errmsg", "")
    for error in reply.get("writeErrors", []):
        return str(error["code"]), error["errmsg"]
    return "ok", ""


def expand(text):
    """Writes out every <<N¦text¦between>>."""

    def copies(match):
        count, part, between = match.group(1), match.group(2), match.group(3) or ""
        return between.join(part.replace("#", str(n)) for n in range(int(count)))

    return re.sub(r"<<(\d+)¦([^¦]*)¦(.*?)>>", copies, text, flags=re.S)


def commands():
    text = (ROOT / "crates/mongo/tests/hostile.txt").read_text()
    for entry in text.split("\n\n"):
        head, _, command = entry.strip().partition("\n")
        name, _, outcomes = head.rpartition(": ")
        if name and command.startswith("{"):
            yield name, outcomes.split(" or "), json.loads(expand(command))


class Server:
    def __init__(self, binary, place):
        app = place / "app"
        app.mkdir()
        (app / "a.rules").write_text("event Reading { sensor: string, value: double } key sensor;\n")
        (app / "app.toml").write_text(SETTINGS)
        self.log_file, self.data = place / "log", place / "data"
        command = [binary, "run", str(app), "--data", str(self.data), "--listen", "127.0.0.1:0"]
        command += ["--mongo", "127.0.0.1:0", "--mongo-without-login"]
        self.process = subprocess.Popen(command, stdout=open(self.log_file, "w"), stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not (found := re.search(r"mongodb://127\.0\.0\.1:(\d+)", self.log_file.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start:\n{self.log_file.read_text()}")
            time.sleep(0.05)
        self.address = ("127.0.0.1", int(found.group(1)))
        self.fill()
        held = self.status("VmSize")
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (held + BEYOND, held + BEYOND))
        print(f"holds {held >> 20} MiB of address space at rest, may have {(held + BEYOND) >> 20} MiB")

    def fill(self):
        connection = Connection(self.address)
        many = [{"_id": n, "group": n % 10, "next": (n + 1) % 5000, "text": "x" * 900} for n in range(5000)]
        texts = [{"_id": n, "t": "x" * 5000} for n in range(50)]
        for name, documents in [("one", [{"_id": 1, "s": "x" * 5000}]), ("many", many), ("texts", texts)]:
            reply = connection.run({"insert": name, "documents": documents})
            assert reply.get("n") == len(documents), reply
        connection.close()

    def status(self, field):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.M)
        return int(found.group(1)) << 10 if found else 0

    def runs(self):
        return self.process.poll() is None


class Watch(threading.Thread):
    """Sends `ping` and a `find` by _id all the while, and keeps the times that they took."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.times, self.failed, self.over = server, [], None, threading.Event()

    def run(self):
        try:
            connection = Connection(self.server.address, 30)
            while not self.over.wait(0.05):
                for command in [{"ping": 1}, {"find": "many", "filter": {"_id": 7}}]:
                    began = time.monotonic()
                    kind, message = outcome(connection.run(command))
                    if kind != "ok":
                        raise ConnectionError(message)
                    self.times.append(time.monotonic() - began)
        except (OSError, ValueError) as error:
            self.failed = repr(error)


def endless(*last):
    stages = [stage for n in "abc" for stage in ({"$set": {n: {"$range": [0, 1000]}}}, {"$unwind": f"${n}"})]
    return {"aggregate": "one", "cursor": {}, "pipeline": [*stages, *last]}


def running(connection):
    listed = connection.run({"currentOp": 1, "$db": "admin"})["inprog"]
    return [operation for operation in listed if "aggregate" in operation.get("command", {})]


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def clients_that_leave(server):
    """Five endless pipelines, whose clients close their connections; nothing of them is left."""
    watcher = Connection(server.address)
    left = [Connection(server.address) for _ in range(5)]
    for connection in left:
        connection.send(endless({"$count": "n"}))
    if not until(lambda: len(running(watcher)) == 5, 10):
        return "the pipelines are not listed"
    for connection in left:
        connection.close()
    return None if until(lambda: not running(watcher), 10) else "pipelines go on without their clients"


def one_that_is_killed(server):
    watcher, worker = Connection(server.address), Connection(server.address)
    worker.send(endless({"$count": "n"}))
    if not until(lambda: len(running(watcher)) == 1, 10):
        return "the pipeline is not listed"
    watcher.run({"killOp": 1, "op": running(watcher)[0]["opid"], "$db": "admin"})
    kind, message = outcome(worker.receive())
    return None if kind == "11601" else f"{kind}: {message}"


def open_transactions(server):
    """Transactions of 1 MiB that stay open; at some time one is refused, with the label by which drivers try again."""
    connection = Connection(server.address)
    for number in range(3000):
        reply = connection.run({
            "insert": "held", "documents": [{"_id": number, "x": "y" * (1 << 20)}], "lsid": {"id": uuid.uuid4()},
            "txnNumber": Long(1), "startTransaction": True, "autocommit": False,
        })
        if reply.get("ok") != 1.0:
            labels = reply.get("errorLabels", [])
            good = reply["code"] == 365 and "TransientTransactionError" in labels
            return None if good else f"{reply}"
    return "3,000 transactions of 1 MiB were taken"


def one_large_transaction(server):
    connection, session = Connection(server.address), uuid.uuid4()
    for number in range(200):
        command = {
            "insert": "large", "documents": [{"_id": number, "x": "y" * (10 << 20)}], "lsid": {"id": session},
            "txnNumber": Long(1), "autocommit": False,
        }
        if number == 0:
            command["startTransaction"] = True
        reply = connection.run(command)
        if reply.get("ok") != 1.0:
            return None if reply["code"] in (393, 365) else f"{reply}"
    return "a transaction of 2 GB was taken"


def twenty_at_once(server):
    """Twenty hostile pipelines at once; all end, and what the others get is judged by the watch."""
    ended = []

    def work():
        connection = Connection(server.address)
        for last in [{"$count": "n"}, {"$sort": {"c": 1}}, {"$group": {"_id": "$$ROOT"}}]:
            ended.append(outcome(connection.run({**endless(last), "maxTimeMS": TIME_MS}))[0])

    workers = [threading.Thread(target=work) for _ in range(20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wrong = [kind for kind in ended if kind not in ("50", "292", "146")]
    return None if len(ended) == 60 and not wrong else f"{len(ended)} of 60 ended, {wrong}"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    failures = []
    with tempfile.TemporaryDirectory() as place:
        server = Server(os.path.abspath(sys.argv[1]), pathlib.Path(place))
        watch = Watch(server)
        watch.start()
        count = 0

        def tell(good, began, name, what):
            peak = server.status("VmHWM") >> 20 if server.runs() else 0
            took = time.monotonic() - began
            print(f"{'ok ' if good else 'BAD'} {took:6.2f} s {peak:5} MiB  {name}: {what}", flush=True)
            if not good:
                failures.append(name)

        for name, outcomes, command in commands():
            if only not in name:
                continue
            count += 1
            began = time.monotonic()
            try:
                connection = Connection(server.address)
                kind, message = outcome(connection.run({**command, "maxTimeMS": TIME_MS}))
                connection.close()
            except (OSError, ValueError) as error:
                kind, message = "no answer", repr(error)
            tell(kind in outcomes, began, name, f"{kind} {message[:90]}")
            if not server.runs():
                failures.append(f"the server ended with {server.process.returncode} after: {name}")
                break
        for attack in [clients_that_leave, one_that_is_killed, one_large_transaction, open_transactions, twenty_at_once]:
            name = attack.__name__.replace("_", " ")
            if only not in name or not server.runs():
                continue
            count += 1
            began = time.monotonic()
            try:
                wrong = attack(server)
            except (OSError, ValueError) as error:
                wrong = repr(error)
            tell(wrong is None, began, name, wrong or "held")
        watch.over.set()
        watch.join()
        times = sorted(watch.times) or [0.0]
        slowest, p99 = times[-1], times[len(times) * 99 // 100]
        print(f"{count} attacks; ping and find by _id {len(times)} times, p99 {p99 * 1000:.0f} ms, at most {slowest * 1000:.0f} ms")
        if watch.failed or p99 > ANSWER_S:
            failures.append(f"ping or find: {watch.failed or f'p99 {p99:.1f} s'}")
        if server.runs():
            server.process.terminate()
            server.process.wait(60)
        else:
            failures.append(f"the server ended with {server.process.returncode}")
    if failures:
        sys.exit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
