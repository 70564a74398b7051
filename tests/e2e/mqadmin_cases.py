"""Every sub-command of mqadmin 5.3.3: its command lines for both name servers, or the reason why it has none.

A line is a command line without its ``-n``. Placeholders: ``{cluster}``, ``{broker}`` and ``{addr}`` of a broker that
is registered with both servers, ``{topic}`` and ``{group}`` that exist there, with a message of ``{key}``, ``{msg_id}``
and ``{offset_msg_id}``; ``{dir}`` with the files that commands read; ``{static}``, a new topic each time.
A case runs completely against one server and then against the other, so it must restore the state.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """Command lines whose output must be the same from both servers.

    Attributes:
        name: Name of the test.
        lines: The commands, in order.
        shows: Text that the output must contain, so that two equal failures do not count as success.
        is_ordered: Whether the order of the lines counts; Java's hash tables have no fixed order.
        has_numbers: Whether numbers count, because they come from the name server and not from counters of a broker.
        makes: Topic that the broker registers with both servers; the commands delete it from at most one.
    """

    name: str
    lines: tuple[str, ...]
    shows: str
    is_ordered: bool = True
    has_numbers: bool = True
    makes: str = ""


def _one(line: str, shows: str, *, is_ordered: bool = True, has_numbers: bool = True) -> Case:
    return Case(line.partition(" ")[0], (line,), shows, is_ordered, has_numbers)


_TOPICS = (
    Case(
        "updateTopic-cluster",
        (
            "updateTopic -c {cluster} -t Made -r 3 -w 3",
            "topicRoute -t Made",
            "updateTopicPerm -c {cluster} -t Made -p 4",
            "topicRoute -t Made",
            "deleteTopic -c {cluster} -t Made",
            "topicRoute -t Made",
        ),
        "update topic perm from 6 to 4",
        makes="Made",
    ),
    Case(
        "updateTopic-ordered",
        (
            "updateTopic -c {cluster} -t Ordered -r 2 -w 2 -o true",
            "updateOrderConf -m get -t Ordered",
            "topicRoute -t Ordered",
            "updateOrderConf -m delete -t Ordered",
            "deleteTopic -c {cluster} -t Ordered",
        ),
        '"orderTopicConf":"{broker}:2"',
        makes="Ordered",
    ),
    Case(
        "updateTopic-ordered-on-one-broker",
        (
            "updateTopic -b {addr} -t OrderedThere -r 4 -w 4 -o true",
            "updateOrderConf -m get -t OrderedThere",
            "updateOrderConf -m delete -t OrderedThere",
            "deleteTopic -c {cluster} -t OrderedThere",
        ),
        "orderConf=[{broker}:4]",
        makes="OrderedThere",
    ),
    Case(
        "updateTopicList",
        (
            "updateTopicList -c {cluster} -f {dir}/topics.json",
            "topicRoute -t Listed",
            "deleteTopic -c {cluster} -t Listed",
        ),
        '"readQueueNums":5',
        makes="Listed",
    ),
    Case(
        "updateStaticTopic",
        (
            "updateStaticTopic -t {static} -qn 4 -c {cluster}",
            "topicRoute -t {static}",
            "remappingStaticTopic -t {static} -c {cluster}",
            "topicRoute -t {static}",
            "deleteTopic -c {cluster} -t {static}",
            "topicRoute -t {static}",
        ),
        '"topicQueueMappingByBroker"',
        makes="{static}",
    ),
    _one("topicRoute -t {topic} -l", "{{0={addr}}}"),
    _one("topicRoute -t none", "CODE: 17"),
    _one("topicStatus -t {topic}", "{broker}", has_numbers=False),
    _one("topicStatus -t {topic} -c {cluster}", "{broker}", has_numbers=False),
    _one("topicClusterList -t {topic}", "{cluster}"),
    _one("topicList", "{topic}", is_ordered=False),
    _one("topicList -c", "{topic}", is_ordered=False),
    _one("allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2", '"10.0.0.2":['),
    _one("statsAll", "{topic}", is_ordered=False, has_numbers=False),
    _one("statsAll -t {topic}", "{topic}", has_numbers=False),
)

_NAME_SERVER = (
    Case(
        "updateKvConfig",
        (
            "updateKvConfig -s ORDER_TOPIC_CONFIG -k {topic} -v {broker}:2",
            "updateOrderConf -m get -t {topic}",
            "topicRoute -t {topic}",
            "deleteKvConfig -s ORDER_TOPIC_CONFIG -k {topic}",
            "updateOrderConf -m get -t {topic}",
            "deleteKvConfig -s ORDER_TOPIC_CONFIG -k {topic}",
        ),
        "orderConf=[{broker}:2]",
    ),
    Case(
        "updateOrderConf",
        (
            "updateOrderConf -m put -t {topic} -v {broker}:3",
            "updateOrderConf -m get -t {topic}",
            "topicRoute -t {topic}",
            "updateOrderConf -m delete -t {topic}",
            "updateOrderConf -m get -t {topic}",
        ),
        '"orderTopicConf":"{broker}:3"',
    ),
    Case(
        "wipeWritePerm",
        (
            "wipeWritePerm -b {broker}",
            "topicRoute -t {topic}",
            "addWritePerm -b {broker}",
            "topicRoute -t {topic}",
        ),
        '"perm":4',
    ),
    _one("wipeWritePerm -b none", "OK, 0"),
    _one("addWritePerm -b none", "OK, 0"),
    Case(
        "updateNamesrvConfig",
        (
            "updateNamesrvConfig -k enableTopicList -v false",
            "updateNamesrvConfig -k enableTopicList -v true",
        ),
        "update name server config success",
    ),
    _one("updateNamesrvConfig -k kvConfigPath -v /tmp/elsewhere", "CODE: 16"),
)

_CLUSTER = (
    _one("clusterList", "{addr}", is_ordered=False, has_numbers=False),
    _one("clusterList -c {cluster}", "{addr}", has_numbers=False),
    _one("clusterList -m", "{broker}", is_ordered=False, has_numbers=False),
    _one("brokerStatus -c {cluster}", "brokerVersionDesc", has_numbers=False),
    _one("getBrokerConfig -c {cluster}", "brokerClusterName"),
    _one("updateBrokerConfig -c {cluster} -k traceOn -v true", "update broker config success"),
    _one("haStatus -c {cluster}", "#SlaveNum\t"),
    _one("getBrokerEpoch -c {cluster}", "only for controllerMode"),
    _one("getSyncStateSet -a 127.0.0.1:1 -c {cluster}", "connect to 127.0.0.1:1 failed"),
    _one("sendMsgStatus -b {broker} -c 2", "SEND_OK", has_numbers=False),
    _one("cleanExpiredCQ -c {cluster}", "success"),
    _one("deleteExpiredCommitLog -c {cluster}", "success"),
    _one("cleanUnusedTopic -c {cluster}", "success"),
    _one("getColdDataFlowCtrInfo -c {cluster}", "cgColdReadThreshold"),
    Case(
        "updateColdDataFlowCtrGroupConfig",
        (
            "updateColdDataFlowCtrGroupConfig -c {cluster} -g {group} -v 1000",
            "removeColdDataFlowCtrGroupConfig -c {cluster} -g {group}",
        ),
        "remove broker cold read threshold success, {addr}",
    ),
    # The broker itself fails, because Java 17 denies it access to its mapped files. The name server has answered.
    _one("setCommitLogReadAheadMode -c {cluster} -m 1", "Master: {addr}"),
    _one("exportConfigs -c {cluster} -f {dir}/export", "success"),
    _one("exportMetadata -c {cluster} -f {dir}/export", "success"),
    _one("exportMetrics -c {cluster} -f {dir}/export", "success"),
    _one("exportPopRecord -c {cluster} -d true", "brokerAddr={addr}"),
    _one("rocksDBConfigToJson -c {cluster} -t topics -j true", "broker export done"),
    _one("checkRocksdbCqWriteProgress -c {cluster} -t {topic}", "{broker} check doing"),
    Case(
        "users",
        (
            "createUser -c {cluster} -u joe -p secret",
            "updateUser -c {cluster} -u joe -p other",
            "getUser -c {cluster} -u joe",
            "listUser -c {cluster}",
            "createAcl -c {cluster} -s User:joe -r Topic:* -a Pub -d Allow",
            "updateAcl -c {cluster} -s User:joe -r Topic:* -a Sub -d Allow",
            "getAcl -c {cluster} -s User:joe",
            "listAcl -c {cluster}",
            "deleteAcl -c {cluster} -s User:joe",
            "deleteUser -c {cluster} -u joe",
        ),
        "delete user to {addr} success",
    ),
)

_GROUPS_AND_MESSAGES = (
    Case(
        "updateSubGroup",
        (
            "updateSubGroup -c {cluster} -g NewGroup",
            "getConsumerConfig -g NewGroup",
            "deleteSubGroup -c {cluster} -g NewGroup",
        ),
        "delete subscription group [NewGroup] from broker [{addr}]",
    ),
    Case(
        "updateSubGroupList",
        (
            "updateSubGroupList -c {cluster} -f {dir}/groups.json",
            "deleteSubGroup -c {cluster} -g ListedGroup",
        ),
        "submit batch of subscription group config to {addr} success",
    ),
    _one("setConsumeMode -c {cluster} -t {topic} -g {group} -m PULL", "set consume mode to {addr} success"),
    _one("producerConnection -g CLIENT_INNER_PRODUCER -t {topic}", "V5_3_3", is_ordered=False, has_numbers=False),
    _one("consumerConnection -g {group}", "{topic}"),
    _one("consumerProgress -g {group}", "Consume Diff Total", has_numbers=False),
    _one("consumerProgress", "{group}", is_ordered=False, has_numbers=False),
    _one("consumerStatus -g {group}", "Rebalance OK", has_numbers=False),
    Case(
        "cloneGroupOffset",
        (
            "updateSubGroup -c {cluster} -g Cloned",
            "cloneGroupOffset -s {group} -d Cloned -t {topic}",
            "deleteSubGroup -c {cluster} -g Cloned",
        ),
        "clone group offset success",
    ),
    _one("resetOffsetByTime -g {group} -t {topic} -s now", "{broker}", has_numbers=False),
    _one("skipAccumulatedMessage -g {group} -t {topic}", "{broker}", has_numbers=False),
    _one("queryCq -t {topic} -q 0 -i 0 -c 1", "ConsumeQueueData", has_numbers=False),
    _one("queryMsgByKey -t {topic} -k {key}", "{msg_id}"),
    _one("queryMsgByKey -t {topic} -k none", "CODE: 208"),
    _one("queryMsgById -t {topic} -i {offset_msg_id}", "{msg_id}"),
    _one("queryMsgByUniqueKey -t {topic} -i {msg_id}", "{msg_id}"),
    _one("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 0", "Queue Offset:        0"),
    _one("queryMsgTraceById -i {msg_id}", "CODE: 208"),
    _one("printMsg -t {topic}", "MSGID: ", is_ordered=False, has_numbers=False),
    _one("printMsgByQueue -t {topic} -a {broker} -i 0 -p true -f true", "MSGID: ", has_numbers=False),
    _one("sendMessage -t {topic} -p hello", "SEND_OK", has_numbers=False),
    _one("consumeMessage -t {topic} -b {broker} -i 0 -o 0 -c 1", "Consume ok"),
    _one("checkMsgSendRT -t {topic} -a 2", "Avg RT", has_numbers=False),
)

CASES = (*_TOPICS, *_NAME_SERVER, *_CLUSTER, *_GROUPS_AND_MESSAGES)

#: These have their own tests, because their output contains the server's own address and settings.
OWN_TESTS = frozenset({"getNamesrvConfig"})

#: Sub-commands that run until they are stopped, each in its own JVM: arguments, and what it prints or logs.
ENDLESS = {
    "clusterRT": ("-c {cluster} -a 2 -s 16 -i 1", "{cluster}"),
    "startMonitoring": ("", "the topic[OFFSET_MOVED_EVENT] route info changed"),
}

#: Sub-commands that never send requests to a name server, and what they send requests to instead.
LEFT_OUT = {
    "addBroker": "a BrokerContainer",
    "removeBroker": "a BrokerContainer",
    "getControllerMetaData": "a controller",
    "getControllerConfig": "a controller",
    "updateControllerConfig": "a controller",
    "electMaster": "a controller",
    "cleanBrokerMetadata": "a controller",
    "brokerConsumeStats": "the broker of its -b",
    "producer": "the broker of its -b",
    "resetMasterFlushOffset": "the broker of its -b",
    "copyUser": "the brokers of its -f and -t",
    "copyAcl": "the brokers of its -f and -t",
    "dumpCompactionLog": "a local file",
    "exportMetadataInRocksDB": "a local file",
}


def command_of(line: str) -> str:
    """Return the sub-command of a command line."""
    return line.partition(" ")[0]
