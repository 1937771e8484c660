"""Other programs that read a table: DuckDB by its metadata file and by its directory, and PyIceberg."""

from importlib.util import find_spec
from pathlib import Path

import duckdb

# DuckDB's C++ Avro reader ends the whole process on what it does not like, so a failure here may be an abort.


def connect(s3: dict | None = None) -> duckdb.DuckDBPyConnection:
    """A connection with the iceberg extension, the copy inside the litelink package."""
    db = duckdb.connect()
    package = find_spec("litelink")
    for folder in Path(package.origin).parent.glob(".bin/*/*"):
        if (folder / "iceberg.duckdb_extension").exists():
            for name in ["avro", "iceberg"] + (["httpfs"] if s3 else []):
                db.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
    if s3:
        db.execute(f"""CREATE SECRET (TYPE s3, KEY_ID '{s3["access_key"]}', SECRET '{s3["secret_key"]}',
            ENDPOINT '{s3["endpoint"].removeprefix("http://")}', URL_STYLE 'path', USE_SSL false,
            REGION 'us-east-1')""")
    return db


def canonical(value: dict) -> dict:
    """A row with maps as dicts, which readers return in several ways."""
    value = dict(value)
    tags = value.get("tags")
    if isinstance(tags, list):
        value["tags"] = dict(tags)
    elif isinstance(tags, dict) and set(tags) == {"key", "value"} and isinstance(tags["key"], list):
        value["tags"] = dict(zip(tags["key"], tags["value"]))
    return value


def by_duckdb(db, what: str, extra: str = "") -> list[dict]:
    cursor = db.execute(f"SELECT * FROM iceberg_scan('{what}'{extra}) ORDER BY litelink_offset")
    names = [column[0] for column in cursor.description]
    return [canonical(dict(zip(names, values))) for values in cursor.fetchall()]


def by_pyiceberg(metadata: str, properties: dict | None = None) -> list[dict]:
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata, properties or {})
    found = table.scan().to_arrow().sort_by("litelink_offset").to_pylist()
    return [canonical(value) for value in found]
