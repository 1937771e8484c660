#!/usr/bin/env python3
"""The console page, as a person with a browser, a keyboard and a narrow window finds it.

    tests/console/run                                  starts a demo of its own ($STREAMCAST_BIN)
    tests/console/run --address 127.0.0.1:8765         looks at one that runs (streams trades and host)
    tests/console/run --screenshots DIR                leaves pictures of what it saw
    tests/console/run --pictures docs/images           makes the pictures of docs/console.md and tests nothing

Needs /usr/bin/chromium (or $CHROMIUM) and Playwright.
"""

import argparse
import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import access_checks  # noqa: E402
import checks  # noqa: E402
import control_checks  # noqa: E402
import history_checks  # noqa: E402
import pictures  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="HOST:PORT of a running demo")
    parser.add_argument("--screenshots", type=Path, help="directory for pictures")
    parser.add_argument("--pictures", type=Path, help="directory for the pictures of the documentation")
    parser.add_argument("-k", dest="pattern", action="append", help="only tests whose name contains this")
    args = parser.parse_args()
    checks.ADDRESS, checks.SCREENSHOTS = args.address, args.screenshots
    checks.BINARY = os.environ.get("STREAMCAST_BIN", str(HERE.parents[1] / "target/release/streamcast-uring"))
    checks.CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    if args.pictures:
        pictures.take(checks.BINARY, checks.CHROMIUM, checks.FLAGS, args.pictures)
        return
    loader = unittest.TestLoader()
    if args.pattern:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in args.pattern]
    suite = unittest.TestSuite([loader.loadTestsFromModule(checks)])
    if not args.address:
        for case in (control_checks.Control, history_checks.History, access_checks.Access):
            suite.addTests(loader.loadTestsFromTestCase(case))
    outcome = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(suite)
    failed = len(outcome.failures) + len(outcome.errors)
    print(f"{max(0, outcome.testsRun - failed - len(outcome.skipped))} passed, {failed} failed, {len(outcome.skipped)} skipped")
    sys.exit(1 if failed or not outcome.testsRun else 0)


if __name__ == "__main__":
    main()
