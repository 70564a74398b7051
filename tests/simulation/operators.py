"""Operators who change things and remember what was acknowledged, and clients who ask for routes."""

import asyncio
import json
from dataclasses import dataclass
from typing import Final

from tests.simulation.fleet import Fleet
from tests.simulation.product import SmallKnownAnswers
from tests.simulation.remoting_peer import (
    ADD_WRITE_PERM,
    DELETE_KV,
    DELETE_TOPIC,
    GET_ROUTE,
    PUT_KV,
    SUCCESS,
    SYSTEM_BUSY,
    WIPE_WRITE_PERM,
    Answer,
    Peer,
    PeerClosed,
    connect,
    encode,
)
from tests.simulation.runtime.process import SECOND, Process
from tests.simulation.world import Part

NAMESPACE: Final = "SIMULATION"
_PORT: Final = 9876
#: A frozen server may have a request, or a record for Kafka, until it goes on.
_TAKES_EFFECT: Final = 300 * SECOND
#: mqadmin waits for 5 s.
_ANSWER_S: Final = 5.0


@dataclass(slots=True)
class Entry:
    """What an operator knows about one key.

    Attributes:
        value: The value after the last acknowledged change; None if it was deleted or never set.
        open: (time, value) of changes whose outcome is unknown: they may still take effect.
        at: When the last change was acknowledged.
        generation: Kafka's generation then; if it has lost records since, the change may be lost.
    """

    value: str | None = None
    open: tuple[tuple[int, str | None], ...] = ()
    at: int = 0
    generation: int = 0
    is_known: bool = False

    @property
    def possible(self) -> list[str | None]:
        return [self.value, *(value for _, value in self.open)]


