"""Registrations as RocketMQ 5.3.3 writes them, byte for byte like captured ones."""

import json
import zlib

from namesrv_stream.remoting.command import RemotingCommand
from namesrv_stream.remoting.headers import RegisterBrokerRequestHeader
from namesrv_stream.tools.agent.simulated_broker import (
    BrokerIdentity,
    DataVersion,
    RegistrationBody,
    TopicConfig,
    own_topics,
    register_request,
    unregister_request,
)
from tests.vectors.captured import captured_frames

IDENTITY = BrokerIdentity("c", "broker-a", 0, "127.0.0.1:10911", "127.0.0.1:10912")
VERSION = DataVersion(3, 1_700_000_000_000)


def captured_registration() -> RemotingCommand:
    return next(
        frame.command
        for frame in captured_frames()
        if frame.part == "basic" and frame.from_peer and frame.command.code == 103
    )


def test_the_body_of_a_captured_registration_is_reproduced_byte_for_byte() -> None:
    real = captured_registration()
    assert real.body is not None
    wrapper = json.loads(real.body)["topicConfigSerializeWrapper"]
    version = wrapper["dataVersion"]
    body = RegistrationBody.of(
        DataVersion(version["counter"], version["timestamp"], version["stateVersion"]),
        {
            name: TopicConfig(topic["readQueueNums"], topic["writeQueueNums"], topic["perm"])
            for name, topic in wrapper["topicConfigTable"].items()
        },
    )
    assert body.at(wrapper["mappingDataVersion"]["timestamp"]) == real.body


def test_the_header_has_the_fields_of_a_real_broker_and_its_crc() -> None:
    real = captured_registration()
    header = RegisterBrokerRequestHeader.from_ext_fields(real.ext_fields)
    identity = BrokerIdentity(
        header.cluster_name or "", header.broker_name or "", 0, header.broker_addr or "", header.ha_server_addr or ""
    )
    ours = register_request(identity, None, real.body or b"")
    assert ours.ext_fields == real.ext_fields
    assert ours.version == real.version


def test_only_the_time_stamp_of_the_mapping_version_differs_between_two_bodies() -> None:
    body = RegistrationBody.of(VERSION, {"t": TopicConfig()})
    first, second = (json.loads(body.at(now_ms))["topicConfigSerializeWrapper"] for now_ms in (1, 2))
    assert first.pop("mappingDataVersion") == {"counter": 0, "stateVersion": 0, "timestamp": 1}
    assert second.pop("mappingDataVersion") == {"counter": 0, "stateVersion": 0, "timestamp": 2}
    assert first == second


def test_the_checksum_has_no_sign_bit() -> None:
    body = next(text for n in range(100) if zlib.crc32(text := b"%d" % n) > 0x7FFFFFFF)
    fields = register_request(IDENTITY, None, body).ext_fields
    assert fields is not None
    assert int(fields["bodyCrc32"]) == zlib.crc32(body) - 0x80000000


def test_a_timeout_is_sent_only_if_there_is_one() -> None:
    with_timeout = register_request(IDENTITY, 5_000, b"").ext_fields or {}
    without = register_request(IDENTITY, None, b"").ext_fields or {}
    assert with_timeout["heartbeatTimeoutMillis"] == "5000"
    assert "heartbeatTimeoutMillis" not in without


def test_the_unregister_request_names_the_broker() -> None:
    request = unregister_request(IDENTITY)
    assert request.code == 104
    assert request.ext_fields == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:10911",
        "clusterName": "c",
        "brokerId": "0",
    }


def test_a_change_increments_the_counter_and_sets_the_time_stamp_of_the_version() -> None:
    assert DataVersion(3, 1).next(7) == DataVersion(4, 7)


def test_a_broker_registers_its_own_system_topics() -> None:
    assert set(own_topics(IDENTITY)) == {"c", "broker-a", "rmq_sys_SYNC_BROKER_MEMBER_broker-a"}
