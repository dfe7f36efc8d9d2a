#!/usr/bin/env python3
"""Reads every Delta table below a directory with an engine that is not Tidemill, and prints its name and row count.

    check_delta.py DIR [--verify] [--readers] [--columns]

    DIR         the directory of the tables, or that of one table
    --verify    also compare the rows of the Parquet files with the counts in the Delta log, and report events that
                are there more than once (same _partition, _offset and _row); exit status 1 when something differs
    --readers   also read them with polars and DuckDB, and compare count, identity and times of the rows; exit status 1
                when something differs
    --columns   also print each table's columns and types

Needs: pip install 'deltalake==1.*' pyarrow; for --readers also polars duckdb
"""

import argparse
import sys
from pathlib import Path

IDENTITY = ["_partition", "_offset", "_row"]


def tables(root: Path) -> list[Path]:
    found = sorted(log.parent for log in root.rglob("_delta_log") if log.is_dir())
    return found


def rows_in_log(table) -> int:
    import pyarrow

    return sum(pyarrow.table(table.get_add_actions())["num_records"].to_pylist())


def verify(table) -> list[str]:
    """What is wrong with the rows of `table`."""
    import pyarrow.compute as pc

    dataset = table.to_pyarrow_dataset()
    faults = []
    stored, logged = dataset.count_rows(), rows_in_log(table)
    if stored != logged:
        faults.append(f"the files have {stored} rows, the Delta log says {logged}")
    if all(name in dataset.schema.names for name in IDENTITY):
        groups = dataset.to_table(columns=IDENTITY).group_by(IDENTITY).aggregate([([], "count_all")])
        doubled = groups.filter(pc.field("count_all") > 1)
        for row in doubled.slice(0, 5).to_pylist():
            event = "-".join(str(row[name]) for name in IDENTITY)
            faults.append(f"event {event} is there {row['count_all']} times")
        if doubled.num_rows > 5:
            faults.append(f"and {doubled.num_rows - 5} more events")
    return faults


def seen_by_deltalake(table) -> tuple:
    import pyarrow.compute as pc

    rows = table.to_pyarrow_dataset().to_table(columns=[*IDENTITY, "_time"])
    times = pc.cast(rows["_time"], "int64")
    return (rows.num_rows, *(pc.sum(rows[name]).as_py() for name in IDENTITY), pc.min(times).as_py(), pc.max(times).as_py())


def seen_by_polars(path: Path) -> tuple:
    import polars

    time = polars.col("_time").dt.epoch("us")
    sums = [polars.col(name).cast(polars.Int64).sum() for name in IDENTITY]
    columns = [polars.len(), *sums, time.min().alias("first"), time.max().alias("last")]
    return polars.scan_delta(str(path)).select(columns).collect().row(0)


def seen_by_duckdb(table) -> tuple:
    import duckdb

    sums = ", ".join(f"sum({name})::BIGINT" for name in IDENTITY)
    query = f"SELECT count(*), {sums}, epoch_us(min(_time)), epoch_us(max(_time)) FROM read_parquet(?, union_by_name = true)"
    return duckdb.execute(query, [table.file_uris()]).fetchone()


def compare_readers(path: Path, table) -> list[str]:
    """What polars and DuckDB read differently from deltalake: count, sums of the identity, first and last time."""
    if not table.file_uris():
        return []
    expected = seen_by_deltalake(table)
    seen = {"polars": seen_by_polars(path), "DuckDB": seen_by_duckdb(table)}
    return [f"{name} reads {rows}, deltalake {expected}" for name, rows in seen.items() if tuple(rows) != expected]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dir", type=Path)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--readers", action="store_true")
    parser.add_argument("--columns", action="store_true")
    args = parser.parse_args()
    try:
        from deltalake import DeltaTable
    except ImportError:
        print("this script needs: pip install 'deltalake==1.*' pyarrow", file=sys.stderr)
        return 2
    found = tables(args.dir)
    if not found:
        print(f"{args.dir}: no Delta table here (a table is a directory with a _delta_log)", file=sys.stderr)
        return 2
    failed = False
    for path in found:
        name = path.name if path == args.dir else str(path.relative_to(args.dir))
        table = DeltaTable(path)
        print(f"{name}\t{table.to_pyarrow_dataset().count_rows()}")
        if args.columns:
            for field in table.schema().fields:
                print(f"  {field.name}\t{field.type.type}{'' if field.nullable else ' not null'}")
        faults = verify(table) if args.verify else []
        faults += compare_readers(path, table) if args.readers else []
        for fault in faults:
            failed = True
            print(f"  WRONG: {fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
