"""QuestDB from Maven Central on Java 17; line protocol over HTTP, a request for each batch, acknowledged before it is synced."""
import http.client
import json
import pathlib
import shutil
import subprocess
import time
import urllib.parse

import psycopg

import feed

VERSION = "9.3.4"
HTTP_PORT, PG_PORT = 19000, 18812
TYPES = {"time": "TIMESTAMP", "int": "INT", "long": "LONG", "double": "DOUBLE", "string": "SYMBOL"}


def jar():
    """The program, fetched by Maven if it is not there yet."""
    path = pathlib.Path.home() / f".m2/repository/org/questdb/questdb/{VERSION}/questdb-{VERSION}.jar"
    if not path.exists():
        subprocess.run(
            ["mvn", "-q", "dependency:get", f"-Dartifact=org.questdb:questdb:{VERSION}", "-Dtransitive=false"],
            check=True, stdout=subprocess.DEVNULL)
    return path


class Peer:
    """Its tables have the truck's name as a symbol, which LATEST ON needs; other peers have its number."""

    def __init__(self, scratch):
        self.path = scratch / "peer-questdb"
        self.server = self.http = self.connection = None
        self.sent = 0

    def start(self):
        for program in ("java", "mvn"):
            if not shutil.which(program):
                raise SystemExit(f"{program} is missing: apt-get install openjdk-17-jre-headless maven")
        shutil.rmtree(self.path, ignore_errors=True)
        conf = self.path / "root" / "conf"
        conf.mkdir(parents=True)
        (conf / "server.conf").write_text(
            f"http.bind.to=127.0.0.1:{HTTP_PORT}\npg.net.bind.to=127.0.0.1:{PG_PORT}\n"
            "line.tcp.enabled=false\nhttp.min.enabled=false\ntelemetry.enabled=false\n")
        with open(self.path / "log", "wb") as log:
            self.server = subprocess.Popen(
                ["java", "-Xms1g", "-Xmx6g", "-p", str(jar()), "-m", "io.questdb/io.questdb.ServerMain",
                 "-d", str(self.path / "root")],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.wait_until_ready()
        self.http = http.client.HTTPConnection("127.0.0.1", HTTP_PORT)
        self.connection = psycopg.connect(
            f"host=127.0.0.1 port={PG_PORT} user=admin password=quest dbname=qdb", autocommit=True)

    def wait_until_ready(self):
        for _ in range(120):
            try:
                return self.execute("SELECT 1")
            except OSError:
                if self.server.poll() is not None:
                    break
                time.sleep(0.5)
        raise SystemExit(f"QuestDB does not start: {(self.path / 'log').read_text()[-500:]}")

    def stop(self):
        if self.connection:
            self.connection.close()
        if self.server:
            self.server.terminate()
            self.server.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def execute(self, sql):
        connection = http.client.HTTPConnection("127.0.0.1", HTTP_PORT)
        connection.request("GET", "/exec?query=" + urllib.parse.quote(sql))
        reply = connection.getresponse()
        body = json.loads(reply.read())
        if reply.status != 200:
            raise RuntimeError(body.get("error", body))
        return body.get("dataset")

    def create(self):
        for table in ("readings", "diagnostics"):
            columns = feed.sql_columns(table, TYPES).replace("tags_id INT", "name SYMBOL CAPACITY 1024")
            self.execute(f"CREATE TABLE {table} ({columns}) TIMESTAMP(time) PARTITION BY DAY WAL")
        columns = feed.sql_columns("tags", TYPES).replace("id INT, ", "", 1)
        self.execute(f"CREATE TABLE tags ({columns})")

    def encode(self, table, rows):
        if table == "tags":
            return rows
        lines = []
        for row in rows.to_pylist():
            at, truck = row.pop("time"), row.pop("tags_id")
            fields = ",".join(
                f"{name}={value}{'i' if name == 'status' else ''}"
                for name, value in row.items() if value is not None)
            tag = "" if truck is None else f",name=truck_{truck - 1}"
            lines.append(f"{table}{tag} {fields} {round(at.timestamp() * 1e6) * 1000}")
        return ("\n".join(lines) + "\n").encode()

    def insert(self, table, batch):
        if table == "tags":
            for row in batch.to_pylist():
                values = [f"'{v}'" if isinstance(v, str) else str(v) for name, v in row.items() if name != "id"]
                self.execute(f"INSERT INTO tags VALUES ({', '.join(values)})")
            return
        self.http.request("POST", "/write?precision=n", batch)
        reply = self.http.getresponse()
        body = reply.read()
        if reply.status not in (200, 204):
            raise RuntimeError(body)
        self.sent += batch.count(b"\n")

    def settle(self):
        """Waits until what is acknowledged is in the tables."""
        while self.count("readings") + self.count("diagnostics") < self.sent:
            time.sleep(0.02)

    def count(self, table):
        return self.execute(f"SELECT count() FROM {table}")[0][0]

    def bytes(self):
        """Blocks in use: files are allocated in advance."""
        names = self.execute("SELECT directoryName FROM tables() WHERE table_name IN ('readings', 'diagnostics')")
        blocks = 0
        for (name,) in names:
            directory = self.path / "root" / "db" / name
            blocks += sum(path.stat().st_blocks for path in directory.rglob("*") if path.is_file())
        return blocks * 512

    def query(self, sql):
        return self.connection.execute(sql).fetchall()

    def version(self):
        return f"QuestDB {VERSION}"
