#!/usr/bin/env python3
"""Kills the program again and again while clients send on every wire, and checks that nothing that was acknowledged is lost or doubled.

    ~/.cache/tidemill/clients/venv/bin/python scripts/kill_wires.py target/release/tidemill --kills 50 --seed 1

The clients are those that scripts/clients.sh installs. Each wire of wires.py has a thread that sends batches one after the other. What was not
acknowledged is sent again with the same ids, by the client itself where it retries, and by the thread. The program is killed by SIGKILL
while it takes events in, some times while it starts. After each start, what was acknowledged must be there. In the end each row must be there once, the ledger
must balance, and the last batch of each wire, sent once more, must be counted as duplicates, row by row.

--plant loss counts a batch of each wire as acknowledged that is not sent, and --plant double sends rows under other ids: both must be found.
Prints a table, and exits with 1 if something is wrong.
"""

import argparse
import itertools
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import wires

BATCH_ROWS_MAX = 60
LOAD_S_MAX = 2.0
# share of the kills that come before the program is ready
EARLY = 0.2
# number of the batch that --plant loss leaves out
PLANTED = 5
PAUSE_S = 0.01
SETTINGS = """
name = "wires"
[settings]
flush_interval = "300ms"
checkpoint_interval = "700ms"
dedupe_ids = 2000
segment_bytes = "256KiB"
zones.merge_tablets = 4
"""


