"""Requests of brokers: registrations, heartbeats and unregistrations."""

import zlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
import pytest

from namesrv_stream.processor.broker import registration_hash
from namesrv_stream.processor.name_server import Accepted, Answer, Options
from namesrv_stream.remoting import fastjson
from namesrv_stream.remoting.command import ONEWAY_FLAG, RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader
from namesrv_stream.route.events import (
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Origin,
    Proof,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.group import delete_topic
from namesrv_stream.route.model import DataVersion, LeaseKey, LiveKey, QueueData, TopicQueueMappingInfo
from namesrv_stream.route.registration import MAX_PROCESSES
from namesrv_stream.route.view import route_view
from tests.support.name_server import (
    MASTER,
    SLAVE,
    Exchange,
    a_body,
    a_broker_header,
    a_registration_request,
    a_topic,
)

ORIGIN = Origin("s1", 1, 1)
KEY = LeaseKey("broker-a", LiveKey("c0", MASTER))
DAY_MS = 86_400_000


def a_heartbeat_request(addr: str = MASTER, **changes: str | None) -> RemotingCommand:
    return RemotingCommand(RequestCode.BROKER_HEARTBEAT, ext_fields=a_broker_header(addr, **changes))


def a_version_request(counter: int = 1, addr: str = MASTER, **changes: str | None) -> RemotingCommand:
    body = orjson.dumps({"counter": counter, "stateVersion": 0, "timestamp": 1_000})
    return RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext_fields=a_broker_header(addr, **changes), body=body)


def an_unregister_request(addr: str = MASTER, **changes: str | None) -> RemotingCommand:
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, ext_fields=a_broker_header(addr, **changes))


def with_registered(*requests: RemotingCommand, options: Options | None = None) -> Exchange:
    """Return a server that has answered ``requests``, by default the registration of one master."""
    server = Exchange(options)
    for request in requests or (a_registration_request(),):
        assert server.send(request).response.code == ResponseCode.SUCCESS
    server.logged.clear()
    return server


def accepted_by(answer: Answer) -> Accepted:
    (accepted,) = answer.accepted
    return accepted


def is_full(answer: Answer) -> bool:
    return isinstance(accepted_by(answer).logged, BrokerRegistered)


def was_decoded(answer: Answer) -> bool:
    return accepted_by(answer).applied is not None


def remark_of(answer: Answer) -> str:
    return answer.response.remark or ""


# ---- 103: the first registration ----


def test_equal_registrations_that_wait_for_the_job_share_their_topics() -> None:
    server = with_registered()
    applied = [accepted_by(server.send(a_registration_request(), connection)).applied for connection in (2, 3, 4)]
    assert len({id(event.registration.topics) for event in applied if isinstance(event, BrokerRegistered)}) == 1


def test_first_registration_is_logged_in_full_and_applied() -> None:
    server = Exchange()

    answer = server.send(a_registration_request(heartbeatTimeoutMillis="10000", zone_name="z1"))

    event = accepted_by(answer).logged
    assert isinstance(event, BrokerRegistered)
    assert event == accepted_by(answer).applied
    r = event.registration
    assert (r.cluster, r.broker_name, r.broker_addr, r.broker_id) == ("c0", "broker-a", MASTER, 0)
    assert (r.ha_server_addr, r.timeout_ms, r.enable_acting_master, r.zone_name) == (
        "10.0.0.1:10912", 10_000, False, "z1",
    )  # fmt: skip
    assert (r.data_version, r.filter_servers, r.topic_mappings) == (DataVersion(1, 1_000, 0), (), None)
    assert r.topics == {"TopicTest": QueueData(8, 8, 6, 0), "baseTopic": QueueData(8, 8, 6, 0)}
    assert event.origin == ORIGIN


def test_hash_of_the_registration_is_that_of_header_and_body() -> None:
    request = a_registration_request()

    event = accepted_by(Exchange().send(request)).logged

    assert isinstance(event, BrokerRegistered)
    header = RegisterBrokerRequestHeader.from_ext_fields(request.ext_fields)
    assert event.registration.registration_hash == registration_hash(header, request.body or b"")


def test_broker_without_an_acting_master_flag_is_recorded_as_an_old_broker() -> None:
    event = accepted_by(Exchange().send(a_registration_request(enableActingMaster=None))).logged

    assert isinstance(event, BrokerRegistered)
    assert event.registration.enable_acting_master is None


