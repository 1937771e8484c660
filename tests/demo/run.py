#!/usr/bin/env python3
"""The demo, as somebody finds it who starts it and copies its lines: rows counted in the published table while it runs.

    tests/run demo                           half a minute
    DEMO_SECONDS=120 tests/run demo          two minutes; prints a transcript

Needs the Python environment of tests/requirements.txt.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.dont_write_bytecode = True

from suite import main  # noqa: E402

if __name__ == "__main__":
    main(Path(__file__).resolve().parent, __doc__)