class Server:
    """The program, with the same ports and directory each time that it is started."""

    def __init__(self, program, place):
        self.program, self.place = program, pathlib.Path(place)
        self.http, self.postgres = free_ports(2)
        self.url = f"http://127.0.0.1:{self.http}"
        self.generation, self.is_ready = 0, False
        app = self.place / "app"
        app.mkdir()
        (app / "app.toml").write_text(SETTINGS)
        (app / "wires.rules").write_text(wires.RULES)
        for name, streams in [("remote-write", ["remote-write"]), ("opentelemetry", ["opentelemetry"])]:
            declared = subprocess.run([program, "declare", *streams], check=True, capture_output=True).stdout
            (app / f"{name}.rules").write_bytes(declared)

    @property
    def token(self):
        return (self.place / "data" / "token").read_text().strip()

    @property
    def bearer(self):
        return {"Authorization": f"Bearer {self.token}"}

    def start(self):
        command = [self.program, "run", self.place / "app", "--data", self.place / "data", "--listen", f"127.0.0.1:{self.http}"]
        command += ["--postgres", f"127.0.0.1:{self.postgres}", "--mongo", "off"]
        with open(self.place / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_ready(self):
        deadline = time.monotonic() + wires.PATIENCE_S
        while True:
            try:
                self.post("/readyz", None, {})
                self.is_ready = True
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the program does not become ready: {error}; see {self.place}/log") from error
                time.sleep(0.02)

    def kill(self):
        self.is_ready = False
        self.generation += 1
        self.process.kill()
        self.process.wait()

    def post(self, path, body, headers):
        request = urllib.request.Request(self.url + path, body, {**self.bearer, **headers})
        with urllib.request.urlopen(request, timeout=wires.PATIENCE_S) as reply:
            return reply.read()

    def sql(self, query):
        return json.loads(self.post("/api/v1/sql?format=json", query.encode(), {"content-type": "text/plain"}))

    def ledger(self, stream):
        return self.sql(f"SELECT received, stored, duplicate, rejected, balanced FROM system.ledger WHERE stream = '{stream}'")[0]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Sender(threading.Thread):
    """Thread of a wire. Rows 0 to `acknowledged` are acknowledged."""

    def __init__(self, wire, seed, stop, plant):
        super().__init__(daemon=True)
        self.wire, self.stop, self.plant = wire, stop, plant
        self.random = random.Random(f"{seed} {wire.title}")
        self.acknowledged = self.checked = self.sent_again = 0
        self.last = (0, 0)
        self.errors = []

    def run(self):
        for batch in itertools.count():
            if self.stop.is_set():
                return
            first = self.acknowledged
            self.last = (first, first + self.random.randint(1, BATCH_ROWS_MAX))
            if self.plant == "loss" and batch == PLANTED:
                self.acknowledged = self.last[1]
                continue
            self.send(*self.last)
            time.sleep(self.random.random() * PAUSE_S)

    def send(self, first, end):
        """Sends rows until they are acknowledged."""
        server = self.wire.server
        at, has_failed = first, False
        while at < end:
            generation, was_ready = server.generation, server.is_ready
            try:
                at += self.wire.send(at, end)
                self.acknowledged = at
            except Exception as error:  # of any client: each has its own
                self.wire.reset()
                if was_ready and generation == server.generation:
                    self.errors.append(f"{type(error).__name__}: {error}")
                    if len(self.errors) > 10:
                        return self.stop.set()
                self.sent_again += 0 if has_failed else end - at
                has_failed = True
                time.sleep(0.05)

    def count(self, first, end):
        """Returns how many rows there are with numbers of a range, and how many different ones."""
        wire = self.wire
        numbers = f"SELECT {wire.number} AS n FROM events.{wire.stream} WHERE {wire.where}"
        query = f"SELECT count(*) AS n, count(DISTINCT n) AS d FROM ({numbers}) t WHERE n >= {first} AND n < {end}"
        found = wire.server.sql(query)[0]
        return found["n"], found["d"]

    def check(self):
        """Returns rows that are lost of those that were acknowledged since the last check."""
        first, end = self.checked, self.acknowledged
        self.checked = end
        return end - first - self.count(first, end)[1]


class Campaign:
    def __init__(self, options, server):
        self.options, self.server = options, server
        self.random = random.Random(options.seed)
        self.stop = threading.Event()
        self.senders = [Sender(wire(server), options.seed, self.stop, options.plant) for wire in wires.WIRES]
        self.wrong = []

    def go(self):
        self.server.start()
        self.server.wait_ready()
        began = time.monotonic()
        for sender in self.senders:
            sender.start()
        startup_s = 1.0
        for number in range(self.options.kills):
            if self.stop.is_set():
                break
            if self.server.is_ready:
                time.sleep(self.random.random() * LOAD_S_MAX)
                moment = f"kill {number + 1}, under load"
            else:
                time.sleep(self.random.random() * startup_s)
                moment = f"kill {number + 1}, at the start"
            self.server.kill()
            self.server.start()
            if self.random.random() < EARLY and number + 1 < self.options.kills:
                continue
            start = time.monotonic()
            self.server.wait_ready()
            startup_s = time.monotonic() - start
            self.report([(sender, sender.check()) for sender in self.senders], moment)
        # so that the last start has load, too
        time.sleep(LOAD_S_MAX)
        self.stop.set()
        for sender in self.senders:
            sender.join()
        print(f"{self.options.kills} kills in {time.monotonic() - began:.0f} s")
        self.table()
        return 1 if self.wrong else 0

    def report(self, lost, moment):
        for sender, rows in lost:
            if rows:
                self.wrong.append(f"{moment}: {sender.wire.title}: {rows} acknowledged rows are lost")

    def table(self):
        if self.options.plant == "double":
            wire = self.senders[0].wire
            wire.prefix = "again-"
            wire.send(0, 10)
            wire.prefix = ""
        heads = ["wire", "acknowledged", "sent again", "duplicates", "lost", "doubled"]
        print(f"{heads[0]:<30}" + "".join(f"{head:>14}" for head in heads[1:]))
        for sender in self.senders:
            wire, ledger = sender.wire, self.server.ledger(sender.wire.stream)
            rows, different = sender.count(0, sender.acknowledged)
            beyond = sender.count(sender.acknowledged, 1 << 53)[0]
            figures = [sender.acknowledged, sender.sent_again, ledger["duplicate"], sender.acknowledged - different, rows - different]
            print(f"{wire.title:<30}" + "".join(f"{figure:>14,}" for figure in figures))
            wrong = [text for text, count in zip(["lost", "doubled"], figures[3:]) if count]
            wrong += ["not balanced"] * (not ledger["balanced"]) + ["rejected"] * (ledger["rejected"] > 0)
            wrong += ["without rows"] * (sender.acknowledged == 0) + ["with rows that were not sent"] * (beyond > 0)
            self.wrong += [f"{wire.title}: {text}" for text in wrong]
            self.wrong += [f"{wire.title}: failed while the program ran: {error}" for error in sender.errors]
            self.resend(sender)
        print("duplicates are those of the stream, which both versions of remote write share")
        for text in self.wrong:
            print(f"WRONG: {text}")

    def resend(self, sender):
        """Sends the last batch once more: all its rows must be counted as duplicates."""
        if sender.errors or self.options.plant:
            return
        stream, (first, end) = sender.wire.stream, sender.last
        before = self.server.ledger(stream)
        sender.wire.send(first, end)
        after = self.server.ledger(stream)
        grown = {key: after[key] - before[key] for key in ["received", "stored", "duplicate"]}
        if grown != {"received": end - first, "stored": 0, "duplicate": end - first}:
            self.wrong.append(f"{sender.wire.title}: {end - first} rows that were sent once more are counted as {grown}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--plant", choices=["loss", "double"])
    options = parser.parse_args()
    options.program = options.program.resolve()
    print(f"seed {options.seed}")
    place = tempfile.mkdtemp(prefix="tidemill-wires-")
    server = Server(options.program, place)
    status = 2
    try:
        status = Campaign(options, server).go()
    finally:
        server.process.kill()
        server.process.wait()
        if status == 0:
            subprocess.run(["rm", "-r", place], check=True)
        else:
            print(f"kept: {place}")
    return status


if __name__ == "__main__":
    sys.exit(main())