def test_static_topics_are_part_of_the_registration() -> None:
    info = {"topic": "st", "bname": "broker-a", "totalQueues": 4, "epoch": 7, "scope": "g", "currIdMap": {"0": 0}}

    event = accepted_by(
        Exchange().send(a_registration_request(body=a_body(topicQueueMappingInfoMap={"st": info})))
    ).logged

    assert isinstance(event, BrokerRegistered)
    assert event.registration.topic_mappings == {
        "st": TopicQueueMappingInfo("st", "broker-a", 4, 7, "g", False, {0: 0})
    }


def test_registration_without_a_body_is_accepted() -> None:
    request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=a_broker_header())

    answer = Exchange().send(request)

    assert answer.response.code == ResponseCode.SUCCESS
    assert is_full(answer)


def test_master_gets_no_addresses_and_no_body() -> None:
    response = Exchange().send(a_registration_request()).response

    assert (response.code, response.remark, response.ext_fields, response.body) == (
        ResponseCode.SUCCESS,
        None,
        {},
        None,
    )


# ---- 103: refusals log nothing and change nothing ----

REFUSALS = {
    "wrong crc": (a_registration_request(crc=1), "crc32 not match"),
    "crc of a body that is absent": (
        RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=a_broker_header(bodyCrc32="5")),
        "crc32 not match",
    ),
    "one topic first": (a_registration_request(body=a_body({"t": a_topic()})), "register broker failed"),
    "no name": (a_registration_request(brokerName=None), "brokerName is missing"),
    "no address": (a_registration_request(brokerAddr=None), "brokerAddr is missing"),
    "empty address": (a_registration_request(brokerAddr=""), "brokerAddr is missing"),
    "no cluster": (a_registration_request(clusterName=None), "clusterName is missing"),
    "no id": (a_registration_request(brokerId=None), "brokerId is missing or not a number"),
    "id is a word": (a_registration_request(brokerId="x"), "brokerId is missing or not a number"),
    "no release's version": (a_registration_request(version=-1), "version is negative"),
    "no fields": (RemotingCommand(RequestCode.REGISTER_BROKER), "brokerName is missing"),
    "malformed body": (a_registration_request(body=b"{"), "body of request 103 cannot be decoded: "),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_registration_is_answered_with_system_error_and_changes_nothing(case: str) -> None:
    request, remark = REFUSALS[case]
    server = Exchange()

    answer = server.send(request)

    assert answer.response.code == ResponseCode.SYSTEM_ERROR
    assert remark_of(answer).startswith(remark)
    assert answer.accepted == ()
    # Java refuses with an empty response header, except if it cannot decode the body.
    assert answer.response.ext_fields == (None if case == "malformed body" else {})
    assert server.server.logged == {}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_registration_does_not_change_a_known_broker(case: str) -> None:
    server = with_registered(a_registration_request("10.0.0.9:10911", brokerName="other"))
    before = dict(server.view.table.groups)

    server.send(REFUSALS[case][0])

    assert server.view.table.groups == before


def test_newcomer_of_a_name_with_too_many_processes_is_refused_with_the_limit() -> None:
    server = with_registered(
        *(a_registration_request(f"10.0.1.{n}:10911", brokerId=str(n)) for n in range(MAX_PROCESSES))
    )
    before = server.view.table.group("broker-a")

    answer = server.send(a_registration_request("10.0.2.1:10911", brokerId=str(MAX_PROCESSES)))

    assert answer.response.code == ResponseCode.SYSTEM_ERROR
    assert remark_of(answer) == f"broker-a has {MAX_PROCESSES} live processes, and may have no more"
    assert server.view.table.group("broker-a") is before


def test_crc_zero_is_not_checked() -> None:
    assert Exchange().send(a_registration_request(crc=0)).response.code == ResponseCode.SUCCESS


def test_crc_is_that_of_the_body_as_sent_without_its_sign_bit() -> None:
    bodies = [a_body(counter=n) for n in range(64)]
    negative = next(b for b in bodies if zlib.crc32(b) >= 1 << 31)

    assert Exchange().send(a_registration_request(body=negative)).response.code == ResponseCode.SUCCESS
    unchecked = Exchange().send(a_registration_request(body=negative, crc=zlib.crc32(negative)))
    # 2^31 and above is no Java int, so the field counts as absent: unchecked.
    assert unchecked.response.code == ResponseCode.SUCCESS


