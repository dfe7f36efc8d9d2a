#!/usr/bin/env python3
"""Compares recorded results of SQL statements with those of DuckDB.

    RECORD=/tmp/statements.ndjson STATEMENTS=20000 cargo test -p tidemill-sql --test it compare -- --nocapture
    python3 -m venv /tmp/duckdb && /tmp/duckdb/bin/pip install duckdb
    /tmp/duckdb/bin/python scripts/compare_duckdb.py /tmp/statements.ndjson

The first line of the file has the tables, each other line a statement with its rows in canonical form, or its error.
Differences that are meant are in crates/sql/tests/compare/accepted.txt. Exit code 1: there are others.
"""
import collections
import datetime
import decimal
import json
import pathlib
import re
import sys

import duckdb

ACCEPTED = pathlib.Path(__file__).parent.parent / "crates/sql/tests/compare/accepted.txt"
EPOCH = datetime.datetime(1970, 1, 1)


def accepted():
    """Returns pairs of a part of a statement, or `re:` and an expression, and the reason why DuckDB may differ."""
    found = []
    for line in ACCEPTED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            system, part, reason = line.split(" | ", 2)
            if system.strip() == "duckdb":
                found.append((part.strip(), reason.strip()))
    return found


def has(text, part):
    """Returns whether a statement has a part."""
    return re.search(part[3:], text) if part.startswith("re:") else part in text


def open_database(tables):
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("set default_null_order = 'nulls_last_on_asc_first_on_desc'")
    connection.execute("set integer_division = true")
    connection.execute(tables)
    return connection


def number(value):
    """Formats a number as Rust's `{:.8e}`."""
    value = float(value)
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.8e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def micros(time):
    delta = time - EPOCH
    return (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds


def cell(value):
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, (int, float, decimal.Decimal)):
        return number(value)
    if isinstance(value, datetime.datetime):
        return f"@{micros(value.replace(tzinfo=None))}"
    if isinstance(value, datetime.date):
        return f"@{micros(datetime.datetime(value.year, value.month, value.day))}"
    if value in ("t", "f", "true", "false"):
        return value[0]
    try:
        return number(value)
    except (TypeError, ValueError):
        return f"'{value}'"


def main(path):
    reasons = accepted()
    counts = collections.Counter()
    refused = collections.Counter()
    different = []
    with open(path, encoding="utf-8") as lines:
        tables = json.loads(next(lines))["tables"]
        connection = open_database(tables)
        for line in lines:
            recorded = json.loads(line)
            if "error" in recorded:
                counts["refused here"] += 1
                continue
            text = recorded["sql"]
            try:
                rows = connection.execute(text).fetchall()
            except duckdb.Error as error:
                counts["refused by DuckDB"] += 1
                refused[str(error).splitlines()[0][:60]] += 1
                if isinstance(error, duckdb.FatalException):
                    # the database takes no more statements
                    connection = open_database(tables)
                continue
            rows = [[cell(value) for value in row] for row in rows]
            if not recorded["ordered"]:
                rows.sort()
                recorded["rows"].sort()
            if rows == recorded["rows"]:
                counts["equal"] += 1
                continue
            reason = next((reason for part, reason in reasons if has(text, part)), None)
            if reason:
                counts[f"accepted: {reason}"] += 1
            else:
                counts["different"] += 1
                different.append((text, recorded["rows"], rows))
    for text, ours, theirs in different[:20]:
        print(f"{text}\n  ours:   {ours[:10]}\n  duckdb: {theirs[:10]}")
    for key, count in sorted(counts.items()):
        print(f"{count:>7} {key}")
    for error, count in refused.most_common(8):
        print(f"{count:>7}   DuckDB: {error}")
    return 1 if different else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
