"""Every answer that the description of the API names is had from a broker, and no other ever is."""

import time

import batches
import control
import gate
from broker import Case
from guarded_broker import Guarded

SCENARIOS = [
    gate.who_may_not, gate.who_failed_too_often, gate.who_finds_the_gate_busy,
    control.what_was_sent, control.what_a_stream_allows, control.too_much_at_once, control.a_disk_that_fails, control.a_broker_that_stops,
    batches.what_was_sent, batches.rows_that_left, batches.how_long_rows_are_kept, batches.a_journal_that_does_not_take_more, batches.too_much_at_once,
]


class EveryAnswer(Case):
    maxDiff = None

    async def test_it_is_had(self):
        for scenario in SCENARIOS:
            began = time.monotonic()
            with self.subTest(scenario=f"{scenario.__module__}.{scenario.__name__}"):
                await scenario()
            print(f"{scenario.__module__}.{scenario.__name__} {time.monotonic() - began:.1f} s", flush=True)
        ledger = Guarded.ledger
        with self.subTest("everything that is described was had"):
            self.assertEqual(ledger.missing(), [])
        with self.subTest("everything in the contracts is described"):
            self.assertEqual(ledger.undescribed(), [])
        print(f"{sum(map(len, ledger.had.values()))} answers of {len(ledger.had)} operations", flush=True)
