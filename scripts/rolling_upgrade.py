#!/usr/bin/env python3
"""Replaces the program of a cluster's three nodes, one after the other, by another build, while clients write and read.

    scripts/rolling_upgrade.py former/tidemill target/release/tidemill --replicas 2 --rounds 2

Starts Kafka and an object store by scripts/servers.sh. Each node is stopped in order (SIGTERM), and started again with the other build and the same data
directory; each round goes to the other build and back. Clients and checks are those of scripts/cluster_faults.py: each acknowledged event and change is
there at the end, once, at each node, no read is stale, ledgers balance, and all nodes have the same documents. Told are also the longest time that an
operation took, and the answers other than success; a client that happens to ask the node that is away asks another one.
"""

import argparse
import pathlib
import signal
import tempfile
import time

from cluster_faults import Clients, check_end
from kill_nodes import RULES
from nodes import NAMES, Nodes, PATIENCE_S

SETTLE_S = 3


def replace(nodes, name, program):
    """Stops a node and starts it with this program. Returns the seconds until it has ended, and until it is ready again."""
    process = nodes.processes.pop(name)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(PATIENCE_S)
    ended = time.monotonic() - start
    if code != 0:
        raise SystemExit(f"node {name} has ended with {code}: see its log in {nodes.place}")
    nodes.program = program
    nodes.start(name)
    nodes.wait_ready(name)
    return ended, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("former", help="program with which the nodes begin")
    parser.add_argument("program", help="program that takes its place")
    parser.add_argument("--replicas", default="all", choices=["all", "2"])
    parser.add_argument("--rounds", type=int, default=1, help="times that all nodes get the other build, and then the former one again")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--servers-port", type=int, default=27300)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    builds = [str(pathlib.Path(build).resolve()) for build in (arguments.former, arguments.program)]
    with (
        tempfile.TemporaryDirectory(prefix="tidemill-shop-") as app,
        Nodes(builds[0], app, arguments.servers_port, arguments.replicas) as nodes,
    ):
        (pathlib.Path(app) / "shop.rules").write_text(RULES + "entity Account key id;\n")
        nodes.start_all()
        clients = Clients(nodes, arguments.seed)
        clients.start()
        replaced = []
        try:
            time.sleep(SETTLE_S)
            for step in range(2 * arguments.rounds):
                for name in NAMES:
                    replaced.append(replace(nodes, name, builds[(step + 1) % 2]))
                    print(f"node {name} has build {(step + 1) % 2 + 1}: ended after {replaced[-1][0]:.1f} s, ready after {replaced[-1][1]:.1f} s", flush=True)
                    time.sleep(SETTLE_S)
        finally:
            clients.stop()
        wrong = check_end(nodes, clients)
        changes = sum(len(one) for one in clients.changes.values())
        print(f"{len(replaced)} nodes replaced, slowest end {max(e for e, _ in replaced):.1f} s, slowest start {max(r for _, r in replaced):.1f} s")
        print(f"{len(clients.events)} events and {changes} changes acknowledged, {clients.reads} reads checked")
        print(f"slowest operation: {clients.slowest:.2f} s; requests tried again: {dict(clients.failed)}")
        if wrong:
            raise SystemExit("\n".join(wrong))
    print("nothing lost, doubled, stale or different")


if __name__ == "__main__":
    main()