def test_registration_of_one_topic_after_a_full_one_is_logged_in_full_every_time() -> None:
    server = with_registered()
    request = a_registration_request(body=a_body({"new": a_topic()}, counter=2))

    assert [is_full(server.send(request)) for _ in range(2)] == [True, True]
    assert "new" in server.view.table.group("broker-a").topics


# ---- 103: an unchanged registration ----


def test_ten_periodic_registrations_log_one_full_record() -> None:
    server = Exchange()

    answers = [server.send(a_registration_request(body=a_body(stamp=n))) for n in range(10)]

    assert [is_full(a) for a in answers] == [True] + [False] * 9
    assert all(a.response.code == ResponseCode.SUCCESS for a in answers)


def test_unchanged_registration_is_logged_as_a_heartbeat_with_its_hash() -> None:
    server = with_registered()
    group = server.view.table.group("broker-a")

    event = accepted_by(server.send(a_registration_request(body=a_body(stamp=2)))).logged

    digest = group.live_brokers[KEY.live_key].registration_hash
    assert event == BrokerHeartbeat(ORIGIN, "broker-a", KEY.live_key, Proof.REGISTRATION, digest)
    assert server.view.table.group("broker-a") is group


@pytest.mark.parametrize("connection", [1, 2])
def test_a_registration_that_is_pending_is_not_decoded_again(connection: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = with_registered(a_registration_request(), a_registration_request())
    monkeypatch.delattr("namesrv_stream.processor.broker.decode_inline")

    answer = server.send(a_registration_request(), connection)

    assert answer.response.code == ResponseCode.SUCCESS
    assert not is_full(answer)


@pytest.mark.parametrize("drops", [True, False])
def test_the_same_registration_deletes_absent_topics_only_with_the_setting_in_the_log(drops: bool) -> None:
    server = with_registered()
    setting = ("effective", "delete_topic_with_broker_registration")
    server.view.table.replace_settings(0, {setting: str(drops).lower()})
    server.accept(TopicRegistered(Origin("s1", 1), "broker-a", "other", QueueData(1, 1, 6, 0)))

    answer = server.send(a_registration_request())

    assert ("other" in server.view.table.group("broker-a").topics) is not drops
    assert was_decoded(answer) is drops
    assert not is_full(answer)


def test_wrong_crc_of_an_unchanged_registration_is_still_refused() -> None:
    server = with_registered(a_registration_request(), a_registration_request())

    assert remark_of(server.send(a_registration_request(crc=1))) == "crc32 not match"


def test_changed_body_is_logged_in_full() -> None:
    server = with_registered()

    assert is_full(server.send(a_registration_request(body=a_body(counter=2))))
    assert not is_full(server.send(a_registration_request(body=a_body(counter=2))))


def test_registration_over_a_second_connection_is_logged_as_its_hash_and_pending_in_the_view() -> None:
    server = with_registered(a_registration_request(), a_registration_request())

    answers = [server.send(a_registration_request(), connection=2) for _ in range(2)]

    assert not any(is_full(answer) for answer in answers)
    assert [was_decoded(answer) for answer in answers] == [True, False]
    assert server.view.table.group("broker-a").live_brokers[KEY.live_key].holders["s1"].connection_id == 2


def test_changed_registrations_beyond_the_limit_are_refused_and_count_as_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_view, "MAX_PENDING_BYTES", 600)
    server = with_registered(*(a_registration_request(body=a_body(counter=n)) for n in (1, 2, 3)))
    assert 400 < server.view.pending_bytes < 600  # the first does not count
    before = server.view.table.group("broker-a")

    refused = server.send(a_registration_request(body=a_body(counter=4)))
    first = server.send(a_registration_request("10.0.0.9:10911", brokerName="other"))
    same = server.send(a_registration_request(body=a_body(counter=3)), connection=2)

    assert (refused.response.code, "wait for the job" in remark_of(refused)) == (ResponseCode.SYSTEM_ERROR, True)
    assert accepted_by(refused) == (BrokerHeartbeat(ORIGIN, "broker-a", KEY.live_key, Proof.HEARTBEAT), None)
    assert server.view.table.group("broker-a").topics is before.topics
    assert [answer.response.code for answer in (first, same)] == [ResponseCode.SUCCESS] * 2


