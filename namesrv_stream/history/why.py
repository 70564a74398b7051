"""What the tables know about a topic or a broker name, for ``why``; and answers about a moment of the past."""

from typing import Final

from namesrv_stream.history.database import Database, Past, open_newest
from namesrv_stream.history.past_route import table_of
from namesrv_stream.instants import COMMAND_LINE, instant, parse_past_instant
from namesrv_stream.route.why.explain import DEFAULT_TOPIC, explain
from namesrv_stream.route.why.facts import Facts, Known, Question
from namesrv_stream.route.why.findings import Explanation
from namesrv_stream.settings import Settings

#: Later than every row: the last day that all query engines support.
_END_MS: Final = 253_402_214_400_000
#: Names with so many different characters are near misses; a short name has too many such neighbours.
_MOST_DIFFERENT: Final = 2
_SHORT_CHARS: Final = 4


def read_newest(settings: Settings, question: Question) -> Known:
    """Return what the tables know now; blocks. Raises the errors of ``Past``."""
    return _known(open_newest(settings), question, _END_MS)


def explain_past(
    settings: Settings, question: Question, at: str, now_ms: int, *, flag: str, source: str = COMMAND_LINE
) -> Explanation:
    """Answer a question about a time given as text, from the tables alone; blocks.

    Args:
        settings: Names the tables; options of the server that the history does not record have their present values.
        question: The question.
        at: The time, in a form that ``instants.parse_past_instant`` accepts.
        now_ms: The time now.
        flag: Name of the flag or parameter, for errors.
        source: Where the flag was given, for errors.

    Raises:
        ConfigError: The time is invalid or in the future.
        NotInHistory: The history does not cover that time.
        TableSchemaMismatch: A table is damaged or has an unexpected schema.
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


def _known(database: Database, question: Question, at_ms: int) -> Known:
    name, is_topic = question.name, question.subject == "topic"
    if is_topic:
        rows = database.changes("route_as_of", topic=name, at_ms=at_ms)
    else:
        rows = database.changes("broker_as_of", broker_name=name, at_ms=at_ms)
    if rows:
        return Known(rows)
    kind, most = "queue_data" if is_topic else "broker_live", _MOST_DIFFERENT if len(name) > _SHORT_CHARS else 1
    near = [row["name"] for row in database.rows("near_names", kind=kind, name=name, at_ms=at_ms, most=most)]
    has_brokers = bool(near) or bool(database.query("live_before", since_ms=at_ms + 1).num_rows)
    default_topic = database.changes("route_as_of", topic=DEFAULT_TOPIC, at_ms=at_ms) if is_topic else []
    return Known((), near, default_topic, has_brokers)
