#!/usr/bin/env python3
"""What is different when the kernel makes records: run by tests/ktls/run, under a kernel that does."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent / "security")]
sys.dont_write_bytecode = True

import suite  # noqa: E402

suite.main(HERE, __doc__)
