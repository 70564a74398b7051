"""A running product with a fleet, and a real Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.extra.console.browser import Browser
from tests.extra.console.fleet import AgentProcess
from tests.extra.console.past import PastConsole
from tests.support.processes import wait_until
from tests.support.stack import Stack


@pytest.fixture(scope="session")
def console_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The product with a cluster ``steady`` of twelve brokers that no test kills."""
    folder = tmp_path_factory.mktemp("console")
    with Stack(folder / "data") as stack:
        stack.wait_job()
        with AgentProcess(folder, stack, "steady", brokers=12):
            wait_until(lambda: len(stack.get("/brokers")) >= 12, 60, "twelve brokers are registered")
            stack.wait_change(60, kind="broker_live", gone=False, cluster="steady")
            yield stack


@pytest.fixture
def agent(console_stack: Stack, tmp_path: Path) -> Iterator[Callable[..., AgentProcess]]:
    """Return a function that starts further brokers; they end with the test."""
    started: list[AgentProcess] = []

    def start(cluster: str, **flags: int) -> AgentProcess:
        found = AgentProcess(tmp_path, console_stack, cluster, **flags)
        found.start()
        started.append(found)
        return found

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
def past_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PastConsole]:
    with PastConsole(tmp_path_factory.mktemp("past")) as past:
        yield past


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser with a desktop screen, light theme and motion, whatever the previous test did."""
    chromium.become()
    return chromium
