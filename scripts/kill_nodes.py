#!/usr/bin/env python3
"""Kills nodes of a cluster of three, one after the other, and measures how long the others take to take over.

    scripts/kill_nodes.py target/release/tidemill --kills 25

Starts Kafka and an object store by scripts/servers.sh, and three nodes on this machine. Before and after each kill, events are sent to the nodes that
are left; at the end each event must be there once, with what rules make of it. Needs what scripts/servers.sh needs.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
NODES = ("a", "b", "c")
PATIENCE_S = 60
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


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Cluster:
    """Three nodes, and the servers that they need."""

    def __init__(self, program, place):
        self.program, self.place = program, place
        self.ports = {name: free_port() for name in NODES}
        self.processes = {}
        (place / "app").mkdir()
        (place / "app/shop.rules").write_text(RULES)
        servers = dict(os.environ, SERVERS_DIR=str(place / "servers"), SERVERS_PORT="27300")
        self.script = lambda *words: subprocess.run(
            [ROOT / "scripts/servers.sh", *words], env=servers, check=True, capture_output=True, text=True
        ).stdout
        lines = self.script("start", "kafka", "s3").split()
        self.addresses = dict(line.split("=", 1) for line in lines)

    def start(self, name):
        environment = dict(
            os.environ,
            AWS_ENDPOINT=self.addresses["SERVERS_S3"],
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="tidemill",
            AWS_SECRET_ACCESS_KEY="tidemill",
        )
        address = f"127.0.0.1:{self.ports[name]}"
        command = [self.program, "run", self.place / "app", "--data", self.place / name, "--node", name]
        command += ["--cluster", f"kafka://{self.addresses['SERVERS_KAFKA']}/kills?replication=1"]
        command += ["--store", "s3://tidemill/kills", "--unsafe-single-broker"]
        command += ["--listen", address, "--advertise", address, "--mongo", "off"]
        log = open(self.place / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def request(self, name, path, body=None, kind="application/x-ndjson"):
        token = (self.place / name / "token").read_text().strip()
        headers = {"authorization": f"Bearer {token}", "content-type": kind}
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=PATIENCE_S) as reply:
            return json.load(reply)

    def sql(self, name, query):
        return self.request(name, "/api/v1/sql?format=json", query.encode(), "text/plain")

    def send(self, name, first, count):
        orders = [{"id": f"o{i}", "customer": f"c{i % 10}", "amount": i % 4 * 50} for i in range(first, first + count)]
        body = "".join(json.dumps(order) + "\n" for order in orders)
        self.request(name, "/api/v1/streams/Order?wait=true", body.encode())

    def owners(self, name):
        return [partition["owner"] for partition in self.request(name, "/api/v1/cluster")["partitions"]]

    def wait(self, name, is_so):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if is_so():
                    return
            except OSError:
                pass  # it does not listen yet
            if time.monotonic() > deadline:
                sys.exit(f"node {name} does not get there in {PATIENCE_S} s: see {self.place}")
            time.sleep(0.02)

    def wait_ready(self, name):
        self.wait(name, lambda: len(self.request(name, "/api/v1/cluster")["members"]) == len(NODES) and all(self.owners(name)))

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()
        self.script("wipe")


def kill(cluster, number, sent):
    """Kills the owner of a partition. Returns the times until its partitions have owners, and until all that rules emit is there."""
    name = NODES[number % len(NODES)]
    cluster.wait_ready(name)
    owner = cluster.owners(name)[number % 4]
    left = [other for other in NODES if other != owner]
    cluster.send(left[0], sent, 5)
    cluster.processes[owner].kill()
    start = time.monotonic()
    cluster.processes[owner].wait()
    cluster.send(left[1], sent + 5, 5)
    cluster.wait(left[0], lambda: all(one in left for one in cluster.owners(left[0])))
    owned = time.monotonic() - start
    audits = "SELECT count(*) AS n FROM events.\"Audit\""
    cluster.wait(left[0], lambda: cluster.sql(left[0], audits)[0]["n"] == sent + 10)
    done = time.monotonic() - start
    cluster.start(owner)
    cluster.wait_ready(owner)
    return owned, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=25)
    arguments = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="tidemill-nodes-"))
    cluster = Cluster(os.path.abspath(arguments.program), place)
    try:
        for name in NODES:
            cluster.start(name)
        for name in NODES:
            cluster.wait_ready(name)
        times = [kill(cluster, number, number * 10) for number in range(arguments.kills)]
        events = arguments.kills * 10
        for name in NODES:
            counts = cluster.sql(name, "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM events.\"Order\"")[0]
            total = cluster.sql(name, "SELECT sum(n) AS n FROM docs.\"Total\"")[0]["n"]
            if (counts["n"], counts["ids"], total) != (events, events, events):
                sys.exit(f"node {name}: of {events} events {counts}, counted {total}: see {place}")
    finally:
        cluster.stop()
    shutil.rmtree(place)
    for what, seconds in zip(("all partitions have owners", "all effects are there"), zip(*times)):
        print(f"{what}: median {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s, {len(seconds)} kills")
    print(f"{events} events, each once on each node")


if __name__ == "__main__":
    main()
