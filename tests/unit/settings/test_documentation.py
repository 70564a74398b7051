"""docs/configuration.md says what the code does."""

from namesrv_stream.processor.namesrv_config import OPTION_OF
from namesrv_stream.settings import Settings
from tests.support.settings_tables import DOCUMENT, with_tables


def test_tables_of_the_document_are_those_of_the_code() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(document) == document, "python -m tests.support.settings_tables writes them anew"


def test_every_setting_is_in_the_document() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    keys = [f"{section}.{key}" for section, table in Settings().model_dump().items() for key in table]
    assert [key for key in keys if f"`{key}`" not in document] == []


def test_every_switch_that_can_change_at_run_time_is_in_its_table() -> None:
    rows = DOCUMENT.read_text(encoding="utf-8").partition("## Changes at run time")[2].partition("## Who")[0]
    assert [key for key in OPTION_OF if f"`{key}`" not in rows] == []
