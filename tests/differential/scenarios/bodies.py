"""The body of 103 in all its forms. Source: rocketmq 5.3.3, RegisterBrokerBody, TopicConfig."""

import zlib
from dataclasses import replace
from typing import Final

from tests.differential.broker_requests import (
    TOPICS,
    Broker,
    as_json,
    compressed,
    data_version,
    mapping_info,
    query_data_version,
    register,
    topic,
    wrapper,
    wrapper_4x,
)
from tests.differential.client_requests import all_topics, cluster_info, route
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")
OLD: Final = A.but(acting=None)
_V1: Final = data_version()
_T: Final = '"~T":{"perm":6,"readQueueNums":8,"topicName":"~T","writeQueueNums":8}'
_U: Final = '"~U":{"perm":6,"readQueueNums":4,"topicName":"~U","writeQueueNums":4}'
_VERSION: Final = '"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1000}'


def _body(text: str) -> Request:
    return register(A, body=text.encode())


def _wrapped(table: str, version: str = _VERSION) -> Request:
    return _body(
        f'{{"filterServerList":[],"topicConfigSerializeWrapper":{{{version},"topicConfigTable":{{{table}}}}}}}'
    )


def _deflated(data: bytes) -> Request:
    return replace(register(A, body=b"").with_fields(compressed="true"), pack=lambda _: zlib.compress(data))


def _with_filter_servers(text: bytes) -> Request:
    """Return a compressed registration with this text in place of its empty list of filter servers."""
    plain = compressed(A)
    return replace(plain, pack=lambda body: plain.pack(body.replace(b"[]", text)))


_BARE: Final = as_json(wrapper_4x(TOPICS, _V1))

