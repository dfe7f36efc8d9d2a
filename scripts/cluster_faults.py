#!/usr/bin/env python3
"""Breaks a cluster of three nodes in all ways that one machine allows, while clients write and read, and checks what they saw.

    scripts/cluster_faults.py target/release/tidemill --faults 100 --replicas 2 --seed 7

Starts Kafka and an object store by scripts/servers.sh, and three nodes on this machine. Faults come in an order that the seed decides, sometimes two
at once: nodes are killed or stopped for a while, the broker or the object store is stopped or restarted, nodes are cut off from the store or from
each other. Meanwhile clients send events, change documents and read at random nodes, and try a request again, at another node, until one
answers it. Checked are:

- a request that begins after a write was acknowledged sees the write, at any node;
- each acknowledged event and change is there at the end, once, at each node, with what rules make of it; ledgers balance;
- all nodes have the same documents, and an owner of each partition;
- with --watch, a change stream that is read at random nodes, and resumed at another one after a few seconds or an error, tells each change of a
  document once.

Needs what scripts/servers.sh needs; --watch needs PyMongo, which scripts/drivers.sh installs for itself below DRIVERS_DIR.
"""

import argparse
import collections
import json
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.error

from kill_nodes import RULES
from nodes import NAMES, Nodes

CLIENTS = 4
REQUEST_TIMEOUT_S = 30
# longest time that an operation may take until a node answers it, while at most two faults of at most 20 s are under way
OPERATION_LIMIT_S = 120
DOCUMENTS = 8


class Clients:
    """Threads that write and read until they are stopped."""

    def __init__(self, nodes, seed):
        self.nodes = nodes
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.events, self.changes = set(), collections.defaultdict(set)
        self.violations, self.slowest, self.failed = [], 0.0, collections.Counter()
        self.reads = 0
        self.threads = [
            threading.Thread(target=self._run, args=(number, random.Random(seed * 1000 + number)))
            for number in range(CLIENTS)
        ]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def _run(self, number, rng):
        count = 0
        while not self.stopping.is_set():
            count += 1
            one = f"{number}-{count}"
            try:
                if rng.random() < 0.5:
                    self._event(rng, one)
                else:
                    self._change(rng, one)
            except SystemExit as error:
                self.violations.append(str(error))
                return

    def _answered(self, rng, ask):
        """Asks random nodes until one answers."""
        start = time.monotonic()
        while True:
            try:
                name = rng.choice(NAMES)
                reply = ask(name)
                break
            except urllib.error.HTTPError as error:
                text = error.read().decode(errors="replace")
                with self.lock:
                    self.failed[error.code] += 1
                if error.code == 500:
                    print(f"  node {name} has an internal error: {text.strip()}", flush=True)
                if error.code in (400, 401, 403, 404):
                    raise SystemExit(f"node {name} refuses a good request: {error.code} {text}") from error
            except (OSError, ValueError) as error:
                with self.lock:
                    self.failed[type(error).__name__] += 1
            if time.monotonic() - start > OPERATION_LIMIT_S:
                raise SystemExit(f"no node answers in {OPERATION_LIMIT_S} s")
            time.sleep(0.05)
        with self.lock:
            self.slowest = max(self.slowest, time.monotonic() - start)
        return reply

    def _event(self, rng, one):
        event = {"id": f"o{one}", "customer": f"c{rng.randrange(10)}", "amount": rng.randrange(4) * 50}
        body = (json.dumps(event) + "\n").encode()
        self._answered(rng, lambda name: self.nodes.request(name, "/api/v1/streams/Order", body, timeout=REQUEST_TIMEOUT_S))
        with self.lock:
            self.events.add(event["id"])
        if rng.random() < 0.2:
            query = f"SELECT count(*) AS n FROM events.\"Order\" WHERE id = '{event['id']}'"
            found = self._answered(rng, lambda name: (name, self.nodes.sql(name, query, REQUEST_TIMEOUT_S)))
            self._check(found[1][0]["n"] == 1, f"node {found[0]} has {found[1][0]['n']} of the acknowledged event {event['id']}")

    def _change(self, rng, one):
        key = f"d{rng.randrange(DOCUMENTS)}"
        path = f"/api/v1/collections/Account/documents/{key}"
        body = json.dumps({"filter": {"_id": key}, "update": {"$set": {f"changes.w{one}": True}}, "upsert": True}).encode()
        self._answered(
            rng,
            lambda name: self.nodes.request(
                name, "/api/v1/collections/Account/update", body, "application/json", REQUEST_TIMEOUT_S
            ),
        )
        with self.lock:
            self.changes[key].add(f"w{one}")
        read = self._answered(rng, lambda name: (name, self.nodes.request(name, path, timeout=REQUEST_TIMEOUT_S)))
        self._check(
            f"w{one}" in read[1].get("changes", {}),
            f"node {read[0]} does not show the acknowledged change w{one} of {key}",
        )

    def _check(self, holds, message):
        with self.lock:
            self.reads += 1
            if not holds:
                self.violations.append(message)


