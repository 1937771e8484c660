"""What is erased leaves the journal, the files and the bucket; readers of the table find what is left."""

import asyncio
import io
import json
import secrets
import sys
import unittest
from pathlib import Path

import pyarrow.parquet
import readers
import served
from served import EAGER, Served, offsets_of
from test_mover import Case, until

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "batches")]

import s3  # noqa: E402
from api import Api  # noqa: E402

RETENTION = 2
# Hardly anything is kept here: what is erased is for the most part in the bucket only.
LAKE = EAGER + f", snapshot_retention_s = {RETENTION}, local_max_bytes = 2000"


def holders(secret: bytes, files: dict[str, bytes]) -> list[str]:
    """The files that hold a text, as bytes or as a value of a data file."""
    found = []
    for name, content in files.items():
        if secret in content:
            found.append(name)
        elif name.endswith(".parquet") and "metadata" not in Path(name).parts:
            notes = pyarrow.parquet.read_table(io.BytesIO(content), columns=["note"]).column("note").to_pylist()
            if any(secret.decode() in (note or "") for note in notes):
                found.append(name)
    return found


def below(root: Path) -> dict[str, bytes]:
    found = {}
    for path in root.rglob("*"):
        try:
            if path.is_file() and not path.name.startswith("."):
                found[str(path)] = path.read_bytes()
        except FileNotFoundError:
            pass  # it was deleted meanwhile
    return found


def objects(store: s3.Server) -> dict[str, bytes]:
    client, found = store.client(), {}
    for key in store.keys("tables"):
        try:
            found[key] = client.get_object(Bucket="tables", Key=key)["Body"].read()
        except client.exceptions.NoSuchKey:
            pass
    return found


