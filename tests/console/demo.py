"""A demo of the broker, in a folder that outlives it so that it can be started again."""

import re
import subprocess
import tempfile
import threading


class Demo:
    def __init__(self, binary: str, rate: int = 300):
        self.binary, self.rate = binary, rate
        self.folder = tempfile.TemporaryDirectory(prefix="console-")
        self.address, self.process = None, None

    def start(self) -> None:
        command = [self.binary, "demo", "--root", f"{self.folder.name}/root", "--listen", self.address or "127.0.0.1:0"]
        command += ["--rate", str(self.rate), "--seed", "7"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"Console\s+http://(\S+?)/?$", line.strip()):
                self.address = found[1]
                # What it says later is read and dropped, so that it never waits for us.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return
        raise RuntimeError(f"the demo did not start: {''.join(said)}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)