class Watcher:
    """A reader of the changes of the documents, at one node after the other."""

    def __init__(self, nodes, seed):
        try:
            import pymongo
        except ImportError:
            raise SystemExit(
                "--watch needs PyMongo: run this script by ~/.cache/tidemill/drivers/venv/bin/python after scripts/drivers.sh"
            ) from None
        self.pymongo = pymongo
        self.nodes, self.rng = nodes, random.Random(seed)
        self.told = collections.Counter()
        self.token, self.opened, self.failed = None, 0, collections.Counter()
        self.violation = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def start(self):
        # documents that are there keep the first event of each from being an insert
        self._follow(NAMES[0], 0.5)
        if self.token is None:
            raise SystemExit(f"the change stream does not begin: {dict(self.failed)}")
        self.thread.start()

    def stop(self, enough):
        """Stops when `enough` says so of what was told, or nothing more comes."""
        deadline = time.monotonic() + 120
        while not enough(self.told) and self.violation is None and time.monotonic() < deadline:
            time.sleep(0.2)
        self.stopping.set()
        self.thread.join()

    def _run(self):
        while not self.stopping.is_set() and self.violation is None:
            self._follow(self.rng.choice(NAMES), self.rng.uniform(0.5, 6))

    def _follow(self, name, seconds):
        until = time.monotonic() + seconds
        try:
            with self.pymongo.MongoClient(
                "127.0.0.1",
                self.nodes.mongo_ports[name],
                username="admin",
                password=self.nodes.token(name),
                directConnection=True,
                serverSelectionTimeoutMS=3000,
                socketTimeoutMS=10000,
            ) as client:
                collection = client["docs"]["Account"]
                with collection.watch(resume_after=self.token, max_await_time_ms=300) as stream:
                    self.opened += 1
                    while time.monotonic() < until and not self.stopping.is_set():
                        event = stream.try_next()
                        self.token = stream.resume_token
                        if event is not None:
                            self._take(event)
        except self.pymongo.errors.OperationFailure as error:
            self.failed[error.code] += 1
            if error.code in (260, 286, 40573):
                self.violation = f"node {name} does not resume the change stream: {error}"
            time.sleep(0.2)
        except (self.pymongo.errors.PyMongoError, OSError) as error:
            self.failed[type(error).__name__] += 1
            time.sleep(0.2)

    def _take(self, event):
        if event["operationType"] == "insert":
            changed = [f"changes.{one}" for one in event["fullDocument"].get("changes", {})]
        else:
            changed = event["updateDescription"]["updatedFields"]
            # the first change of a document makes the field that has all of them
            if isinstance(changed.get("changes"), dict):
                changed = [f"changes.{one}" for one in changed["changes"]]
        for field in changed:
            self.told[field.removeprefix("changes.")] += 1

    def check(self, changes):
        """Returns what is wrong with what was told of these acknowledged changes."""
        lost = sorted(one for all_of in changes.values() for one in all_of if self.told[one] == 0)
        doubled = sorted(one for one, count in self.told.items() if count > 1)
        wrong = [self.violation] if self.violation else []
        if lost or doubled:
            wrong.append(f"the change stream: lost {lost[:10]}, more than once {doubled[:10]}")
        return wrong


class Faults:
    """Faults of one cluster, each with its end."""

    def __init__(self, nodes, rng, longest_s):
        self.nodes, self.rng, self.longest_s = nodes, rng, longest_s
        self.counts = collections.Counter()
        self.busy = set()

    def kinds(self):
        kinds = ["kill a node", "stop a node", "stop the broker", "restart the broker", "stop the store", "restart the store", "cut off the store"]
        return kinds + (["cut off from others"] if self.nodes.replicas != "all" else [])

    def choose(self):
        """Returns a fault and its object, which no other fault has at the moment."""
        while True:
            kind = self.rng.choice(self.kinds())
            target = "kafka" if "broker" in kind else "s3" if kind.endswith("the store") and "cut" not in kind else self.rng.choice(NAMES)
            if target not in self.busy:
                return kind, target

    def run(self, kind, target):
        seconds = self.rng.uniform(0.5, self.longest_s)
        self.counts[kind] += 1
        self.busy.add(target)
        print(f"  {kind} ({target}), {seconds:.1f} s", flush=True)
        getattr(self, "_" + kind.replace(" ", "_"))(target, seconds)
        self.busy.discard(target)

    def _kill_a_node(self, name, seconds):
        self.nodes.kill(name)
        time.sleep(seconds)
        self.nodes.start(name)

    def _stop_a_node(self, name, seconds):
        self.nodes.send_signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        self.nodes.send_signal(name, signal.SIGCONT)

    def _stop_the_broker(self, server, seconds):
        self.nodes.send_signal_to_server(server, signal.SIGSTOP)
        time.sleep(seconds)
        self.nodes.send_signal_to_server(server, signal.SIGCONT)

    _stop_the_store = _stop_the_broker

    def _restart_the_broker(self, server, _):
        self.nodes.restart_server(server)

    _restart_the_store = _restart_the_broker

    def _cut_off_the_store(self, name, seconds):
        self._cut(self.nodes.store_links[name], seconds)

    def _cut_off_from_others(self, name, seconds):
        self._cut(self.nodes.peer_links[name], seconds)

    def _cut(self, link, seconds):
        link.state = self.rng.choice(["silent", "refused"])
        time.sleep(seconds)
        link.state = "open"


