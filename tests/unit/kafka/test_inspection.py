"""What records show about the job."""

import pytest

from namesrv_stream.kafka.inspection import has_sign_of_commit
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Event, KvPut, Origin, ServerStarted, Tick

SERVER = Origin("s1", 7)


@pytest.mark.parametrize(
    ("event", "is_sign"),
    [
        (ServerStarted(SERVER), False),
        (Tick(SERVER), False),  # of a server that has not read the commit of its own start
        (KvPut(SERVER, "namespace", '"tick"', JOB), False),
        (Tick(SERVER, "10.0.0.1:9876"), True),
        (Tick(Origin(JOB, 9)), True),
    ],
)
def test_ticks_of_the_job_and_of_listed_servers_show_commits(event: Event, is_sign: bool) -> None:
    assert has_sign_of_commit([b'{"kind":"tick"', encode_event(ServerStarted(SERVER)), encode_event(event)]) is is_sign
