"""A broker group is encoded and decoded without loss."""

import orjson
import pytest
from hypothesis import given

from namesrv_stream.route.digest import decode_group, encode_group
from namesrv_stream.route.group import BrokerGroup
from tests.support.strategies_route import groups


@given(groups())
def test_group_is_read_as_it_was_written(group: BrokerGroup) -> None:
    found = decode_group(encode_group(group))
    assert found == group
    assert list(found.topics) == list(group.topics)
    assert list(found.broker_addrs) == list(group.broker_addrs)


def test_a_group_of_another_version_is_refused() -> None:
    fields = orjson.loads(encode_group(BrokerGroup("a"))) | {"group_version": 0}
    with pytest.raises(ValueError, match="version 0"):
        decode_group(orjson.dumps(fields))
