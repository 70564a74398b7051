"""One running product, one Java name server, and one JVM of RocketMQ tools for all end-to-end tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.java_client import JavaClient
from tests.support.rocketmq import Broker, JavaNameServer
from tests.support.rocketmq_peers import Mqadmin, RocketmqPeers
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

ACCESS_KEY, SECRET_KEY = "operator", "0123456789"

Measured = Callable[[str], None]
_MEASURED = "measured"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests, and move the tests of the periodic broker to the end."""
    for item in items:
        item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: item.path.name == "test_zz_periodic.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measurements, also of passed tests."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    calls = [report for report in reports if isinstance(report, pytest.TestReport) and report.when == "call"]
    lines = [str(value) for report in calls for name, value in report.user_properties if name == _MEASURED]
    if lines:
        terminalreporter.section(_MEASURED)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Return a function that adds a line to the end of the output, also in a worker of pytest-xdist."""
    return lambda line: record_property(_MEASURED, line)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product with acting masters and ordered topics, configured like the Java name server."""
    with Stack(
        tmp_path_factory.mktemp("stack") / "data",
        name_server__support_acting_master="true",
        name_server__order_message_enable="true",
        admin__enable_config_update="true",
    ) as running:
        yield running


@pytest.fixture(scope="session")
def java_name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaNameServer]:
    properties = {"supportActingMaster": "true", "orderMessageEnable": "true"}
    with JavaNameServer(tmp_path_factory.mktemp("java-name-server"), properties=properties) as running:
        yield running


@pytest.fixture(scope="session")
def second_server(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondServer]:
    """A second server that accepts only signed changes."""
    with SecondServer(
        tmp_path_factory.mktemp("second") / "data",
        stack,
        admin__trusted_networks="",
        environ={f"NAMESRV_STREAM__ADMIN__ACCOUNTS__{ACCESS_KEY}": SECRET_KEY},
    ) as running:
        yield running


@pytest.fixture(scope="session")
def periodic_broker(
    stack: Stack, java_name_server: JavaNameServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that no test disturbs: its registrations every 10 s are counted at the end.

    It is also registered with the Java name server, for comparisons of answers.
    """
    name_servers = f"{stack.remoting};{java_name_server.addr}"
    with Broker(tmp_path_factory.mktemp("periodic"), name_servers, name="broker-periodic") as broker:
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
