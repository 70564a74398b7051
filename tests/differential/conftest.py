"""Starts both servers once for all differential tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential.pair import Pair, java_server, our_stack
from tests.differential.scenario import Scenario


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_ours(item):
            item.add_marker(pytest.mark.e2e)
    # The random sequences take longest, so they start first.
    items.sort(key=lambda item: (_spoils_java(item), item.path.name == "test_scenarios.py"))


def _is_ours(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent


def _spoils_java(item: pytest.Item) -> bool:
    scenario = (
        item.callspec.params.get("scenario")
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else None
    )
    return isinstance(scenario, Scenario) and scenario.spoils_java


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    work_dir = tmp_path_factory.mktemp("pair")
    with java_server(work_dir / "java") as java, our_stack(work_dir / "ours") as stack:
        stack.wait_job()
        yield Pair(java.addr, stack.remoting, lambda: int(stack.get("/healthz")["pending_events"]))
