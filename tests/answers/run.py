#!/usr/bin/env python3
"""Every answer of the control API and the batch API that /openapi.json names, had from a broker."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.dont_write_bytecode = True

import suite  # noqa: E402

suite.main(HERE, __doc__)
