"""One running product and one JVM of RocketMQ tools for all end-to-end tests."""

from collections.abc import Iterator

import pytest

from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import JavaClient, Mqadmin, RocketmqPeers
from tests.support.stack import Stack


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def periodic_broker(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that nobody disturbs: its registrations each 10 s are counted at the end."""
    with Broker(tmp_path_factory.mktemp("periodic"), stack.remoting, name="broker-periodic") as broker:
        yield broker


@pytest.fixture(scope="session")
def _peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketmqPeers]:
    with RocketmqPeers(tmp_path_factory.mktemp("peers")) as peers:
        yield peers


@pytest.fixture(scope="session")
def mqadmin(_peers: RocketmqPeers) -> Mqadmin:
    return Mqadmin(_peers)


@pytest.fixture(scope="session")
def java_client(_peers: RocketmqPeers) -> JavaClient:
    return JavaClient(_peers)
