"""Parts are killed and restarted: nothing is lost or duplicated, and no broker has to register again."""

import time
from pathlib import Path

from tests.e2e.conftest import Measured
from tests.support.offline_fold import as_row, fold_offline
from tests.support.processes import wait_until
from tests.support.remoting_client import RemotingClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

_GET_ROUTEINFO_BY_TOPIC = 105


def _route_code(stack: Stack, topic: str) -> int:
    with RemotingClient(stack.remoting) as client:
        return client.ask(_GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code


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
        # Known at the new server by its connection again, it leaves no route behind for the tests after this one.
        broker.thaw()
        broker.register()
    stack.wait_change(kind="broker_live", broker_addr=broker.addr, gone=True)


def test_killed_job_loses_nothing_and_writes_nothing_twice(
    stack: Stack, periodic_broker: Broker, tmp_path: Path
) -> None:
    stack.wait_job()
    with Broker(tmp_path, stack.remoting, name="broker-busy") as broker:
        for _ in range(2):
            broker.register()  # a new data version: rows
            stack.kill("job")
            broker.register()
    stack.wait_change(60, kind="broker_live", broker_addr=broker.addr, gone=True)
    _assert_equal_to_offline_fold(stack)


def test_second_start_continues(measured: Measured, tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data")
    with stack:
        stack.wait_job()
        with Broker(tmp_path / "broker", stack.remoting, name="broker-again") as broker:
            stack.wait_change(kind="broker_live", broker_addr=broker.addr, gone=False)
            broker.freeze()
            assert stack.stop() == 0
            began = time.monotonic()
            with stack:
                seconds = time.monotonic() - began
                assert _route_code(stack, "broker-again") == 0
                measured(f"second start to READY: {seconds:.1f} s")


def _assert_equal_to_offline_fold(stack: Stack) -> None:
    # Ticks go on for ever: compare up to what the server has seen committed.
    covered = {int(p): int(o) for p, o in stack.get("/healthz")["next_offsets"].items()}
    rows = [row for row in stack.changes() if row["offset"] < covered[row["partition"]]]
    assert rows
    positions = [(row["partition"], row["offset"], row["seq"]) for row in rows]
    assert len(set(positions)) == len(positions), "a duplicate row"
    expected = [as_row(change) for change in fold_offline(stack.settings, covered)]
    assert [{c: row[c] for c in expected[0]} for row in rows] == expected
