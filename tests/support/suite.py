"""Runs the `test_*.py` files of a directory and ends with the line that tests/run counts."""

import argparse
import sys
import unittest
from pathlib import Path


def main(directory: Path, doc: str) -> None:
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("-k", dest="pattern", action="append", help="only tests whose name contains this")
    parser.add_argument("-q", "--quiet", action="store_true")
    args = parser.parse_args()
    sys.path.insert(0, str(directory))
    loader = unittest.TestLoader()
    if args.pattern:
        loader.testNamePatterns = [f"*{pattern}*" for pattern in args.pattern]
    suite = loader.discover(str(directory))
    outcome = unittest.TextTestRunner(verbosity=1 if args.quiet else 2, stream=sys.stdout).run(suite)
    failed = len(outcome.failures) + len(outcome.errors) + len(outcome.unexpectedSuccesses)
    if loader.errors:
        print(*loader.errors, sep="\n")
    print(f"{outcome.testsRun - failed - len(outcome.skipped)} passed, {failed} failed, {len(outcome.skipped)} skipped")
    sys.exit(1 if failed or not outcome.testsRun else 0)
