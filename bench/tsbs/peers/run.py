#!/usr/bin/env python3
"""Loads a data set into one peer and runs statements on it.

    run.py PEER --data DIR --scratch DIR [--venv DIR] < statements.json

Standard input: {"runs": N, "statements": [{"name": "q01", "text": "SELECT …", "key": null}, …]}; `key` is the column that
results are compared by, null for all.
Standard output: one JSON object a line, first the load, then a statement each, then the version.
The packages of requirements.txt are installed into a virtual environment, which is created first if necessary.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = {
    "duckdb": "duckdb_peer",
    "duckdb-parquet": "duckdb_parquet_peer",
    "duckdb-files": "duckdb_files_peer",
    "clickhouse": "clickhouse_peer",
    "questdb": "questdb_peer",
    "postgres": "postgres_peer",
}


def enter_venv(directory):
    """Runs this script again with the packages it needs, unless it has them."""
    python = directory / "bin" / "python"
    if pathlib.Path(sys.prefix).resolve() == directory.resolve():
        return
    installed = directory / "requirements.txt"
    wanted = (HERE / "requirements.txt").read_text()
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "-r", str(HERE / "requirements.txt")],
            check=True, stdout=sys.stderr)
        installed.write_text(wanted)
    os.execv(python, [str(python), *sys.argv])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--venv", type=pathlib.Path)
    return parser.parse_args()


def main():
    options = arguments()
    options.scratch.mkdir(parents=True, exist_ok=True)
    enter_venv(options.venv or options.scratch / "venv")
    import measure
    plan = json.load(sys.stdin)
    for figure in measure.figures(PEERS[options.peer], options.data.resolve(), options.scratch.resolve(), plan):
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