@pytest.mark.parametrize("content", ["long names", "static mappings"])
def test_all_content_of_a_changed_registration_counts(content: str) -> None:
    mapping = {"topic": "T", "bname": "broker-a", "totalQueues": 1, "epoch": 1, "scope": "s", "dirty": False}
    names = [f"{n}-{'x' * 1_000}" for n in range(100)]
    topics = dict.fromkeys(names, a_topic()) if content == "long names" else {}
    mappings: dict[str, Any] = (
        {} if topics else {"topicQueueMappingInfoMap": {n: {**mapping, "currIdMap": {"0": 0}} for n in names}}
    )
    server = with_registered(a_registration_request())

    server.send(a_registration_request(body=a_body(topics, counter=2, **mappings)))

    assert server.view.pending_bytes > 100_000


def test_unregistration_that_does_not_count_is_not_pending() -> None:
    server = with_registered()

    server.send(an_unregister_request("10.0.0.9:10911"))

    assert server.view.pending_count == 1


def test_registration_that_changes_nothing_in_a_changed_group_is_unchanged() -> None:
    server = with_registered(a_registration_request(), a_registration_request())
    server.accept(WritePermChanged(ORIGIN, "broker-a", writable=False))
    server.accept(TopicRegistered(ORIGIN, "broker-a", "side", QueueData(1, 1, 6)))

    answers = [server.send(a_registration_request()) for _ in range(2)]

    assert [is_full(answer) for answer in answers] == [False, False]
    # The same version does not rewrite what the operator wiped. Source: RouteInfoManager.registerBroker.
    assert server.view.table.group("broker-a").topics["TopicTest"].perm == 4


def test_deleted_topic_comes_back_with_the_next_registration_which_is_pending_in_the_view() -> None:
    server = with_registered(a_registration_request(), a_registration_request())
    server.view.table.replace_group(delete_topic(server.view.table.group("broker-a"), "TopicTest"))

    assert was_decoded(server.send(a_registration_request()))
    assert "TopicTest" in server.view.table.group("broker-a").topics


def test_a_removed_broker_returns_with_a_full_record() -> None:
    server = with_registered(a_registration_request(), a_registration_request())
    server.close(1)
    assert not server.view.table.group("broker-a").is_registered

    assert is_full(server.send(a_registration_request(), connection=2))
    assert server.view.table.group("broker-a").broker_addrs == {0: MASTER}


