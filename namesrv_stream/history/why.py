"""Reads from the tables what the command ``why`` needs about a topic or a broker name, and explains a past time."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from namesrv_stream.history.database import Database, Past, open_newest
from namesrv_stream.history.past_route import table_of
from namesrv_stream.instants import COMMAND_LINE, instant, parse_past_instant
from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.why.explain import DEFAULT_TOPIC, explain
from namesrv_stream.route.why.facts import Facts, Known, Question
from namesrv_stream.route.why.findings import Explanation
from namesrv_stream.settings import Settings

#: Later than every row: the last day that all query engines support.
_END_MS: Final = 253_402_214_400_000
#: Names that differ in at most this many characters are near misses; a short name has too many such neighbours.
_MOST_DIFFERENT: Final = 2
_SHORT_CHARS: Final = 4
#: Brokers accept topics of 127 characters. The comparison takes time in proportion to the square of the length.
_LONG_CHARS: Final = 255
_AT_ONCE: Final = 8_192  # strings: about a millisecond
#: Subject → the kind of the rows that say that a broker has registered the name.
_KEY_OF: Final = {"topic": ChangeKind.QUEUE_DATA, "broker": ChangeKind.BROKER_LIVE}


def read_newest(settings: Settings, question: Question, names: Sequence[str]) -> Known:
    """Return what the tables know now; blocks. Raises the errors of ``Past``.

    Args:
        settings: Names the tables.
        question: The question.
        names: All current topics or broker names. Near misses are chosen from them. If the topic TBW102 is not one
            of them, the rows that explain why TBW102 has no route are read, too.
    """
    database = open_newest(settings)
    rows = _rows(database, question, _END_MS)
    if _has_key(rows, question):
        return Known(rows)
    near = _near(database, _table(names), question.name)
    return Known(rows, near, [] if DEFAULT_TOPIC in names else _default_topic(database, question, _END_MS))


def near_misses(names: Sequence[str], name: str) -> Sequence[str]:
    """Return which of these names are similar to a name; blocks."""
    return _near(Database(), _table(names), name)


def explain_past(
    settings: Settings, question: Question, at: str, now_ms: int, *, flag: str, source: str = COMMAND_LINE
) -> Explanation:
    """Answer a question about a past time, from the tables alone; blocks.

    Args:
        settings: Names the tables, and has the server's options, which the history does not record.
        question: The question.
        at: The time, in a form that ``instants.parse_past_instant`` accepts.
        now_ms: The time now.
        flag: Name of the flag or parameter, for errors.
        source: Where the flag was given, for errors.

    Raises:
        ConfigError: The time is invalid or in the future.
        NotInHistory: The history does not cover that time.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
        StoreUnreachable: The object store does not answer.
    """
    at_ms = parse_past_instant(flag, at, now_ms, source=source)
    past = Past(settings)
    past.check_covers(at_ms)
    known = _known(past, question, at_ms)
    table = table_of([*known.rows, *known.default_topic])
    facts = Facts(question, known, table, at_ms, with_order=settings.name_server.order_message_enable)
    reach = f"as of {instant(at_ms, with_ms=True)}, from the tables; {past.extent.reach()}"
    unknown = "whether a name server was stale, blind or refused requests at that time is not known"
    return explain(facts, notes=[reach, *past.extent.notes(at_ms), unknown])


def _known(past: Past, question: Question, at_ms: int) -> Known:
    rows = _rows(past, question, at_ms)
    if _has_key(rows, question):
        return Known(rows)
    near = _near(past, past.query("names_at", kind=_KEY_OF[question.subject], at_ms=at_ms), question.name)
    has_brokers = bool(past.query("live_before", since_ms=at_ms + 1).num_rows)
    return Known(rows, near, _default_topic(past, question, at_ms), has_brokers)


def _rows(database: Database, question: Question, at_ms: int) -> list[RouteChange]:
    if question.subject == "topic":
        return database.changes("route_as_of", topic=question.name, at_ms=at_ms)
    return database.changes("broker_as_of", broker_name=question.name, at_ms=at_ms)


def _has_key(rows: Sequence[RouteChange], question: Question) -> bool:
    """Whether a row shows that a broker has registered the name. Without one, a topic may still have KV rows."""
    return any(row.kind == _KEY_OF[question.subject] for row in rows)


def _default_topic(database: Database, question: Question, at_ms: int) -> list[RouteChange]:
    return database.changes("route_as_of", topic=DEFAULT_TOPIC, at_ms=at_ms) if question.subject == "topic" else []


def _near(database: Database, names: pa.Table, name: str) -> list[str]:
    if len(name) > _LONG_CHARS:
        return []
    database.register("names", names)
    most = _MOST_DIFFERENT if len(name) > _SHORT_CHARS else 1
    return [row["name"] for row in database.rows("near_names", name=name, most=most)]


def _table(names: Sequence[str]) -> pa.Table:
    # In pieces, because every conversion keeps the interpreter's lock until it is complete.
    pieces = (names[begin : begin + _AT_ONCE] for begin in range(0, len(names), _AT_ONCE))
    return pa.table({"name": pa.chunked_array([pa.array(piece, pa.string()) for piece in pieces], pa.string())})
