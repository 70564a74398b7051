"""Every sub-command of mqadmin that uses a name server has the same output as with the Java one.

One broker is registered with both servers, so only the name servers can cause differences in the output.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.e2e.mqadmin_cases import CASES, ENDLESS, LEFT_OUT, OWN_TESTS, Case, command_of
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker, JavaNameServer
from tests.support.rocketmq_peers import Mqadmin, mqadmin_process
from tests.support.stack import Stack

KEY = "a-key"
SETTLE_S = 40.0
#: A broker that died together with its servers has no connection that could close, so it expires after 120 s.
EXPIRED_S = 150.0
ENDLESS_S = 60.0

# Times and ids.
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d[,.:]\d{3}"), "<time>"),
    (re.compile(r"(?<!\d)1\d{12}(?!\d)"), "<ms>"),
    (re.compile(r"\b[0-9A-F]{32,}\b"), "<id>"),
)
# The width of columns depends on the numbers in them.
_NUMBER_MASKS = (
    (re.compile(r"(?m)(get\w+Tps +:).*$"), r"\1 <n>"),  # without a value until a broker has two samples
    (re.compile(r"\d+(\.\d+)?( [KMG]?i?B\b)?"), "<n>"),  # bytes that a broker has not flushed yet, in B or KiB
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True, slots=True)
class BothServers:
    """Both name servers, and the objects that the commands of a case use."""

    servers: Mapping[str, str]
    """``ours`` and ``java``: ``host:port``."""
    names: Mapping[str, str]
    mqadmin: Mqadmin

    def output_of(self, case: Case, server: str) -> str:
        """Run a case with one server; returns the output without values that vary."""
        names = {**self.names, "static": f"Static-{next(_serial):04}"}
        lines = [[word.format(**names) for word in line.split()] for line in case.lines]
        output = "".join(self.mqadmin.outcome(*line, "-n", self.servers[server]) for line in lines)
        if case.makes:
            topic = case.makes.format(**names)
            self.mqadmin.run(
                *("deleteTopic", "-n", ";".join(self.servers.values()), "-c", names["cluster"], "-t", topic)
            )
        return self.masked(output.replace(names["static"], "<static>"), case)

    def masked(self, text: str, case: Case) -> str:
        """Mask values that vary from run to run: addresses of servers, times, ids, counters of brokers."""
        for addr in self.servers.values():
            text = text.replace(addr, "<name server>")
        for pattern, mask in _MASKS if case.has_numbers else (*_MASKS, *_NUMBER_MASKS):
            text = pattern.sub(mask, text)
        return text if case.is_ordered else "\n".join(sorted(text.splitlines()))


_AUTH = "org.apache.rocketmq.auth"
# The commands need these stores: deleting a topic uses the timer store, and users have their own store.
_BROKER = {
    "timerWheelEnable": "true",
    "traceTopicEnable": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}

#: The Java server keeps the mapping of a deleted static topic, so each static topic has its own name.
_serial = itertools.count()


def _same_topics(mqadmin: Mqadmin, servers: Mapping[str, str]) -> bool:
    ours, java = (mqadmin.topic_list(servers[name]) for name in ("ours", "java"))
    assert ours == java, f"only namesrv-stream: {sorted(ours - java)}; only Java: {sorted(java - ours)}"
    return True


@pytest.fixture(scope="module")
def both_servers(
    stack: Stack,
    java_name_server: JavaNameServer,
    periodic_broker: Broker,
    mqadmin: Mqadmin,
    java_client: JavaClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BothServers]:
    files = tmp_path_factory.mktemp("mqadmin")
    (files / "topics.json").write_text(
        json.dumps([{"topicName": "Listed", "readQueueNums": 5, "writeQueueNums": 5, "perm": 6}])
    )
    (files / "groups.json").write_text(json.dumps([{"groupName": "ListedGroup"}]))
    servers = {"ours": stack.remoting, "java": java_name_server.addr}
    with Broker(
        tmp_path_factory.mktemp("twin"), ";".join(servers.values()), name="twin", cluster="twins", properties=_BROKER
    ) as broker:
        wait_until(
            lambda: all(mqadmin.topic_route(addr, broker.name) for addr in servers.values()),
            SETTLE_S,
            "both servers route the broker",
        )
        topic, group = "Administered", "AdministeredGroup"
        mqadmin.create_topic(stack.remoting, broker.addr, topic)
        mqadmin.run("updateSubGroup", "-n", stack.remoting, "-b", broker.addr, "-g", group)
        # A message in each of its four queues.
        message = java_client.produce(stack.remoting, topic, [f"message {number}" for number in range(8)], key=KEY)[0]
        names = {
            **{"cluster": broker.cluster, "broker": broker.name, "addr": broker.addr, "topic": topic, "group": group},
            **{"dir": str(files), "key": KEY, "msg_id": message.msg_id, "offset_msg_id": message.offset_msg_id},
        }
        with java_client.flow(stack.remoting, topic, group=group, interval_s=0):
            wait_until(
                lambda: topic in mqadmin.outcome("consumerProgress", "-g", group, "-n", stack.remoting),
                SETTLE_S,
                "the consumer has consumed",
            )
            # Brokers of other tests, which are dead now, were registered with namesrv-stream only.
            wait_until(
                lambda: _same_topics(mqadmin, servers),
                EXPIRED_S,
                "both servers have the same topics",
                ignoring=(AssertionError,),
            )
            yield BothServers(servers, names, mqadmin)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_command_prints_the_same_for_both_servers(both_servers: BothServers, case: Case) -> None:
    ours, java = (both_servers.output_of(case, server) for server in ("ours", "java"))
    assert both_servers.masked(case.shows.format(**both_servers.names), case) in ours, ours
    assert ours == java


def test_name_server_configuration_has_only_keys_that_java_has(both_servers: BothServers) -> None:
    ours, java = (
        _configuration(both_servers.mqadmin.outcome("getNamesrvConfig", "-n", a)) for a in both_servers.servers.values()
    )
    assert ours.keys() <= java.keys()
    assert ours["supportActingMaster"] == java["supportActingMaster"] == "true"
    assert ours["listenPort"] == both_servers.servers["ours"].partition(":")[2]


@pytest.mark.parametrize("command", ENDLESS)
def test_endless_command_works_with_namesrv_stream(
    both_servers: BothServers, command: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    args, shows = ENDLESS[command]
    line = [command, *args.format(**both_servers.names).split(), "-n", both_servers.servers["ours"]]
    with mqadmin_process(line, tmp_path_factory.mktemp(command)) as process:
        process.wait_for_log(shows.format(**both_servers.names), ENDLESS_S)


def test_every_command_has_a_case_or_a_reason_for_having_none(mqadmin: Mqadmin) -> None:
    covered = {command_of(line) for case in CASES for line in case.lines} | ENDLESS.keys() | OWN_TESTS
    assert not covered & LEFT_OUT.keys()
    assert covered | LEFT_OUT.keys() == mqadmin.command_names()


def _configuration(output: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in output.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, value in pairs}
