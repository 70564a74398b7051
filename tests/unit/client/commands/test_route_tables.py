"""Tables are as wide as their content or as the terminal."""

import pytest

from namesrv_stream.client.commands.answer_text import print_brokers, print_clusters
from tests.unit.client.commands.test_mqadmin_tables import CLUSTERS


def test_tables_are_as_wide_as_their_content(capsys: pytest.CaptureFixture[str]) -> None:
    print_clusters(CLUSTERS)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "CLUSTER  BROKER    ID  ADDRESS",
        "c        broker-a  0   10.0.0.1:10911",
        "c        broker-a  1   10.0.0.2:10911",
    ]
    print_brokers(CLUSTERS)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "CLUSTER  BROKER    MASTER          SLAVES  ACTING-MASTER  ZONE",
        "c        broker-a  10.0.0.1:10911  1       yes            -",
    ]


def test_wide_tables_ignore_the_width_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich then takes stdout for a terminal
    monkeypatch.setenv("COLUMNS", "50")
    print_brokers(CLUSTERS)
    narrow = capsys.readouterr().out
    assert "broker-a" in narrow
    assert "ACTING-MASTER" not in narrow.splitlines()[0]
    print_brokers(CLUSTERS, wide=True)
    assert "ACTING-MASTER" in capsys.readouterr().out.splitlines()[0]
