"""All connections of a cluster close at once, with and without Kafka."""

from tests.support.name_server import a_registration_request
from tests.support.server_rig import MemoryTransport, Rig, turn

BROKERS = 8


def connect(rig: Rig, number: int) -> MemoryTransport:
    broker = rig.connect()
    rig.ask(broker, a_registration_request(f"10.0.0.{number}:10911", brokerName=f"b{number}"))
    return broker


async def a_fleet() -> tuple[Rig, list[MemoryTransport]]:
    """Return a server with eight registered brokers, all in the log."""
    rig = Rig()
    rig.talk()
    fleet = [connect(rig, number) for number in range(BROKERS)]
    await turn()
    rig.publisher.ack()
    return rig, fleet


def shown(rig: Rig) -> list[str]:
    return sorted(group.broker_name for group in rig.view.table.registered_groups())


ALL = [f"b{number}" for number in range(BROKERS)]


async def test_a_cluster_whose_connections_close_at_once_stays_in_the_routes_and_is_held() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
    await turn()
    assert shown(rig) == ALL
    rig.commit()

    assert rig.publisher.kinds().count("broker_disconnected") == BROKERS
    assert shown(rig) == ALL
    assert len(rig.view.table.held) == BROKERS


async def test_a_cluster_that_disconnects_together_with_kafka_stays_in_the_routes() -> None:
    rig, fleet = await a_fleet()
    for broker in fleet:
        broker.close()
    await turn()
    rig.publisher.fail()
    for number in (4, 0, 7, 5):
        connect(rig, number)
        assert shown(rig) == ALL

    rig.beat(3)
    rig.publisher.open()
    rig.publisher.ack()
    kinds = rig.publisher.kinds()
    assert shown(rig) == ALL
    assert kinds[kinds.index("server_resumed") :].count("broker_disconnected") == BROKERS - 4
