"""What the peer scripts share: arguments in, one JSON object out."""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

UNAVAILABLE = 69
"""Exit status by which a script says that its server is not installed, or cannot do what is asked."""

HOME = Path(__file__).resolve().parents[2]
"""The project's folder."""


def arguments(*verbs):
    """`prepare --root DIR --port N --cores LIST --streams FILE`; `streams` becomes the list in the file.

    `verbs` are commands beside it, on a root that nobody serves: `create`, `flush`, `ingest --source FILE`,
    `restore --from DIR`.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--streams", type=Path, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--cores")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--from", type=Path, dest="origin")
    found = parser.parse_args()
    if found.verb not in ("prepare", *verbs):
        print(f"{Path(sys.argv[0]).name} cannot {found.verb}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
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


def describe(wire, version, argv, env=None, table=None):
    """Prints what the load generator reads of a server; `table` is where its Iceberg table will be."""
    found = {"wire": wire, "version": version, "argv": [str(word) for word in argv], "env": env or {}}
    json.dump(found | ({"table": str(table)} if table else {}), sys.stdout)


def command(version, argv, env=None):
    """Prints what the load generator reads of a command."""
    json.dump({"version": version, "argv": [str(word) for word in argv], "env": env or {}}, sys.stdout)


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
