"""PostgreSQL with an index by truck and time, a commit for each batch; started on a data directory of its own."""
import getpass
import glob
import io
import os
import shutil
import subprocess

import psycopg
import pyarrow.csv

import feed

TYPES = {"time": "TIMESTAMPTZ", "int": "INTEGER", "long": "BIGINT", "double": "DOUBLE PRECISION", "string": "TEXT"}
PORT = 54399
SETTINGS = {
    "port": PORT, "listen_addresses": "'127.0.0.1'", "shared_buffers": "'4GB'", "effective_cache_size": "'10GB'",
    "work_mem": "'64MB'", "max_wal_size": "'8GB'", "timezone": "'UTC'",
}


def programs():
    """The directory of initdb and pg_ctl."""
    found = shutil.which("initdb")
    if found:
        return os.path.dirname(os.path.realpath(found))
    versions = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    if not versions:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    return versions[-1]


class Peer:
    def __init__(self, scratch):
        self.path = scratch / "peer-postgres"
        self.connection = None
        self.started = False

    def run(self, *command):
        """Runs a program of PostgreSQL, which refuses to run as root."""
        command = [f"{programs()}/{command[0]}", *command[1:]]
        if getpass.getuser() == "root":
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def start(self):
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir()
        if getpass.getuser() == "root":
            shutil.chown(self.path, "postgres")
        data = str(self.path / "data")
        self.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8")
        with open(self.path / "data" / "postgresql.conf", "a", encoding="utf-8") as conf:
            conf.write(f"unix_socket_directories = '{self.path}'\n")
            conf.writelines(f"{name} = {value}\n" for name, value in SETTINGS.items())
        self.run("pg_ctl", "-D", data, "-l", str(self.path / "log"), "-w", "start")
        self.started = True
        self.connection = psycopg.connect(
            f"host=127.0.0.1 port={PORT} user=postgres dbname=postgres", autocommit=True)

    def stop(self):
        if self.connection:
            self.connection.close()
        if self.started:
            self.run("pg_ctl", "-D", str(self.path / "data"), "-m", "fast", "-w", "stop")
        shutil.rmtree(self.path, ignore_errors=True)

    def create(self):
        for table in feed.COLUMNS:
            self.connection.execute(f"CREATE TABLE {table} ({feed.sql_columns(table, TYPES)})")
            if table == "tags":
                self.connection.execute("ALTER TABLE tags ADD PRIMARY KEY (id)")
                self.connection.execute("CREATE INDEX ON tags (name)")
            else:
                self.connection.execute(f"CREATE INDEX ON {table} (tags_id, time DESC)")
                self.connection.execute(f"CREATE INDEX ON {table} (time DESC)")

    def encode(self, table, rows):
        out = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
        pyarrow.csv.write_csv(rows, out, options)
        return out.getvalue()

    def insert(self, table, batch):
        with self.connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
            copy.write(batch)

    def settle(self):
        self.connection.execute("VACUUM ANALYZE")
        self.connection.execute("CHECKPOINT")

    def count(self, table):
        return self.query(f"SELECT count(*) FROM {table}")[0][0]

    def bytes(self):
        return self.query("SELECT pg_database_size(current_database())")[0][0]

    def query(self, sql):
        return self.connection.execute(sql).fetchall()

    def version(self):
        return f"PostgreSQL {self.query('SHOW server_version')[0][0].split()[0]}"
