"""Serves the streams of a declaration with the Python reference."""

import argparse
import asyncio
import json
from pathlib import Path

import streamcast
import uvicorn

LIMITS = ("max_backlog", "max_inbound", "max_in_flight")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--streams", type=Path, required=True)
    args = parser.parse_args()
    declared = json.loads(args.streams.read_text())["streams"]
    streams = [
        streamcast.Stream.open(
            one["name"],
            root=args.root,
            schema=one["schema"],
            create=True,
            max_replay=one["max_replay"],
            exactly_once=one["exactly_once"],
        )
        if one["durable"]
        else streamcast.Stream(one["name"], schema=one["schema"])
        for one in declared
    ]
    limits = {key: {one["name"]: one["limits"][key] for one in declared if key in one["limits"]} for key in LIMITS}
    config = streamcast.BrokerConfig(maintain=False, **{key: chosen for key, chosen in limits.items() if chosen})
    app = streamcast.create_app(config, streams=streams)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=args.port,
            log_level="error",
            lifespan="on",
            backlog=8192,
            ws_per_message_deflate=False,
            ws_max_size=config.transport_max_bytes,
        )
    )
    asyncio.run(server.serve())


if __name__ == "__main__":
    main()
