"""Variants of headers. Source: rocketmq 5.3.3, RemotingCommand, RocketMQSerializable."""

from typing import Final

from tests.differential.broker_requests import Broker, heartbeat, member_group, query_data_version, register, unregister
from tests.differential.client_requests import cluster_info, route
from tests.differential.request import Request
from tests.differential.scenario import Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911")


def _text(text: str) -> Request:
    return Request(0, header_text=text.encode())


_ROUTE: Final = (
    '{"code":105,"extFields":{"topic":"~T"},"flag":0,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario(
        "binary: a route",
        ask(register(A)),
        ask(route("~T").binary(), route("~T", 317).binary(), route("~none").binary(), differs="binary-answer"),
    ),
    scenario(
        "binary: a registration",
        ask(register(A).binary(), differs="binary-answer"),
        ask(register(A.slave()).binary(), over="s", differs="binary-answer"),
    ),
    scenario(
        "binary: questions",
        ask(register(A)),
        ask(
            cluster_info().binary(),
            member_group("~a").binary(),
            query_data_version(A).binary(),
            heartbeat(A).binary(),
            differs="binary-answer",
        ),
    ),
    scenario("binary: goodbye", ask(register(A)), ask(unregister(A).binary(), differs="binary-answer")),
    scenario("binary: an unknown code", ask(Request(999).binary(), differs="binary-answer")),
    scenario("binary: oneway", ask(register(A).binary().oneway())),
    scenario(
        "binary and JSON in one stream",
        ask(register(A)),
        ask(route("~T").binary(), differs="binary-answer"),
        ask(route("~T")),
    ),
    scenario(
        "header: bare keys",
        ask(register(A)),
        ask(_text(_ROUTE.replace('"code"', "code").replace('"opaque"', "opaque").replace('"topic"', "topic"))),
    ),
    scenario("header: single quotes", ask(register(A)), ask(_text(_ROUTE.replace('"', "'")))),
    scenario("header: a byte order mark", ask(register(A)), ask(_text("\ufeff" + _ROUTE))),
    scenario(
        "header: white space and another order",
        ask(register(A)),
        ask(_text(' { "version" : 317 ,\n "opaque" : %d , "extFields" : { "topic" : "~T" } , "code" : 105 } ')),
    ),
    scenario(
        "header: unknown properties",
        ask(register(A)),
        ask(_text(_ROUTE.replace('"flag":0', '"flag":0,"suspended":true,"body":"eA==","what":[1,{}]'))),
    ),
    scenario(
        "header: numbers as text", ask(register(A)), ask(_text(_ROUTE.replace("105", '"105"').replace("479", '"479"')))
    ),
    scenario(
        "header: numbers and booleans as ext fields",
        ask(register(A)),
        ask(_text(_ROUTE.replace('"~T"', '"~T","acceptStandardJsonOnly":true,"n":1,"f":1.50').replace("479", "317"))),
    ),
    scenario(
        "header: an ext field that is null", ask(register(A)), ask(_text(_ROUTE.replace('"~T"', '"~T","x":null')))
    ),
    scenario(
        "header: without language and version",
        ask(register(A)),
        ask(_text('{"code":105,"extFields":{"topic":"~T"},"opaque":%d}')),
    ),
    scenario(
        "header: nulls",
        ask(register(A)),
        ask(
            _text(
                '{"code":105,"extFields":{"topic":"~T"},"opaque":%d,"language":null,"remark":null,"version":null,"flag":null}'
            )
        ),
    ),
    scenario(
        "header: an unknown language",
        ask(register(A)),
        ask(
            _text(_ROUTE.replace("JAVA", "COBOL")),
            _text(_ROUTE.replace("JAVA", "java")),
            _text(_ROUTE.replace('"JAVA"', "9")),
        ),
    ),
    scenario("header: a remark", ask(register(A)), ask(_text(_ROUTE.replace('"flag":0', '"flag":0,"remark":"hello"')))),
    scenario(
        "header: other bits of the flag",
        ask(register(A)),
        ask(_text(_ROUTE.replace('"flag":0', '"flag":4')), _text(_ROUTE.replace('"flag":0', '"flag":256'))),
    ),
    scenario(
        "header: escapes",
        ask(register(A)),
        ask(_text(_ROUTE.replace("~T", "~\\u0054")), _text(_ROUTE.replace("~T", "~\\x54"))),
    ),
    scenario("header: the empty object", ask(_text('{"opaque":%d}'))),
    scenario(
        "header: a code twice", ask(register(A)), ask(_text(_ROUTE.replace('"code":105', '"code":106,"code":105')))
    ),
    scenario("header: huge version", ask(register(A)), ask(_text(_ROUTE.replace("479", "2147483647")))),
    scenario("header: the largest opaque", ask(register(A)), ask(route("~T")), ask(cluster_info())),
    scenario(
        "registrations of version 0 and of a huge version",
        ask(register(A).of_version(100_000)),
        ask(register(A).of_version(612)),
    ),
    scenario("registration of version -1", ask(register(A).of_version(-1), differs="exception-remark")),
)
