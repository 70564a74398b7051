"""Uses the running product and the RocketMQ tools of the end-to-end tests."""

from tests.e2e.conftest import (
    _peers,
    java_client,
    java_name_server,
    measured,
    mqadmin,
    periodic_broker,
    pytest_terminal_summary,
    stack,
)

__all__ = [
    "_peers",
    "java_client",
    "java_name_server",
    "measured",
    "mqadmin",
    "periodic_broker",
    "pytest_terminal_summary",
    "stack",
]
