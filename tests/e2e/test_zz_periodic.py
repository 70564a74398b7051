"""Runs last: checks the records of the undisturbed broker's registrations, and the rows of the whole session."""

import orjson

from tests.support.offline_fold import as_row, fold_offline, read_records
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.stack import Stack

REGISTRATIONS = 3


def _unchanged_since_last_full(stack: Stack, broker: Broker) -> int:
    unchanged = 0
    for record in read_records(stack.settings):
        event = orjson.loads(record.value)
        if event["kind"] == "broker_registered" and event["broker_name"] == broker.name:
            unchanged = 0
        elif event["kind"] == "broker_heartbeats":
            items = [i for i in event["items"] if i["broker_name"] == broker.name]
            unchanged += sum(i["proof"] == "registration" for i in items)
    return unchanged


def test_unchanged_registrations_log_no_further_full_record(stack: Stack, periodic_broker: Broker) -> None:
    # The broker has registered every 10 s since the session began, and the server has been killed meanwhile.
    wait_until(
        lambda: _unchanged_since_last_full(stack, periodic_broker) >= REGISTRATIONS,
        (REGISTRATIONS + 2) * 10,
        "registrations since the last full record",
        every_s=1,
    )


def test_rows_of_the_session_equal_a_fold_of_its_log(stack: Stack, periodic_broker: Broker) -> None:
    # Ticks never stop, so compare up to the offsets that the server knows as committed.
    covered = {int(p): int(o) for p, o in stack.get("/healthz")["next_offsets"].items()}
    rows = [row for row in stack.changes() if row["offset"] < covered[row["partition"]]]
    assert rows
    positions = [(row["partition"], row["offset"], row["seq"]) for row in rows]
    assert len(set(positions)) == len(positions), "there is a duplicate row"
    expected = [as_row(change) for change in fold_offline(stack.settings, covered)]
    assert [{c: row[c] for c in expected[0]} for row in rows] == expected
