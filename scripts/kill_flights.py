#!/usr/bin/env python3
"""Kills runs of the `flights` example at random moments and checks that nothing is lost or doubled.

    scripts/kill_flights.py --runs 50 --seed 1 --source CSVDIR

First an undisturbed run, which says how long one takes. Then each run starts on an empty data directory, is
killed with SIGKILL at a moment drawn evenly from that time (so during start-up, loading, checkpoints and the
last flush alike), some of them several times, is started again until it ends by itself, and must come to the
same figures: all checks of verify_flights.py. Only processes started here are killed, by their process id.

A run repeats with its number: --seed 1 --only 17. The directory of a run that went wrong is kept and named.
Prints one line per run, then minimum, median and maximum of restart time and of peak memory. Exits with 1
when a run came to other figures, with 2 when it could not be done.
"""

import argparse
import collections
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import build_flights
import verify_flights

APP = build_flights.REPOSITORY / "examples" / "flights"
POLL_S = 0.005
OUTPUT_LINES_MAX = 40
SEVERAL_KILLS_SHARE = 0.3
SEVERAL_KILLS_MAX = 5


def main():
    options = arguments()
    options.work.mkdir(parents=True, exist_ok=True)
    try:
        truth = verify_flights.Truth(options.source, options.period, options.expected)
        return Campaign(options, truth).go()
    except (verify_flights.CannotCheck, build_flights.InputError, Stuck) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def arguments():
    parser = argparse.ArgumentParser(
        description="Kill runs of the flights example and check what they come to."
    )
    parser.add_argument(
        "--runs", type=int, default=50, metavar="N", help="runs that are killed (default: 50)"
    )
    parser.add_argument(
        "--seed", type=int, default=None, metavar="N", help="default: from the clock, and printed"
    )
    parser.add_argument("--only", type=int, metavar="I", help="only run number I of the seed")
    parser.add_argument(
        "--duration-s",
        type=float,
        metavar="S",
        help="take S for the time of an undisturbed run instead of measuring it",
    )
    parser.add_argument(
        "--minutes-max",
        type=float,
        default=60,
        metavar="M",
        help="start no further run after M minutes (default: 60)",
    )
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "kill-flights",
        metavar="DIR",
        help="where the data directories go (default: %(default)s)",
    )
    parser.add_argument(
        "--app", type=pathlib.Path, default=APP, metavar="DIR", help="the app (default: %(default)s)"
    )
    parser.add_argument(
        "--events",
        type=pathlib.Path,
        metavar="DIR",
        help="directory with events.ndjson.gz and documents (default: the app's own)",
    )
    parser.add_argument(
        "--kafka",
        metavar="HOST:PORT,...",
        help="log on these brokers, with a topic for each run (scripts/kafka.sh starts some)",
    )
    parser.add_argument("--no-insights", action="store_true", help="do not check the insights")
    verify_flights.add_truth_arguments(parser)
    parser.add_argument(
        "run_arguments", nargs="*", metavar="-- ARGUMENT", help="further arguments of `tidemill run`"
    )
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(time.time()) % 1_000_000
    return options


class Stuck(Exception):
    """A run that does not end or does not start, where the fault is not in its figures."""


# What `tidemill run` prints when it had to replay its log.
RECOVERED = re.compile(r"^recovered (\d+) log records in (\d+) ms")

Outcome = collections.namedtuple("Outcome", "exit_code killed seconds recovery_ms peak_kib output")


