#!/usr/bin/env python3
"""Reads every Delta table below a directory with an engine that is not Tidemill, and prints its name and row count.

    check_delta.py DIR [--verify] [--columns]

    DIR         the directory of the tables, or that of one table
    --verify    also compare the rows of the Parquet files with the counts in the Delta log, and report events that
                are there more than once (same _partition, _offset and _row); exit status 1 when something differs
    --columns   also print each table's columns and types

Needs: pip install 'deltalake==1.*' pyarrow
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dir", type=Path)
    parser.add_argument("--verify", action="store_true")
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
        for fault in verify(table) if args.verify else []:
            failed = True
            print(f"  WRONG: {fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
