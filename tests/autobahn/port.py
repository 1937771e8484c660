"""Fetches Autobahn's test suite from PyPI and makes its case files run under Python 3.

The suite is written for Python 2, which nobody has any more. What it asks of its peer is in its case
classes alone: they build frames, list the events they accept and judge the close. These files are
translated here, as text and by rule; nothing of a case is rewritten. Byte strings of Python 2 become
strings of the code points 0 to 255 (the files are read as Latin-1), and the protocol in run.py turns
them into bytes and back.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "25.10.1"
SHA256 = "b083d6e15330fc16f3e5f0975cce2b15f21bfa0c6db09547316b1852c6dbd6df"
SHIM = '''"""binascii and the UTF-8 validator for strings of code points 0 to 255."""

import binascii

from autobahn.websocket.utf8validator import Utf8Validator as _Utf8Validator


def octets(value):
    return value if isinstance(value, bytes) else value.encode("latin-1")


def b2a_hex(value):
    return binascii.b2a_hex(octets(value)).decode()


class Utf8Validator(_Utf8Validator):
    def validate(self, value):
        return super().validate(octets(value))
'''
RULES = [
    (r"^#.*coding[:=].*$", "", re.MULTILINE),
    (r"^(\s*)print$", r"\1print()", re.MULTILINE),
    (r"^(\s*)print (.*)$", r"\1print(\2)", re.MULTILINE),
    (r"\bxrange\(", "range(", 0),
    (r"\bunichr\(", "chr(", 0),
    (r"\bimport binascii\b", "import python2 as binascii", 0),
    (r"\bfrom autobahn\.websocket\.utf8validator import", "from python2 import", 0),
    (r"\(object, Case, \)", "(Case,)", 0),
    # The only division of the suite, of whole numbers.
    (r" / self\.p\.autoFragmentSize", " // self.p.autoFragmentSize", 0),
]
# Lines of the list of cases: compression is not offered and has nothing to say; 9.9.1 is off in the suite itself.
LEFT_OUT = re.compile(r"^.*[cC]ase(1[23]_|9_9_1).*$\n?", re.MULTILINE)


def translate(text: str) -> str:
    for pattern, replacement, flags in RULES:
        text = re.sub(pattern, replacement, text, flags=flags)
    return text


def download(into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(into), f"autobahntestsuite=={VERSION}"], check=True)
    (archive,) = into.glob("autobahntestsuite-*.tar.gz")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{archive.name} has sha256 {found}, expected {SHA256}")
    return archive


def prepare(cache: Path) -> Path:
    """The directory with the translated case files; made on the first call."""
    home = cache / f"autobahn-{VERSION}"
    if (home / "cases.py").exists():
        return home
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(download(Path(scratch))) as archive:
            for member in archive.getmembers():
                path = Path(member.name)
                if path.parent.name != "case" or path.suffix != ".py" or not member.isfile():
                    continue
                text = translate(archive.extractfile(member).read().decode("latin-1"))
                if path.stem == "__init__":
                    text, path = LEFT_OUT.sub("", text), Path("cases.py")
                target = home / path.name
                target.with_suffix(".part").write_text(text, encoding="utf-8")
                target.with_suffix(".part").rename(target)
    (home / "python2.py").write_text(SHIM)
    return home
