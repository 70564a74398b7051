"""The tables of one eventful morning, made once."""

import pytest

from tests.support.history_story import a_morning
from tests.support.history_tables import HistoryOfLogs


@pytest.fixture(scope="session")
def morning(tmp_path_factory: pytest.TempPathFactory) -> HistoryOfLogs:
    """The tables of ``a_morning``; the history has all but its last minutes, ``route_changes`` all."""
    log = a_morning()
    tables = HistoryOfLogs(tmp_path_factory.mktemp("morning"), log)
    tables.commit()
    tables.write({0: len(log.records) * 93 // 100})
    return tables
