"""DuckDB on the Parquet files of a directory, as they are: a view for each file."""
import duckdb


class Peer:
    def __init__(self, scratch):
        self.connection = None

    def start(self):
        self.connection = duckdb.connect()

    def open(self, data):
        for path in sorted(data.glob("*.parquet")):
            self.connection.execute(f"CREATE VIEW {path.stem} AS FROM '{path}'")

    def stop(self):
        if self.connection:
            self.connection.close()

    def query(self, sql):
        return self.connection.execute(sql).fetchall()

    def version(self):
        return f"DuckDB {duckdb.__version__}"
