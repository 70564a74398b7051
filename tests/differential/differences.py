"""Every difference between the Java NameServer 5.3.3 and namesrv-stream that these tests show, with its ADR.

A step of a scenario names its expected difference. Any other difference is a failure, and so is an expected one that
does not occur. `docs/differences.md` documents them, and also differences that only other tests can show.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.differential.wire import JSON, ROCKETMQ, Answer


@dataclass(frozen=True, slots=True)
class Difference:
    """A permitted difference.

    Attributes:
        name: Its name in docs/differences.md.
        adr: Number of the ADR.
        fields: Parts of the answer that may differ; all others are equal.
        holds: Whether two answers, Java's and namesrv-stream's, differ in the permitted way.
        is_race: Whether a race in Java decides if the difference occurs, so that the answers may also be equal.
    """

    name: str
    adr: str
    fields: tuple[str, ...]
    holds: Callable[[Answer, Answer], bool]
    is_race: bool = False


_EXCEPTION: Final = re.compile(r"Exception: |Error: ")
_ERROR: Final = ("code", "remark", "ext_fields", "body")


def _is_clear(answer: Answer) -> bool:
    """Whether the answer is SYSTEM_ERROR with a sentence as its remark instead of an exception of Java or Python."""
    return answer.code == 1 and bool(answer.remark) and _EXCEPTION.search(answer.remark or "") is None


def _throws(java: Answer, ours: Answer) -> bool:
    return java.code == 1 and "Exception: " in (java.remark or "") and _is_clear(ours)


def _refused_here(java: Answer, ours: Answer) -> bool:
    return java.code == 0 and _is_clear(ours)


def _gone_here(java: Answer, ours: Answer) -> bool:
    """Whether Java keeps a route or live entry that namesrv-stream removes: 105 answers 17, 322 has no body."""
    return java.code == 0 and bool(java.body) and not ours.body and (ours.code == 17 or _is_changed(ours))


def _kept_here(java: Answer, ours: Answer) -> bool:
    return ours.code == 0 and bool(ours.body) and not java.body and (java.code == 17 or _is_changed(java))


def _is_changed(answer: Answer) -> bool:
    return answer.code == 0 and answer.field("changed") == "true"


def _is_denied(answer: Answer) -> bool:
    return answer.code == 16 and bool(answer.remark)


def _only_text(pattern: bytes) -> Callable[[Answer, Answer], bool]:
    """Whether the bodies are equal except for matches of the pattern."""
    compiled = re.compile(pattern)

    def holds(java: Answer, ours: Answer) -> bool:
        return compiled.sub(b"", java.body) == compiled.sub(b"", ours.body)

    return holds


def _without_mappings(route: bytes) -> bytes:
    return re.sub(rb',"topicQueueMappingByBroker":\{.*\}(?=\}$)', b"", route)


#: The difference of every answer.
EVERYWHERE: Final = (
    Difference("language", "0013", ("language",), lambda j, o: (j.language, o.language) == ("JAVA", "PYTHON")),
)

_PATHS: Final = rb"(?m)^(configStorePath|kvConfigPath|rocketmqHome|listenPort)=.*$"

_EMPTY_BROKER: Final = b'"brokerAddrs":{}'
_NO_BROKERS: Final = b'{"brokerAddrTable":{},"clusterAddrTable":{}}'

#: What namesrv-stream writes where Java omits a null of a static topic's mapping, and what Java writes for a null key.
_FILLED_IN: Final = rb'"(?:bname|scope|topic)":"[^"]*",|"currIdMap":\{\},|(?<=\{)"(?:null)?":(?=\{)'

_LISTED: Final = (
    Difference(
        "binary-answer",
        "0009",
        # The binary header does not distinguish an empty map from an absent one.
        ("header_type", "ext_fields"),
        lambda j, o: (j.header_type, o.header_type) == (JSON, ROCKETMQ) and (j.ext_fields or None) == o.ext_fields,
    ),
    Difference("exception-remark", "0013", ("remark", "ext_fields"), _throws),
    Difference("missing-field", "0005", _ERROR, lambda j, o: _refused_here(j, o) or _throws(j, o)),
    Difference("broken-body", "0013", _ERROR, lambda j, o: _refused_here(j, o) or _throws(j, o)),
    Difference(
        "refused-registration", "0005", ("body",), lambda j, o: _EMPTY_BROKER in j.body and o.body == _NO_BROKERS
    ),
    Difference("stale-registration", "0005", ("body",), _only_text(rb'"zoneName":"[a-z0-9]+"')),
    Difference(
        "second-cluster",
        "0005",
        ("body",),
        lambda j, o: b"10.0.0.5" in j.body and b"10.0.0.5" not in o.body and bool(o.body),
    ),
    Difference("unregister-without-id", "0005", ("code", "remark", "body"), _gone_here),
    Difference(
        "unregister-elsewhere",
        "0005",
        ("code", "remark", "body", "ext_fields"),
        lambda j, o: _kept_here(j, o) or _gone_here(j, o),
    ),
    Difference(
        "same-address",
        "0008",
        ("body", "ext_fields"),
        lambda j, o: _only_text(rb'"counter":[0-9]+')(j, o) and _is_changed(j) != _is_changed(o),
    ),
    Difference(
        "other-name", "0008", ("body", "ext_fields"), lambda j, o: bool(j.body) and not o.body and _is_changed(o)
    ),
    Difference(
        "shared-connection", "0005", ("body",), lambda j, o: j.body.count(b'"cluster"') == 1 and o.body == _NO_BROKERS
    ),
    # If Java handles the closed connection before it has removed the silent broker, it may keep the other one.
    Difference(
        "shared-expiry",
        "0005",
        ("body",),
        lambda j, o: j.body in (_NO_BROKERS, o.body) and o.body.count(b'"cluster"') == 1,
        is_race=True,
    ),
    Difference("ended-mapping", "0067", ("body",), lambda j, o: _without_mappings(j.body) == o.body != j.body),
    Difference("added-mapping", "0067", ("body",), lambda j, o: _without_mappings(o.body) == j.body != o.body),
    Difference(
        "left-permission",
        "0067",
        ("body",),
        lambda j, o: b'"perm":4' in j.body and j.body.replace(b'"perm":4', b'"perm":6') == o.body,
    ),
    Difference("left-cluster", "0067", ("body",), lambda j, o: b"_T" in j.body and b"_T" not in o.body),
    Difference("replaced-address", "0005", ("body", "ext_fields"), _gone_here),
    Difference("long-timeout", "0005", ("body", "ext_fields"), _kept_here),
    Difference("deflated-body", "0006", _ERROR, lambda j, o: j.code == 1 and o.code == 0),
    Difference("no-data-version", "0013", ("body",), _only_text(rb'"timestamp":[0-9]+')),
    Difference("null-wrapper", "0005", _ERROR, _kept_here),
    Difference(
        "goodbye-of-nobody",
        "0005",
        ("body",),
        lambda j, o: b'"perm":4' in j.body and j.body.replace(b'"perm":4', b'"perm":6') == o.body,
    ),
    Difference(
        "empty-ha-address",
        "0005",
        ("ext_fields",),
        lambda j, o: j.field("haServerAddr") == "" and o.field("haServerAddr") is None,
    ),
    Difference("null-mapping", "0048", ("body",), _only_text(_FILLED_IN)),
    Difference("older-connection", "0048", ("code", "remark", "body"), _kept_here),
    Difference("admin", "0011", _ERROR, lambda j, o: j.code == 0 and _is_denied(o)),
    Difference("config-keys", "0011", _ERROR, lambda j, o: j.code == 0 and _is_denied(o)),
    Difference("config-values", "0013", _ERROR, _refused_here),
    Difference("address-views", "0059", _ERROR, _refused_here),
    Difference("config-shown", "0011", ("body",), _only_text(_PATHS)),
)

DIFFERENCES: Final = {difference.name: difference for difference in _LISTED}
