"""The largest registration that can be logged."""

from dataclasses import replace

import pytest

from namesrv_stream.processor.register_body import MAX_ENTRIES, MAX_EVENT_BYTES, require_loggable
from namesrv_stream.route.model import QueueData, TopicQueueMappingInfo

SHAPE = QueueData(8, 8, 6)
MAPPING = TopicQueueMappingInfo("t", "b", 1, 1, "s", False, {})


def test_topics_of_the_largest_real_body_are_loggable() -> None:
    require_loggable({f"a-topic-of-some-team-{number:06}": SHAPE for number in range(115_000)}, {}, ())


def test_too_many_topics_are_refused_whatever_their_size() -> None:
    topics = {f"{number:x}": SHAPE for number in range(MAX_ENTRIES)}
    require_loggable(topics, {}, ())

    with pytest.raises(ValueError, match=f"{MAX_ENTRIES + 1} topics with 0 static queues exceed"):
        require_loggable(topics, {}, ("f:1",))


def test_too_many_static_queues_are_refused() -> None:
    half = dict.fromkeys(range(MAX_ENTRIES // 2 + 1), 0)
    mappings = {"t": replace(MAPPING, curr_id_map=half), "u": replace(MAPPING, curr_id_map=half)}

    with pytest.raises(ValueError, match=f"2 topics with {MAX_ENTRIES + 2} static queues exceed"):
        require_loggable({}, mappings, ())


def test_static_topics_are_refused_if_their_event_would_be_too_large() -> None:
    with pytest.raises(ValueError, match="as an event it has"):
        require_loggable({}, {f"{number:x}": MAPPING for number in range(200_000)}, ())


@pytest.mark.parametrize(("char", "bytes_per_char"), [("x", 1), ("é", 2), ("\x01", 6)])
def test_names_count_with_their_encoded_size(char: str, bytes_per_char: int) -> None:
    name = char * (MAX_EVENT_BYTES // bytes_per_char // 2)
    require_loggable({name[:-100]: SHAPE}, {}, (name[:-100],))

    with pytest.raises(ValueError, match="as an event it has"):
        require_loggable({name: SHAPE}, {}, (name,))
