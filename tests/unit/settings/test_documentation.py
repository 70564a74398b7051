"""docs/configuration.md agrees with the code."""

from pathlib import Path

import pytest

from namesrv_stream.processor.configuration import OPTION_OF
from namesrv_stream.settings.names import all_keys, is_advanced, public_path
from tests.support.settings_tables import ADVANCED_DOCUMENT, DOCUMENT, sections, with_tables


@pytest.mark.parametrize("path", [DOCUMENT, ADVANCED_DOCUMENT])
def test_tables_of_the_documents_are_those_of_the_code(path: Path) -> None:
    document = path.read_text(encoding="utf-8")
    assert with_tables(document) == document, "python -m tests.support.settings_tables writes them"


def test_every_setting_is_in_its_document() -> None:
    documents = {False: DOCUMENT.read_text(encoding="utf-8"), True: ADVANCED_DOCUMENT.read_text(encoding="utf-8")}
    keys = {".".join(public_path(key)): documents[is_advanced(key)] for key in all_keys()}
    assert [key for key, document in keys.items() if f"`{key}`" not in document] == []


def test_users_see_at_most_sixty_settings() -> None:
    assert len([key for key in all_keys() if not is_advanced(key)]) <= 60


def test_every_documented_setting_has_a_meaning_a_range_and_advice() -> None:
    entries = [entry for name, _, found in sections() if not name.startswith("advanced.") for entry in found]
    # A table of options has no range of its own.
    assert [e.key for e in entries if not (e.meaning and e.advice and (e.range or not e.default))] == []


def test_every_advanced_setting_has_a_meaning() -> None:
    entries = [entry for name, _, found in sections() if name.startswith("advanced.") for entry in found]
    assert [entry.key for entry in entries if not entry.meaning] == []


def test_every_switch_that_can_change_at_run_time_is_in_its_table() -> None:
    rows = DOCUMENT.read_text(encoding="utf-8").partition("## Changes at run time")[2].partition("## Who")[0]
    assert [key for key in OPTION_OF if f"`{key}`" not in rows] == []
