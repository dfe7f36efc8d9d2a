#!/usr/bin/env python3
"""Shows whether the setting `memory` holds: the program takes a data set in from CSV while the statements loop.

Prints rows, resident memory now and at most, and at the end the ledger and the longest time of each statement. Ends with 1 if
the program ever had more than `--memory`, a statement failed, or a row is missing.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
TABLES = {
    "readings": "time: time(us), tags_id: int, latitude: double, longitude: double, elevation: double, velocity: double, "
    "heading: double, grade: double, fuel_consumption: double",
    "diagnostics": "time: time(us), tags_id: int, fuel_state: double, current_load: double, status: int",
    "tags": "id: int, name: string, fleet: string, driver: string, model: string, device_version: string, "
    "load_capacity: double, fuel_capacity: double, nominal_fuel_consumption: double",
}
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def write_app(place, data, memory):
    """Writes the app, and the files without the numbers of points. Returns the number of rows."""
    app, rows = place / "app", 0
    app.mkdir()
    declarations, sources = "", ""
    for name, fields in TABLES.items():
        key = "key id" if name == "tags" else "key tags_id time time"
        declarations += f"event {name} {{ {fields} }} {key};\n"
        path = place / f"{name}.csv"
        with open(data / f"{name}.csv") as whole, open(path, "w") as out:
            for number, line in enumerate(whole):
                out.write(line if name == "tags" else line.split(",", 1)[1])
            rows += number
        sources += f'[[source]]\nname = "{name}"\ntype = "file"\nformat = "csv"\nstream = "{name}"\npath = "{path}"\n'
    (app / "trucks.rules").write_text(declarations)
    (app / "app.toml").write_text(f'name = "trucks"\n{sources}[settings]\nmemory = "{memory}"\n')
    return rows


def statements(values):
    """Returns the statements, those with a bound of the time also without it."""
    for path in sorted((HERE / "statements").glob("q??.sql")):
        text = path.read_text()
        for name, bound in [(path.stem, r"\1"), (path.stem + " without bound", "")]:
            if bound or "[[" in text:
                filled = re.sub(r"\[\[(.*?)\]\]", bound, text, flags=re.S)
                yield name, re.sub(r"\{\{(\w+)\}\}", lambda key: str(values[key[1]]), filled)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=pathlib.Path, required=True, help="directory of a data set of `generate`")
    options.add_argument("--program", default="target/release/tidemill")
    options.add_argument("--memory", default="2GiB", help="value of the setting, in MiB or GiB")
    options.add_argument("--scratch", type=pathlib.Path, default="target/bench-tsbs")
    options.add_argument("--set", default="medium", help="values of the statements in params.json")
    options = options.parse_args()
    limit = int(options.memory[:-3]) * UNITS[options.memory[-3:]]
    options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch) as place:
        sys.exit(measure(options, pathlib.Path(place).resolve(), limit))


def measure(options, place, limit):
    rows = write_app(place, options.data, options.memory)
    command = [options.program, "run", place / "app", "--data", place / "data", "--listen", "127.0.0.1:0", "--mongo", "off"]
    with open(place / "log", "w") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        return ask(options, place, program, rows, limit)
    finally:
        program.terminate()
        program.wait(60)


def ask(options, place, program, rows, limit):
    address = None
    while address is None:
        time.sleep(0.1)
        if program.poll() is not None:
            sys.exit((place / "log").read_text())
        address = re.search(r"http://[\d.:]+", (place / "log").read_text())
    token = (place / "data" / "token").read_text().strip()

    def sql(text):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
        request = urllib.request.Request(address[0] + "/api/v1/sql", text.encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as reply:
            return json.load(reply)

    def memory(field):
        status = pathlib.Path(f"/proc/{program.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1]) * 1024

    values = json.loads((HERE / "statements" / "params.json").read_text())[options.set]
    start, longest, failures, rounds_after = time.time(), {}, 0, 0
    while rounds_after < 2:
        for name, text in statements(values):
            begun = time.time()
            try:
                sql(text)
            except urllib.error.HTTPError as error:
                failures += 1
                print(f"{name}: {error.read().decode()[:200]}")
            longest[name] = max(longest.get(name, 0), time.time() - begun)
        counts = " + ".join(f"(select count(*) from {table})" for table in TABLES)
        stored = sql(f"select {counts} as n")[0]["n"]
        rounds_after += stored >= rows
        now, most = memory("VmRSS") / (1 << 30), memory("VmHWM") / (1 << 30)
        print(f"{time.time() - start:.0f} s: {stored} of {rows} rows, {now:.2f} GiB, at most {most:.2f} GiB", flush=True)
        if time.time() - start > 1200:
            print("the rows do not become more: see the log")
            failures += 1
            break
    print("longest, s:", ", ".join(f"{name} {seconds:.1f}" for name, seconds in longest.items()))
    ledger = sql("select stream, stored, balanced from system.ledger")
    print("ledger:", ledger)
    sound = all(line["balanced"] for line in ledger) and failures == 0
    print(f"at most {memory('VmHWM') / (1 << 30):.2f} GiB of {limit / (1 << 30):.2f}")
    return 0 if sound and memory("VmHWM") <= limit else 1


main()
