#!/usr/bin/env python3
"""Sends statements that ask for too much to a server that has little memory.

    scripts/hostile_sql.py target/release/tidemill [NAME]

One after the other: starts the server on an empty app, lets it have 4 GiB of address space beyond what it reserves at rest,
and sends every statement of crates/sql/tests/hostile.txt (or those whose name contains NAME). Each must be answered as the file
says, with a result or an error, within the query timeout; meanwhile /livez must answer within a second, and the process must
never hold more than 2 GiB of memory beyond what it holds at rest. (The allocator reserves address space in pieces of 1 GiB and
keeps it.)

Together: runs 20 of the endless ones at a time, sent again as they end, until each had its turn. Each is ended in one of three
ways: by KILL QUERY, by DELETE /api/v1/statements/ID, or because its client leaves. Beside them `select 1`, system.statements and the
endings are timed: the 99th of 100 must take less than 200 ms, a statement must have left system.statements 100 ms after its end,
and a second after all of them the server must be idle.

Large values: stores 7,200 events of 50 KB and 11 of 60 MiB (--small: 2,000 and 4), and reads them with 6 clients at once in each
format, from memory and from files. The server may have 4 GiB beyond what it holds at rest.

At the end it must be the same process. Times are those of a release build on a machine with nothing else to do. Needs Python 3
and nothing else. Exit code 0 when everything held.
"""

import collections
import http.client
import itertools
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 30
BEYOND = 4 << 30
HELD_BEYOND = 2 << 30
BEYOND_LARGE = 4 << 30
CLIENTS = 20
P99_S = 0.2
END_S = 0.1
SETTINGS = f"[settings]\npartitions = 1\nsql.query_timeout = '{TIMEOUT_S}s'\nsql.spill_bytes = '2GiB'\n"


def statements():
    text = (ROOT / "crates/sql/tests/hostile.txt").read_text()
    for entry in text.split("\n\n"):
        head, _, sql = entry.strip().partition("\n")
        name, _, outcomes = head.rpartition(": ")
        if name and sql:
            yield name, outcomes.split(" or "), expand(sql)


def expand(sql):
    """Writes out every <<N¦text¦between>>."""

    def copies(match):
        count, text, between = match.group(1), match.group(2), match.group(3) or ""
        each = (text.replace("#+1", str(n + 1)).replace("#", str(n)) for n in range(int(count)))
        return between.join(each)

    return re.sub(r"<<(\d+)¦([^¦]*)¦(.*?)>>", copies, sql, flags=re.S)


