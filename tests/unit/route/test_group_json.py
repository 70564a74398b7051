"""A broker group is encoded and decoded without loss."""

import orjson
import pytest
from hypothesis import given

from namesrv_stream.route.digest import decode_group, encode_group
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.registration_json import registration_fields
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


@given(groups())
def test_a_group_whose_registrations_are_objects_is_read(group: BrokerGroup) -> None:
    fields = orjson.loads(encode_group(group)) | {
        "group_version": 1,
        "registrations": [[*key, registration_fields(kept.read())] for key, kept in group.registrations.items()],
    }
    assert decode_group(orjson.dumps(fields)) == group
