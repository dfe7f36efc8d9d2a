"""ClickHouse in process (chdb), tables sorted by truck and time; like ClickHouse's default, inserts are not synced to the disk."""
import datetime
import shutil

import pyarrow
from chdb import session

import feed

TYPES = {"time": "DateTime64(6, 'UTC')", "int": "Int32", "long": "Nullable(Int64)", "double": "Nullable(Float64)",
         "string": "String"}


class Peer:
    def __init__(self, scratch):
        self.path = scratch / "peer-clickhouse"
        self.session = None

    def start(self):
        shutil.rmtree(self.path, ignore_errors=True)
        self.session = session.Session(str(self.path))
        self.session.query("CREATE DATABASE trucks ENGINE = Atomic")
        self.session.query("USE trucks")

    def stop(self):
        if self.session:
            self.session.close()
        shutil.rmtree(self.path, ignore_errors=True)

    def create(self):
        for table in feed.COLUMNS:
            order = "id" if table == "tags" else "(tags_id, time)"
            columns = feed.sql_columns(table, TYPES)
            self.session.query(f"CREATE TABLE {table} ({columns}) ENGINE = MergeTree ORDER BY {order}")

    def encode(self, table, rows):
        return rows

    def insert(self, table, batch):
        # a sorting key cannot be null; no truck has the id 0, so that joins drop these rows as they drop null
        names = ["ifNull(tags_id, 0)" if name == "tags_id" else name for name in batch.column_names]
        self.session.query(f"INSERT INTO {table} SELECT {', '.join(names)} FROM Python(batch)")

    def settle(self):
        for table in ("readings", "diagnostics"):
            self.session.query(f"OPTIMIZE TABLE {table} FINAL")

    def count(self, table):
        return self.query(f"SELECT count() FROM {table}")[0][0]

    def bytes(self):
        parts = "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'trucks'"
        return int(self.query(parts)[0][0])

    def query(self, sql):
        data = self.session.query(sql, "Arrow").bytes()
        if not data:
            return []
        table = pyarrow.ipc.open_file(pyarrow.BufferReader(data)).read_all()
        columns = []
        for name, column in zip(table.column_names, table.columns):
            values = [value.decode() if isinstance(value, bytes) else value for value in column.to_pylist()]
            if name == "d" and values and isinstance(values[0], int):
                # a bin of a day is a DateTime, which Arrow gets as seconds
                values = [datetime.datetime.fromtimestamp(value, datetime.timezone.utc) for value in values]
            columns.append(values)
        return list(zip(*columns))

    def version(self):
        return f"ClickHouse {self.query('SELECT version()')[0][0]}"
