"""How long the unmodified RocketMQ parts take on this machine, driven by ``tests/support``: a script, not a test.

``python -m tests.bench.rocketmq_support``
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from tests.support.java_client import JavaClient
from tests.support.processes import wait_until
from tests.support.rocketmq import Broker, JavaNameServer
from tests.support.rocketmq_peers import Mqadmin, RocketmqPeers

TOPIC = "made-by-mqadmin"
_WAIT_S = 30


def measure(home: Path, table: Table) -> None:
    """Start, use, kill and stop a broker, and record the seconds of each step.

    Args:
        home: Empty directory for all processes.
        table: Table to which every step adds a row.
    """

    @contextmanager
    def step(what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        table.add_row(what, f"{time.monotonic() - started:.2f}")

    with ExitStack() as running:
        with step("Java NameServer starts"):
            name_server = running.enter_context(JavaNameServer(home / "namesrv"))
        with step("JVM for mqadmin and clients: javac and start"):
            peers = running.enter_context(RocketmqPeers(home / "peers"))
        mqadmin, client, addr = Mqadmin(peers), JavaClient(peers), name_server.addr
        with step("first mqadmin command"):
            assert not mqadmin.cluster_list(addr)
        with step("broker starts and registers"):
            broker = running.enter_context(Broker(home / "broker-a", addr))
        with step("mqadmin clusterList"):
            (row,) = mqadmin.cluster_list(addr)
            assert (row.broker_name, row.addr) == (broker.name, broker.addr)
        with step("mqadmin updateTopic"):
            mqadmin.create_topic(addr, broker.addr, TOPIC)
        with step("mqadmin topicRoute"):
            assert mqadmin.topic_route(addr, TOPIC)
        with step("20 messages produced and consumed"):
            client.exchange(addr, TOPIC)
        with step("20 more, of a topic that is created automatically"):
            client.exchange(addr, "made-by-producer")
        with step("broker killed: route removed"):
            broker.kill()
            wait_until(lambda: mqadmin.topic_route(addr, TOPIC) is None, _WAIT_S, "no route")
        with step("broker starts again on its store and registers"):
            broker.start()
        with step("20 messages again"):
            client.exchange(addr, TOPIC)
        broker.freeze()
        with step("mqadmin clusterList with a frozen broker"):
            assert mqadmin.cluster_list(addr)
        broker.thaw()
        with step("broker stopped: route removed"):
            broker.begin_stop()
            wait_until(lambda: mqadmin.topic_route(addr, TOPIC) is None, _WAIT_S, "no route")
        with step("its process ended"):
            broker.process.wait(_WAIT_S)


def main() -> None:
    """Measure and print the table."""
    table = Table("step", "seconds", box=box.SIMPLE_HEAD)
    with tempfile.TemporaryDirectory(prefix="rocketmq-support-") as home:
        measure(Path(home), table)
    Console().print(table)


if __name__ == "__main__":
    main()