def test_registration_after_a_pause_is_logged_in_full() -> None:
    server = with_registered(a_registration_request(), a_registration_request())
    server.now_ms, paused_ms = 20, 10
    server.server.is_unbroken = lambda key, since_ms: key == KEY and since_ms > paused_ms

    assert [is_full(server.send(a_registration_request())) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("period_ms", [10_000, 30_000, 60_000])
def test_registrations_are_logged_in_full_at_least_once_per_interval(period_ms: int) -> None:
    server, day_ms = Exchange(), 86_400_000

    full_ms = []
    for now_ms in range(0, 3 * day_ms, period_ms):
        server.now_ms = now_ms
        if is_full(server.send(a_registration_request())):
            full_ms.append(now_ms)

    first, *others = full_ms
    assert first == 0
    assert {each // day_ms for each in others} == {0, 1, 2}
    assert len(others) == 3 * 60_000 // period_ms


def test_brokers_log_their_registrations_in_full_at_different_moments() -> None:
    server = Exchange(Options(full_registration_interval_ms=3_600_000))
    names = [f"broker-{n}" for n in range(40)]

    full_at_ms = dict.fromkeys(names, 0)
    for now_ms in range(0, 3_600_000, 60_000):
        server.now_ms = now_ms
        for name in names:
            if is_full(server.send(a_registration_request(brokerName=name))):
                full_at_ms[name] = now_ms

    assert len(set(full_at_ms.values())) > 20


# ---- 103: what a slave and the order topics get ----


def test_slave_receives_the_address_and_the_ha_address_of_its_master() -> None:
    server = with_registered()

    for _ in range(3):  # a full registration, an unchanged one, and a settled one
        response = server.send(a_registration_request(SLAVE, 1), connection=2).response
        assert response.ext_fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": MASTER}


def test_slave_without_a_master_receives_no_address() -> None:
    server = with_registered()
    server.close(1)

    assert server.send(a_registration_request(SLAVE, 1), connection=2).response.ext_fields == {}


def test_slave_of_another_cluster_does_not_receive_the_master() -> None:
    server = with_registered()

    assert server.send(a_registration_request(SLAVE, 1, clusterName="c1")).response.ext_fields == {}


def test_missing_ha_address_of_the_master_is_left_out() -> None:
    server = with_registered(a_registration_request(haServerAddr=None))

    assert server.send(a_registration_request(SLAVE, 1)).response.ext_fields == {"masterAddr": MASTER}


def test_stale_registration_is_answered_with_success_and_without_addresses() -> None:
    def body(state_version: int, counter: int) -> bytes:
        return a_body(dataVersion={"counter": counter, "stateVersion": state_version, "timestamp": 1})

    server = with_registered(a_registration_request(), a_registration_request(SLAVE, 1, body=body(2, 1)))

    for _ in range(2):
        response = server.send(a_registration_request("10.0.0.3:10911", 1, body=body(1, 1))).response
        assert (response.code, response.ext_fields) == (ResponseCode.SUCCESS, {})
    assert server.view.table.group("broker-a").broker_addrs == {0: MASTER, 1: SLAVE}


def test_order_topics_are_in_the_body_of_the_answer() -> None:
    server = Exchange()
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"T": "broker-a:4"}

    bodies = [server.send(a_registration_request()).response.body for _ in range(3)]

    assert bodies == [b'{"table":{"T":"broker-a:4"}}'] * 3


def test_empty_namespace_of_order_topics_is_an_empty_table() -> None:
    server = Exchange()
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {}

    assert server.send(a_registration_request()).response.body == b'{"table":{}}'


def test_order_topics_are_left_out_if_switched_off() -> None:
    server = Exchange(Options(return_order_topic_config_to_broker=False))
    server.view.table.kv["ORDER_TOPIC_CONFIG"] = {"T": "broker-a:4"}

    assert server.send(a_registration_request()).response.body is None


# ---- 104 ----


@pytest.mark.parametrize("is_known", [True, False])
def test_unregistration_is_answered_with_success_and_logged_even_if_the_broker_is_unknown(is_known: bool) -> None:
    server = with_registered() if is_known else Exchange()

    answer = server.send(an_unregister_request())

    event = BrokerUnregistered(ORIGIN, "broker-a", KEY.live_key, 0)
    assert (answer.response.code, answer.response.remark) == (ResponseCode.SUCCESS, None)
    assert answer.accepted == (Accepted(event, event if is_known else None),)
    assert not server.view.table.group("broker-a").is_registered


def test_unregistration_without_an_id_is_by_address() -> None:
    server = with_registered()

    server.send(an_unregister_request(brokerId=None))

    assert not server.view.table.group("broker-a").is_registered


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName"])
@pytest.mark.parametrize(
    "code", [RequestCode.UNREGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, RequestCode.BROKER_HEARTBEAT]
)
def test_request_without_a_required_field_is_refused_and_not_logged(code: RequestCode, field: str) -> None:
    answer = with_registered().send(RemotingCommand(code, ext_fields=a_broker_header(**{field: None})))

    assert (answer.response.code, answer.response.remark) == (ResponseCode.SYSTEM_ERROR, f"{field} is missing")
    assert answer.accepted == ()


# ---- 322 ----


def changed(answer: Answer) -> str:
    return (answer.response.ext_fields or {})["changed"]


def test_equal_version_of_a_known_broker_is_unchanged() -> None:
    answer = with_registered().send(a_version_request(1))

    assert (answer.response.code, changed(answer)) == (ResponseCode.SUCCESS, "false")
    assert answer.response.body == b'{"counter":1,"stateVersion":0,"timestamp":1000}'


@pytest.mark.parametrize("counter", [0, 2])
def test_older_and_newer_versions_are_changed(counter: int) -> None:
    answer = with_registered().send(a_version_request(counter))

    assert changed(answer) == "true"
    assert fastjson.loads(answer.response.body or b"")["counter"] == 1


def test_unknown_broker_is_changed_and_has_no_version() -> None:
    answer = Exchange().send(a_version_request())

    assert (changed(answer), answer.response.body, answer.accepted) == ("true", None, ())


def test_broker_that_registered_only_at_another_server_is_changed_here() -> None:
    server = with_registered()
    here = Exchange(server_id="s2")
    here.view.reload(server.view.table, {})

    answer = here.send(a_version_request())

    assert (changed(answer), answer.accepted) == ("true", ())


def test_broker_that_registered_before_the_start_of_this_server_is_changed() -> None:
    server = with_registered()
    restarted = Exchange(server_epoch=2)
    restarted.view.reload(server.view.table, {})

    assert changed(restarted.send(a_version_request())) == "true"
    restarted.send(a_registration_request())
    assert changed(restarted.send(a_version_request())) == "false"


def test_request_without_a_version_is_changed() -> None:
    request = RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext_fields=a_broker_header())

    assert changed(with_registered().send(request)) == "true"


