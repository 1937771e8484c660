"""What the peer scripts share: arguments in, one JSON object out."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

UNAVAILABLE = 69
"""Exit status by which a script says that its server is not installed."""

HOME = Path(__file__).resolve().parents[2]
"""The project's folder."""


def arguments():
    """`prepare --root DIR --port N --cores LIST --streams FILE`; `streams` becomes the list in the file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["prepare"])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cores", required=True)
    parser.add_argument("--streams", type=Path, required=True)
    found = parser.parse_args()
    found.streams = json.loads(found.streams.read_text())["streams"]
    return found


def program(name, hint, *places):
    """The path of a program, looked for in `places` and then in PATH."""
    for place in places:
        if Path(place).is_file():
            return str(place)
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
    if path is None:
        print(f"{name} is not installed: {hint}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    return path


def version(*command):
    """First line that a program prints about itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else "unknown"


def describe(wire, version, argv, env=None):
    """Prints what the load generator reads."""
    json.dump({"wire": wire, "version": version, "argv": [str(word) for word in argv], "env": env or {}}, sys.stdout)


class Variant(dict):
    """What the script of another peer printed, to be changed."""

    def show(self):
        """Prints it."""
        json.dump(self, sys.stdout)


def variant(of):
    """Runs the script of the peer `of` with our arguments; ends as it does if that fails."""
    done = subprocess.run([HOME / "perf/peers" / of, *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return Variant(json.loads(done.stdout))
