"""Tables made by examples/lake_table.rs of Parquet files made here, and what readers find in them."""

import json
import os
import struct
import subprocess
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = Path(__file__).resolve().parents[2]
STAMP_US = 1_795_979_200_000_000

# litelink_offset, then the declared columns, then streamcast_ts; numbered level by level.
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "litelink_offset", "type": "long", "required": True},
        {"id": 2, "name": "price", "type": "double", "required": True},
        {"id": 3, "name": "symbol", "type": "string", "required": False},
        {"id": 4, "name": "sizes", "required": False,
         "type": {"type": "list", "element-id": 9, "element": "long", "element-required": True}},
        {"id": 5, "name": "venue", "required": False,
         "type": {"type": "struct", "fields": [
             {"id": 10, "name": "city", "type": "string", "required": True},
             {"id": 11, "name": "open", "type": "boolean", "required": False}]}},
        {"id": 6, "name": "tags", "required": False,
         "type": {"type": "map", "key-id": 12, "key": "string", "value-id": 13, "value": "int",
                  "value-required": True}},
        {"id": 7, "name": "raw", "type": "fixed[4]", "required": False},
        {"id": 8, "name": "streamcast_ts", "type": "long", "required": True},
    ],
}


def arrow_field(name: str, kind: pa.DataType, number: int, nullable: bool) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"PARQUET:field_id": str(number)})


ARROW = pa.schema([
    arrow_field("litelink_offset", pa.int64(), 1, False),
    arrow_field("price", pa.float64(), 2, False),
    arrow_field("symbol", pa.string(), 3, True),
    arrow_field("sizes", pa.list_(arrow_field("element", pa.int64(), 9, False)), 4, True),
    arrow_field("venue", pa.struct([arrow_field("city", pa.string(), 10, False),
                                    arrow_field("open", pa.bool_(), 11, True)]), 5, True),
    arrow_field("tags", pa.map_(arrow_field("key", pa.string(), 12, False),
                                arrow_field("value", pa.int32(), 13, False)), 6, True),
    arrow_field("raw", pa.binary(4), 7, True),
    arrow_field("streamcast_ts", pa.int64(), 8, False),
])


def row(offset: int) -> dict:
    return {
        "litelink_offset": offset,
        "price": offset / 8,
        "symbol": None if offset % 7 == 0 else f"ſymbol-{offset % 5}-longer-than-sixteen",
        "sizes": None if offset % 5 == 0 else list(range(offset % 4)),
        "venue": None if offset % 3 == 0 else {"city": f"c{offset % 2}", "open": None if offset % 4 else True},
        "tags": None if offset % 6 == 0 else [(f"k{k}", k) for k in range(offset % 3)],
        "raw": None if offset % 2 else struct.pack(">I", offset),
        "streamcast_ts": STAMP_US + offset,
    }


def rows(start: int, end: int) -> list[dict]:
    return [row(offset) for offset in range(start, end)]


def parquet(path: Path, uri: str, values: list[dict]) -> dict:
    """Writes a file of rows; what the committer is told about it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(values, schema=ARROW), path, compression="zstd", row_group_size=50)
    metadata = pq.read_metadata(path)
    columns: dict[int, dict] = {}
    splits = []
    for group in range(metadata.num_row_groups):
        splits.append(min(offset for c in range(metadata.num_columns)
                          for offset in [metadata.row_group(group).column(c).dictionary_page_offset,
                                         metadata.row_group(group).column(c).data_page_offset] if offset))
        for c in range(metadata.num_columns):
            column = metadata.row_group(group).column(c)
            number = LEAVES[column.path_in_schema.split(".")[0], column.path_in_schema.split(".")[-1]]
            entry = columns.setdefault(number, {"field_id": number, "size_bytes": 0, "values": 0, "nulls": 0})
            entry["size_bytes"] += column.total_compressed_size
            entry["values"] += column.num_values
            entry["nulls"] += column.statistics.null_count if column.statistics else 0
    prices = [value["price"] for value in values]
    columns[2] |= {"lower": list(struct.pack("<d", min(prices))), "upper": list(struct.pack("<d", max(prices)))}
    offsets = [value["litelink_offset"] for value in values]
    stamps = [value["streamcast_ts"] for value in values]
    return {"uri": uri, "start": min(offsets), "end": max(offsets) + 1, "rows": len(values),
            "size_bytes": path.stat().st_size, "ts_us": [min(stamps), max(stamps)], "split_offsets": splits,
            "columns": [columns[number] for number in sorted(columns)]}


LEAVES = {("litelink_offset", "litelink_offset"): 1, ("price", "price"): 2, ("symbol", "symbol"): 3,
          ("sizes", "element"): 9, ("venue", "city"): 10, ("venue", "open"): 11, ("tags", "key"): 12,
          ("tags", "value"): 13, ("raw", "raw"): 7, ("streamcast_ts", "streamcast_ts"): 8}


class Committer:
    """The example, which answers each request with a line."""

    def __init__(self, environment: dict | None = None) -> None:
        binary = os.environ.get("LAKE_TABLE")
        if not binary:
            target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
            found = [target / profile / "examples" / "lake_table" for profile in ("release", "debug")]
            binary = next((path for path in found if path.exists()), None)
            if not binary:
                raise FileNotFoundError("no examples/lake_table; cargo build --release --example lake_table")
        self.process = subprocess.Popen([str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=os.environ | (environment or {}))

    def ask(self, op: str, **fields):
        self.process.stdin.write(json.dumps({"op": op} | fields) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the committer ended with {self.process.wait()} at {op}")
        return json.loads(line)

    def do(self, op: str, **fields):
        answer = self.ask(op, **fields)
        if isinstance(answer, dict) and "error" in answer:
            raise RuntimeError(f"{op}: {answer['error']}")
        return answer

    def close(self) -> None:
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait(timeout=20)


def new_name(kind: str, start: int, end: int) -> str:
    return f"data/{kind}/{start}-{end}-{uuid.uuid4().hex[:8]}.parquet"
