"""The log lines of a commit: one per cluster and one per setting, however many rows."""

import logging

import pytest

from namesrv_stream.route.events import DIRECT, GuardReleased, Origin, SettingsChanged
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.route.model import Registration
from namesrv_stream.route.reducer import apply
from namesrv_stream.route.table import RouteTable
from namesrv_stream.tables.job_commits import log_commit, log_held
from tests.support.builders import S1, Log, a_registration

_OPERATOR = Origin(DIRECT, 0)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "namesrv_stream")
    return caplog


def _fleet(cluster: str = "c0") -> list[Registration]:
    return [a_registration(f"10.0.0.{n}:1", broker_name=f"{cluster}-{n}", cluster=cluster) for n in range(3)]


def _log(*clusters: str) -> Log:
    log = Log(FoldSettings(guard_known_ms=0, guard_min_brokers=2))
    for cluster in clusters:
        for registration in _fleet(cluster):
            log.register(registration)
    return log


def test_brokers_that_become_held_cause_one_warning_for_each_cluster(lines: pytest.LogCaptureFixture) -> None:
    log_commit(_log("c0", "c1").pass_time(121_000))
    assert [record.levelname for record in lines.records] == ["WARNING", "WARNING"]
    for cluster, line in zip(("c0", "c1"), lines.messages, strict=True):
        assert line.startswith(f"brokers held cluster={cluster} brokers=3 until=2023-11-14T22:19:")
        assert f"reason=3 of 3 brokers of {cluster} seem to end at once: not heard for " in line


def test_brokers_that_stay_held_while_others_join_them_are_not_logged_again(lines: pytest.LogCaptureFixture) -> None:
    log = _log("c0")
    log_commit(row for registration in _fleet() for row in log.disconnect(registration))
    late = a_registration("10.0.0.9:1", broker_name="late")
    log.register(late)
    log_commit(log.disconnect(late))
    assert [line.split(" until=")[0] for line in lines.messages] == [
        "brokers held cluster=c0 brokers=3",
        "brokers held cluster=c0 brokers=1",
    ]


def test_brokers_that_are_no_longer_held_cause_one_line_with_the_causes(lines: pytest.LogCaptureFixture) -> None:
    log = _log("c0")
    log.pass_time(121_000)
    rows = log.beat(_fleet()[0]) + log.say(GuardReleased(_OPERATOR, "c0", "ada@desk"))
    log_commit(rows)
    assert lines.messages == [
        "brokers no longer held cluster=c0 brokers=3 causes=guard_released:2,heard:1 detail=by ada@desk"
    ]


def test_changed_setting_is_logged_with_operator_and_old_value(lines: pytest.LogCaptureFixture) -> None:
    log_commit(Log().say(SettingsChanged(_OPERATOR, "ada@desk", (("default_timeout_ms", 60_000),))))
    assert lines.messages == ["setting changed setting=default_timeout_ms old=120000 new=60000 by=ada@desk at=0:0"]


def test_a_setting_changed_in_several_partitions_causes_one_line(lines: pytest.LogCaptureFixture) -> None:
    event = SettingsChanged(_OPERATOR, "config", (("guard_share_percent", 60),))
    log_commit(row for p in range(2) for row in Log(partition=p, partitions=2).say(event))
    assert lines.messages == ["setting changed setting=guard_share_percent old=50 new=60 by=config at=0:0,1:0"]


def test_other_rows_are_not_logged(lines: pytest.LogCaptureFixture) -> None:
    log_commit(_log("c0").output.changes)
    assert lines.messages == []


def test_text_of_peers_cannot_break_a_line(lines: pytest.LogCaptureFixture) -> None:
    log_commit(_log("c\n0").pass_time(121_000))
    log_commit(Log().say(SettingsChanged(S1, "ada\n", (("default_timeout_ms", 60_000),))))
    assert [line.count("\n") for line in lines.messages] == [0, 0]


def test_brokers_held_in_a_table_just_opened_are_logged(lines: pytest.LogCaptureFixture) -> None:
    log, table = _log("c0", "c1"), RouteTable()
    log.pass_time(121_000)
    apply(table, log.output.changes)
    log_held(table.held)
    assert [line.split(" until=")[0] for line in lines.messages] == [
        "brokers held cluster=c0 brokers=3",
        "brokers held cluster=c1 brokers=3",
    ]
    assert "reason=3 of 3 brokers seemed to end at once: not heard for " in lines.text
