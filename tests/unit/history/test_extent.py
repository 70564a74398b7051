"""Messages about the extent of the history, such as when the first heartbeat figures arrive."""

from pathlib import Path

import pytest

from namesrv_stream.history.answer import Window, no_figures_text
from namesrv_stream.history.answer_tables import short_detail
from namesrv_stream.history.database import Past
from namesrv_stream.history.questions import Question, answer_question
from namesrv_stream.table_errors import NotInHistory
from tests.support.builders import Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.tables import settings_in

FROM_MS = 1_795_284_030_000  # 2026-11-21 18:00:30 UTC


def test_time_of_the_first_heartbeat_figures_is_reported(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    text = no_figures_text(settings, FROM_MS, FROM_MS + 10_000)
    assert text == "the first heartbeat figures arrive by 2026-11-21 18:03:00Z"
    assert "does the history process run?" in no_figures_text(settings, FROM_MS, FROM_MS + 600_000)


def test_the_reason_of_a_removal_is_shortened_for_the_terminal() -> None:
    detail = "not heard for 27269 ms of observed time at ns-747c689afa1b, timeout 9000 ms; the guard held it until now"
    assert short_detail(detail) == "silent 27.3 s > 9 s, held"
    assert short_detail("10.0.0.1:4711 closed it") == "10.0.0.1:4711 closed it"


def test_missing_recent_data_gives_a_hint_to_check_the_product(tmp_path: Path) -> None:
    log = Log()
    log.register(a_registration())
    tables = HistoryOfLogs(tmp_path, log)
    tables.write_all()
    reaches_ms = Past(tables.settings).extent.reaches_ms
    with pytest.raises(NotInHistory, match=r"there is no data after .*Z, .*: is the product running\?"):
        answer_question(tables.settings, Question(Window(reaches_ms + 60_000, reaches_ms + 120_000)))
