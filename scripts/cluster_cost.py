#!/usr/bin/env python3
"""Measures the CPU time that nodes of a cluster take for an event, beside that of a single process with the same log and store.

    scripts/cluster_cost.py target/release/tidemill --events 400000 --runs 3

Starts Kafka and an object store by scripts/servers.sh. A rule counts the readings of each truck in a document. The same events are sent, to all nodes in
turn, to a single process, to a cluster of one node, and to clusters of two, three and four nodes with two replicas of each partition. What is measured
are the CPU seconds of the nodes from the first event until all are counted, without those of Kafka, the store and the client: other work on the machine
changes them little. Needs what scripts/servers.sh needs.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import tempfile
import time

from nodes import Nodes

RULES = """
event Reading { truck: string, n: int, velocity: double, fuel: double } key truck;
entity Truck key id;
relation Reading.seen(): Truck by truck;
rule First { when { r: Reading(); not r.seen(); } then { insert Truck { id: r.truck, n: 1, fuel: r.fuel }; } }
rule Next priority 1 { when { r: Reading(); t: r.seen(); } then { update t.n += 1; update t.fuel = r.fuel; } }
"""
# tables of the process that is no node; those of nodes are below --store
MANIFEST = """name = "trucks"

[settings]
partitions = 16
"""
TABLES = 'tables = "s3://tidemill/alone-tables"\n'
NAMES = ("a", "b", "c", "d")
TRUCKS = 1000
BATCH = 5000
SENDERS = 4
TICKS_S = os.sysconf("SC_CLK_TCK")


def bodies(first, count):
    reading = lambda i: {"truck": f"truck_{i % TRUCKS}", "n": i, "velocity": i % 97 + 0.5, "fuel": i % 31 + 0.25}
    return ["".join(json.dumps(reading(i)) + "\n" for i in range(at, at + BATCH)).encode() for at in range(first, first + count, BATCH)]


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def cpu_by_thread(process):
    """Returns the CPU seconds of the threads by name, without the numbers in it."""
    found = collections.Counter()
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            head, tail = (task / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        fields = tail.split()
        found[re.sub(r"[0-9]+", "", head.split("(", 1)[1])] += (int(fields[11]) + int(fields[12])) / TICKS_S
    return found


def resident_mib(process):
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def send(nodes, names, batches):
    def one(at):
        nodes.request(names[at % len(names)], "/api/v1/streams/Reading", batches[at])

    with concurrent.futures.ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(one, range(len(batches))))


def wait_counted(nodes, name, events):
    counted = lambda: nodes.sql(name, 'SELECT coalesce(sum(n), 0) AS n FROM docs."Truck"')[0]["n"]
    while counted() < events:
        time.sleep(0.1)
    if counted() != events:
        raise SystemExit(f"{counted()} of {events} events are counted")


def measure(arguments, names, is_cluster):
    """Returns CPU microseconds for an event of each process, the events per second, and the largest resident memory in MiB."""
    with tempfile.TemporaryDirectory(prefix="tidemill-cost-") as app:
        (pathlib.Path(app) / "trucks.rules").write_text(RULES)
        (pathlib.Path(app) / "app.toml").write_text(MANIFEST + ("" if is_cluster else TABLES))
        replicas = "all" if len(names) == 1 else "2"
        with Nodes(arguments.program, app, arguments.servers_port, replicas, names=names) as nodes:
            if is_cluster:
                nodes.start_all()
            else:
                nodes.start_alone(names[0])
                nodes.wait(names[0], lambda: nodes.sql(names[0], "SELECT 1 AS n"))
            warm = arguments.events // 4 // BATCH * BATCH
            send(nodes, names, bodies(0, warm))
            wait_counted(nodes, names[0], warm)
            time.sleep(arguments.settle)
            # those that came last get their partitions after a while
            nodes.wait(names[0], lambda: not is_cluster or set(nodes.owners(names[0])) == set(names))
            batches = bodies(warm, arguments.events)
            count = len(batches) * BATCH
            before = [cpu_seconds(nodes.processes[name]) for name in names]
            threads = [cpu_by_thread(nodes.processes[name]) for name in names]
            start = time.monotonic()
            send(nodes, names, batches)
            wait_counted(nodes, names[0], warm + count)
            seconds = time.monotonic() - start
            after = [cpu_seconds(nodes.processes[name]) for name in names]
            if arguments.threads:
                for name, former in zip(names, threads):
                    taken = cpu_by_thread(nodes.processes[name]) - former
                    print(f"  node {name}:", ", ".join(f"{thread} {s * 1e6 / count:.2f}" for thread, s in taken.most_common(12)))
            memory = max(resident_mib(nodes.processes[name]) for name in names)
            return [(b - a) * 1e6 / count for a, b in zip(before, after)], count / seconds, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--settle", type=float, default=10.0, help="seconds between the first events and those that are measured")
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 3, 4], help="numbers of nodes")
    parser.add_argument("--threads", action="store_true", help="also print the CPU time by names of threads")
    parser.add_argument("--servers-port", type=int, default=27300)
    arguments = parser.parse_args()
    kinds = [("single process", NAMES[:1], False)] + [(f"cluster of {n}", NAMES[:n], True) for n in arguments.nodes]
    found = {kind: [] for kind, *_ in kinds}
    for run in range(arguments.runs):
        for kind, names, is_cluster in kinds:
            each, rate, memory = measure(arguments, names, is_cluster)
            found[kind].append(sum(each))
            shown = ", ".join(f"{micros:.2f}" for micros in each)
            print(f"run {run + 1}, {kind}: CPU µs for an event {sum(each):.2f} ({shown}), {rate:,.0f} events/s, {memory:.0f} MiB", flush=True)
    single = statistics.median(found["single process"])
    for kind, _, _ in kinds:
        values = found[kind]
        print(
            f"{kind}: {statistics.median(values):.2f} µs ({min(values):.2f} to {max(values):.2f}), {statistics.median(values) / single:.2f} of the single process"
        )


if __name__ == "__main__":
    main()
