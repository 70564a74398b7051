"""The migration of docs/migration.md, while a producer sends and a consumer receives."""

import json
from pathlib import Path

from tests.e2e.conftest import Measured
from tests.support.command_line import Finished, run_command
from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker, JavaNameServer
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

_SETTLE_S = 60.0
_TOPIC = "MovesHouse"
#: How often a broker reads its name servers' addresses (BrokerConfig.updateNameServerAddrPeriod); 2 min by default.
_LOOKS_OFTEN = {"updateNameServerAddrPeriod": "1000"}


def _compare(java: str, ours: str) -> Finished:
    return run_command("compare", "-n", f"{java};{ours}", "--patience", "0", "--json")


def _differences(finished: Finished, broker: Broker) -> list[str]:
    """Return the differences that concern this broker: other tests have brokers only at namesrv-stream."""
    rows = json.loads(finished.out)["differences"]
    return [f"{r['kind']} {r['name']} {r['fact']}" for r in rows if broker.name in json.dumps(r) or r["name"] == _TOPIC]


def test_clients_lose_no_message_while_brokers_move_to_namesrv_stream(
    stack: Stack, mqadmin: Mqadmin, java_client: JavaClient, measured: Measured, tmp_path: Path
) -> None:
    stack.wait_job()
    with (
        JavaNameServer(tmp_path / "java") as java,
        Broker(
            tmp_path / "broker", java.addr, name="broker-moving", cluster="moving", properties=_LOOKS_OFTEN
        ) as broker,
    ):
        mqadmin.create_topic(java.addr, broker.addr, _TOPIC)
        both = f"{java.addr};{stack.remoting}"
        assert f"topic {_TOPIC} queues of broker-moving" in _differences(_compare(java.addr, stack.remoting), broker)

        mqadmin.run("updateBrokerConfig", "-b", broker.addr, "-k", "namesrvAddr", "-v", both)
        wait_until(lambda: mqadmin.topic_route(stack.remoting, _TOPIC), _SETTLE_S, "namesrv-stream has the broker")
        wait_until(
            lambda: not _differences(_compare(java.addr, stack.remoting), broker),
            _SETTLE_S,
            "both servers have the same state of the broker",
        )
        with java_client.flow(both, _TOPIC) as flow:
            mqadmin.run("updateBrokerConfig", "-b", broker.addr, "-k", "namesrvAddr", "-v", stack.remoting)
            java.stop()
            made = "MadeAtOursAlone"
            mqadmin.create_topic(stack.remoting, broker.addr, made)
            assert java_client.exchange(stack.remoting, made) == {"broker-moving"}
        measured(f"moved to namesrv-stream: {flow.sent} messages sent meanwhile, {flow.missing} lost")
        assert flow.sent > 0
        assert flow.missing == 0
        assert flow.send_failures == []
        assert mqadmin.topic_route(stack.remoting, _TOPIC)
    stack.wait_change(60, kind="broker_live", broker_addr=broker.addr, gone=True)
