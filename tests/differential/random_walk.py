"""Random sequences of actions of brokers and operators, for both servers.

The seed alone determines the steps of such a walk, whatever the servers answer, so `walker` can repeat and shorten it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.differential.broker_requests import (
    Broker,
    compressed,
    data_version,
    heartbeat,
    query_data_version,
    register,
    register_topic,
    topic,
)
from tests.differential.client_requests import (
    add_write_perm,
    delete_kv,
    delete_topic,
    put_kv,
    update_config,
    wipe_write_perm,
)
from tests.differential.request import Request

CLUSTERS: Final = ("~c", "~d")
NAMES: Final = ("~a", "~b", "~e", "~f", "~g")
CLUSTER_OF: Final = dict(zip(NAMES, ("~c", "~c", "~c", "~d", "~d"), strict=True))
ADDRS: Final = {name: [f"10.0.{n}.{i}:10911" for i in range(1, 5)] for n, name in enumerate(NAMES)}
WALKED_TOPICS: Final = ("~T0", "~T1", "~T2", "~T3", "~T4", "rmq_sys_SYNC_BROKER_MEMBER_~a")
#: A topic that only requests 217 register.
NEVER_REGISTERED: Final = "~T9"
#: Each topic has one flag, because Java uses the flag of an arbitrary broker.
FLAG_OF: Final = {name: n % 4 for n, name in enumerate(WALKED_TOPICS)}
NAMESPACES: Final = ("ORDER_TOPIC_CONFIG", "~n")
ZONES: Final = (None, None, "z1", "z2")
#: Options that a walk switches.
SWITCHES: Final = (
    "supportActingMaster",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "deleteTopicWithBrokerRegistration",
)


@dataclass(frozen=True, slots=True)
class Does:
    """A request over a connection."""

    request: Request
    over: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """A broker unregisters over its connection."""

    broker: Broker


@dataclass(frozen=True, slots=True)
class Closes:
    """A broker's connection closes."""

    broker: Broker


Step = Does | Leaves | Closes


def steps(seed: int, count: int) -> list[Step]:
    """Return the walk of a seed."""
    walk = _Walk(random.Random(seed))
    return [walk.step() for _ in range(count)]


