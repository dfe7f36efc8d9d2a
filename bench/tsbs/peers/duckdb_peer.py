"""DuckDB with tables of its own; a commit, synced to the disk, for each batch."""
import duckdb

import feed

TYPES = {"time": "TIMESTAMP", "int": "INTEGER", "long": "BIGINT", "double": "DOUBLE", "string": "VARCHAR"}


class Peer:
    def __init__(self, scratch):
        self.path = scratch / "peer.duckdb"
        self.connection = None

    def start(self):
        self.remove()
        self.connection = duckdb.connect(str(self.path))

    def stop(self):
        if self.connection:
            self.connection.close()
        self.remove()

    def remove(self):
        for path in self.path.parent.glob(self.path.name + "*"):
            path.unlink()

    def create(self):
        for table in feed.COLUMNS:
            self.connection.execute(f"CREATE TABLE {table} ({feed.sql_columns(table, TYPES)})")

    def encode(self, table, rows):
        return rows

    def insert(self, table, batch):
        self.connection.register("batch", batch)
        self.connection.execute(f"INSERT INTO {table} SELECT * FROM batch")

    def settle(self):
        self.connection.execute("CHECKPOINT")

    def count(self, table):
        return self.query(f"SELECT count(*) FROM {table}")[0][0]

    def bytes(self):
        return sum(path.stat().st_size for path in self.path.parent.glob(self.path.name + "*"))

    def query(self, sql):
        return self.connection.execute(sql).fetchall()

    def version(self):
        return f"DuckDB {duckdb.__version__}"
