"""A killed server is restarted, and no broker has to register again."""

from pathlib import Path

from tests.support.processes import wait_until
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack


def test_restarted_server_answers_without_the_broker(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, tmp_path: Path
) -> None:
    stack.wait_job()
    with Broker(tmp_path, stack.remoting, name="broker-frozen") as broker:
        stack.wait_change(kind="broker_live", broker_addr=broker.addr, gone=False)
        broker.freeze()  # it cannot register again
        stack.kill("serve")
        route = wait_until(lambda: mqadmin.topic_route(stack.remoting, "broker-frozen"), 5, "its route is answered")
        assert route is not None
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker.addr}
        # The new server knows the broker's connection again, so closing it removes the route before the next test.
        broker.thaw()
        broker.register()
    stack.wait_change(kind="broker_live", broker_addr=broker.addr, gone=True)