def break_things(nodes, arguments, rng, clients):
    faults = Faults(nodes, rng, arguments.longest)
    number = 0
    while number < arguments.faults and not clients.violations:
        together = 2 if rng.random() < arguments.pairs else 1
        threads = []
        for _ in range(together):
            kind, target = faults.choose()
            faults.busy.add(target)
            threads.append(threading.Thread(target=faults.run, args=(kind, target)))
        number += together
        print(f"fault {number} of {arguments.faults}", flush=True)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in NAMES:
            if nodes.processes[name].poll() is not None:
                clients.violations.append(f"node {name} has ended by itself: see its log")
                return faults
        if rng.random() < 0.5:
            for name in NAMES:
                nodes.wait_ready(name)
        time.sleep(rng.uniform(0, 2))
    return faults


def check_end(nodes, clients):
    """Returns what is wrong when all faults have ended and all nodes are well."""
    wrong = list(clients.violations)
    events, changes = clients.events, clients.changes
    documents = {}
    for name in NAMES:
        nodes.wait_ready(name)
        rows = nodes.sql(name, 'SELECT id, count(*) AS n FROM events."Order" GROUP BY id')
        ids = {row["id"]: row["n"] for row in rows}
        lost = sorted(events - set(ids))
        doubled = sorted(one for one, n in ids.items() if n != 1)
        if lost or doubled:
            wrong.append(f"node {name}: lost {lost[:10]}, more than once {doubled[:10]}")
        total = lambda: nodes.sql(name, 'SELECT count(*) AS n FROM events."Audit"')[0]["n"]
        nodes.wait(name, lambda: total() >= len(ids))
        counted = lambda: nodes.sql(name, 'SELECT sum(n) AS n FROM docs."Total"')[0]["n"]
        nodes.wait(name, lambda: counted() >= len(ids))
        if (total(), counted()) != (len(ids), len(ids)):
            wrong.append(f"node {name}: {len(ids)} events, {total()} audits, counted {counted()}")
        unbalanced = nodes.sql(name, "SELECT * FROM system.ledger WHERE NOT balanced")
        wrong += [f"node {name}: this ledger does not balance: {row}" for row in unbalanced]
        found = nodes.request(name, "/api/v1/collections/Account/find", b"{}", "application/json")["documents"]
        documents[name] = {document["_id"]: sorted(document["changes"]) for document in found}
        for key, acknowledged in changes.items():
            missing = sorted(acknowledged - set(documents[name].get(key, [])))
            if missing:
                wrong.append(f"node {name}: {key} lacks acknowledged changes {missing[:10]}")
    if any(documents[name] != documents[NAMES[0]] for name in NAMES):
        wrong.append("nodes differ in their documents")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--pairs", type=float, default=0.3, help="share of turns with two faults at once")
    parser.add_argument("--longest", type=float, default=10.0, help="longest time of a fault in seconds")
    parser.add_argument("--replicas", default="all", choices=["all", "2"])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--watch", action="store_true", help="follow the changes of documents, too")
    parser.add_argument("--servers-port", type=int, default=27300)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="tidemill-shop-") as app,
        Nodes(arguments.program, app, arguments.servers_port, arguments.replicas, links=True) as nodes,
    ):
        (pathlib.Path(app) / "shop.rules").write_text(RULES + "entity Account key id;\n")
        nodes.start_all()
        clients = Clients(nodes, arguments.seed)
        watcher = Watcher(nodes, arguments.seed) if arguments.watch else None
        if watcher:
            watcher.start()
        clients.start()
        try:
            faults = break_things(nodes, arguments, random.Random(arguments.seed), clients)
        finally:
            clients.stop()
            if watcher:
                written = {one for all_of in clients.changes.values() for one in all_of}
                watcher.stop(lambda told: written <= set(told))
        wrong = check_end(nodes, clients)
        if watcher:
            wrong += watcher.check(clients.changes)
            told = sum(watcher.told.values())
            print(f"change stream: opened {watcher.opened} times, {told} changes told, errors {dict(watcher.failed)}")
        changes = sum(len(one) for one in clients.changes.values())
        print(f"faults: {dict(sorted(faults.counts.items()))}")
        print(f"{len(clients.events)} events and {changes} changes acknowledged, {clients.reads} reads checked")
        print(f"slowest operation: {clients.slowest:.1f} s; requests tried again: {dict(clients.failed)}")
        if wrong:
            raise SystemExit("\n".join(wrong))
    print("nothing lost, doubled, stale or different")


if __name__ == "__main__":
    main()