class Purged(Case):
    async def test_no_byte_of_it_is_left_and_readers_find_the_rest(self):
        """Rows that were sealed, merged and uploaded are erased while more come in, through a kill; then nothing anywhere
        holds them, and every reader counts the others. A machine that has lost everything restores them erased."""
        # What a manifest keeps of a text is its first 16 characters.
        secret = "S" + secrets.token_hex(7) + "x"
        with s3.Server("tables") as store:
            head = f'[s3]\nendpoint = "{store.endpoint}"\nregion = "us-east-1"\npath_style = true\n'
            env = {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY}
            stream = 'published = "s3://tables/pre"\nreplay_published = true'
            with Served(lake=LAKE, head=head, stream=stream, env=env) as broker:
                await asyncio.to_thread(self.erase_all, broker, store, secret)
                left = await self.replay(broker)
                self.assertEqual(len(left), self.rows)
                await asyncio.to_thread(self.read_by_others, broker, store, left)
                broker.kill()
                await asyncio.to_thread(self.restore, broker, left)

    def erase_all(self, broker: Served, store: s3.Server, secret: str) -> None:
        api = Api(broker.port)
        victims, total = [], 0
        for part in range(12):
            entries = [{"id": total + i, "note": f"{secret}-{i}" if i % 5 == 1 else f"note-{i}"} for i in range(200)]
            answer = api.insert("t", entries).json
            victims += [one["id"] for one in answer["entries"][1::5]]
            total += len(entries)
        head = answer["entries"][-1]["offset"] + 1
        until(lambda: broker.metrics()["streamcast_stream_published_end_offset"] == head, "nothing is published")
        self.assertTrue(holders(secret.encode(), objects(store)), "the test would find nothing")
        self.assertTrue(holders(secret.encode(), below(broker.root)), "the test would find nothing")
        # Some that were published, some that never left the journal.
        entries = [{"id": total, "note": secret}, {"id": total + 1, "note": None}]
        victims.append(api.insert("t", entries).json["entries"][0]["id"])
        self.rows = total + 2 - len(victims)
        body = {"entryIds": victims, "idempotencyKey": "e"}
        marker = api.erase("t", **body)
        self.assertEqual((marker.status, marker.json["erased"]), (200, len(victims)), marker.body)
        # Rows come in and files are merged meanwhile, and it all ends at an arbitrary line.
        for _ in range(5):
            api.insert("t", [{"id": total + 2 + i, "note": "later"} for i in range(200)])
            self.rows += 200
            total += 200
        broker.kill()
        api.close()
        broker.start()
        # Copies here that were merged stay for a minute.
        until(lambda: api.erase("t", **body).json["purgedAt"], "it is not purged", 150)
        self.assertTrue(api.get("/v1/streams/t/erasures").json["erasures"][0]["purgedAt"])
        api.close()
        self.assertEqual(holders(secret.encode(), objects(store)), [])
        self.assertEqual(holders(secret.encode(), below(broker.root)), [])

    async def replay(self, broker: Served) -> list[int]:
        """The offsets of all rows, as the official client gets them."""
        import streamcast

        found = []
        async with streamcast.connect(f"ws://127.0.0.1:{broker.port}/t", offset=streamcast.EARLIEST) as subscription:
            async for offset, _, row in subscription:
                self.assertNotIn("S", row["note"] or "")
                found.append(offset)
                if len(found) == self.rows:
                    return found

    def read_by_others(self, broker: Served, store: s3.Server, left: list[int]) -> None:
        properties = store.pyiceberg()
        until(lambda: offsets_of("s3://tables/pre/t/t", properties) == left, "PyIceberg finds other rows")
        db = readers.connect({"endpoint": store.endpoint, "access_key": s3.ACCESS_KEY, "secret_key": s3.SECRET_KEY})
        stem = store.client().get_object(Bucket="tables", Key="pre/t/t/metadata/version-hint.text")["Body"].read().decode()
        rows = readers.by_duckdb(db, f"s3://tables/pre/t/t/metadata/{stem.strip()}.metadata.json")
        self.assertEqual([row["litelink_offset"] for row in rows], left)

    def restore(self, broker: Served, left: list[int]) -> None:
        root = broker.home / "fresh"
        command = [served.BINARY, "restore", "t", "--published", "s3://tables/pre", "--root", root, "--config", broker.config]
        done = served.subprocess.run(list(map(str, command)), capture_output=True, text=True, env=broker.env, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        broker.config.write_text(broker.config.read_text().replace('root = "root"', 'root = "fresh"'))
        broker.start()
        api = Api(broker.port)
        self.assertEqual([one["offset"] for one in api.everything("t")], left)
        erasures = api.get("/v1/streams/t/erasures").json["erasures"]
        self.assertEqual(len(erasures), 1, json.dumps(erasures))
        until(lambda: api.get("/v1/streams/t/erasures").json["erasures"][0]["purgedAt"], "it is not purged again", 150)
        api.close()


class Deleted(Case):
    async def test_a_deleted_stream_leaves_the_bucket_and_nothing_else_does(self):
        """The deletion is cut off by a kill at an arbitrary line, and goes on."""
        await asyncio.to_thread(self.delete)

    def delete(self) -> None:
        with s3.Server("tables") as store:
            head = f'[s3]\nendpoint = "{store.endpoint}"\nregion = "us-east-1"\npath_style = true\n'
            declared = "".join(self.declaration(name) for name in ("gone", "gone-v2"))
            env = {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY}
            with Served(lake=EAGER, head=head + declared, env=env) as broker:
                api = Api(broker.port)
                for name in ("gone", "gone-v2"):
                    until(lambda: api.get(f"/v1/streams/{name}").status == 200, "it is not served")
                    for part in range(3):
                        self.assertEqual(api.insert(name, [{"id": i, "note": None} for i in range(600)]).status, 200)
                    api.erase(name, where={"id": 3})
                    keys = [f"pre/{name}/{name}/metadata/version-hint.text", f"pre/{name}/{name}.metadata/holes.json"]
                    until(lambda: set(keys) <= set(store.keys("tables", f"pre/{name}/")), "it is not published")
                store.client().put_object(Bucket="tables", Key="pre/gone/other.txt", Body=b"mine")
                # Out of the configuration it is served as it is recorded, and may be deleted.
                api.close()
                broker.stop()
                broker.config.write_text(broker.config.read_text().replace(self.declaration("gone"), ""))
                broker.start()
                answer = api.call("DELETE", "/v1/streams/gone")
                self.assertEqual((answer.status, answer.json["state"]), (202, "deleting"))
                broker.kill()
                api.close()
                broker.start()
                gone = f"/v1/streams/{answer.json['id']}"
                self.assertEqual(api.get(gone).code, (410, "stream_deleted"))
                until(lambda: api.get(gone).json["error"]["details"]["state"] == "deleted", "it is not deleted")
                self.assertEqual(store.keys("tables", "pre/gone/"), ["pre/gone/other.txt"])
                self.assertFalse(list(broker.root.glob("**/gone")), "its directory is still there")
                self.assertIn("pre/gone-v2/gone-v2/metadata/version-hint.text", store.keys("tables", "pre/gone-v2/"))
                self.assertEqual(len(api.everything("gone-v2")), 1797)
                api.close()

    @staticmethod
    def declaration(name: str) -> str:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}}, "required": ["id"]}
        return f"""[[stream]]\nname = "{name}"\nschema = '{json.dumps(schema)}'\npublished = "s3://tables/pre"\n"""


if __name__ == "__main__":
    unittest.main()
