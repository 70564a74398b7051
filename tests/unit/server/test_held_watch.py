"""What the log says of held brokers."""

import logging

import pytest

from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.held_watch import HeldWatch
from tests.support.builders import Log, a_registration

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]


def test_held_brokers_are_told_when_they_are_seen_first_and_when_tables_are_opened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, view = Log(FoldSettings(guard_min_brokers=2)), RouteView()
    watch = HeldWatch(view)
    for registration in FLEET:
        log.register(registration)
    log.pass_time(121_000)
    with caplog.at_level(logging.WARNING):
        view.commit(log.output.changes, {0: len(log.records)})
        watch.committed(log.output.changes)
        watch.opened()
    assert [r.getMessage().partition(" until")[0] for r in caplog.records] == ["brokers held cluster=c0 brokers=3"] * 2
