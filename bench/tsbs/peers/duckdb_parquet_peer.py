"""DuckDB on Parquet files sorted by truck and time, compressed with zstd: a scan of the best layout, not an ingest."""
import shutil

import duckdb_peer


class Peer(duckdb_peer.Peer):
    def __init__(self, scratch):
        super().__init__(scratch)
        self.directory = scratch / "peer-parquet"

    def settle(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        for table, order in (("readings", "tags_id, time"), ("diagnostics", "tags_id, time"), ("tags", "id")):
            path = self.directory / f"{table}.parquet"
            self.connection.execute(
                f"COPY (SELECT * FROM {table} ORDER BY {order}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)")
            self.connection.execute(f"DROP TABLE {table}")
            self.connection.execute(f"CREATE VIEW {table} AS FROM '{path}'")

    def bytes(self):
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def stop(self):
        super().stop()
        shutil.rmtree(self.directory, ignore_errors=True)
