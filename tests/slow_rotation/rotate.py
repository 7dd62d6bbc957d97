#!/usr/bin/env python3
"""Runs the slow test suites in turn, and records when each ran last and with which result.

    python3 tests/slow_rotation/rotate.py                  prints the record, oldest first
    python3 tests/slow_rotation/rotate.py run NAME...      runs these suites and records the results
    python3 tests/slow_rotation/rotate.py due --minutes M  runs the suites that are due and fit into M minutes

Suites are the tests with CTest's label `slow`, and those of EXTRA below. The duration of a suite that never
ran is not known, so only `run` starts it. Exit status: 0 if all suites that ran passed.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = pathlib.Path(__file__).resolve().parent / "results.tsv"
COLUMNS = ["suite", "date", "commit", "seconds", "result"]

# Suites that need a build of their own: name -> command. The command runs in the root folder of the checkout.
EXTRA = {
    "core_alone": ["bash", "deploy/local/core_alone.sh"],
    "address_sanitizer": ["bash", "deploy/local/sanitize.sh", "address"],
    "thread_sanitizer": ["bash", "deploy/local/sanitize.sh", "thread"],
}


def suites():
    listed = json.loads(subprocess.check_output(
        ["ctest", "--test-dir", str(ROOT / "build"), "-L", "slow", "--show-only=json-v1"]))
    names = [test["name"] for test in listed["tests"]]
    return {**{name: ["ctest", "--test-dir", "build", "--output-on-failure", "-R", f"^{name}$"]
               for name in names}, **EXTRA}


def read_record():
    if not RECORD.exists():
        return {}
    lines = RECORD.read_text(encoding="utf-8").splitlines()[1:]
    return {row["suite"]: row for row in (dict(zip(COLUMNS, line.split("\t"))) for line in lines)}


def write_record(record):
    rows = [COLUMNS] + [[record[name][column] for column in COLUMNS] for name in sorted(record)]
    RECORD.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def git(*words):
    return subprocess.check_output(["git", "-C", str(ROOT), *words], text=True).strip()


def run(name, command):
    print(f"slow_rotation: {name}", flush=True)
    began = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return {"suite": name, "date": datetime.date.today().isoformat(),
            "commit": git("rev-parse", "--short=8", "HEAD"),
            "seconds": str(round(time.monotonic() - began)),
            "result": "passed" if status == 0 else "failed"}


def seconds_of(row):
    return float(row["seconds"]) if row else float("inf")


def run_and_record(names, known, minutes=None):
    record = read_record()
    left = float("inf") if minutes is None else minutes * 60
    failed = []
    for name in names:
        if minutes is not None and seconds_of(record.get(name)) > left:
            continue
        row = run(name, known[name])
        left -= seconds_of(row)
        record[name] = row
        write_record(record)
        if row["result"] != "passed":
            failed.append(name)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("run").add_argument("names", nargs="+")
    commands.add_parser("due").add_argument("--minutes", type=float, required=True)
    asked = parser.parse_args()
    known, record = suites(), read_record()
    oldest_first = sorted(known, key=lambda name: (record.get(name, {}).get("date", ""), name))
    failed = []
    if asked.command is None:
        for name in oldest_first:
            print("\t".join(record.get(name, {"suite": name, "result": "never run"}).values()))
    elif asked.command == "run":
        unknown = [name for name in asked.names if name not in known]
        if unknown:
            sys.exit(f"rotate.py: no suite is called {', '.join(unknown)}: they are {', '.join(known)}")
        failed = run_and_record(asked.names, known)
    else:
        failed = run_and_record(oldest_first, known, asked.minutes)
    if failed:
        sys.exit(f"slow_rotation: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
