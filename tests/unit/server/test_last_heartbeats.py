"""The age of a broker's last heartbeat at the server that received it."""

from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, Proof
from namesrv_stream.route.model import LeaseKey
from namesrv_stream.server.gateway.observed_time import LastHeartbeats
from tests.support.builders import NAME, S1, Log, a_key, a_registration, over
from tests.support.name_server import a_registration_request
from tests.support.server_rig import TICK_MS, Rig

KEY = LeaseKey(NAME, a_key())


def _registered() -> BrokerRegistered:
    return BrokerRegistered(over(S1, 1), a_registration())


def test_the_age_of_a_broker_counts_from_its_last_heartbeat() -> None:
    heartbeats = LastHeartbeats()
    heartbeats.received(_registered(), 1_000)
    assert heartbeats.age_ms(KEY, 4_000) == 3_000
    heartbeats.received(BrokerHeartbeat(over(S1, 1), NAME, a_key(), Proof.HEARTBEAT), 5_000)
    assert heartbeats.age_ms(KEY, 5_500) == 500


def test_the_age_of_a_broker_without_a_heartbeat_is_unknown() -> None:
    assert LastHeartbeats().age_ms(KEY, 4_000) is None


def test_a_removed_broker_is_forgotten_unless_it_is_registered_again() -> None:
    heartbeats, log = LastHeartbeats(), Log()
    log.register(a_registration())
    gone = log.disconnect(a_registration())
    heartbeats.received(_registered(), 1_000)
    heartbeats.committed(gone, lambda key: True)
    assert heartbeats.age_ms(KEY, 2_000) == 1_000
    heartbeats.committed(gone, lambda key: False)
    assert heartbeats.age_ms(KEY, 2_000) is None


def test_brokers_that_never_become_live_are_forgotten_a_limited_number_with_each_commit() -> None:
    heartbeats, checked = LastHeartbeats(), list[LeaseKey]()
    live = [LeaseKey(NAME, a_key(f"10.0.0.{number}:1")) for number in range(9)]
    ignored = [LeaseKey(NAME, a_key(f"10.1.0.{number}:1")) for number in range(450)]

    def is_live(key: LeaseKey) -> bool:
        checked.append(key)
        return key in live

    for key in (*live, *ignored):
        heartbeats.received(BrokerHeartbeat(over(S1, 1), *key, Proof.HEARTBEAT), 1_000)
    for _ in range(4):
        checked.clear()
        heartbeats.committed((), is_live)
        assert len(checked) <= 200
    assert [heartbeats.age_ms(key, 2_000) for key in live] == [1_000] * len(live)
    assert {heartbeats.age_ms(key, 2_000) for key in ignored} == {None}
    checked.clear()
    heartbeats.committed((), is_live)
    assert sorted(checked) == live


async def test_a_server_knows_the_age_of_a_broker_that_registered_with_it() -> None:
    rig = Rig()
    rig.talk()
    rig.ask(rig.connect(), a_registration_request())
    rig.beat(6)
    group = rig.view.table.group("broker-a")
    key = LeaseKey("broker-a", next(iter(group.live_brokers)))
    assert rig.gateway.last_heartbeats.age_ms(key, rig.gateway.observed_ms) == 6 * TICK_MS
