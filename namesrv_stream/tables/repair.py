"""Makes both tables if they are absent, and repairs what a crash of the machine or a damaged disk has left.

A table is repaired by going back to its newest version that is sound: newer commits are set aside under another name,
and the job folds the log again from there (ADR 0049). Where no version is sound, a table that has just been made is
recreated; for another one `namesrv-stream rebuild` is needed.
"""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError, TableDamaged, TableSchemaMismatch
from namesrv_stream.settings import Settings
from namesrv_stream.tables.delta.commit import (
    LAST_CHECKPOINT,
    LOG,
    checkpoint_name,
    checkpointed_version,
    commit_name,
    commit_versions,
)
from namesrv_stream.tables.delta.table_version import TableVersion, newest_readable, open_version
from namesrv_stream.tables.route_tables import read_newest_state, read_state, read_uncovered
from namesrv_stream.tables.schema.columns import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.schema.layout import (
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    TOPIC_ID_PROPERTY,
    table_properties,
)
from namesrv_stream.tables.storage import Storage, tables_of

_LOG = logging.getLogger(__name__)

_CHECKPOINT_FILE: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_SET_ASIDE: Final = ".damaged"


def prepare_tables(settings: Settings, topic_id: str) -> list[str]:
    """Make ``route_changes`` and ``route_state`` sound: create what is absent, repair what is damaged, verify the rest.

    For the process that writes them, before it opens them.

    Args:
        settings: Of which ``data``, ``kafka.partitions`` and ``kafka.broker_events_topic`` matter.
        topic_id: Kafka's id of the events topic.

    Returns:
        What was repaired, a sentence each.

    Raises:
        TableSchemaMismatch: A table is not as this version of the code expects.
        ConfigError: A table was made from another topic.
        StoreUnreachable: The object store does not answer.
    """
    tables = tables_of(settings)
    done = _prepare(tables / ROUTE_STATE, STATE_SCHEMA, read_state, settings, topic_id)
    state = read_newest_state(tables)
    # What a server and the job start from is read; of older files the size is looked at.
    check = partial(read_uncovered, state=state)
    return done + _prepare(tables / ROUTE_CHANGES, CHANGES_SCHEMA, check, settings, topic_id)


def create_table(
    storage: Storage, schema: pa.Schema, topic_id: str, partitions: int, begins: Mapping[int, int] | None = None
) -> None:
    """Create an empty table, with such properties as ``table_properties``; durable."""
    storage.make()
    with storage.reaching():
        DeltaTable.create(
            str(storage),
            schema,
            configuration=table_properties(topic_id, partitions, begins),
            raise_if_key_not_exists=False,
            storage_options=storage.delta_options,
        )
    storage.sync([commit_name(0), LOG])


def repair_table(storage: Storage, schema: pa.Schema, check: Callable[[TableVersion], object]) -> list[str]:
    """Go back to the newest version that is sound, if the newest is not.

    Args:
        storage: Where the table is.
        schema: Its columns.
        check: Reads what must be sound; raises ``TableDamaged`` where it is not.

    Returns:
        What was done, a sentence each; nothing where the table is sound, or absent.

    Raises:
        TableSchemaMismatch: It is not as this version of the code expects; or no version is sound, and it is not new.
        StoreUnreachable: The object store does not answer.
    """
    done = _drop_damaged_checkpoints(storage)
    try:
        sound, damage = newest_readable(storage, schema, partial(_sound_version, check))
    except TableDamaged as error:
        sound, damage = None, error
    if damage is None:
        return done
    checkpoint = checkpoint_name(max(0, checkpointed_version(storage)))
    if damage.file == checkpoint and storage.exists(checkpoint):
        for name in (LAST_CHECKPOINT, checkpoint):  # an older one and the commits since then say the same
            _set_aside(storage, name)
        return [*done, f"table {storage}: {damage.damage}; it is set aside", *repair_table(storage, schema, check)]
    version = -1 if sound is None else sound
    commits, checkpoints = commit_versions(storage), _checkpoints(storage)
    if sound is None and (checkpoints or commits[:1] != [0]):
        # Of a table that was made just now, Kafka has everything; of another one it may not.
        raise TableSchemaMismatch(
            str(storage), f"{damage.damage}; no version is sound: stop the job and run `namesrv-stream rebuild`"
        )
    newer = [number for number in commits if number > version]
    # Commits last, and the newest first: a crash in between leaves neither a checkpoint without commits nor a gap.
    names = [LAST_CHECKPOINT] if checkpointed_version(storage) > version else []
    names += [checkpoint_name(number) for number in checkpoints if number > version]
    for name in (*names, *(commit_name(number) for number in reversed(newer))):
        _set_aside(storage, name)
    reached = "no version of it is sound" if sound is None else f"it is back at version {version}"
    return [*done, f"table {storage}: {damage.damage}; {reached}, {len(newer)} newer commits are set aside"]


