#!/usr/bin/env python3
"""Runs PyMongo's own tests against a Tidemill server, and prints what passed and failed, by file.

    scripts/pymongo_suite.py target/release/tidemill [FILE...]

FILE: names such as `crud_unified`; all of the list below if there is none. The tests come from the source archive of PyMongo
at the version below, and are kept in PYMONGO_DIR (default ~/.cache/tidemill/pymongo). The server gets an empty app, a
temporary directory and a free port, and ends with the script; another one is started if it stops answering.

Exits with 1 if more tests fail than --failures-max says (default 10). Tests that need an Atlas account, or another member of
a replica set, are counted apart: no server on this machine can pass them.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ET

VERSION = "4.20.0"
SHA256 = "f773b0aec28687587cdeda490463a82debc4566a4a3620dcc8dada9d2c0a1acd"
PACKAGES = [f"pymongo=={VERSION}", "pytest==8.4.2", "pytest-asyncio==1.2.0"]

FILES = """
    crud_unified collection cursor bulk client_bulk_write database run_command collation comment gridfs gridfs_spec
    sessions_unified session collection_management index_management retryable_writes retryable_writes_unified
    retryable_reads retryable_reads_unified transactions_unified transactions change_stream versioned_api_integration
    command_monitoring read_write_concern_spec bson_corpus custom_types raw_bson examples
""".split()

# what a test says that no single local server can satisfy
ENVIRONMENT = [
    ("an Atlas account", re.compile(r"KeyError: '(DB_USER|DB_PASSWORD|MONGODB_URI)'")),
    ("a second member", re.compile(r"No replica set members match selector|No secondary|no secondaries")),
    ("the default port", re.compile(r"localhost:27017: \[Errno 111\] Connection refused")),
]


def install(directory):
    """Returns the Python that has the packages, and the directory with the tests."""
    directory.mkdir(parents=True, exist_ok=True)
    python = directory / "venv" / "bin" / "python"
    wanted = "\n".join(PACKAGES)
    note = directory / "installed"
    if not note.exists() or note.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", str(directory / "venv")], check=True)
        pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run(pip + ["install"] + PACKAGES, check=True)
        archive = directory / f"pymongo-{VERSION}.tar.gz"
        if not archive.exists():
            download = ["download", "--no-deps", "--no-binary", "pymongo", "-d", str(directory), f"pymongo=={VERSION}"]
            subprocess.run(pip + download, check=True)
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != SHA256:
            archive.unlink()
            sys.exit(f"{archive} has the checksum {digest}, expected {SHA256}")
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        note.write_text(wanted)
    # the tests, without the sources beside them, which have no native code
    tests = directory / "tests"
    if not tests.exists():
        source = directory / f"pymongo-{VERSION}"
        tests.mkdir()
        shutil.copytree(source / "test", tests / "test")
        shutil.copy(source / "pyproject.toml", tests)
    return python, tests


class Server:
    """A server with an empty app."""

    def __init__(self, program, directory):
        self.program, self.directory = program, pathlib.Path(directory)
        (self.directory / "app").mkdir()
        (self.directory / "app" / "app.toml").write_text('name = "suite"\n')
        self.process = None

    def start(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        log = open(self.directory / "server.log", "ab")
        command = [self.program, "run", str(self.directory / "app"), "--data", str(self.directory / "data"), "--listen",
                   "127.0.0.1:0", "--mongo", f"127.0.0.1:{self.port}", "--mongo-without-login", "--mongo-test-commands"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(600):
            if self.answers():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit(f"the server does not start:\n{(self.directory / 'server.log').read_text()}")

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()


def environment_of(text):
    return next((what for what, pattern in ENVIRONMENT if pattern.search(text)), None)


def run_file(python, tests, server, name, timeout):
    """Runs a file. Returns the number of tests by outcome, and the failures as (test, first line, what it needs)."""
    report = server.directory / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"--junitxml={report}",
               f"test/test_{name}.py"]
    variables = dict(os.environ, DB_IP="127.0.0.1", DB_PORT=str(server.port), PYTHONWARNINGS="default", PYTHONDONTWRITEBYTECODE="1")
    try:
        done = subprocess.run(command, cwd=tests, env=variables, capture_output=True, text=True, timeout=timeout)
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return collections.Counter(failed=1), [(name, f"took more than {timeout} seconds", None)]
    if not report.exists():
        return collections.Counter(failed=1), [(name, output.strip()[-2000:], None)]
    counts, failures = collections.Counter(), []
    for case in ET.parse(report).getroot().iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if bad:
            text = "\n".join(f"{child.get('message') or ''}\n{child.text or ''}" for child in bad)
            needs = environment_of(text)
            counts["environment" if needs else "failed"] += 1
            lines = (bad[0].get("message") or "").strip().splitlines() or [""]
            failures.append((f"{case.get('classname', '').split('.')[-1]}.{case.get('name')}", lines[0][:300], needs))
        elif skipped is not None:
            counts["expected" if skipped.get("type") == "pytest.xfail" else "skipped"] += 1
        else:
            counts["passed"] += 1
    return counts, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the server, such as target/release/tidemill")
    parser.add_argument("files", nargs="*", metavar="FILE", help="names of files, without test_ and .py")
    parser.add_argument("--failures-max", type=int, default=10)
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for a file (default 1800)")
    args = parser.parse_args()
    unknown = [name for name in args.files if name not in FILES]
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)}; expected some of {' '.join(FILES)}")
    program = shutil.which(args.program) or parser.error(f"{args.program} is no program")
    home = pathlib.Path(os.environ.get("PYMONGO_DIR", pathlib.Path.home() / ".cache" / "tidemill" / "pymongo"))
    python, tests = install(home)
    total, listed = collections.Counter(), []
    with tempfile.TemporaryDirectory(prefix="tidemill-pymongo-") as directory:
        server = Server(os.path.abspath(program), directory)
        server.start()
        try:
            print(f"{'file':28}{'passed':>8}{'failed':>8}{'elsewhere':>11}{'expected':>10}{'skipped':>9}", flush=True)
            for name in args.files or FILES:
                if server.process.poll() is not None:
                    listed.append((name, f"the server ended with {server.process.returncode} before", None))
                    total["failed"] += 1
                    server.start()
                counts, failures = run_file(python, tests, server, name, args.timeout)
                total += counts
                listed += failures
                row = [counts[of] for of in ("passed", "failed", "environment", "expected", "skipped")]
                print("{:28}{:>8}{:>8}{:>11}{:>10}{:>9}".format(name, *row), flush=True)
        finally:
            server.stop()
    row = [total[of] for of in ("passed", "failed", "environment", "expected", "skipped")]
    print("{:28}{:>8}{:>8}{:>11}{:>10}{:>9}".format("all", *row))
    for test, why, needs in listed:
        print(f"{'needs ' + needs if needs else 'FAILED'}: {test}: {why}")
    return int(total["failed"] > args.failures_max)


if __name__ == "__main__":
    sys.exit(main())