class _Walk:
    """Chooses steps; it knows only its own choices.

    It omits requests after which Java keeps inconsistent entries (ADR 0005), which have scenarios: one topic before
    others, two clusters under one name, a refused stateVersion, two brokers of one connection, one address of two
    names; topics to which brokers give different flags, because Java uses an arbitrary one; and what Java keeps until
    it restarts (ADR 0067): static mappings, and permissions of a slave that stops acting under the same DataVersion.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._versions: dict[tuple[str, str], int] = {}
        self._acting = {name: chance.choice((True, True, False, None)) for name in NAMES}

    def step(self) -> Step:
        choose, weights = zip(*self._choices(), strict=True)
        made: Step = self._chance.choices(choose, weights)[0]()
        return made

    def _choices(self) -> Sequence[tuple[Any, int]]:
        return (
            (self._registers, 40),
            (self._registers_again, 12),
            (self._leaves, 8),
            (self._closes, 10),
            (self._beats, 5),
            (self._changes_perm, 6),
            (self._deletes_topic, 4),
            (self._registers_topic, 5),
            (self._puts, 4),
            (self._deletes_kv, 2),
            (self._switches, 3),
        )

    def _broker(self) -> Broker:
        pick = self._chance
        name = pick.choice(NAMES)
        addr = pick.choice(ADDRS[name])
        index = ADDRS[name].index(addr)
        # Mostly each address keeps its id; sometimes roles change.
        broker_id = index if pick.random() < 0.8 else pick.randrange(4)
        if pick.random() < 0.05:
            self._acting[name] = pick.choice((True, False, None))
            for other in ADDRS[name]:
                self._versions[name, other] = self._versions.get((name, other), 0) + 1
        zone = pick.choice(ZONES) if pick.random() < 0.3 else None
        return Broker(name, addr, broker_id, CLUSTER_OF[name], self._acting[name], zone)

    def _topics(self) -> dict[str, dict[str, Any]]:
        pick = self._chance
        count = pick.choice((0, 2, 2, 3, 4, 5))
        return {
            t: topic(pick.choice((1, 4, 8)), perm=pick.choice((6, 6, 6, 4, 2, 7)), flag=FLAG_OF[t])
            for t in pick.sample(WALKED_TOPICS, count)
        }

    def _registers(self) -> Step:
        pick = self._chance
        broker = self._broker()
        key = (broker.name, broker.addr)
        if pick.random() < 0.5:
            self._versions[key] = self._versions.get(key, 0) + 1
        version = data_version(self._versions.get(key, 0))
        topics = self._topics()
        servers = pick.choice(([], [], [], ["10.9.0.1:1"], ["10.9.0.2:1", "10.9.0.3:1"], None))
        unflagged = {t: q for t, q in topics.items() if not FLAG_OF[t]}
        if len(unflagged) > 1 and pick.random() < 0.3:  # a compressed body does not carry the flag
            request = compressed(broker, unflagged, version, filter_servers=servers or [])
        else:
            request = register(broker, topics, version, filter_servers=servers)
        return Does(request, broker.addr)

    def _registers_again(self) -> Step:
        """Register unchanged, as brokers do every 30 s."""
        broker = replace(self._broker(), zone=None)
        topics = {t: topic(4, flag=FLAG_OF[t]) for t in WALKED_TOPICS[:4]}
        return Does(
            register(broker, topics, data_version(self._versions.get((broker.name, broker.addr), 0))),
            broker.addr,
        )

    def _leaves(self) -> Step:
        return Leaves(self._broker())

    def _closes(self) -> Step:
        return Closes(self._broker())

    def _beats(self) -> Step:
        broker = self._broker()
        version = data_version(self._versions.get((broker.name, broker.addr), 0))
        request = self._chance.choice((heartbeat(broker), query_data_version(broker, version)))
        return Does(request, broker.addr)

    def _changes_perm(self) -> Step:
        name = self._chance.choice((*NAMES, "~none"))
        return Does(self._chance.choice((wipe_write_perm, add_write_perm))(name), "admin")

    def _deletes_topic(self) -> Step:
        pick = self._chance
        return Does(delete_topic(pick.choice(WALKED_TOPICS), pick.choice((None, "", *CLUSTERS, "~none"))), "admin")

    def _registers_topic(self) -> Step:
        pick = self._chance
        name = pick.choice((*WALKED_TOPICS, NEVER_REGISTERED))
        brokers = pick.sample((*NAMES, "~none"), pick.choice((1, 1, 2, 3)))
        flag = FLAG_OF.get(name, 0)
        queues = {b: topic(pick.choice((1, 3)), perm=pick.choice((6, 4)), flag=flag) for b in brokers}
        return Does(register_topic(name, queues), "admin")

    def _puts(self) -> Step:
        pick = self._chance
        return Does(put_kv(pick.choice(NAMESPACES), pick.choice(WALKED_TOPICS[:3]), f"~a:{pick.randrange(4)}"), "admin")

    def _deletes_kv(self) -> Step:
        return Does(delete_kv(self._chance.choice(NAMESPACES), self._chance.choice(WALKED_TOPICS[:3])), "admin")

    def _switches(self) -> Step:
        return Does(update_config(**{self._chance.choice(SWITCHES): self._chance.choice(("true", "false"))}), "admin")


def describe(step: Step) -> str:
    """Describe a step."""
    match step:
        case Does(request, over):
            body = request.body.decode(errors="replace")[:600]
            return f"{request.code} over {over} {dict(request.ext_fields or {})} {body}"
        case Leaves(broker):
            return f"104 of {broker}"
        case Closes(broker):
            return f"close of {broker}"
