"""Tables that are as wide as their content."""

from namesrv_stream.client.route_tables import brokers_table, clusters_table, plain_table
from tests.unit.client.test_mqadmin_tables import CLUSTERS


def test_tables_are_as_wide_as_their_content() -> None:
    assert clusters_table(CLUSTERS).splitlines() == [
        "CLUSTER  BROKER    ID  ADDRESS",
        "c        broker-a  0   10.0.0.1:10911",
        "c        broker-a  1   10.0.0.2:10911",
    ]
    assert brokers_table(CLUSTERS).splitlines() == [
        "CLUSTER  BROKER    MASTER          SLAVES  ACTING-MASTER  ZONE",
        "c        broker-a  10.0.0.1:10911  1       yes            -",
    ]


def test_control_characters_of_a_peer_do_not_reach_the_terminal() -> None:
    assert plain_table(["NAME"], [["a\x1b[2J"]]) == "NAME\na\\x1b[2J\n"
