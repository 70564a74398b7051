"""What must be true: the checks that run every second of virtual time, and those at the end of a run."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from namesrv_stream.route.model import LeaseKey
from namesrv_stream.table_errors import DuplicateServerId, LogTruncated, TablesTakenOver
from namesrv_stream.tables.delta.commit import LOG, checkpoint_name, checkpointed_version
from namesrv_stream.tables.storage import tables_of
from tests.simulation.fleet import Fleet, Life, LinkTruth
from tests.simulation.log_checks import LogChecks, connections_of, record_of
from tests.simulation.operators import NAMESPACE, Clients, Entry, Operators
from tests.simulation.runtime.process import MS, SECOND
from tests.simulation.world import EXPECTED, TABLES, Part, World

#: Within this time, one of two servers with the same id notices the other one and ends.
_REFUSAL: Final = 150 * SECOND
_GUARD_HOLD: Final = 2  # liveness.guard_hold_timeouts
_PROCESSES: Final = 100  # of one broker name, as documented


class Checks:
    """The checks of one run.

    Attributes:
        failures: What was wrong: (name of the invariant, detail).
        done: Number of checked facts by invariant.
    """

    def __init__(self, world: World, fleet: Fleet, operators: Operators, clients: Clients) -> None:
        self.world, self.fleet, self.operators, self.clients = world, fleet, operators, clients
        self.failures: list[tuple[str, str]] = []
        self.done: Counter[str] = Counter()
        self._reported: set[tuple[str, object]] = set()

    def fail(self, name: str, detail: str, once: object = None) -> None:
        if once is not None and (name, once) in self._reported:
            return
        self._reported.add((name, once))
        if len(self.failures) < 50:
            self.failures.append((name, f"at {self.world.scheduler.now / SECOND:.3f} s: {detail}"))

    # ---- every second ----

    def check(self) -> None:
        now = self.world.scheduler.now
        for part in self.world.servers:
            if part.is_working and part.core is not None:
                self._names_are_limited(part)
                self._dead_are_gone(part, now)
                if not self._began_with_older_tables(part):
                    self._living_are_routed(part, now)
                    self._own_start_knows_changes(part)

    def _names_are_limited(self, part: Part) -> None:
        assert part.core is not None
        for name, group in part.core.name_server.table.groups.items():
            self.done["limits hold"] += 1
            most = max(len(group.live_brokers), len(group.registrations))
            if most > _PROCESSES:
                self.fail("limits hold", f"{part.name} has {most} processes of {name}", (part.name, name))

    def _began_with_older_tables(self, part: Part) -> bool:
        """Whether the tables had gone back when a server started, and it has not reached that time again."""
        assert part.core is not None
        reached = part.core.name_server.view.next_offsets
        return any(reached.get(partition, 0) < end for partition, end in part.must_reach.items())

    def _own_start_knows_changes(self, part: Part) -> None:
        """A server that was started while Kafka worked knows what was acknowledged before its start."""
        since = self.world.kafka_since
        if (
            since is None
            or part.since < since + self.world.slack
            or part.core is None
            or not part.core.gateway.is_connected
        ):
            return
        self._has_acknowledged(
            part, lambda entry: entry.at < part.since, "a started server knows what was acknowledged"
        )

    def _living_are_routed(self, part: Part, now: int) -> None:
        """A broker that the server hears is in the server's routes."""
        assert part.core is not None
        view = part.core.view
        for life in self.fleet.now.values():
            link = life.links[part.name]
            if not life.is_alive or not link.is_registered or link.epoch != part.since:
                continue
            last = life.last_ack(part.name)
            if last is None or now - last > life.slot.known_timeout_ms * MS // 2:
                continue
            self.done["living broker is routed"] += 1
            if view.live(life.key) is not None:
                self._its_topics_are_routed(part, life)
                continue
            if not life.is_connected(part.name):
                continue
            if link.registered_at <= self._resumed_at(part):
                continue  # it returns with its next registration
            if not self._heard_an_older_connection(part, life.key) and not self._is_lost(life, link):
                place = (life.number, part.name)
                self.fail("living broker is routed", f"{part.name} hears {life.addr} and does not route to it", place)

    def _its_topics_are_routed(self, part: Part, life: Life) -> None:
        """A master that is routed has all its topics, except for those that an operator has deleted."""
        assert part.core is not None
        group, slot = part.core.name_server.table.groups[life.slot.broker_name], life.slot
        lacking = set(slot.topics) - group.topics.keys() - self.operators.deleted
        if slot.broker_id == 0 and lacking:
            self.fail("living broker is routed", f"{part.name} lacks topics of {life.addr}: {lacking}", life.number)

    def _resumed_at(self, part: Part) -> int:
        """Return when a server last went on after it had been frozen for so long that the fold called it silent.

        The fold may have removed brokers meanwhile.
        """
        liveness = self.world.settings.liveness
        shortest = (liveness.server_silent_ms - liveness.tick_interval_ms) * MS  # its last record is that much older
        return max((end for begin, end in part.stalls() if end - begin > shortest), default=0)

    def _is_lost(self, life: Life, link: LinkTruth) -> bool:
        """Whether Kafka has lost a broker's last registration; the fold reads other records at its offset."""
        kafka, addr = self.world.kafka, life.addr.encode()
        last = link.registered_at - 10 * SECOND  # the record is older than the answer
        kinds = (b'"broker_registered"', b'"proof":"registration"')
        lost = [record.value for record in kafka.lost if record.at >= last and addr in record.value]
        return not kafka.is_recreated and any(kind in value for kind in kinds for value in lost)

    def _heard_an_older_connection(self, part: Part, key: LeaseKey) -> bool:
        """Whether the newest sign of life came over an older connection than an earlier one, because of a slow network.

        The close of that connection then removes the broker, as in the Java NameServer.
        """
        connections = connections_of(self.world, key, part.name)
        return bool(connections) and connections[-1] < max(connections)

    def _dead_are_gone(self, part: Part, now: int) -> None:
        """A dead broker is gone after its timeout, a hold of the guard and some seconds without faults."""
        calm, job = self.world.calm_since, self.world.job
        # Without the job, no broker expires. It stops if the log is another one.
        if calm is None or not job.is_working or self.world.kafka.generation:
            return
        calm = max(calm, job.since)  # after a long fault, the supervisor takes its time to start the job again
        for key in sorted(_routed(part)):
            self.done["dead broker is gone"] += 1
            life = self.fleet.of_key(key)[-1]
            if life.ended is None:
                continue
            elapsed = now - max(life.ended, calm, part.since)
            if elapsed > self.world.slack and elapsed > self._bound(life):
                self.fail("dead broker is gone", f"{part.name} still routes to {life.addr}", (life.number, part.name))

    def _bound(self, life: Life) -> int:
        """Return how long all servers may route to a dead broker while nothing is wrong."""
        timeout, ended, slack = life.slot.known_timeout_ms * MS, life.ended or 0, self.world.slack
        window = 130 * SECOND * self.world.plan.scale
        is_guarded = self.world.settings.liveness.guard_share_percent < 100
        longest = timeout * (1 + _GUARD_HOLD * is_guarded) + slack
        if any(record.at >= ended for record in self.world.kafka.lost):
            return longest  # Kafka may have lost the record of its end
        if life.is_evident and all(link.acked for link in life.links.values()):
            others = (other for other in self.fleet.lives if other.slot.cluster == life.slot.cluster)
            near = sum(1 for o in others if o.ended is not None and abs(o.ended - ended) < window)
            if near == 1 or not is_guarded:
                return slack
        if all(self._has_unregistered(life, part) for part in self.world.servers):
            return slack
        return longest

    def _has_unregistered(self, life: Life, part: Part) -> bool:
        """Whether a server has acknowledged a broker's unregistration, and has not ended since."""
        at = life.links[part.name].unregistered_at
        return at is not None and part.ran_between(at, self.world.scheduler.now)

    # ---- at the end ----

    def check_end(self) -> None:
        """Check everything after a time without faults, when all parts work."""
        for name, found in (
            ("nothing hangs", [*self.operators.hung, *self.clients.hung]),
            ("own writes are read", self.operators.wrong),
            ("an answer stays known", self.clients.wrong),
            ("nothing ends by itself", list(self._unexpected_exits())),
        ):
            for text in found:
                self.fail(name, text)
        self.done["nothing hangs"] += self.operators.acked + self.clients.answers
        self.done["own writes are read"] += self.operators.acked
        self.done["an answer stays known"] += self.clients.repeated
        self.done["nothing ends by itself"] += 1
        self._guests_are_refused()
        if self.world.kafka.generation and not self.world.job.is_working:
            self._refused_log_is_served()
            return
        for part in self.world.parts:
            if not part.is_working:
                self.fail(
                    "all parts work at the end", f"{part.name} does not run: {part.process.memory.get('error')!r}"
                )
                return
        self._acknowledged_is_there()
        self._living_are_routed_everywhere()
        self._servers_forget()
        self._nothing_covered_is_pending()
        self._commits_are_on_the_disk()
        LogChecks(self).check()

    def _guests_are_refused(self) -> None:
        """One of two servers with the same id ends by itself; a second job that could not commit logs no settings."""
        for guest in self.world.guests:
            process, error = guest.process, guest.process.memory.get("error")
            self.done["a guest is refused"] += 1
            if guest.name != "job":
                lived = guest.ran[0][1] or self.world.scheduler.now
                # If the clone starts while the first one is frozen, the first one is refused. Without Kafka, none is.
                errors = [error, *(failure for _, name, _, failure in self.world.exits if name == guest.name)]
                is_refused = any(isinstance(each, DuplicateServerId) for each in errors)
                (first,) = [server for server in self.world.servers if server.name == guest.name]
                both = min(first.longest_run(guest.since, lived), self._undisturbed(guest, lived))
                if not is_refused and both > _REFUSAL * self.world.plan.scale:
                    self.fail("a guest is refused", f"a second {guest.name} ran for {both / SECOND} s beside the first")
            elif self._has_never_committed(guest) and self._has_logged(b"%d" % self.world.plan.older_timeout_ms):
                self.fail(
                    "a guest is refused", f"a second job that never committed has logged its settings: {process.name}"
                )

    def _undisturbed(self, guest: Part, until: int) -> int:
        """Return the longest time between a clone's start and ``until`` without a fault of Kafka or a frozen server."""
        longest, since = 0, guest.since
        for name, begin, end in sorted(self.world.stalls, key=lambda stall: stall[1]):
            if name in (guest.name, "Kafka") and end > since and begin < until:
                longest, since = max(longest, begin - since), end
        return max(longest, until - since)

    def _has_never_committed(self, job: Part) -> bool:
        """Whether a second job was refused while the first one ran."""
        error, (began, ended) = job.process.memory.get("error"), job.ran[0]
        is_refused = isinstance(error, TablesTakenOver) and ended is not None
        return is_refused and self.world.job.ran_between(began, ended or 0)

    def _has_logged(self, needle: bytes) -> bool:
        kafka, partitions = self.world.kafka, self.world.plan.partitions
        return any(needle in record.value for p in range(partitions) for record in kafka.log(p).records)

    def _refused_log_is_served(self) -> None:
        """After Kafka has lost folded records, the job says so. What is acknowledged since then is in the log.

        Partitions that have lost nothing take changes, although the job folds none of them at present.
        """
        error = self.world.job.process.memory.get("error")
        self.done["a lost log is refused"] += 1
        if type(error).__name__ not in ("LogTruncated", "LogReplaced", "ConfigError", "StateMissing"):
            self.fail("a lost log is refused", f"the job ended with {error!r}")
        if self.world.kafka.is_recreated:
            for at, part, _, found in self.world.exits:
                if part == "job" and isinstance(found, LogTruncated):
                    text = f"at {at / SECOND:.3f} s the job said that records are lost, but Kafka has another topic"
                    self.fail("a lost log is refused", text)
        logged = dict[str, str | None]()
        for partition in range(self.world.plan.partitions):
            for stored in self.world.kafka.log(partition).records:
                record = record_of(stored.value)
                if record.get("kind") in ("kv_put", "kv_deleted"):
                    logged[record["key"]] = record.get("value")
        for key, entry in self.operators.entries.items():
            if entry.is_known and entry.generation == self.world.kafka.generation:
                self.done["acknowledged change is there"] += 1
                if logged.get(key) not in entry.possible:
                    text = f"the log has {key}={logged.get(key)}, possible is {entry.possible}"
                    self.fail("acknowledged change is there", text)

    def _unexpected_exits(self) -> Iterator[str]:
        for at, part, code, error in self.world.exits:
            name = type(error).__name__ if error is not None else ""
            is_start = part != "job" and name == "KafkaUnreachable"
            is_start |= name == "DuplicateServerId" and bool(self.world.guests)
            is_job = part == "job" and (name in EXPECTED or isinstance(error, OSError) or error is None)
            # The job may find that a file of its tables is gone before it finds that they are other tables.
            is_job |= name == "TableDamaged" and any(
                self.world.job.start_of(at) <= restored for restored in self.world.restores if restored <= at
            )
            if code != 0 and not is_start and not is_job:
                yield f"{part} ended with {code} at {at / SECOND:.3f} s: {error!r}"
        for process, thread, failure in self.world.scheduler.failures:
            yield f"thread {thread} of {process.name} failed: {failure!r}"

    def _acknowledged_is_there(self) -> None:
        """Every change that was acknowledged to an operator is in the routes of every server."""
        for part in self.world.servers:
            self._has_acknowledged(part, lambda _: True, "acknowledged change is there")

    def _has_acknowledged(self, part: Part, is_expected: Callable[[Entry], bool], name: str) -> None:
        assert part.core is not None
        kv = part.core.name_server.table.kv.get(NAMESPACE, {})
        for key, entry in self.operators.entries.items():
            if not entry.is_known or entry.generation != self.world.kafka.generation or not is_expected(entry):
                continue
            self.done[name] += 1
            if kv.get(key) not in entry.possible:
                text = f"{part.name} has {key}={kv.get(key)}, possible is {entry.possible}"
                self.fail(name, text, (part.name, key, part.since))

    def _living_are_routed_everywhere(self) -> None:
        """At the end every server routes to exactly the brokers that live."""
        living = {life.key for life in self.fleet.now.values() if life.is_alive}
        for part in self.world.servers:
            found = _routed(part)
            self.done["living brokers are routed everywhere"] += len(living)
            lacking, surplus = sorted(living - found), [k for k in sorted(found - living) if not self._may_be_routed(k)]
            if lacking or surplus:
                text = f"{part.name} lacks {lacking[:3]}, has {surplus[:3]} in addition"
                self.fail("living brokers are routed everywhere", text)

    def _may_be_routed(self, key: LeaseKey) -> bool:
        """Whether a broker died so recently that servers may still route to it."""
        now, calm = self.world.scheduler.now, self.world.calm_since or 0
        return any(now - max(life.ended or 0, calm) <= self._bound(life) for life in self.fleet.of_key(key))

    def _servers_forget(self) -> None:
        """A server remembers no registrations of brokers that are gone, unless Kafka has lost the registrations."""
        lost = b"".join(stored.value for stored in self.world.kafka.lost if b'"broker_registered"' in stored.value)
        for part in self.world.servers:
            assert part.core is not None
            view, known = part.core.view, part.core.name_server.logged
            self.done["a server forgets who is gone"] += len(known)
            gone = sorted(key for key in known if view.live(key) is None)
            surplus = [key for key in gone if key.live_key.broker_addr.encode() not in lost]
            if surplus:
                self.fail("a server forgets who is gone", f"{part.name} remembers {surplus[:3]}")

    def _nothing_covered_is_pending(self) -> None:
        """A server keeps no accepted event that its commits contain."""
        for part in self.world.servers:
            assert part.core is not None
            view = part.core.name_server.view
            pending = list(view._groups.all_pending())
            self.done["limits hold"] += 1
            surplus = [p for p in pending if p.position and p.position[1] < view.next_offsets.get(p.position[0], 0)]
            if surplus:
                self.fail("limits hold", f"{part.name} keeps {len(surplus)} events of {len(pending)}: {surplus[0]}")

    def _commits_are_on_the_disk(self) -> None:
        """Everything that the commits refer to is durable: a power cut would not damage it.

        A job that is killed while it writes a checkpoint leaves one that nothing names. If it is damaged later, the
        repair at the next start sets it aside.
        """
        found = self.world.as_job(lambda: [f for f in self.world.disk.not_durable(TABLES, 10_000) if self._is_named(f)])
        self.done["a commit is on the disk"] += 1
        if found:
            self.fail("a commit is on the disk", f"a power cut would damage {found[:3]}")

    def _is_named(self, file: str) -> bool:
        """Whether a file of the tables is not a checkpoint, or the one from which its table is opened."""
        table = file.partition(f"/{LOG}/")[0]
        named = checkpoint_name(checkpointed_version(tables_of(self.world.settings) / table.rpartition("/")[2]))
        return not file.endswith(".checkpoint.parquet") or file.endswith(named)


def _routed(part: Part) -> set[LeaseKey]:
    """Return the brokers that a server routes to."""
    assert part.core is not None
    groups = part.core.name_server.table.groups
    return {LeaseKey(name, key) for name, group in groups.items() for key in group.live_brokers}
