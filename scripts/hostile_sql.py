#!/usr/bin/env python3
"""Sends statements that ask for too much to a server that has little memory.

    scripts/hostile_sql.py target/debug/tidemill [NAME]

Starts the server on an empty app, lets it have 2 GiB of address space beyond what it holds at rest, and sends every
statement of crates/sql/tests/hostile.txt (or those whose name contains NAME). Each must be answered as the file says,
with a result or an error, within the query timeout; meanwhile /livez must answer within a second, and at the end it must
be the same process. Needs Python 3 and nothing else. Exit code 0 when everything held.
"""

import http.client
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 30
BEYOND = 2 << 30
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
    def __init__(self, binary, place):
        app = place / "app"
        app.mkdir()
        (app / "a.rules").write_text("event Reading { sensor: string, value: double } key sensor;\n")
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
        held = self.status("VmSize")
        resource.prlimit(self.process.pid, resource.RLIMIT_AS, (held + BEYOND, held + BEYOND))
        print(f"holds {held >> 20} MiB of address space at rest, may have {(held + BEYOND) >> 20} MiB")

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
            good = good and took < TIMEOUT_S + 2
            peak = server.status("VmHWM") >> 20 if server.process.poll() is None else 0
            shown = "" if kind == "rows" else str(detail)[:90]
            print(f"{'ok ' if good else 'BAD'} {took:6.2f} s {peak:5} MiB  {name}: {kind} {shown}", flush=True)
            if not good:
                failures.append(name)
            if server.process.poll() is not None:
                failures.append(f"the server ended with {server.process.returncode} after: {name}")
                break
        watch.over.set()
        watch.join()
        if server.process.poll() is None:
            server.process.terminate()
            server.process.wait(30)
        print(f"{count} statements; /livez {watch.asked} times, at most {watch.slowest * 1000:.0f} ms")
        if watch.slowest > 1:
            failures.append(f"/livez took {watch.slowest:.1f} s")
    if failures:
        sys.exit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
