"""Three nodes of a cluster on this machine, with the Kafka and the object store that they need, for scripts that try one.

    with Nodes("target/release/tidemill", "examples/flights", servers_port=27300) as nodes:
        nodes.start_all()
        nodes.sql("a", "SELECT 1 AS n")
        nodes.kill("b")

Everything is below a temporary directory, which is left there if the block fails. Needs what scripts/servers.sh needs.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from links import Link

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ("a", "b", "c")
PATIENCE_S = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Nodes:
    """Nodes by name, of which some run. With `links`, each node reaches the object store, and is reached by the other
    nodes, through links that can be cut: `store_links` and `peer_links` by name."""

    def __init__(self, program, app, servers_port, replicas="all", links=False, names=NAMES):
        self.names = names
        self.replicas = replicas
        self.links = links
        self.program, self.app = os.path.abspath(program), os.path.abspath(app)
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="tidemill-nodes-"))
        self.ports = {name: free_port() for name in names}
        self.mongo_ports = {name: free_port() for name in names}
        self.processes = {}
        self.servers = dict(os.environ, SERVERS_DIR=str(self.place / "servers"), SERVERS_PORT=str(servers_port))

    def __enter__(self):
        try:
            lines = self._servers("start", "kafka", "s3").split()
        except subprocess.CalledProcessError as error:
            sys.exit(f"the servers do not start: {error.stderr.strip()}")
        self.addresses = dict(line.split("=", 1) for line in lines)
        store_port = int(self.addresses["SERVERS_S3"].rsplit(":", 1)[1])
        self.peer_ports = {name: free_port() for name in self.names}
        self.store_links = {name: Link(store_port) for name in self.names} if self.links else {}
        self.peer_links = {name: Link(self.peer_ports[name]) for name in self.names} if self.links else {}
        return self

    def __exit__(self, failure, *_):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            process.wait()
        if failure is None:
            self._servers("wipe")
            shutil.rmtree(self.place)
        else:
            self._servers("stop")
            print(f"what is left of the nodes: {self.place}", file=sys.stderr)

    def _servers(self, *words):
        command = [ROOT / "scripts/servers.sh", *words]
        return subprocess.run(command, env=self.servers, check=True, capture_output=True, text=True).stdout

    def start(self, name):
        address = f"127.0.0.1:{self.ports[name]}"
        options = ["--node", name, "--cluster", f"kafka://{self.addresses['SERVERS_KAFKA']}/nodes?replication=1"]
        options += ["--store", "s3://tidemill/nodes", "--unsafe-single-broker", "--advertise", address]
        if self.replicas != "all":
            secret = self.place / "secret"
            secret.write_text("nodes of one machine")
            options += ["--replicas", self.replicas, "--peers-secret", secret]
            options += ["--peers", f"127.0.0.1:{self.peer_ports[name] if self.links else 0}"]
            if self.links:
                options += ["--peers-advertise", f"127.0.0.1:{self.peer_links[name].port}"]
        self._run(name, options)

    def start_alone(self, name):
        """Starts a process that is no node of a cluster, with its log in Kafka, and its tables and state in the object store."""
        options = ["--log", f"kafka://{self.addresses['SERVERS_KAFKA']}/alone?replication=1", "--state", "s3://tidemill/alone-state"]
        self._run(name, options)

    def _run(self, name, options):
        environment = dict(
            os.environ,
            AWS_ENDPOINT=f"http://127.0.0.1:{self.store_links[name].port}" if self.links else self.addresses["SERVERS_S3"],
            AWS_ALLOW_HTTP="true",
            AWS_ACCESS_KEY_ID="tidemill",
            AWS_SECRET_ACCESS_KEY="tidemill",
        )
        command = [self.program, "run", self.app, "--data", self.place / name, *options]
        command += ["--listen", f"127.0.0.1:{self.ports[name]}", "--mongo", f"127.0.0.1:{self.mongo_ports[name]}"]
        with open(self.place / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def start_all(self):
        for name in self.names:
            self.start(name)
        for name in self.names:
            self.wait_ready(name)

    def kill(self, name):
        """Ends a node as the loss of its machine does."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def send_signal(self, name, number):
        self.processes[name].send_signal(number)

    def send_signal_to_server(self, name, number):
        """Sends a signal to `kafka` or `s3`."""
        place = self.place / "servers" / name
        pid = place / ("broker-1/pid" if name == "kafka" else "pid")
        os.kill(int(pid.read_text()), number)

    def restart_server(self, name):
        """Ends a server as a crash does, and starts it again with its data."""
        self._servers("kill", name)
        self._servers("start", name)

    def request(self, name, path, body=None, kind="application/x-ndjson", timeout=PATIENCE_S):
        return json.loads(self._reply(name, path, body, kind, timeout))

    def token(self, name):
        return (self.place / name / "token").read_text().strip()

    def _reply(self, name, path, body, kind, timeout=PATIENCE_S):
        headers = {"authorization": f"Bearer {self.token(name)}", "content-type": kind}
        url = f"http://127.0.0.1:{self.ports[name]}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=timeout) as reply:
            return reply.read()

    def metric(self, name, metric):
        """Returns the sum of a metric over its labels."""
        lines = self._reply(name, "/metrics", None, "text/plain").decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric))

    def sql(self, name, query, timeout=PATIENCE_S):
        return self.request(name, "/api/v1/sql?format=json", query.encode(), "text/plain", timeout)

    def owners(self, name):
        """Returns the owner of each partition, as a node knows it."""
        return [partition["owner"] for partition in self.request(name, "/api/v1/cluster")["partitions"]]

    def wait(self, name, is_so):
        """Waits until a condition holds that asks a node."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if is_so():
                    return
            except OSError as error:
                # it does not listen yet, or does not answer in time
                if time.monotonic() > deadline:
                    raise SystemExit(f"node {name} does not answer in {PATIENCE_S} s: {error}") from error
            for other, process in list(self.processes.items()):
                if process.poll() is not None:
                    raise SystemExit(f"node {other} has ended: see {self.place}/{other}.log")
            if time.monotonic() > deadline:
                raise SystemExit(f"node {name} does not get there in {PATIENCE_S} s")
            time.sleep(0.02)

    def wait_ready(self, name):
        """Waits until a node knows all the others, and an owner of each partition."""
        members = lambda: self.request(name, "/api/v1/cluster")["members"]
        self.wait(name, lambda: len(members()) == len(self.names) and all(self.owners(name)))
