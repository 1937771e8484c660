#!/usr/bin/env python3
"""The batch API over real sockets: every call and status, cursors under random histories, retries through kill -9."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.dont_write_bytecode = True

import suite  # noqa: E402

suite.main(HERE, __doc__)
