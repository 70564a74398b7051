"""Creates the job's tables if they are missing, repairs damage, and replaces the tables with rebuilt ones.

Damage is caused by a crash of the machine or a defective disk. A repair goes back to the newest undamaged version of a
table. Newer commits are renamed, and the job folds the log again from there (ADR 0049). If no version is undamaged, a
table that was created only recently is created again, because Kafka still has all its records. Any other table needs
`namesrv-stream rebuild`.

When rebuilt tables replace the old ones, the old ones are kept under a dated name. All moves are recorded before the
first one, and the next process that writes the tables completes an interrupted swap. So a job never finds a mixture of
old and new tables. A follower may find one: it then reads the new state with the old changes, which is correct, and
reloads when the changes are replaced as well.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RESTORE_OR_NEW_TABLES, TableDamaged, TableSchemaMismatch
from namesrv_stream.tables.change_rows import CHANGES_SCHEMA, STATE_SCHEMA
from namesrv_stream.tables.delta.commit import (
    LAST_CHECKPOINT,
    LOG,
    checkpoint_name,
    checkpointed_version,
    commit_name,
    commit_versions,
)
from namesrv_stream.tables.delta.table_version import TableVersion, newest_readable, open_version
from namesrv_stream.tables.layout import (
    PARTITIONS_PROPERTY,
    ROUTE_CHANGES,
    ROUTE_STATE,
    SWAP_FILE,
    TOPIC_ID_PROPERTY,
    table_properties,
)
from namesrv_stream.tables.snapshot import read_newest_state, read_state, read_uncovered
from namesrv_stream.tables.storage import Storage, tables_of

logger = logging.getLogger(__name__)

_CHECKPOINT_FILE: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_SET_ASIDE: Final = ".damaged"


def prepare_tables(settings: Settings, topic_id: str) -> list[str]:
    """Create, repair and check ``route_changes`` and ``route_state``, before their writer opens them.

    Only the process that writes the tables may call this.

    Args:
        settings: ``data``, ``kafka.partitions`` and ``kafka.broker_events_topic`` are used.
        topic_id: Kafka's id of the events topic.

    Returns:
        A sentence for each repair.

    Raises:
        TableSchemaMismatch: A table has an unexpected schema.
        ConfigError: A table belongs to another topic.
        StoreUnreachable: The object store does not answer.
    """
    tables = tables_of(settings)
    done = _prepare(tables / ROUTE_STATE, STATE_SCHEMA, read_state, settings, topic_id)
    state = read_newest_state(tables)
    # The rows from which servers and the job start are read. For older files, only the size is checked.
    check = partial(read_uncovered, state=state)
    return done + _prepare(tables / ROUTE_CHANGES, CHANGES_SCHEMA, check, settings, topic_id)


def create_table(
    storage: Storage, schema: pa.Schema, topic_id: str, partitions: int, begins: Mapping[int, int] | None = None
) -> None:
    """Create an empty table with the properties of ``table_properties``; durable."""
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
    """Go back to the newest undamaged version, if the newest one is damaged.

    Args:
        storage: Storage of the table.
        schema: Columns of the table.
        check: Reads what must be undamaged; raises ``TableDamaged``.

    Returns:
        A sentence for each repair; empty if the table is undamaged or missing.

    Raises:
        TableSchemaMismatch: The table has an unexpected schema; or no version is undamaged, and the table is not new.
        StoreUnreachable: The object store does not answer.
    """
    done = _drop_damaged_checkpoints(storage)
    try:
        intact, damage = newest_readable(storage, schema, partial(_intact_version, check))
    except TableDamaged as error:
        intact, damage = None, error
    if damage is None:
        return done
    checkpoint = checkpoint_name(max(0, checkpointed_version(storage)))
    if damage.file == checkpoint and storage.exists(checkpoint):
        for name in (LAST_CHECKPOINT, checkpoint):  # an older one and the commits since then have the same content
            _set_aside(storage, name)
        return [*done, f"table {storage}: {damage.damage}; it is set aside", *repair_table(storage, schema, check)]
    version = -1 if intact is None else intact
    commits, checkpoints = commit_versions(storage), _checkpoints(storage)
    if intact is None and (checkpoints or commits[:1] != [0]):
        # Kafka has all records of a table that was just created. For an older table, records may be missing.
        raise TableSchemaMismatch(
            str(storage), f"{damage.damage}; no version is intact: stop the job and run `namesrv-stream rebuild`"
        )
    newer = [number for number in commits if number > version]
    # Commits come last, newest first, so a crash in between leaves neither a checkpoint without commits nor a gap.
    names = [LAST_CHECKPOINT] if checkpointed_version(storage) > version else []
    names += [checkpoint_name(number) for number in checkpoints if number > version]
    for name in (*names, *(commit_name(number) for number in reversed(newer))):
        _set_aside(storage, name)
    reached = "no version of it is intact" if intact is None else f"it is back at version {version}"
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
        logger.error("damaged table repaired detail=%s", text)
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
            raise ConfigError(str(storage), name, f"{reason}. {cause}: {RESTORE_OR_NEW_TABLES}")
    return done


def _intact_version(check: Callable[[TableVersion], object], table: TableVersion) -> int:
    """Return the version, if all its files and its log are undamaged.

    Raises:
        TableDamaged: Something is damaged.
    """
    table.check_files()
    table.removed_below()
    check(table)
    return table.version


def _remove_unfinished(storage: Storage) -> None:
    """Remove temporary files of killed processes."""
    for place in (storage, storage / LOG):
        for name in place.sizes():
            if name.startswith(".") and name.endswith(".tmp"):
                place.remove(name)


def _drop_damaged_checkpoints(storage: Storage) -> list[str]:
    """Rename the newest checkpoint if it is unreadable, and ``_last_checkpoint`` if it names no existing one.

    Nothing is lost, because the commits contain the same information.
    """
    done = []
    for name in map(checkpoint_name, _checkpoints(storage)[-1:]):
        try:
            pq.read_table(pa.BufferReader(storage.read(name)), partitioning=None).validate(full=True)
        except (pa.ArrowException, OSError):
            _set_aside(storage, name)
            done.append(f"table {storage}: {name} was damaged and is set aside")
    if storage.exists(LAST_CHECKPOINT) and checkpointed_version(storage) not in _checkpoints(storage):
        _set_aside(storage, LAST_CHECKPOINT)
        done.append(f"table {storage}: {LAST_CHECKPOINT} named no existing checkpoint and is set aside")
    return done


def _checkpoints(storage: Storage) -> list[int]:
    found = map(_CHECKPOINT_FILE.fullmatch, (storage / LOG).sizes())
    return sorted(int(match[1]) for match in found if match)


def _set_aside(storage: Storage, name: str) -> None:
    names = (name + _SET_ASIDE + (f"-{number}" if number > 1 else "") for number in count(1))
    storage.move(name, next(target for target in names if not storage.exists(target)))


#: Folder of the new tables. It is beside the old ones, so that a rename suffices on a local disk.
REBUILT: Final = "rebuild"


def swap_tables(tables: Storage, suffix: str) -> list[str]:
    """Replace the tables with the rebuilt ones. Only the process that writes the tables may call this.

    Args:
        suffix: Suffix that is added to the names of the old tables.

    Returns:
        The new names of the old tables.
    """
    kept, moves = [], []
    for name in (ROUTE_STATE, ROUTE_CHANGES):
        if tables.has(name):
            kept.append(_free_name(tables, f"{name}.{suffix}"))
            moves.append((name, kept[-1]))
        moves.append((f"{REBUILT}/{name}", name))
    _plan(tables, moves)
    settle_swap(tables)
    return kept


def settle_swap(tables: Storage) -> bool:
    """Complete an interrupted swap; if no moves are recorded, remove unfinished tables of a rebuild.

    Only the process that writes the tables may call this.

    Returns:
        Whether tables were replaced.
    """
    has_plan = tables.exists(SWAP_FILE)
    if has_plan:
        moves = [(source, target) for source, target in json.loads(tables.read(SWAP_FILE))]
        while moves:
            tables.move(*moves[0])
            del moves[0]
            _plan(tables, moves)  # a completed move must not be repeated: its source may be another table by now
        tables.remove(SWAP_FILE)
        logger.info("tables replaced by rebuilt ones tables=%s", tables)
    tables.remove_all(REBUILT)
    return has_plan


def _plan(tables: Storage, moves: list[tuple[str, str]]) -> None:
    tables.write(SWAP_FILE, json.dumps(moves).encode())


def _free_name(tables: Storage, wanted: str) -> str:
    """Return an unused name, so that older tables are never overwritten."""
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if not tables.has(name))
