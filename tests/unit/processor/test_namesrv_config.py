"""318 and 319. Source: rocketmq 5.3.3, DefaultRequestProcessor, Configuration and NamesrvConfig."""

from dataclasses import replace

import pytest

from namesrv_stream.processor.configuration import effective_config
from namesrv_stream.processor.name_server import Access, Answer, Options, Peer
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode
from namesrv_stream.route.events import Origin, SettingsChanged
from tests.support.name_server import Exchange

#: The keys that a Java NameServer 5.3.3 answers to 319, in its order.
JAVAS_KEYS = [
    "bindAddress",
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "clusterTest",
    "configBlackList",
    "configStorePath",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableControllerInNamesrv",
    "enableShutdownGracefully",
    "enableTopicList",
    "kvConfigPath",
    "listenPort",
    "needWaitForService",
    "notifyMinBrokerIdChanged",
    "orderMessageEnable",
    "productEnvName",
    "returnOrderTopicConfigToBroker",
    "rocketmqHome",
    "scanNotActiveBrokerInterval",
    "serverAsyncSemaphoreValue",
    "serverCallbackExecutorThreads",
    "serverChannelMaxIdleTimeSeconds",
    "serverNettyWorkerGroupEnable",
    "serverOnewaySemaphoreValue",
    "serverPooledByteBufAllocatorEnable",
    "serverSelectorThreads",
    "serverSocketBacklog",
    "serverSocketRcvBufSize",
    "serverSocketSndBufSize",
    "serverWorkerThreads",
    "shutdownWaitTimeSeconds",
    "supportActingMaster",
    "unRegisterBrokerQueueCapacity",
    "useEpollNativeSelector",
    "waitSecondsForService",
    "writeBufferHighWaterMark",
    "writeBufferLowWaterMark",
]


def a_server(enable_config_update: bool = True) -> Exchange:
    server = Exchange()
    server.server.access = Access(enable_config_update=enable_config_update)
    return server


def shown(server: Exchange) -> dict[str, str]:
    response = server.send(RemotingCommand(RequestCode.GET_NAMESRV_CONFIG, opaque=5)).response
    assert (response.code, response.remark, response.ext_fields) == (ResponseCode.SUCCESS, None, None)
    body = (response.body or b"").decode()
    assert body.endswith("\n")
    return dict(line.split("=", 1) for line in body.splitlines())


def update(server: Exchange, body: bytes | None) -> Answer:
    """The answer to 318."""
    return server.send(RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, opaque=5, body=body))


def code_and_remark(answer: Answer) -> tuple[int, str | None]:
    return answer.response.code, answer.response.remark


# ---- 319 ----


def test_all_keys_of_the_java_server_are_shown_in_the_same_order() -> None:
    assert list(shown(Exchange())) == JAVAS_KEYS


def test_defaults_are_those_of_rocketmq_and_paths_are_empty() -> None:
    config = shown(Exchange())

    assert (config["listenPort"], config["serverChannelMaxIdleTimeSeconds"], config["productEnvName"]) == (
        "9876",
        "120",
        "center",
    )
    assert [config[key] for key in ("rocketmqHome", "kvConfigPath", "configStorePath")] == ["", "", ""]


def test_configured_values_are_shown() -> None:
    server = Exchange(Options(support_acting_master=True, wait_seconds_for_service=7))
    server.server.config = {"listenPort": "10911", "deleteTopicWithBrokerRegistration": "true"}

    config = shown(server)

    assert [config[k] for k in ("listenPort", "supportActingMaster", "waitSecondsForService")] == ["10911", "true", "7"]
    assert config["deleteTopicWithBrokerRegistration"] == "true"


def test_a_setting_in_the_log_has_priority_over_the_configuration() -> None:
    server = Exchange()
    server.server.config = {"deleteTopicWithBrokerRegistration": "true"}
    server.view.table.replace_settings(0, {("effective", "delete_topic_with_broker_registration"): "false"})

    assert shown(server)["deleteTopicWithBrokerRegistration"] == "false"


# ---- 318 ----


def test_updates_are_refused_unless_enabled_in_the_configuration() -> None:
    answer = update(a_server(enable_config_update=False), b"enableTopicList=false\n")

    assert code_and_remark(answer) == (
        ResponseCode.NO_PERMISSION,
        "UPDATE_NAMESRV_CONFIG is off: admin.enable_config_update=true in the configuration allows it",
    )
    assert (answer.options, answer.accepted) == ({}, ())


