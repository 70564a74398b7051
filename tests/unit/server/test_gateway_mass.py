"""Connections of a whole cluster that close at once, at a server that may not reach Kafka either."""

from tests.support.name_server import a_registration_request
from tests.support.server_rig import MemoryTransport, Rig, turn

BROKERS = 8


def connect(rig: Rig, number: int) -> MemoryTransport:
    broker = rig.connect()
    rig.ask(broker, a_registration_request(f"10.0.0.{number}:10911", brokerName=f"b{number}"))
    return broker


async def a_fleet() -> tuple[Rig, list[MemoryTransport]]:
    """Eight brokers that are heard, and in the log."""
    rig = Rig()
    rig.talk()
    fleet = [connect(rig, number) for number in range(BROKERS)]
    await turn()
    rig.publisher.ack()
    return rig, fleet


def shown(rig: Rig) -> list[str]:
    return sorted(group.broker_name for group in rig.view.table.registered_groups())


ALL = [f"b{number}" for number in range(BROKERS)]


async def test_a_cluster_that_closes_at_once_is_shown_and_logged() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
    await turn()
    rig.publisher.ack()

    assert shown(rig) == ALL
    assert rig.publisher.kinds().count("broker_disconnected") == BROKERS


async def test_closes_seconds_apart_are_deaths() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
        await turn()
        for _ in range(10):
            rig.beat()
            rig.publisher.ack()
    assert shown(rig) == []


async def test_a_cluster_stays_shown_when_kafka_is_lost_with_it_and_brokers_come_back_one_by_one() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
    await turn()
    rig.publisher.fail()
    assert shown(rig) == ALL
    # The close that showed the mass is the fifth; its broker is the first to return.
    for number in (4, 0, 7, 5):
        connect(rig, number)
        assert shown(rig) == ALL

    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    kinds = rig.publisher.kinds()
    assert shown(rig) == ALL
    assert kinds[kinds.index("server_resumed") :].count("broker_disconnected") == BROKERS - 4


async def test_who_is_kept_is_heard_over_its_next_connection() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
    again = connect(rig, 3)
    await turn()
    again.close()
    assert shown(rig) == ALL

    fleet = [connect(rig, number) for number in range(BROKERS)]
    fleet[3].close()
    assert shown(rig) == [name for name in ALL if name != "b3"]
