"""Rows on their way through journal, files and tables, under kills, outages and load."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "storage")]

import suite  # noqa: E402

suite.main(Path(__file__).resolve().parent, __doc__)