class Operators:
    """One operator, who does one thing after another.

    Attributes:
        hung: Requests that were neither answered nor ended by a close within 5 s, although the server worked.
        deleted: Topics that the operator has tried to delete.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.entries: dict[str, Entry] = {}
        self.acked = self.refused = self.unknown = 0
        self.hung: list[str] = []
        self.wrong: list[str] = []
        self.deleted: set[str] = set()
        self._fleet, self._world = fleet, fleet.world
        self._patience_s = _ANSWER_S * fleet.world.plan.scale
        self._count = 0

    async def run(self, interval_s: float) -> None:
        draws = self._fleet.random
        while True:
            await asyncio.sleep(interval_s * (0.2 + 1.6 * draws.random()))
            part = draws.choice(self._world.servers)
            what = draws.random()
            if what < 0.6:
                await self._change_kv(part, draws.random() < 0.25)
            elif what < 0.85:
                name = draws.choice(self._fleet.slots).broker_name
                code = draws.choice((WIPE_WRITE_PERM, ADD_WRITE_PERM))
                await self._ask(part, code, {"brokerName": name})
            else:
                topic = draws.choice(draws.choice(self._fleet.slots).topics)
                self.deleted.add(topic)
                await self._ask(part, DELETE_TOPIC, {"topic": topic})

    async def _change_kv(self, part: Part, is_delete: bool) -> None:
        key = f"key-{self._fleet.random.randrange(12)}"
        self._count += 1
        value = None if is_delete else f"value-{self._count}"
        fields = {"namespace": NAMESPACE, "key": key} | ({} if value is None else {"value": value})
        generation = self._world.kafka.generation
        entry, now = self.entries.setdefault(key, Entry()), self._world.scheduler.now
        before, entry.open = entry.open, (*entry.open, (now, value))
        answer = await self._ask(part, DELETE_KV if is_delete else PUT_KV, fields)
        if answer is not None and answer.code == SUCCESS:
            takes_effect = _TAKES_EFFECT * self._world.plan.scale
            may_follow = tuple(change for change in before if now - change[0] < takes_effect)
            self.entries[key] = Entry(value, may_follow, self._world.scheduler.now, generation, True)
            self._check_read(part, key, value)

    def _check_read(self, part: Part, key: str, value: str | None) -> None:
        """A client that changed a value reads it at the same server at once."""
        if part.is_working and part.core is not None:
            found = part.core.name_server.table.kv.get(NAMESPACE, {}).get(key)
            if found != value:
                self.wrong.append(f"{part.name} acknowledged {key}={value} and has {found}")

    async def _ask(self, part: Part, code: int, fields: dict[str, str]) -> Answer | None:
        """Return the answer; None if the outcome is unknown."""
        world = self._world
        try:
            peer = await connect(world.network, self._fleet.process, "10.2.0.1", (part.machine.host, _PORT))
        except OSError:
            return Answer(SYSTEM_BUSY, b"not connected")
        since, process = world.scheduler.now, part.process
        calm, is_same_log = world.calm_since, not world.kafka.generation
        is_calm = calm is not None and calm + 15 * SECOND * world.plan.scale <= since and is_same_log
        try:
            answer = await peer.ask(code, fields, timeout_s=self._patience_s)
        except PeerClosed:
            self.unknown += 1
            return None
        except TimeoutError:
            self.unknown += 1
            if part.process is process and world.was_working(part, since):
                self.hung.append(f"{part.name} did not answer request {code} of {since} within {self._patience_s} s")
            return None
        finally:
            peer.close()
        if answer.code == SUCCESS:
            self.acked += 1
        elif answer.code == SYSTEM_BUSY:
            self.refused += 1
            self.unknown += 1
            if is_calm and world.calm_since is not None and world.was_working(part, since):
                self.wrong.append(f"{part.name} refused request {code} of {since} although nothing was wrong")
            return None  # the text says whether the outcome is unknown; here it always counts as unknown
        return answer


class Clients:
    """Clients that ask for the routes of topics.

    Attributes:
        wrong: Repeated queries that a server had to process again, although no route had changed.
        hung: Queries that were neither answered nor ended by a close within 5 s, although the server worked.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.answers = self.repeated = 0
        self.wrong: list[str] = []
        self.hung: list[str] = []
        self._fleet, self._world = fleet, fleet.world
        self._known: dict[tuple[str, str], tuple[Process, int]] = {}

    async def run(self, interval_s: float) -> None:
        draws = self._fleet.random
        while True:
            await asyncio.sleep(interval_s * (0.2 + 1.6 * draws.random()))
            await self._ask(draws.choice(self._world.servers), draws.choice(self._fleet.slots).topics[0])

    async def _ask(self, part: Part, topic: str) -> None:
        world = self._world
        try:
            peer = await connect(world.network, self._fleet.process, "10.2.0.2", (part.machine.host, _PORT))
        except OSError:
            return
        since, process = world.scheduler.now, part.process
        try:
            answer = await peer.ask(GET_ROUTE, {"topic": topic, "acceptStandardJsonOnly": "true"})
        except PeerClosed:
            return
        except TimeoutError:
            if part.process is process and world.was_working(part, since):
                self.hung.append(f"{part.name} did not answer a route query of {since}")
            return
        finally:
            peer.close()
        self.answers += 1
        if answer.code == SUCCESS:
            json.loads(answer.body)

    async def repeat(self, part: Part, peer: Peer, topic: str) -> None:
        """Repeat a query, which a server answers from memory until a change drops the answer."""
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        frame, place = encode(GET_ROUTE, 1, fields)[4:], (part.name, topic)
        known, core = self._known.pop(place, None), part.core
        if core is None:
            return
        answers = core.services.responses._routes
        assert isinstance(answers, SmallKnownAnswers)
        if known == (part.process, answers.drops):
            self.repeated += 1
            if answers.find(frame, 0) is None:
                self.wrong.append(f"{part.name} does not know its answer to a repeated query for {topic} any more")
        await peer.ask(GET_ROUTE, fields)
        if answers.find(frame, 0) is not None:
            self._known[place] = (part.process, answers.drops)
