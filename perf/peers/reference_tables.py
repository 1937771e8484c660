"""Commands of the Python reference on a root that nobody serves. What is told is the time of the work itself, without
the start of the interpreter and its imports."""

import argparse
import asyncio
import json
import time
from pathlib import Path

import litelink
import pyarrow as pa
import pyarrow.parquet as pq
import streamcast
from streamcast import _metadata


def create(root, stream, _source):
    made = streamcast.Stream.open(stream["name"], root=root, schema=stream["schema"], create=True)
    asyncio.run(made.aclose())


def flush(root, stream, _source):
    home = _metadata.home(root, stream["name"])
    found = _metadata.load(home, stream["name"])
    with litelink.open(home, found.current.name if found else stream["name"]) as log:
        while log.seal(flush=True) is not None:
            pass
        log.await_seal()
        log.publish(flush=True)
        log.evict("buffer")


def ingest(root, stream, source):
    """In batches as they are in the file, which is what takes the least memory."""
    if source.suffix == ".arrow":
        file = pa.ipc.open_file(pa.memory_map(str(source)))
        schema, batches = file.schema, (file.get_batch(at) for at in range(file.num_record_batches))
    else:
        file = pq.ParquetFile(source)
        schema, batches = file.schema_arrow, file.iter_batches()
    streamcast.Stream.ingest(stream["name"], pa.RecordBatchReader.from_batches(schema, batches), root=root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["create", "flush", "ingest"])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--streams", type=Path, required=True)
    parser.add_argument("--source", type=Path)
    args = parser.parse_args()
    stream = json.loads(args.streams.read_text())["streams"][0]
    work = {"create": create, "flush": flush, "ingest": ingest}[args.verb]
    began = time.monotonic()
    work(args.root, stream, args.source)
    print(json.dumps({"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    main()
