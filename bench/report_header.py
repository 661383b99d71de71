"""What every report of these benchmarks begins with."""

import datetime
import os
import pathlib
import subprocess
import sys


def output_of(command):
    """The first line that a program writes; empty if there is no such program."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20,
                             cwd=pathlib.Path(__file__).parent)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip().split("\n")[0]


def report_header():
    """The command, the time and the commit: what LEANATTN_COMMIT says, or that of the repository
    around this file."""
    commit = os.environ.get("LEANATTN_COMMIT")
    return {
        "command": " ".join(["python3 bench/" + pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit or output_of(["git", "rev-parse", "--short=12", "HEAD"]) or "unknown",
    }