class Campaign:
    """All runs of one call, and what they took."""

    def __init__(self, options, truth):
        self.options, self.truth = options, truth
        self.duration_s = options.duration_s
        self.restart_s, self.recovery_ms, self.peak_kib = [], [], []
        self.kills = self.missed = self.wrong = 0
        self.deadline = time.monotonic() + 60 * options.minutes_max
        self.called = int(time.time())

    def go(self):
        if self.duration_s is None:
            self.undisturbed()
        numbers = [self.options.only] if self.options.only is not None else range(self.options.runs)
        done = 0
        for number in numbers:
            if time.monotonic() > self.deadline:
                print(
                    f"stopped after {done} of {len(numbers)} runs: --minutes-max {self.options.minutes_max:g}"
                )
                break
            self.killed_run(number)
            done += 1
        self.summary(done)
        if self.wrong:
            return 1
        return 0 if done == len(numbers) else 2

    def undisturbed(self):
        data = self.fresh("undisturbed")
        outcome = self.start(data)
        self.duration_s = outcome.seconds
        differences = self.finish(data, outcome, duplicates=False)
        print(
            f"undisturbed: {outcome.seconds:.2f} s, peak {mib(outcome.peak_kib)}, {verdict(differences)}",
            flush=True,
        )
        if differences:
            self.tell(data, differences)
            raise Stuck("the undisturbed run is wrong already; kills would show nothing")
        shutil.rmtree(data)

    def killed_run(self, number):
        """Run `number`: kills at the moments its random numbers say, then to the end, then the checks."""
        chance = random.Random(f"{self.options.seed}-{number}")
        several = chance.random() < SEVERAL_KILLS_SHARE
        wanted = chance.randint(2, SEVERAL_KILLS_MAX) if several else 1
        data, moments, peak = self.fresh(f"run-{number}"), [], 0
        outcome = None
        for _ in range(wanted):
            share = chance.random()
            outcome = self.start(data, kill_after_s=share * self.duration_s)
            peak = max(peak, outcome.peak_kib)
            moments.append(
                f"{share * self.duration_s:.3f} s ({share:.0%})" + ("" if outcome.killed else " not hit")
            )
            if not outcome.killed:
                self.missed += 1
                break
            self.kills += 1
        if outcome.killed:
            outcome = self.start(data)
            peak = max(peak, outcome.peak_kib)
            self.restart_s.append(outcome.seconds)
            if outcome.recovery_ms is not None:
                self.recovery_ms.append(outcome.recovery_ms)
        self.peak_kib.append(peak)
        differences = self.finish(data, outcome, duplicates=True)
        print(
            f"run {number}: killed at {', '.join(moments)}; last start took {outcome.seconds:.2f} s, "
            f"{spelled(outcome.recovery_ms)}, peak {mib(peak)}, {verdict(differences)}",
            flush=True,
        )
        if differences:
            self.wrong += 1
            self.tell(data, differences, number)
        else:
            shutil.rmtree(data)

    def fresh(self, name):
        data = self.options.work / f"{self.options.seed}-{name}"
        if data.exists():
            shutil.rmtree(data)
        return data

    def log_url(self, data):
        """The log of a run, the same at each of its starts; a topic of an earlier call has another name."""
        return f"kafka://{self.options.kafka}/{data.name}-{self.called}"

    def command(self, data):
        command = [self.options.tidemill, "run", str(self.options.app), "--data", str(data), "--until-idle"]
        if self.options.events:
            command += ["--set", f"data={self.options.events.resolve()}"]
        if self.options.kafka:
            command += ["--log", self.log_url(data)]
        return command + self.options.run_arguments

    def start(self, data, kill_after_s=None):
        """Runs the app until it ends, is killed after `kill_after_s`, or takes far longer than it should."""
        limit_s = 120 + 20 * (self.duration_s or 180)
        began = time.monotonic()
        try:
            child = subprocess.Popen(
                self.command(data),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        except FileNotFoundError:
            raise Stuck(f"there is no program {self.options.tidemill}: pass --tidemill PATH") from None
        reader = Reader(child.stdout)
        try:
            killed, peak = watch(child, began, kill_after_s, limit_s)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        seconds = time.monotonic() - began
        reader.join()
        return Outcome(child.returncode, killed, seconds, reader.recovery_ms, peak, list(reader.last))

    def finish(self, data, outcome, duplicates):
        """Differences of a run that ended by itself."""
        if outcome.exit_code != 0:
            return [f"exit {outcome.exit_code}: " + " | ".join(outcome.output)]
        log = self.log_url(data) if self.options.kafka else None
        engine = verify_flights.Engine(self.options.tidemill, data, log)
        return verify_flights.check(engine, self.truth, duplicates, insights=not self.options.no_insights)

    def tell(self, data, differences, number=None):
        for line in differences:
            print(f"  different: {line}")
        print(f"  kept: {data}")
        if number is not None:
            print(
                f"  again: --seed {self.options.seed} --only {number} --duration-s {self.duration_s:.3f}",
                flush=True,
            )

    def summary(self, done):
        print(
            f"seed {self.options.seed}: {done} runs, {self.kills} kills, {self.missed} came after the end, "
            f"{self.wrong} runs wrong"
        )
        print(f"start after a kill to the end: {spread(self.restart_s)} s")
        if self.recovery_ms:
            print(f"of which recovery:             {spread(self.recovery_ms)} ms")
        print(f"peak memory:                   {spread([k / 1024 for k in self.peak_kib if k])} MiB")


def watch(child, began, kill_after_s, limit_s):
    """Waits until the child ends, or kills it. Returns whether it was killed, and its peak memory."""
    peak = 0
    while child.poll() is None:
        now = time.monotonic() - began
        peak = max(peak, peak_kib(child.pid))
        if kill_after_s is not None and now >= kill_after_s:
            # not reaped by `poll`, so the process id is still this child's, even if it ended just now
            child.send_signal(signal.SIGKILL)
            return child.wait() == -signal.SIGKILL, peak
        if now > limit_s:
            raise Stuck(f"{' '.join(child.args)}: no end after {limit_s:.0f} s")
        time.sleep(POLL_S if kill_after_s is None else max(0, min(POLL_S, kill_after_s - now)))
    return False, peak


class Reader(threading.Thread):
    """Keeps the last lines of a child's output and notes what it said of its recovery."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self.pipe = pipe
        self.recovery_ms = None
        self.last = collections.deque(maxlen=OUTPUT_LINES_MAX)
        self.start()

    def run(self):
        with self.pipe:
            for line in self.pipe:
                self.last.append(line.rstrip())
                if recovered := RECOVERED.match(line):
                    self.recovery_ms = int(recovered[2])


def peak_kib(pid):
    """Most memory the process ever had resident (VmHWM, Linux), 0 where that cannot be read.

    `getrusage` would not do: a child starts with its parent's peak.
    """
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) if found else 0


def spelled(recovery_ms):
    return "nothing to recover" if recovery_ms is None else f"recovery {recovery_ms} ms"


def mib(kib):
    return f"{kib / 1024:.0f} MiB" if kib else "not measured"


def verdict(differences):
    return "right" if not differences else f"{len(differences)} differences"


def spread(values):
    if not values:
        return "not measured"
    return f"min {min(values):.2f}, median {statistics.median(values):.2f}, max {max(values):.2f}"


if __name__ == "__main__":
    sys.exit(main())
