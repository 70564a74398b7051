"""Another server with the same id is detected by its records in the log."""

from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import Event, Origin, ServerStarted, ServerStopped, Tick
from namesrv_stream.route.fold.step import Record
from namesrv_stream.server.start.identity import Identity, RivalTicks
from namesrv_stream.table_errors import DuplicateServerId

OURS = Identity("s1", 200)
OTHER = Origin("s1", 100)


def seen(*events: Event) -> dict[int, list[int]]:
    sightings = RivalTicks(OURS)
    for number, event in enumerate(events):
        sightings.take(Record(0, number, 1_000 * number, encode_event(event)))
    return sightings.ticks


def test_ticks_of_another_start_with_the_same_id_are_found() -> None:
    assert seen(ServerStarted(OTHER), Tick(OTHER), Tick(Origin(*OURS)), Tick(OTHER)) == {100: [1_000, 3_000]}


def test_a_server_that_has_stopped_is_no_rival() -> None:
    assert seen(Tick(OTHER), ServerStopped(OTHER)) == {}


def test_other_servers_and_the_own_start_are_no_rivals() -> None:
    assert seen(Tick(Origin("s2", 100)), Tick(Origin("s11", 100)), Tick(Origin(*OURS))) == {}


def test_an_invalid_record_is_ignored() -> None:
    sightings = RivalTicks(OURS)
    sightings.take(Record(0, 0, 0, b'"s1"'))
    assert sightings.ticks == {}


def test_the_error_names_setting_and_file_and_is_a_configuration_error() -> None:
    error = DuplicateServerId("s1", 100)
    assert error.exit_code == 2
    assert "server.server_id" in str(error)
    assert "identity.json" in str(error)