#: Queries after a registration without a DataVersion.
_STAMPED: Final = (
    ask(query_data_version(A), differs="no-data-version"),
    ask(cluster_info(), all_topics(), route("~T"), route("~U", 317)),
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("body: 4.x, without mappings", ask(register(OLD).of_version(399))),
    scenario("body: of 3.0.10, a bare wrapper", ask(register(OLD, body=_BARE).of_version(36))),
    scenario("body: of version 0, a bare wrapper", ask(register(OLD, body=_BARE).of_version(0))),
    scenario("body: of 3.0.11, the first in a RegisterBrokerBody", ask(register(OLD).of_version(37))),
    scenario(
        "body: a RegisterBrokerBody with version 36 has no topics",
        ask(register(OLD).of_version(36)),
        *_STAMPED,
        is_observed=False,
    ),
    scenario(
        "body: a bare wrapper with version 37 has no topics",
        ask(register(OLD, body=_BARE).of_version(37)),
        *_STAMPED,
        is_observed=False,
    ),
    scenario(
        "body: of 3.0.10 does not change filter servers",
        ask(register(OLD, filter_servers=["10.1.1.1:1"])),
        ask(register(OLD, body=_BARE).of_version(36)),
        ask(register(OLD, body=b"").with_fields(bodyCrc32="0").of_version(36)),
    ),
    scenario("body: compressed, 5.x", ask(compressed(A))),
    scenario("body: compressed, 4.x", ask(compressed(OLD))),
    scenario("body: compressed with static topics", ask(compressed(A, mappings={"~S": mapping_info("~S", "~a")}))),
    scenario("body: compressed with filter servers", ask(compressed(A, filter_servers=["10.1.1.1:1", "10.1.1.2:1"]))),
    scenario("body: compressed loses flags", ask(compressed(A, {"~T": topic(1, flag=3), "~U": topic(2, perm=4)}))),
    scenario(
        "body: compressed and plain of one version",
        ask(compressed(A)),
        ask(register(A)),
        ask(compressed(A, {**TOPICS, "~V": topic(1)})),
    ),
    scenario("body: compressed is True with a capital letter", ask(compressed(A, header="True"))),
    scenario(
        "body: deflated, but the header says uncompressed",
        ask(compressed(A, header="false"), differs="deflated-body"),
        is_observed=False,
    ),
    scenario(
        "body: JSON, but the header says compressed",
        ask(register(A).with_fields(compressed="true"), differs="broken-body"),
    ),
    scenario("body: deflated garbage", ask(_deflated(b"\x00\x00\x00\x02{}\x00"), differs="broken-body")),
    scenario(
        "body: deflated and truncated",
        ask(replace(compressed(A), pack=lambda b: compressed(A).pack(b)[:-9]), differs="broken-body"),
    ),
    scenario(
        "body: a deflated topic with too few parts",
        ask(
            replace(compressed(A), pack=lambda b: compressed(A).pack(b.replace(b" SINGLE_TAG {}", b""))),
            differs="broken-body",
        ),
    ),
    scenario(
        "body: a deflated topic with an unknown filter type",
        ask(
            replace(compressed(A), pack=lambda b: compressed(A).pack(b.replace(b" SINGLE_TAG ", b" WHAT "))),
            differs="broken-body",
        ),
    ),
    *(
        scenario(
            f"body: deflated filter servers are {what}",
            ask(register(A, filter_servers=["10.1.1.1:1"])),
            ask(_with_filter_servers(text)),
        )
        for what, text in (("null", b"null"), ("an empty text", b""), ("cut short", b'["10.'), ("no list", b"{}"))
    ),
    scenario(
        "body: a deflated topic with attributes",
        ask(replace(compressed(A), pack=lambda b: compressed(A).pack(b.replace(b"{}", b'{"+a":"b"}')))),
    ),
    scenario(
        "body: a deflated topic with broken attributes",
        ask(replace(compressed(A), pack=lambda b: compressed(A).pack(b.replace(b"{}", b"{x")))),
    ),
    scenario("body: not JSON", ask(_body("no JSON"), differs="broken-body")),
    scenario("body: an array", ask(_body("[]"), differs="broken-body")),
    scenario("body: cut short", ask(_body('{"filterServerList":[],"topicConfigSer'), differs="broken-body")),
    scenario("body: {}", ask(_body("{}")), *_STAMPED, is_observed=False),
    scenario("body: null", ask(_body("null"), differs="broken-body")),
    scenario("body: without a wrapper", ask(_body('{"filterServerList":[]}')), *_STAMPED, is_observed=False),
    scenario(
        "body: the wrapper is null",
        ask(_body('{"filterServerList":[],"topicConfigSerializeWrapper":null}')),
        ask(query_data_version(A), differs="null-wrapper"),
        is_observed=False,
    ),
    scenario(
        "body: the topic table is null",
        ask(_body(f'{{"topicConfigSerializeWrapper":{{{_VERSION},"topicConfigTable":null}}}}')),
        ask(query_data_version(A), differs="null-wrapper"),
        is_observed=False,
    ),
    scenario(
        "body: the topic table of a known broker is null",
        ask(register(A)),
        ask(_body(f'{{"topicConfigSerializeWrapper":{{{_VERSION},"topicConfigTable":null}}}}')),
    ),
    scenario(
        "body: the table of static topics is null",
        ask(_wrapped(f"{_T},{_U}", f'{_VERSION},"topicQueueMappingInfoMap":null')),
        ask(query_data_version(A), differs="null-wrapper"),
        is_observed=False,
    ),
    scenario(
        "body: a topic without its name",
        ask(_wrapped(f'"~T":{{"perm":6}},{_U}')),
        ask(query_data_version(A), differs="null-wrapper"),
        is_observed=False,
    ),
    scenario("body: without a data version", ask(_wrapped(f"{_T},{_U}", '"x":1')), *_STAMPED, is_observed=False),
    scenario("body: the data version is null", ask(_wrapped(f"{_T},{_U}", '"dataVersion":null')), is_observed=False),
    scenario("body: without filterServerList", ask(register(A, filter_servers=None))),
    scenario(
        "body: filterServerList is null",
        ask(register(A, body=as_json({"filterServerList": None, "topicConfigSerializeWrapper": wrapper(TOPICS, _V1)}))),
    ),
    scenario("body: single quotes", ask(_body(_wrapped(f"{_T},{_U}").body.decode().replace('"', "'")))),
    scenario(
        "body: bare keys",
        ask(
            _body(
                '{filterServerList:[],topicConfigSerializeWrapper:{dataVersion:{counter:1,timestamp:1000},topicConfigTable:{"~T":{topicName:"~T",perm:6},"~U":{topicName:"~U",readQueueNums:3}}}}'
            )
        ),
    ),
    scenario("body: trailing commas", ask(_wrapped(f"{_T},{_U},"))),
    scenario("body: comments", ask(_wrapped(f"/* first */{_T},{_U}"))),
    scenario("body: numbers as text", ask(_wrapped(_T.replace(":8", ':"8"') + "," + _U))),
    scenario("body: numbers with fractions", ask(_wrapped(_T.replace(":8", ":8.0") + "," + _U))),
    scenario("body: white space", ask(_wrapped(f" {_T} ,\n\t{_U} "))),
    scenario("body: unknown properties", ask(_wrapped(f"{_T},{_U}", f'"whatever":[1,{{"a":null}}],{_VERSION}'))),
    scenario(
        "body: properties in another order",
        ask(
            _body(
                f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{_U},{_T}}},{_VERSION}}},"filterServerList":[]}}'
            )
        ),
    ),
    scenario("body: defaults of a topic", ask(_wrapped('"~T":{"topicName":"~T"},"~U":{"topicName":"~U"}'))),
    scenario(
        "body: nulls in a topic",
        ask(_wrapped(f'"~T":{{"topicName":"~T","perm":null,"readQueueNums":null,"order":null}},{_U}')),
    ),
    scenario("body: a topic that is null", ask(_wrapped(f'"~T":null,{_U}'), differs="broken-body"), is_observed=False),
    scenario("body: the name inside a topic counts, not its key", ask(_wrapped(f"{_T.replace('~T', '~V', 1)},{_U}"))),
    scenario("body: a topic twice", ask(_wrapped(f"{_T},{_T.replace('8', '5')},{_U}"))),
    scenario(
        "body: an unknown topic filter type",
        ask(_wrapped(f'"~T":{{"topicName":"~T","topicFilterType":"WHAT"}},{_U}')),
        is_observed=False,
    ),
    scenario(
        "body: a topic with attributes",
        ask(_wrapped(f'"~T":{{"topicName":"~T","attributes":{{"message.type":"NORMAL"}}}},{_U}')),
    ),
    scenario("body: an ordered topic", ask(_wrapped(f'"~T":{{"topicName":"~T","order":true}},{_U}'))),
    scenario(
        "body: a number too large for an int",
        ask(_wrapped(f'"~T":{{"topicName":"~T","perm":99999999999}},{_U}'), differs="broken-body"),
    ),
    scenario("body: escapes in a topic's name", ask(_wrapped(f'"~\\u0054":{{"topicName":"~\\u0054"}},{_U}'))),
    scenario("body: a byte order mark", ask(_body("\ufeff" + _wrapped(f"{_T},{_U}").body.decode()))),
    scenario(
        "body: text after the end", ask(_body(_wrapped(f"{_T},{_U}").body.decode() + " x"), differs="broken-body")
    ),
    scenario(
        "body: data version numbers as text",
        ask(_wrapped(f"{_T},{_U}", '"dataVersion":{"counter":"1","timestamp":"1000"}')),
    ),
    scenario(
        "body: references, as fastjson writes the same object twice",
        ask(
            _wrapped(
                f"{_T},{_U}", f'{_VERSION},"mappingDataVersion":{{"$ref":"$.topicConfigSerializeWrapper.dataVersion"}}'
            )
        ),
        ask(_wrapped(f'{_T},{_U},"~V":{{"$ref":"$.topicConfigSerializeWrapper.topicConfigTable.~U"}}')),
    ),
)