def test_malformed_version_is_answered_with_system_error_and_not_logged() -> None:
    request = RemotingCommand(RequestCode.QUERY_DATA_VERSION, ext_fields=a_broker_header(), body=b"{")

    answer = with_registered().send(request)

    assert (answer.response.code, answer.accepted) == (ResponseCode.SYSTEM_ERROR, ())
    assert remark_of(answer).startswith("body of request 322 cannot be decoded")


# ---- heartbeats: 322 and 904 ----


@pytest.mark.parametrize("request_", [a_version_request(1), a_version_request(9), a_heartbeat_request()])
def test_heartbeat_of_a_known_broker_is_logged_and_does_not_change_the_view(request_: RemotingCommand) -> None:
    answer = with_registered().send(request_)

    event = BrokerHeartbeat(ORIGIN, "broker-a", KEY.live_key, Proof.HEARTBEAT)
    assert answer.accepted == (Accepted(event, None),)


@pytest.mark.parametrize("request_", [a_version_request(addr=SLAVE), a_heartbeat_request(SLAVE)])
def test_heartbeat_of_an_unknown_broker_is_answered_with_success_and_not_logged(request_: RemotingCommand) -> None:
    answer = with_registered().send(request_)

    assert (answer.response.code, answer.accepted) == (ResponseCode.SUCCESS, ())


def test_heartbeat_of_an_unregistered_broker_is_not_logged() -> None:
    server = with_registered()
    server.send(an_unregister_request())

    assert server.send(a_heartbeat_request()).accepted == ()


def test_heartbeat_with_another_cluster_is_not_logged() -> None:
    assert with_registered().send(a_heartbeat_request(clusterName="c1")).accepted == ()


def test_heartbeat_over_another_connection_does_not_move_the_holder() -> None:
    server = with_registered()

    server.send(a_heartbeat_request(), connection=2)
    server.close(2)

    assert server.view.table.group("broker-a").live_brokers[KEY.live_key].holders["s1"].connection_id == 1


@pytest.mark.parametrize(
    "request_",
    [a_registration_request(), a_version_request(), a_heartbeat_request(), an_unregister_request()],
    ids=["103", "322", "904", "104"],
)
def test_oneway_requests_have_the_same_effect_as_others(request_: RemotingCommand) -> None:
    answers = [with_registered().send(replace(request_, flag=flag)) for flag in (0, ONEWAY_FLAG)]

    assert all(one == two for one, two in pairwise(answers))


# ---- 901 ----


def a_group_request(**fields: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields)


def test_member_group_lists_addresses_and_echoes_the_cluster() -> None:
    server = with_registered(a_registration_request(), a_registration_request(SLAVE, 1))

    response = server.send(a_group_request(brokerName="broker-a", clusterName="whatever")).response

    assert response.code == ResponseCode.SUCCESS
    assert response.remark == "not set any response code"  # as in Java: getBrokerMemberGroup never sets the code
    assert response.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"whatever"}}'
    )


def test_unknown_member_group_is_empty() -> None:
    response = Exchange().send(a_group_request(brokerName="x", clusterName="c")).response

    assert response.body == b'{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"c"}}'


def test_member_group_without_fields_is_empty() -> None:
    response = Exchange().send(RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP)).response

    assert response.body == b'{"brokerMemberGroup":{"brokerAddrs":{}}}'