def test_switches_change_at_once_and_are_shown() -> None:
    server = a_server()

    answer = update(
        server, b"# by mqadmin\nenableTopicList=false\nwaitSecondsForService : +9\nsupportActingMaster TRUE\n"
    )

    assert code_and_remark(answer) == (ResponseCode.SUCCESS, None)
    assert answer.options == {
        "enable_topic_list": False,
        "wait_seconds_for_service": 9,
        "support_acting_master": True,
    }
    assert (answer.accepted, answer.is_logged_first) == ((), False)
    config = shown(server)
    assert (config["enableTopicList"], config["waitSecondsForService"]) == ("false", "9")


def test_every_switch_can_be_changed_and_changed_back() -> None:
    server = a_server()
    before = effective_config(server.server)
    switches = [k for k in JAVAS_KEYS if k in _SWITCHES]

    assert code_and_remark(update(server, "".join(f"{k}={_flipped(before[k])}\n" for k in switches).encode()))[0] == 0
    assert {k: v for k, v in shown(server).items() if v != before[k]} == {k: _flipped(before[k]) for k in switches}
    assert code_and_remark(update(server, "".join(f"{k}={before[k]}\n" for k in switches).encode()))[0] == 0
    assert effective_config(server.server) == before


_SWITCHES = {
    "enableAllTopicList",
    "enableTopicList",
    "needWaitForService",
    "notifyMinBrokerIdChanged",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
}


def _flipped(value: str) -> str:
    return {"true": "false", "false": "true"}[value]


def test_a_setting_of_the_fold_is_changed_through_the_log() -> None:
    server = a_server()
    server.peer = Peer("127.0.0.1", False)

    answer = update(server, b"deleteTopicWithBrokerRegistration=true\nenableTopicList=false\n")

    event = SettingsChanged(
        Origin("s1", 1, 1), "updateNamesrvConfig from 127.0.0.1", (("delete_topic_with_broker_registration", True),)
    )
    assert code_and_remark(answer) == (ResponseCode.SUCCESS, None)
    assert (answer.accepted, answer.is_logged_first) == (((event, event),), True)
    assert answer.options == {"enable_topic_list": False}
    assert shown(server)["deleteTopicWithBrokerRegistration"] == "true"


@pytest.mark.parametrize("body", [None, b"", b"# nothing\n\n"])
def test_an_update_without_settings_succeeds(body: bytes | None) -> None:
    answer = update(a_server(), body)

    assert (code_and_remark(answer), answer.options, answer.accepted) == ((ResponseCode.SUCCESS, None), {}, ())


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"])
def test_black_listed_keys_are_refused_in_javas_words_and_nothing_changes(key: str) -> None:
    answer = update(a_server(), f"enableTopicList=false\n{key}=/tmp/x\n".encode())

    assert code_and_remark(answer) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    assert answer.options == {}


def test_a_black_listed_key_with_escapes_is_refused() -> None:
    answer = update(a_server(), b"kv\\u0043onfigPath=/tmp/x\n")

    assert code_and_remark(answer) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")


def test_keys_of_the_configured_black_list_are_refused() -> None:
    server = a_server()
    server.server.config = {"configBlackList": "configBlackList;enableTopicList"}

    assert code_and_remark(update(server, b"enableTopicList=false"))[1] == "Can not update config in black list."


@pytest.mark.parametrize("key", ["listenPort", "serverWorkerThreads", "fullRegistrationIntervalMs", "unknown", ""])
def test_any_other_key_is_refused_by_name_and_nothing_changes(key: str) -> None:
    answer = update(a_server(), f"enableTopicList=false\n{key}=1\n".encode())

    assert code_and_remark(answer) == (ResponseCode.NO_PERMISSION, f"Can not update config at run time: {key}")
    assert answer.options == {}


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        (b"enableTopicList=yes", "enableTopicList: 'yes' is not true or false"),
        (b"deleteTopicWithBrokerRegistration=1", "deleteTopicWithBrokerRegistration: '1' is not true or false"),
        (b"waitSecondsForService=-1", "waitSecondsForService: '-1' is not a whole number of at most nine digits"),
        (b"waitSecondsForService=", "waitSecondsForService: '' is not a whole number of at most nine digits"),
        (
            b"waitSecondsForService=\\u0665",
            "waitSecondsForService: '\u0665' is not a whole number of at most nine digits",
        ),
        (b"a=\\u00zz", "string2Properties error"),
    ],
)
def test_an_invalid_value_is_named_and_nothing_changes(line: bytes, remark: str) -> None:
    answer = update(a_server(), b"orderMessageEnable=true\n" + line)

    assert code_and_remark(answer) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (answer.options, answer.accepted) == ({}, ())


def test_an_update_changes_no_other_option() -> None:
    server = a_server()
    server.server.options = replace(server.server.options, full_registration_interval_ms=7)

    update(server, b"enableTopicList=false")

    assert server.server.options == Options(enable_topic_list=False, full_registration_interval_ms=7)
