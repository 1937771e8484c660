"""Tables in a bucket, and what becomes of them when the store fails, throttles, or does not answer."""

import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import readers
import tables

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import s3  # noqa: E402

SERVER = s3.Server("bucket")


def setUpModule() -> None:
    unittest.addModuleCleanup(SERVER.__exit__)
    SERVER.__enter__()


class Bucket(unittest.TestCase):
    def setUp(self) -> None:
        self.proxy = s3.FaultProxy(SERVER.endpoint).__enter__()
        self.addCleanup(self.proxy.__exit__)
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.prefix = f"pre fix/{self.id().rsplit('.', 1)[1]}"
        self.location = f"s3://bucket/{self.prefix}/log"
        self.committer = self.new_committer()
        settings = SERVER.environment()
        self.settings = {"endpoint": SERVER.endpoint, "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY}
        self.properties = {"s3.endpoint": SERVER.endpoint, "s3.access-key-id": settings["AWS_ACCESS_KEY_ID"],
                           "s3.secret-access-key": settings["AWS_SECRET_ACCESS_KEY"], "s3.region": "us-east-1",
                           "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}

    def new_committer(self) -> tables.Committer:
        committer = tables.Committer(SERVER.environment(self.proxy.endpoint))
        self.addCleanup(committer.close)
        return committer

    def file(self, start: int, end: int, kind: str = "sealed") -> dict:
        name = tables.new_name(kind, start, end)
        local = Path(self.directory.name) / name
        told = tables.parquet(local, f"{self.location}/{name}", tables.rows(start, end))
        self.assertEqual(told["size_bytes"], self.committer.do("upload", **{"from": str(local), "to": told["uri"]}))
        return told

    def create(self) -> dict:
        return self.committer.do("create", location=self.location, schema=tables.SCHEMA)

    def check(self, start: int, end: int) -> None:
        expected = [readers.canonical(row) for row in tables.rows(start, end)]
        metadata = self.committer.do("state")["metadata"]
        with readers.connect(self.settings) as db:
            self.assertEqual(expected, readers.by_duckdb(db, metadata))
            self.assertEqual(expected, readers.by_duckdb(db, self.location))
        self.assertEqual(expected, readers.by_pyiceberg(metadata, self.properties))

    def test_every_kind_of_change(self) -> None:
        self.create()
        self.check(1, 1)
        parts = [self.file(start, start + 40) for start in range(1, 241, 40)]
        for part in parts:
            self.committer.do("append", files=[part], issued_through=part["end"] - 1, writer_epoch=1)
        self.check(1, 241)
        self.committer.do("replace", start=41, end=161, files=[self.file(41, 161, "compacted")])
        self.check(1, 241)
        self.committer.do("expire", retention_s=0)
        orphan = self.file(900, 910)
        self.assertEqual([], self.committer.do("sweep", dry_run=True, min_age_s=3600)["orphans"])
        # The store's clock counts whole seconds.
        swept = self.committer.do("sweep", dry_run=False, min_age_s=0)["orphans"]
        self.assertIn(swept, ([orphan["uri"]], []))
        self.check(1, 241)
        self.committer.do("retire", through=240, at="2026-11-29T19:17:55+00:00")
        deleted = self.committer.do("delete", location=self.location, dry_run=False)
        self.assertGreater(deleted["files"], 5)
        self.assertEqual([], [key for key in SERVER.keys("bucket", self.prefix) if not key.endswith("/")])

    def test_an_answer_that_is_lost(self) -> None:
        """The write took effect, and nobody said so: it counts once, whichever of the writes it was."""
        self.create()
        start = 1
        for path in (r"-m0\.avro", r"/snap-", r"\.metadata\.json", r"version-hint"):
            part = self.file(start, start + 10)
            self.proxy.fail("lose", method="PUT", path=path, times=1)
            answer = self.committer.ask("append", files=[part])
            self.assertEqual(1, len(self.proxy.struck), path)
            if "error" in answer:
                self.assertTrue(answer["transient"], answer)
                self.committer.do("append", files=[part])
            self.proxy.struck.clear()
            start += 10
            self.check(1, start)
        self.assertEqual(4, self.committer.do("state")["snapshots"])

    def test_a_writer_that_never_learned_of_its_commit(self) -> None:
        """Killed between version and hint; another takes over, finds the version, and repairs the hint."""
        self.create()
        part = self.file(1, 10)
        self.proxy.fail("refuse", method="PUT", path="version-hint")
        answer = self.committer.ask("append", files=[part])
        self.assertTrue(answer["transient"], answer)
        self.proxy.heal()
        self.committer = self.new_committer()
        self.committer.do("open", location=self.location)
        again = self.committer.do("append", files=[part, self.file(10, 20)])
        self.assertEqual((1, [1, 20]), (again["added"], again["extent"]))
        self.check(1, 20)

    def test_two_writers(self) -> None:
        """Both start from the same version. One is first, and the other adds only what is missing."""
        self.create()
        other = self.new_committer()
        other.do("open", location=self.location)
        parts = [self.file(1, 10), self.file(10, 20)]
        self.committer.do("append", files=parts[:1])
        both = other.do("append", files=parts)
        self.assertEqual((1, [1, 20]), (both["added"], both["extent"]))
        late = self.committer.do("append", files=parts)
        self.assertEqual(0, late["added"])
        self.check(1, 20)

    def test_two_writers_at_the_same_time(self) -> None:
        """Both publish the same rows again and again; each row is there once, and no version was won twice."""
        self.create()
        parts = [self.file(start, start + 5) for start in range(1, 61, 5)]

        def publish(committer: tables.Committer) -> list[dict]:
            committer.do("open", location=self.location)
            answers = []
            for part in parts:
                while "error" in (answer := committer.ask("append", files=[part])):
                    self.assertTrue(answer["transient"], answer)
                answers.append(answer)
            return answers

        with ThreadPoolExecutor() as pool:
            answers = [each for each in pool.map(publish, [self.new_committer(), self.new_committer()])]
        self.assertEqual(len(parts), sum(answer["added"] for each in answers for answer in each))
        won = [answer["version"] for each in answers for answer in each if answer["added"]]
        self.assertEqual(sorted(set(won)), sorted(won))
        self.check(1, 61)

    def test_throttling_is_waited_out(self) -> None:
        self.create()
        self.proxy.fail("throttle", times=3)
        part = self.file(1, 10)
        self.proxy.fail("throttle", method="PUT", path="metadata", times=2)
        self.committer.do("append", files=[part])
        self.assertEqual(5, len(self.proxy.struck))
        self.check(1, 10)

    def test_an_outage_ends_and_nothing_is_lost(self) -> None:
        self.create()
        part = self.file(1, 10)
        self.proxy.fail("refuse")
        answer = self.committer.ask("append", files=[part])
        self.assertTrue(answer["transient"], answer)
        self.assertNotIn(s3.SECRET_KEY, str(answer))
        self.assertNotIn(s3.ACCESS_KEY, str(answer))
        self.proxy.heal()
        self.committer.do("append", files=[part])
        self.check(1, 10)

    def test_what_is_not_there_and_who_may_not(self) -> None:
        self.assertIsNone(self.committer.do("open", location=self.location))
        missing = self.committer.ask("open", location="s3://no-such-bucket/log")
        self.assertIn("bucket", missing["error"])
        stranger = tables.Committer(SERVER.environment() | {"AWS_SECRET_ACCESS_KEY": "wrong-secret"})
        self.addCleanup(stranger.close)
        refused = stranger.ask("open", location=self.location)
        self.assertIn("check the keys", refused["error"])
        self.assertFalse(refused["transient"])
        for text in ("wrong-secret", s3.ACCESS_KEY):
            self.assertNotIn(text, refused["error"])

    def test_a_large_file_goes_in_parts(self) -> None:
        local, back = Path(self.directory.name) / "large", Path(self.directory.name) / "back"
        with local.open("wb") as out:
            for number in range(30):
                out.write(bytes([number]) * (1 << 20))
        uri = f"s3://bucket/{self.prefix}/large"
        self.proxy.fail("throttle", method="PUT", path="partNumber=2", times=1)
        self.assertEqual(30 << 20, self.committer.do("upload", **{"from": str(local), "to": uri}))
        self.assertGreaterEqual(sum("partNumber" in path for _, path in self.proxy.seen), 5)
        self.assertEqual(30 << 20, self.committer.do("download", **{"from": uri, "to": str(back)}))
        self.assertEqual(local.read_bytes(), back.read_bytes())
        self.assertEqual([], [name.name for name in back.parent.glob(".*")])
