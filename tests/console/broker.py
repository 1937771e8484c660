"""A broker with a registry and one static stream, on loopback, where no policy is needed to control it."""

import re
import subprocess
import tempfile
import threading
from pathlib import Path

CONFIG = """
[registry]

[[stream]]
name = "fixed"
schema = '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":["string","null"]}},"required":["id"]}'
"""


class Broker:
    def __init__(self, binary: str):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory(prefix="console-broker-")
        self.address, self.process = None, None

    def start(self) -> None:
        config = Path(self.folder.name) / "streamcast.toml"
        config.write_text(CONFIG)
        command = [self.binary, "--config", str(config), "--root", f"{self.folder.name}/root", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"listens on http://(\S+)", line):
                self.address = found[1]
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f"the broker did not start: {''.join(said)}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