def _prepare(
    storage: Storage,
    schema: pa.Schema,
    check: Callable[[TableVersion], object],
    settings: Settings,
    topic_id: str,
) -> list[str]:
    _remove_unfinished(storage)
    done = repair_table(storage, schema, check)
    for text in done:
        _LOG.error("table repaired: %s", text)
    partitions = settings.kafka.partitions
    table = open_version(storage, schema)
    if table is None:
        create_table(storage, schema, topic_id, partitions)
        return done
    for name, found, expected in (
        (TOPIC_ID_PROPERTY, table.topic_id, topic_id),
        (PARTITIONS_PROPERTY, str(table.partitions), str(partitions)),
    ):
        if found != expected:
            topic = settings.kafka.broker_events_topic
            reason = f"is {found}, but Kafka's topic {topic} has {expected}: the log is another one"
            cause = "Kafka's data was deleted or replaced, or kafka.bootstrap_servers names another Kafka"
            remedy = 'bring that log back, or begin with new tables (docs/backup.md, "Kafka\'s log is lost")'
            raise ConfigError(str(storage), name, f"{reason}. {cause}: {remedy}")
    return done


def _sound_version(check: Callable[[TableVersion], object], table: TableVersion) -> int:
    """The version, if its files are complete and its log can be read.

    Raises:
        TableDamaged: It is not so.
    """
    table.check_files()
    table.removed_below()
    check(table)
    return table.version


def _remove_unfinished(storage: Storage) -> None:
    """Remove files that a killed process has begun to write."""
    for place in (storage, storage / LOG):
        for name in place.sizes():
            if name.startswith(".") and name.endswith(".tmp"):
                place.remove(name)


def _drop_damaged_checkpoints(storage: Storage) -> list[str]:
    """Set aside the newest checkpoint if it cannot be read, and a hint that names none; the commits say the same."""
    done = []
    for name in map(checkpoint_name, _checkpoints(storage)[-1:]):
        try:
            pq.read_table(pa.BufferReader(storage.read(name)), partitioning=None).validate(full=True)
        except (pa.ArrowException, OSError):
            _set_aside(storage, name)
            done.append(f"table {storage}: {name} was damaged and is set aside")
    if storage.exists(LAST_CHECKPOINT) and checkpointed_version(storage) not in _checkpoints(storage):
        _set_aside(storage, LAST_CHECKPOINT)
        done.append(f"table {storage}: {LAST_CHECKPOINT} named no checkpoint that is there and is set aside")
    return done


def _checkpoints(storage: Storage) -> list[int]:
    found = map(_CHECKPOINT_FILE.fullmatch, (storage / LOG).sizes())
    return sorted(int(match[1]) for match in found if match)


def _set_aside(storage: Storage, name: str) -> None:
    names = (name + _SET_ASIDE + (f"-{number}" if number > 1 else "") for number in count(1))
    storage.move(name, next(target for target in names if not storage.exists(target)))
