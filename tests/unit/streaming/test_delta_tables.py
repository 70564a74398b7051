"""The tables are made once, for one topic."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError
from namesrv_stream.streaming.delta_tables import ensure_tables
from namesrv_stream.tables import ROUTE_CHANGES, ROUTE_STATE, table_path
from tests.support.tables import settings_in


def test_new_tables_have_the_protocol_that_every_engine_reads(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    ensure_tables(settings, "topic")
    for name in (ROUTE_CHANGES, ROUTE_STATE):
        protocol = DeltaTable(table_path(settings.data.tables_dir, name)).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    ensure_tables(settings, "topic")


def test_tables_of_another_topic_are_refused(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    ensure_tables(settings, "one")
    with pytest.raises(ConfigError) as refused:
        ensure_tables(settings, "two")
    assert refused.value.key == "namesrv_stream.topic_id"
