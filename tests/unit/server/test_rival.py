"""Another server with the same id is detected by its records in the log."""

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import BrokerHeartbeat, Event, Origin, Proof, ServerStarted, ServerStopped, Tick
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.model import LiveKey
from namesrv_stream.server.start.identity import Identity, RivalRecords
from namesrv_stream.table_errors import DuplicateServerId

OURS = Identity("s1", 200)
OTHER = Origin("s1", 100)


def found(*events: Event) -> dict[int, tuple[int, int]]:
    records = RivalRecords(*OURS)
    for number, event in enumerate(events):
        records.take(Record(0, number, 1_000 * number, encode_event(event)))
    return records.times


def test_records_of_another_start_with_the_same_id_are_found() -> None:
    heartbeat = BrokerHeartbeat(OTHER, "broker-a", LiveKey("c0", "h:1"), Proof.HEARTBEAT)
    own = Tick(Origin(*OURS))
    assert found(own, ServerStarted(OTHER), Tick(OTHER), own) == {100: (1_000, 2_000)}
    assert found(own, Tick(OTHER), own, heartbeat) == {100: (1_000, 3_000)}  # its ticks may be withheld


def test_a_server_that_has_stopped_is_no_rival() -> None:
    assert found(Tick(OTHER), ServerStopped(OTHER)) == {}


def test_other_servers_and_the_own_start_are_no_rivals() -> None:
    assert found(Tick(Origin("s2", 100)), Tick(Origin("s11", 100)), Tick(Origin(*OURS))) == {}


def test_an_invalid_record_is_ignored() -> None:
    records = RivalRecords(*OURS)
    records.take(Record(0, 0, 0, b'"s1"'))
    assert records.times == {}


def test_the_error_names_setting_and_file_and_is_a_configuration_error() -> None:
    error = DuplicateServerId("s1", 100)
    assert error.exit_code == 2
    assert "server.server_id" in str(error)
    assert "identity.json" in str(error)
