#!/usr/bin/env python3
"""Kills nodes of a cluster of three, one after the other, and measures how long the others take to take over.

    scripts/kill_nodes.py target/release/tidemill --kills 25 --replicas 2

Starts Kafka and an object store by scripts/servers.sh, and three nodes on this machine. Before and after each kill, events are sent to the nodes that
are left; at the end each event must be there once, with what rules make of it. Needs what scripts/servers.sh needs.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from nodes import NAMES, Nodes

RULES = """
event Order { id: string, customer: string, amount: double } key customer id id;
event Audit { amount_class: string, order: string } key amount_class;
entity Total key id;
relation Audit.total(): Total by amount_class;
rule BigOne { when { o: Order(amount >= 100); } then { emit Audit { amount_class: "big", order: o.id }; } }
rule SmallOne { when { o: Order(amount < 100); } then { emit Audit { amount_class: "small", order: o.id }; } }
rule Audited priority 1 { when { a: Audit(); t: a.total(); } then { update t.n += 1; } }
rule FirstAudit { when { a: Audit(); not a.total(); } then { insert Total { id: a.amount_class, n: 1 }; } }
"""


def send(nodes, name, first, count):
    orders = [{"id": f"o{i}", "customer": f"c{i % 10}", "amount": i % 4 * 50} for i in range(first, first + count)]
    body = "".join(json.dumps(order) + "\n" for order in orders)
    nodes.request(name, "/api/v1/streams/Order?wait=true", body.encode())


def kill(nodes, number, sent):
    """Kills the owner of a partition. Returns the times until its partitions have owners, and until all that rules emit is there."""
    name = NAMES[number % len(NAMES)]
    nodes.wait_ready(name)
    owner = nodes.owners(name)[number % 4]
    left = [other for other in NAMES if other != owner]
    send(nodes, left[0], sent, 5)
    nodes.kill(owner)
    start = time.monotonic()
    send(nodes, left[1], sent + 5, 5)
    nodes.wait(left[0], lambda: all(one in left for one in nodes.owners(left[0])))
    owned = time.monotonic() - start
    audits = "SELECT count(*) AS n FROM events.\"Audit\""
    nodes.wait(left[0], lambda: nodes.sql(left[0], audits)[0]["n"] == sent + 10)
    done = time.monotonic() - start
    nodes.start(owner)
    nodes.wait_ready(owner)
    return owned, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--replicas", default="all", choices=["all", "2"])
    parser.add_argument("--servers-port", type=int, default=27300)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="tidemill-shop-") as app,
        Nodes(arguments.program, app, arguments.servers_port, arguments.replicas) as nodes,
    ):
        (pathlib.Path(app) / "shop.rules").write_text(RULES)
        nodes.start_all()
        times = [kill(nodes, number, number * 10) for number in range(arguments.kills)]
        events = arguments.kills * 10
        for name in NAMES:
            counts = nodes.sql(name, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM events.\"Order\"")[0]
            total = nodes.sql(name, "SELECT sum(n) AS n FROM docs.\"Total\"")[0]["n"]
            if (counts["n"], counts["ids"], total) != (events, events, events):
                sys.exit(f"node {name}: of {events} events {counts}, counted {total}")
    for what, seconds in zip(("all partitions have owners", "all effects are there"), zip(*times)):
        slow = sorted(seconds)[min(len(seconds) * 99 // 100, len(seconds) - 1)]
        print(f"{what}: median {statistics.median(seconds):.2f} s, p99 {slow:.2f} s, at most {max(seconds):.2f} s, {len(seconds)} kills")
    print(f"{events} events, each once on each node")


if __name__ == "__main__":
    main()
