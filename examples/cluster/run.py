#!/usr/bin/env python3
"""Runs the flights of January on three nodes, kills the one that reads them, and shows that nothing is lost and nothing comes twice.

    examples/cluster/run.py                                   # builds the program first
    examples/cluster/run.py --program target/release/tidemill

Starts Kafka and an object store on this machine by scripts/servers.sh, which says what it needs. Ends all that it has started.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from nodes import NAMES, Nodes  # noqa: E402

FLIGHTS = ROOT / "examples/flights"
STREAMS = ("TakeOffEvent", "LandingEvent", "CancelEvent")


class Prober(threading.Thread):
    """A client that reads at the nodes in turn, and notes the longest time between two answers."""

    def __init__(self, nodes, names):
        super().__init__(daemon=True)
        self.nodes, self.names, self.longest_s, self.answers = nodes, names, 0.0, 0
        self.ended = threading.Event()

    def run(self):
        last = time.monotonic()
        turn = 0
        while not self.ended.is_set():
            name = self.names[turn % len(self.names)]
            turn += 1
            try:
                self.nodes.sql(name, "SELECT count(*) AS n FROM docs.\"AirportInsight\"")
            except OSError:
                # as a client does, it asks another node
                continue
            now = time.monotonic()
            self.longest_s, last = max(self.longest_s, now - last), now
            self.answers += 1
            time.sleep(0.01)

    def end(self):
        self.ended.set()
        self.join()


def counts(nodes, name):
    count = lambda stream: nodes.sql(name, f'SELECT count(*) AS n FROM events."{stream}"')[0]["n"]
    return {stream: count(stream) for stream in STREAMS}


def check(nodes, name, expected):
    """Compares what a node shows with what the script that made the data has counted in the CSV files."""
    late = 'SELECT count(*) AS n FROM docs."Flight" WHERE on_time = false'
    found = {"events": counts(nodes, name), "late_takeoffs": nodes.sql(name, late)[0]["n"]}
    records = nodes.sql(name, 'SELECT sum(late) AS n FROM docs."DelayRecord"')[0]["n"]
    wanted = {"events": expected["events"], "late_takeoffs": expected["late_takeoffs"]}
    if found != wanted or records != expected["late_takeoffs"]:
        sys.exit(f"node {name} has {found}, {records} late flights in records; expected {wanted}")
    ledger = nodes.sql(name, "SELECT stream, balanced, duplicate FROM system.ledger")
    if any(not line["balanced"] or line["duplicate"] for line in ledger):
        sys.exit(f"node {name}: the ledger does not balance: {ledger}")
    print(f"  node {name}: {sum(found['events'].values())} events, {found['late_takeoffs']} late flights, ledger balanced")


def run(program):
    expected = json.loads((FLIGHTS / "data/expected.json").read_text())
    total = sum(expected["events"].values())
    begin = time.monotonic()
    with Nodes(program, FLIGHTS, 27500) as nodes:
        nodes.start_all()
        reader = nodes.owners("a")[0]
        left = [name for name in NAMES if name != reader]
        print(f"Three nodes own {len(nodes.owners('a'))} partitions: {', '.join(nodes.owners('a'))}. Node {reader} reads the flights.")
        # what a node has applied so far; a query would wait for all that was acknowledged before it
        applied = lambda: sum(nodes.metric(left[0], f'tidemill_events_stored_total{{stream="{stream}"') for stream in STREAMS)
        nodes.wait(left[0], lambda: applied() > total // 4)
        killed = time.monotonic()
        nodes.kill(reader)
        print(f"Node {reader} is killed after {applied():.0f} of {total} events.")
        prober = Prober(nodes, left)
        prober.start()
        nodes.wait(left[0], lambda: all(owner in left for owner in nodes.owners(left[0])))
        print(f"The others own all partitions after {time.monotonic() - killed:.2f} s.")
        late = 'SELECT sum(late) AS n FROM docs."DelayRecord"'
        is_complete = lambda name: (sum(counts(nodes, name).values()), nodes.sql(name, late)[0]["n"]) == (
            total,
            expected["late_takeoffs"],
        )
        for name in left:
            nodes.wait(name, lambda: is_complete(name))
        prober.end()
        print(f"Queries at the others meanwhile: {prober.answers} answers, {prober.longest_s:.2f} s between two of them at most.")
        print("The outcome is that of one node:")
        for name in left:
            check(nodes, name, expected)
    print(f"{time.monotonic() - begin:.0f} s from the start to the end.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="the program; it is built if this is not given")
    program = parser.parse_args().program
    if program is None:
        subprocess.run(["cargo", "build", "--release", "--bin", "tidemill"], cwd=ROOT, check=True)
        program = ROOT / "target/release/tidemill"
    run(program)


if __name__ == "__main__":
    main()
