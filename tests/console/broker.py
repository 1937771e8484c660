"""Brokers on loopback for the page: one with a registry, where no policy is needed to control it, or one with a policy."""

import json
import re
import signal
import subprocess
import tempfile
import threading
import urllib.request
from pathlib import Path

CONFIG = """
[registry]

[[stream]]
name = "fixed"
schema = '{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":["string","null"]}},"required":["id"]}'
"""


class Broker:
    def __init__(self, binary: str, config: str = CONFIG):
        self.binary, self.config = binary, config
        self.folder = tempfile.TemporaryDirectory(prefix="console-broker-")
        self.address, self.process = None, None

    def path(self, name: str) -> Path:
        return Path(self.folder.name) / name

    def start(self) -> None:
        self.path("streamcast.toml").write_text(self.config)
        command = [self.binary, "--config", str(self.path("streamcast.toml")), "--root", str(self.path("root"))]
        command += ["--listen", self.address or "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"listens on http://(\S+)", line):
                self.address = found[1]
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f"the broker did not start: {''.join(said)}")

    def command(self, *words: str, given: str = "") -> str:
        """What a command of the binary says; keys and roots are this broker's."""
        done = subprocess.run([self.binary, *words], input=given, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout.strip()

    def call(self, method: str, path: str, body=None, headers=None):
        """One request from this host, and the JSON of its answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data=data, method=method, headers=headers or {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def insert(self, stream: str, entries: list) -> dict:
        return self.call("POST", f"/v1/streams/{stream}/entries", {"entries": entries})

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
