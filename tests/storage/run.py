"""Published tables, read by the programs that other people use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import suite  # noqa: E402

suite.main(Path(__file__).resolve().parent, __doc__)
