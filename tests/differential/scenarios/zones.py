"""Routes by zone. Source: rocketmq 5.3.3, ZoneRouteRPCHook."""

from typing import Final

from tests.differential.broker_requests import Broker, register, unregister
from tests.differential.client_requests import route, update_config
from tests.differential.request import Request
from tests.differential.scenario import Ask, Scenario, ask, scenario

A: Final = Broker("~a", "10.0.0.1:10911", zone="z1")
B: Final = Broker("~b", "10.0.0.9:10911", zone="z2")
NONE: Final = Broker("~n", "10.0.0.8:10911")
EMPTY: Final = Broker("~e", "10.0.0.7:10911", zone="")
_ALL: Final = (
    ask(register(A, filter_servers=["10.1.1.1:1"]), over="a"),
    ask(register(A.slave()), over="as"),
    ask(register(B, filter_servers=["10.1.1.2:1"]), over="b"),
    ask(register(NONE), over="n"),
    ask(register(EMPTY), over="e"),
)


def _in_zone(name: str, mode: str = "true", version: int = 479) -> Request:
    return route("~T", version, __ZONE_NAME=name, __ZONE_MODE=mode)


def _asked(*requests: Request) -> tuple[Ask, ...]:
    return (*_ALL, ask(*requests))


SCENARIOS: Final[tuple[Scenario, ...]] = (
    scenario("zone: a broker of the zone", *_asked(_in_zone("z1"), _in_zone("z1", version=317))),
    scenario("zone: the other zone", *_asked(_in_zone("z2"))),
    scenario("zone: a zone without brokers", *_asked(_in_zone("z9"))),
    scenario("zone: names in any case", *_asked(_in_zone("Z1"), _in_zone("z1", "TRUE"))),
    scenario(
        "zone: off, or no name", *_asked(_in_zone("z1", "false"), _in_zone("z1", "1"), _in_zone(""), _in_zone("  "))
    ),
    scenario(
        "zone: a name without a mode, a mode without a name",
        *_asked(route("~T", __ZONE_NAME="z1"), route("~T", __ZONE_MODE="true")),
    ),
    scenario("zone: an unknown topic", *_asked(route("~none", __ZONE_NAME="z1", __ZONE_MODE="true"))),
    scenario("zone: only the slave is left", *_ALL, ask(unregister(A), over="a"), ask(_in_zone("z2"), _in_zone("z1"))),
    scenario(
        "zone: a broker changes its zone",
        *_ALL,
        ask(register(A.but(zone="z2")), over="a"),
        ask(_in_zone("z1"), _in_zone("z2")),
    ),
    scenario(
        "zone: a broker has no zone any more", *_ALL, ask(register(A.but(zone=None)), over="a"), ask(_in_zone("z1"))
    ),
    scenario(
        "zone: the slave's zone becomes the group's zone",
        ask(register(A), over="a"),
        ask(register(A.slave().but(zone="z3")), over="s"),
        ask(_in_zone("z1"), _in_zone("z3")),
    ),
    scenario(
        "zone: non-ASCII names",
        ask(register(A.but(zone="ящик"))),
        ask(_in_zone("ящик"), _in_zone("ЯЩИК"), _in_zone("z1")),
    ),
    scenario(
        "zone: names that are equal only under full case folding",
        ask(register(A.but(zone="straße"))),
        ask(_in_zone("STRASSE"), _in_zone("straße"), _in_zone("STRAßE")),
    ),
    scenario("zone: a name with blanks", ask(register(A.but(zone="z1 "))), ask(_in_zone("z1"), _in_zone("z1 "))),
    scenario(
        "zone: an acting master has a master",
        ask(update_config(supportActingMaster="true")),
        ask(register(A.but(acting=True)), over="a"),
        ask(register(A.slave().but(acting=True)), over="s"),
        ask(unregister(A), over="a"),
        ask(_in_zone("z2"), _in_zone("z1")),
        restore=[update_config(supportActingMaster="false")],
    ),
)
