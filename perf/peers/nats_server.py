"""Shared by the NATS peers."""

import os

from lib import HOME, arguments, describe, program, version


def serve(wire):
    """Describes a server, with a synced JetStream unless `wire` is core NATS."""
    args = arguments()
    binary = program("nats-server", "run `perf/peers/install`", HOME / "target/perf/venv/bin/nats-server")
    config = args.root.parent / "nats.conf"
    cores = len(args.cores.split(","))
    text = f'listen: "127.0.0.1:{args.port}"\nmax_connections: 64000\nmax_pending: 268435456\n'
    if wire != "nats":
        text += f'jetstream {{ store_dir: "{args.root}", sync_interval: always, max_file_store: 50GB }}\n'
    config.write_text(text)
    describe(wire, version(binary, "--version"), [binary, "-c", config], {"GOMAXPROCS": str(cores)})
