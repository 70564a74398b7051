"""``repartition``: gives the events topic more partitions while it is closed.

While the topic is closed it accepts no records, so the log ends at the same offsets for all readers. Servers treat a
closed topic like an unreachable Kafka. The log is folded up to its end, and the state of the fold in ``route_state`` is
divided among the new partitions. A run that was killed at any step is completed by the next run (ADR 0054).
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pyarrow as pa

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError
from namesrv_stream.kafka.event_topics import TopicGrowth
from namesrv_stream.kafka.log_reader import check_log
from namesrv_stream.processes import job_lock
from namesrv_stream.route.event_json import encode_event
from namesrv_stream.route.events import JOB, Origin, Tick
from namesrv_stream.route.fold.derived_state import repartitioned
from namesrv_stream.route.fold.folded_log import FoldedLog
from namesrv_stream.route.fold.state import FoldState
from namesrv_stream.settings import Settings
from namesrv_stream.table_errors import RebuildRefused
from namesrv_stream.tables.change_rows import encode_changes
from namesrv_stream.tables.repair import prepare_tables, settle_swap
from namesrv_stream.tables.route_writers import ChangesWriter, StateWriter, grown_rows, next_state, state_rows
from namesrv_stream.tables.snapshot import load_snapshot, read_tables
from namesrv_stream.tables.storage import Storage, tables_of
from namesrv_stream.tables.stored_changes import KeptStates
from namesrv_stream.tools.replay.log_archive import open_kafka_log
from namesrv_stream.tools.replay.log_fold import LogFold, OnProgress, find_start
from namesrv_stream.tools.replay.replay_report import Repartition

_REMEDY: Final = "stop it; Kafka must keep running, name servers may"
_BATCH_ID: Final = 0  # no micro-batch wrote the rows
_SESSION_S: Final = 1.0  # how much longer a server's session lasts than its records wait for Kafka


def repartition(
    settings: Settings, partitions: int, print_line: Callable[[str], None], on_progress: OnProgress
) -> Repartition:
    """Give the topic more partitions; blocks, for ``advanced.kafka.delivery_timeout_ms`` and a while.

    Args:
        settings: Settings of the installation; the former number of partitions comes from the tables.
        partitions: The new number of partitions.
        print_line: Called with a line for every step.
        on_progress: Called during long folds.

    Raises:
        ConfigError: The topic already has more partitions, or the job runs.
        RebuildRefused: The new tables do not contain the same routes; the topic stays closed.
        NamesrvStreamError: The repartition is not possible; the text has the reason.
    """
    tables, growth = tables_of(settings), TopicGrowth(settings)
    with job_lock(settings.data.lock_dir, _REMEDY):
        settle_swap(tables)
        before, has = KeptStates(tables).partitions, growth.partitions()
        if not before or partitions < before or has not in (before, partitions):
            reason = f"is {partitions}; Kafka's topic has {has} partitions, the tables have {before}"
            raise ConfigError("command line", "--partitions", reason)
        began_s = time.monotonic()
        if partitions == before:
            growth.open()  # an earlier run was killed at its end
            return Repartition(before, partitions, {}, len(load_snapshot(tables).table.groups), 0.0)
        may_have_grown = has != before
        if not may_have_grown:
            growth.check_growth(partitions)
        print_line("closing the topic: name servers answer from memory until it is open again")
        try:
            growth.close(encode_event(Tick(Origin(JOB, SystemClock().now_ms()))))
            if not may_have_grown:
                now = _with_partitions(settings, before)
                for text in prepare_tables(now, check_log(now, _folded(tables)).topic_id):
                    print_line(f"repaired: {text}")
            begins, states = _fold(_with_partitions(settings, has), before, partitions, print_line, on_progress)
            if not may_have_grown:
                print_line("adding partitions: if this fails, the topic stays closed until you run the command again")
                may_have_grown = True
                growth.grow(partitions)
        finally:
            if not may_have_grown:
                growth.open()
        grown_s = time.monotonic()
        names = carry_over(tables, before, partitions, begins, states)
        # A server whose session began before must not write to the new partitions by the old assignment.
        session_s = settings.kafka.delivery_timeout_ms / 1000 + _SESSION_S
        print_line(f"waiting {session_s:.0f} s, in which name servers abandon the records of earlier sessions")
        time.sleep(max(0.0, grown_s + session_s - time.monotonic()))
        growth.open()
    return Repartition(before, partitions, begins, names, time.monotonic() - began_s)


def _with_partitions(settings: Settings, partitions: int) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"partitions": partitions})})


def _folded(tables: Storage) -> FoldedLog:
    snapshot = load_snapshot(tables)
    return FoldedLog(snapshot.topic_id, snapshot.progress)


def _fold(
    settings: Settings, before: int, partitions: int, print_line: Callable[[str], None], on_progress: OnProgress
) -> tuple[dict[int, int], list[FoldState]]:
    """Fold the log to its end and commit; returns every partition's first new offset, and the states there."""
    tables = tables_of(settings)
    writer, kept, states = ChangesWriter(tables, 0), KeptStates(tables), []
    with open_kafka_log(settings) as whole:
        log = replace(whole, pieces={p: whole.pieces[p] for p in range(before)}, begins=kept.begins)
        begins = {p: log.end(p) if p < before else 0 for p in range(partitions)}
        for partition in range(before):
            start = find_start(log, partition, begins[partition], kept, writer.committed[partition])
            print_line(f"partition {partition}: from {start.origin}, folding to {begins[partition]}")
            fold = LogFold(start)
            for changes in fold.to(log, begins[partition], on_progress):
                writer.write(pa.Table.from_batches([encode_changes(changes)]), {partition: fold.place}, _BATCH_ID)
            writer.write(pa.Table.from_batches([encode_changes([])]), {partition: fold.place}, _BATCH_ID, is_due=True)
            if fold.dead_letters:
                print_line(f"partition {partition}: {fold.dead_letters} items could not be folded")
            states.append(fold.state)
    return begins, states


def carry_over(tables: Storage, before: int, partitions: int, begins: dict[int, int], states: list[FoldState]) -> int:
    """Divide state and routes among the partitions; returns the number of broker names.

    Raises:
        RebuildRefused: The tables do not contain the same routes as before.
    """
    table = load_snapshot(tables).table
    rows = read_tables(tables)
    live, _ = next_state(rows.state, rows.changes, state_rows(states))
    ChangesWriter(tables, 0).grow(begins)
    new = state_rows(repartitioned(states, partitions))
    StateWriter(tables).replace(grown_rows(live, before, partitions), new, begins)
    after = load_snapshot(tables).table
    if (after.groups, after.kv, after.held) != (table.groups, table.kv, table.held):
        raise RebuildRefused("the tables do not contain the same routes as before; the topic stays closed")
    return len(after.groups)
