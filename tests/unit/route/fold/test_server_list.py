"""Which name servers are on the list for clients, by the ticks that advertise their addresses."""

from dataclasses import replace

import orjson
import pytest

from namesrv_stream.errors import EventDecodeError
from namesrv_stream.route import reducer
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.route.event_json import decode_record, encode_event
from namesrv_stream.route.events import Origin, ServerResumed, ServerStarted, ServerStopped, Tick
from namesrv_stream.route.fold.derived_state import rebuilt_state
from namesrv_stream.route.fold.state import decode_state, encode_state
from namesrv_stream.route.table import RouteTable
from tests.support.builders import S1, S2, Log

ADDRESS = "10.0.0.1:9876"
LISTED = f"talking {ADDRESS}"


def _log(*servers: Origin) -> Log:
    log = Log()
    for server in servers or (S1,):
        log.say(ServerStarted(server))
    return log


def _brief(rows: list[RouteChange]) -> list[tuple[str | None, str, str | None]]:
    return [(row.server_id, row.cause, row.value) for row in rows]


def _table(*logs: Log) -> RouteTable:
    table = RouteTable()
    reducer.apply(table, [row for log in logs for row in log.output.changes])
    return table


def _listed(*logs: Log) -> dict[str, str]:
    return {s.server_id: s.address for s in _table(*logs).known_servers(len(logs)) if s.is_listed}


def test_a_tick_with_an_address_lists_its_server_and_one_without_removes_it() -> None:
    log = _log()
    assert _listed(log) == {}
    assert _brief(log.say(Tick(S1, ADDRESS), 500)) == [("s1", "server_listed", LISTED)]
    assert _listed(log) == {"s1": ADDRESS}
    assert log.say(Tick(S1, ADDRESS), 500) == []
    assert _brief(log.say(Tick(S1, "10.0.0.2:9876"), 500)) == [("s1", "server_listed", "talking 10.0.0.2:9876")]
    assert _brief(log.tick()) == [("s1", "server_unlisted", "talking")]
    assert _listed(log) == {}


def test_servers_that_advertise_nothing_write_the_same_rows_as_earlier_versions() -> None:
    log = _log(S1, S2)
    rows = [*log.output.changes, *log.pass_time(20_000, S1)]
    assert {row.value for row in rows} == {"talking", "silent"}
    assert b'"address"' not in encode_event(Tick(S1))


def test_a_silent_server_is_not_listed_until_its_next_tick() -> None:
    log = _log(S1, S2)
    log.say(Tick(S2, ADDRESS))
    assert ("s2", "server_silent", "silent") in _brief(log.pass_time(15_000, S1))
    assert _listed(log) == {}
    rows = _brief(log.say(Tick(S2, ADDRESS)))
    assert rows == [("s2", "server_heard", "talking"), ("s2", "server_listed", LISTED)]


def test_a_lost_server_stays_known_and_is_not_listed_until_it_starts_again() -> None:
    log = _log(S1, S2)
    log.say(Tick(S2, ADDRESS))
    log.say(ServerStopped(S2))
    log.pass_time(3_600_000, S1)
    assert [(s.server_id, s.status, s.is_listed) for s in _table(log).known_servers(1)] == [
        ("s1", "talking", False),
        ("s2", "lost", False),
    ]
    again = S2._replace(server_epoch=S2.server_epoch + 1)
    log.say(ServerStarted(again))
    log.say(Tick(again, ADDRESS))
    assert _listed(log) == {"s2": ADDRESS}


def test_a_server_that_lost_records_stays_listed() -> None:
    log = _log()
    log.say(Tick(S1, ADDRESS), 500)
    assert _brief(log.say(ServerResumed(S1)))[-1] == ("s1", "server_resumed", LISTED)
    assert _listed(log) == {"s1": ADDRESS}


@pytest.mark.parametrize("event", [ServerStopped(S1), ServerStarted(S1._replace(server_epoch=S1.server_epoch + 1))])
def test_a_stop_and_a_start_remove_the_server_from_the_list(event: ServerStopped | ServerStarted) -> None:
    log = _log()
    log.say(Tick(S1, ADDRESS), 500)
    log.say(event, 500)
    assert _listed(log) == {}


def test_late_ticks_of_an_earlier_start_do_not_count() -> None:
    log = _log()
    log.say(ServerStarted(S1._replace(server_epoch=S1.server_epoch + 1)))
    assert log.say(Tick(S1, ADDRESS)) == []


def test_the_address_survives_a_restart_of_the_job() -> None:
    log = _log()
    log.say(Tick(S1, ADDRESS), 500)
    assert decode_state(encode_state(log.state)).servers["s1"].address == ADDRESS
    rebuilt = rebuilt_state(0, 1, log.state.next_offset, log.now_ms, _table(log))
    assert rebuilt.servers["s1"].address == ADDRESS


def test_a_state_of_an_earlier_version_lists_its_servers_with_their_next_ticks() -> None:
    log = _log()
    log.say(Tick(S1, ADDRESS), 500)
    fields = orjson.loads(encode_state(log.state))
    assert fields.pop("addresses") == {"s1": ADDRESS}
    log.state = decode_state(orjson.dumps(fields))
    assert _brief(log.say(Tick(S1, ADDRESS), 500)) == [("s1", "server_listed", LISTED)]


def test_only_a_server_that_writes_records_to_every_partition_is_listed() -> None:
    logs = [Log(partition=p, partitions=2) for p in range(2)]
    for log in logs:
        log.say(ServerStarted(S1))
    logs[0].say(Tick(S1, ADDRESS), 500)
    assert _listed(*logs) == {}
    logs[1].say(Tick(S1, ADDRESS), 500)
    assert _listed(*logs) == {"s1": ADDRESS}
    assert _listed(logs[0]) == {"s1": ADDRESS}
    (known,) = _table(logs[0]).known_servers(2)
    assert (known.status, known.address, known.is_listed) == ("talking", ADDRESS, False)


def test_the_rows_of_an_earlier_start_do_not_count() -> None:
    logs = [Log(partition=p, partitions=2) for p in range(2)]
    for log in logs:
        log.say(ServerStarted(S1))
        log.say(Tick(S1, ADDRESS), 500)
    again = S1._replace(server_epoch=S1.server_epoch + 1)
    logs[0].say(ServerStarted(again))
    logs[0].say(Tick(again, ADDRESS), 500)
    assert _listed(*logs) == {}


def test_a_tick_with_an_address_is_read_as_it_was_written() -> None:
    assert decode_record(encode_event(Tick(S1, ADDRESS))) == [Tick(S1, ADDRESS)]


@pytest.mark.parametrize("address", [1, "10.0.0.1", "a b:1", "a:1;b:2", "a:1\n", "a:123456", ":9876"])
def test_an_address_that_would_break_the_list_is_refused_by_name(address: object) -> None:
    record = orjson.loads(encode_event(replace(Tick(S1), address=ADDRESS))) | {"address": address}
    with pytest.raises(EventDecodeError, match="address"):
        decode_record(orjson.dumps(record))
