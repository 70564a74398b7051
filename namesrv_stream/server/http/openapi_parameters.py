"""Parameters of the HTTP port's paths: what they mean, and the values that they take.

``query.py`` holds every query against these schemas, so what is not described here is refused.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from namesrv_stream.server.http.console.question import LONGEST, SHOWN, STATES, TOPIC_SETS, WINDOWS
from namesrv_stream.server.http.lists import BROKER_STATES
from namesrv_stream.server.http.openapi_schemas import TEXT, Schema

POSITION: Final = "1.5f0c1b8ae9d24c77.91822-4711"


class Parameter(NamedTuple):
    """One parameter, of a path or of a query."""

    text: str
    example: Any
    schema: Schema = TEXT


def _number(minimum: int, maximum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def _one_of(*values: str) -> Schema:
    return {"enum": list(values)}


PARAMETERS: Final[Mapping[str, Parameter]] = {
    "topic": Parameter("Name of a topic.", "TopicTest"),
    "namespace": Parameter("KV namespace.", "ORDER_TOPIC_CONFIG"),
    "unit": Parameter("Unit name of a client.", "hz"),
    "as_of": Parameter("An instant: epoch milliseconds, ISO 8601, or `-10m`; needs the history.", "2026-11-21T03:12Z"),
    "cluster": Parameter("Of this cluster only.", "c0"),
    "broker_name": Parameter("Rows about this broker name only.", "broker-a"),
    "kind": Parameter("Kinds of rows, `,` between them; `*` for all. Without: all but `registration`.", "queue_data"),
    "prefix": Parameter("Names that begin so.", "Topic"),
    "limit": Parameter("Most names in the answer.", 1000, _number(1, 999_999_999)),
    "after": Parameter("Names behind this one.", "TopicTest"),
    "state": Parameter("Brokers in this state only; without, those alive or held.", "held", _one_of(*BROKER_STATES)),
    "since": Parameter("A position from an answer, or `now`.", POSITION),
    "wait": Parameter("Seconds to wait for a change.", 25, _number(0, 60)),
    "partition": Parameter("Kafka partition.", 0, _number(0, 1_023)),
    "name": Parameter("Broker name, namespace or file.", "broker-a"),
    "part": Parameter("Name of a part.", "brokers"),
    "format": Parameter("`text` for lines.", "text", _one_of("text", "json")),
}
_CONSOLE_TEXT: Final[Schema] = {"type": "string", "maxLength": LONGEST}
#: Of the console's page and of its parts; an empty text is the same as none, as forms send it.
CONSOLE_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "cluster": Parameter("Brokers, topics and events of this cluster only.", "c0", _CONSOLE_TEXT),
    "state": Parameter("Brokers in this state only.", "late", _one_of(*STATES)),
    "find": Parameter("Brokers with this text in their cluster, name or address.", "broker-a", _CONSOLE_TEXT),
    "shown": Parameter("Most brokers on the page.", "60", _one_of("", *SHOWN)),
    "topics": Parameter("`all` lists RocketMQ's own topics as well.", "all", _one_of(*TOPIC_SETS)),
    "find_topic": Parameter("Topics with this text in their name.", "Order", _CONSOLE_TEXT),
    "topic": Parameter("The topic whose route is shown.", "TopicTest", _CONSOLE_TEXT),
    "as_of": Parameter("The instant that its route is compared with.", "-1h", _CONSOLE_TEXT),
    "window": Parameter("How far back the time line goes.", "1h", _one_of("", *WINDOWS)),
    "past": Parameter("How far back the timeout what-if goes.", "1h", _one_of("", *WINDOWS)),
}