class Server:
    def __init__(self, binary, place, beyond):
        place.mkdir()
        app = place / "app"
        app.mkdir()
        rules = "event Reading { sensor: string, value: double } key sensor;\nevent Raw { v: int, text: string } key v;\n"
        (app / "a.rules").write_text(rules)
        (app / "app.toml").write_text(SETTINGS)
        self.data = place / "data"
        command = [binary, "run", str(app), "--data", str(self.data), "--listen", "127.0.0.1:0"]
        self.log = open(place / "log", "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while not (self.data / "server.json").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the server did not start:\n{(place / 'log').read_text()}")
            time.sleep(0.05)
        time.sleep(0.5)
        self.base = "http://" + json.loads((self.data / "server.json").read_text())["address"]
        self.token = (self.data / "token").read_text().strip()
        if beyond:
            held = self.status("VmSize")
            resource.prlimit(self.process.pid, resource.RLIMIT_AS, (held + beyond, held + beyond))
            print(f"holds {held >> 20} MiB of address space at rest, may have {(held + beyond) >> 20} MiB")

    def status(self, field):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.M)
        # a process that has ended and was not waited for has no such line
        return int(found.group(1)) << 10 if found else 0

    def sql(self, text):
        """The outcome: `rows` and the first cell, or the kind of the error and its message."""
        request = urllib.request.Request(
            f"{self.base}/api/v1/sql?format=ndjson",
            data=text.encode(),
            headers={"authorization": f"Bearer {self.token}", "content-type": "text/plain"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S + 15) as reply:
                try:
                    lines = reply.read().splitlines()
                except http.client.IncompleteRead as cut:
                    # a query that fails after its first rows: the last line says why
                    lines = cut.partial.splitlines()
        except urllib.error.HTTPError as error:
            found = json.loads(error.read())["error"]
            return found.get("kind") or found.get("code"), found["message"]
        if not lines:
            return "rows", None
        first = json.loads(lines[0])
        if "error" in first and len(lines) == 1 and isinstance(first["error"], dict):
            return first["error"].get("kind") or first["error"].get("code"), first["error"]["message"]
        last = json.loads(lines[-1])
        if isinstance(last.get("error"), dict):
            return last["error"].get("kind") or last["error"].get("code"), last["error"]["message"]
        return "rows", str(next(iter(first.values()), None)) if len(lines) == 1 else None

    def call(self, method, path, body=None, timeout=TIMEOUT_S):
        request = urllib.request.Request(
            f"{self.base}{path}", data=body, method=method, headers={"authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.read()

    def post(self, stream, events):
        body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
        request = urllib.request.Request(
            f"{self.base}/api/v1/streams/{stream}?wait=true",
            data=body,
            headers={"authorization": f"Bearer {self.token}", "content-type": "application/x-ndjson"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.read()

    def leave(self, sql, after):
        """Sends a statement and closes the connection after a while, without reading."""
        address = self.base.removeprefix("http://").split(":")
        head = (
            f"POST /api/v1/sql HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\nauthorization: Bearer {self.token}\r\n"
            f"content-type: text/plain\r\ncontent-length: {len(sql.encode())}\r\n\r\n"
        )
        with socket.create_connection((address[0], int(address[1]))) as connection:
            connection.sendall(head.encode() + sql.encode())
            time.sleep(after)

    def statements(self):
        return json.loads(self.call("GET", "/api/v1/statements"))

    def cpu(self):
        """Seconds of processors that the process has taken."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def alive(self):
        with urllib.request.urlopen(f"{self.base}/livez", timeout=5) as reply:
            return reply.status == 200


class Watch(threading.Thread):
    """Asks /livez all the while and keeps the longest time it took."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.slowest, self.asked, self.over = server, 0.0, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            began = time.monotonic()
            try:
                self.server.alive()
            except OSError:
                self.slowest = float("inf")
                return
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.asked += 1


def one_after_the_other(binary, place, only):
    failures = []
    server = Server(binary, place, BEYOND)
    held_most = (server.status("VmRSS") + HELD_BEYOND) >> 20
    watch = Watch(server)
    watch.start()
    count = 0
    for name, outcomes, sql in statements():
        if not any(part in name for part in only.split(",")):
            continue
        count += 1
        began = time.monotonic()
        try:
            kind, detail = server.sql(sql)
        except (OSError, ValueError) as error:
            kind, detail = "no answer", repr(error)
        took = time.monotonic() - began
        good = kind in outcomes or (kind == "rows" and detail in outcomes)
        peak = server.status("VmHWM") >> 20 if server.process.poll() is None else 0
        good = good and took < TIMEOUT_S + 2 and peak <= held_most
        shown = "" if kind == "rows" else str(detail)[:90]
        print(f"{'ok ' if good else 'BAD'} {took:6.2f} s {peak:5} MiB  {name}: {kind} {shown}", flush=True)
        if not good:
            failures.append(name)
        if server.process.poll() is not None:
            failures.append(f"the server ended with {server.process.returncode} after: {name}")
            break
    watch.over.set()
    watch.join()
    server.stop()
    print(f"{count} statements; /livez {watch.asked} times, at most {watch.slowest * 1000:.0f} ms")
    if watch.slowest > 1:
        failures.append(f"/livez took {watch.slowest:.1f} s")
    return failures


class Times:
    """Seconds that a kind of request took."""

    def __init__(self):
        self.by_kind, self.lock = collections.defaultdict(list), threading.Lock()

    def add(self, kind, seconds):
        with self.lock:
            self.by_kind[kind].append(seconds)

    def timed(self, kind, call):
        began = time.monotonic()
        result = call()
        self.add(kind, time.monotonic() - began)
        return result


def together(binary, place, only):
    chosen = [(name, sql) for name, _, sql in statements() if name.startswith("endless")]
    chosen = [(name, sql) for name, sql in chosen if any(part in name for part in only.split(","))]
    if not chosen:
        return []
    failures, times, server = [], Times(), Server(binary, place, 0)
    work, over, lock = iter(list(itertools.product(range(3), chosen))), threading.Event(), threading.Lock()
    ends = collections.Counter()

    def listed(marked):
        return [s for s in server.statements() if s["statement"] == marked]

    def client(number):
        while True:
            with lock:
                turn = next(work, None)
            if turn is None:
                return
            way, (name, sql) = turn
            marked = f"{sql} -- {way} {number} {name}"
            try:
                run(way, marked, name)
            except Exception as error:
                failures.append(f"{name}, ended in way {way}: {error!r}")

    def run(way, marked, name):
        if way == 2:
            server.leave(marked, 1.5)
        else:
            answer = []
            sender = threading.Thread(target=lambda: answer.append(server.sql(marked)))
            sender.start()
            time.sleep(1.5)
            for statement in listed(marked):
                if statement.get("ended"):
                    continue
                if way == 0:
                    kill = lambda: server.sql(f"KILL QUERY {statement['id']}")
                    times.timed("kill", kill)
                else:
                    delete = lambda: server.call("DELETE", f"/api/v1/statements/{statement['id']}")
                    try:
                        times.timed("delete", delete)
                    except urllib.error.HTTPError:
                        pass
        began = time.monotonic()
        while any(not s.get("ended") for s in listed(marked)):
            if time.monotonic() - began > TIMEOUT_S:
                failures.append(f"{name} goes on after it was ended in way {way}")
                return
            time.sleep(0.005)
        took = time.monotonic() - began
        times.add("end", took)
        if took > END_S:
            print(f"    {took:.2f} s to its end: {name}, ended in way {way}")
        ends[name] += 1
        if way != 2:
            sender.join()
            kind, detail = answer[0]
            if kind not in ("conflict", "rows", "limit_reached", "invalid"):
                failures.append(f"{name}: {kind} {detail}")

    def asker(kind, sql):
        while not over.wait(0.02):
            try:
                kind_found, detail = times.timed(kind, lambda: server.sql(sql))
                if kind_found != "rows":
                    failures.append(f"{sql}: {kind_found} {detail}")
            except OSError as error:
                failures.append(f"{sql}: {error!r}")

    askers = [
        threading.Thread(target=asker, args=("select 1", "select 1")),
        threading.Thread(target=asker, args=("system.statements", "select count(*) from system.statements")),
    ]
    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in askers + clients:
        thread.start()
    for thread in clients:
        thread.join()
    over.set()
    for thread in askers:
        thread.join()
    time.sleep(1)
    before, began = server.cpu(), time.monotonic()
    time.sleep(2)
    busy = (server.cpu() - before) / (time.monotonic() - began)
    print(f"{sum(ends.values())} statements, {CLIENTS} at a time; afterwards {busy:.2f} processors are busy")
    for kind, seconds in sorted(times.by_kind.items()):
        p99 = statistics.quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
        most = END_S if kind == "end" else P99_S
        good = p99 < most
        print(
            f"{'ok ' if good else 'BAD'} {kind}: {len(seconds)} times, median {statistics.median(seconds) * 1000:.1f} ms, "
            f"p99 {p99 * 1000:.1f} ms, longest {max(seconds) * 1000:.1f} ms"
        )
        if not good:
            failures.append(f"{kind}: p99 {p99 * 1000:.0f} ms")
    if busy > 0.2:
        failures.append(f"{busy:.2f} processors are busy after all statements have ended")
    if server.process.poll() is not None:
        failures.append(f"the server ended with {server.process.returncode}")
    server.stop()
    return failures


def large_values(binary, place, small):
    failures = []
    rows, large = (2_000, 4) if small else (7_200, 11)
    server = Server(binary, place, BEYOND_LARGE)
    for start in range(0, rows, 400):
        server.post("Raw", [{"v": n % 50, "text": "x" * 50_000} for n in range(start, start + 400)])
    for n in range(large):
        server.post("Raw", [{"v": n, "text": "y" * (60 << 20)}])
    statement = 'select * from events."Raw"'
    for where, wait in [("memory", 0), ("files", 20)]:
        time.sleep(wait)
        for kind in ["ndjson", "json", "csv", "table"]:
            found, began = [], time.monotonic()

            def read():
                request = urllib.request.Request(
                    f"{server.base}/api/v1/sql?format={kind}",
                    data=statement.encode(),
                    headers={"authorization": f"Bearer {server.token}", "content-type": "text/plain"},
                )
                total = 0
                try:
                    with urllib.request.urlopen(request, timeout=300) as reply:
                        while piece := reply.read(1 << 20):
                            total += len(piece)
                        found.append(total)
                except urllib.error.HTTPError as error:
                    found.append(json.loads(error.read())["error"]["message"])
                except (OSError, http.client.HTTPException) as error:
                    found.append(repr(error))

            clients = [threading.Thread(target=read) for _ in range(6)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            least = rows * 50_000 + large * (60 << 20)
            good = all(isinstance(total, int) and total >= least for total in found)
            peak = server.status("VmHWM") >> 20
            took = time.monotonic() - began
            print(f"{'ok ' if good else 'BAD'} {took:6.2f} s {peak:5} MiB  6 clients, {kind}, from {where}: {found}", flush=True)
            if not good:
                failures.append(f"large values, {kind}, from {where}")
            if server.process.poll() is not None:
                return [*failures, f"the server ended with {server.process.returncode}"]
    server.stop()
    return failures


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--small"]
    if not arguments:
        sys.exit(__doc__)
    binary, only = os.path.abspath(arguments[0]), arguments[1] if len(arguments) > 1 else ""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        failures = one_after_the_other(binary, place / "one", only)
        failures += together(binary, place / "together", only)
        if not only:
            failures += large_values(binary, place / "large", "--small" in sys.argv)
    if failures:
        sys.exit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
