"""Runs last: the log records of the undisturbed broker's registrations."""

import orjson

from tests.support.offline_fold import read_records
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.stack import Stack

REGISTRATIONS = 10


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


def test_ten_unchanged_registrations_log_one_full_record(stack: Stack, periodic_broker: Broker) -> None:
    # It registers each 10 s since the session began; server and job have been killed meanwhile.
    wait_until(
        lambda: _unchanged_since_last_full(stack, periodic_broker) >= REGISTRATIONS,
        REGISTRATIONS * 11,
        "ten registrations since the last full record",
    )
