#!/usr/bin/env python3
"""Ways past the policy, and what a stranger can do to a broker that has one."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.dont_write_bytecode = True

import suite  # noqa: E402

suite.main(HERE, __doc__)
