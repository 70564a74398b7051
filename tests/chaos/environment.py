"""The environment of one run: the parts, the fleet, the direct producers and the faulty producer."""

import json
import sys
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from namesrv_stream.ports import choose_port
from namesrv_stream.settings import Flag, Settings, load_settings
from tests.chaos import direct, fleet
from tests.chaos.faulty_producer import FaultyProducer
from tests.chaos.fleet_plan import CLUSTERS, DIRECT_CLUSTER, FleetSize
from tests.chaos.machine_watch import MachineWatch
from tests.chaos.parts import JOB, KAFKA, SERVERS, Parts
from tests.chaos.small_disk import SmallDisk
from tests.chaos.truth import BrokerKey, Span, Truth, now_ms, read_truth
from tests.support.kafka import REPOSITORY
from tests.support.processes import Process

_HTTP_S: Final = 20


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a run; all times are in milliseconds.

    Attributes:
        tick_ms: Value of ``liveness.tick_interval_ms``.
        max_gap_ms: Value of ``liveness.max_gap_ms``: two ticks. A broker ages by this much in every silence of its
            server, so its ratio to the timeouts must be about that of 2 s to 120 s.
        server_lost_ms: Longer than any fault, so that no server is lost.
    """

    size: FleetSize = field(default_factory=FleetSize)
    partitions: int = 2
    tick_ms: int = 250
    max_gap_ms: int = 500
    server_silent_ms: int = 3_000
    server_lost_ms: int = 600_000

    @property
    def timeout_s(self) -> float:
        """A broker's usual timeout."""
        return self.size.default_timeout_ms / 1000


class Environment:
    """Everything that runs in a chaos test; a context manager that must stay on one thread.

    Args:
        work_dir: Folder for all files of the run.
        scale: Scale of the run.
        seed: Seed of all random choices.
    """

    def __init__(self, work_dir: Path, scale: Scale, seed: int) -> None:
        work_dir.mkdir(parents=True, exist_ok=True)
        self.work_dir = work_dir
        self.scale = scale
        self.disk = SmallDisk(work_dir / JOB)
        self.parts = Parts(work_dir, _settings(work_dir, scale))
        self.faulty_producer = FaultyProducer(self.parts.settings(JOB), seed)
        self.settings = self.parts.settings(JOB)
        self._journals = {name: work_dir / f"{name}.jsonl" for name in ("fleet", "direct")}
        addrs = {name: ("127.0.0.1", self.parts.settings(name).remoting.listen_port) for name in SERVERS}
        specs = {
            "fleet": fleet.spec_of(self._journals["fleet"], addrs, scale.size, seed),
            "direct": direct.spec_of(work_dir / f"{JOB}.toml", self._journals["direct"], scale.size, seed),
        }
        self._fleets = {
            name: Process(
                name,
                [sys.executable, "-m", f"tests.chaos.{name}", spec],
                work_dir / f"{name}.log",
                cwd=REPOSITORY,
                piped=True,
            )
            for name, spec in specs.items()
        }
        self.machine = MachineWatch()
        self._cuts: dict[tuple[str, str], int] = {}
        self._cut_spans: list[Span] = []

    def __enter__(self) -> "Environment":
        """Start everything; the fleet starts when the servers listen.

        Raises:
            AssertionError: A part does not start.
        """
        self.machine.start()
        try:
            self.parts.start()
            for process in self._fleets.values():
                process.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything at once."""
        self.machine.stop()
        for process in self._fleets.values():
            process.close()
        self.parts.close()
        self.disk.close()

    # ---- the fleet ----

    def calm(self) -> None:
        """Stop all changes of the fleet: from now on no broker ends or starts."""
        for name in self._fleets:
            self._tell(name, "calm")

    def cut(self, server: str, cluster: str = "") -> None:
        """Cut off brokers, of all clusters or of one, from a server."""
        self._cuts[server, cluster] = now_ms()
        self._tell("fleet", f"cut {server} {cluster or '*'}")

    def heal(self, server: str, cluster: str = "") -> None:
        """Repair the network after ``cut``."""
        self._tell("fleet", f"heal {server} {cluster or '*'}")
        self._cut_spans.append(Span("cut", server, self._cuts.pop((server, cluster)), now_ms(), cluster))

    def _tell(self, name: str, line: str) -> None:
        process = self._fleets[name]
        assert process.is_alive, f"the {name} process has ended: {process.log_text()[-2000:]}"
        process.stdin.write(f"{line}\n")
        process.stdin.flush()

    def truth(self) -> Truth:
        """Return the ground truth so far."""
        cuts = [Span("cut", server, since, now_ms(), cluster) for (server, cluster), since in self._cuts.items()]
        paths = [path for path in self._journals.values() if path.exists()]
        return read_truth(paths, [*self.parts.spans, *self.machine.spans, *self._cut_spans, *cuts])

    # ---- answers of the servers ----

    def get(self, server: str, path: str) -> Any:
        """Return the JSON at a path of a server's HTTP port; None if it does not answer."""
        port = self.parts.settings(server).http.listen_port
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=_HTTP_S) as answer:
            return json.load(answer)
        return None

    def served(self, server: str) -> set[BrokerKey] | None:
        """Return the brokers of a server; None if it does not answer."""
        brokers = self.get(server, "/brokers")
        if brokers is None:
            return None
        return {BrokerKey(b["broker_name"], b["cluster"], b["broker_addr"]) for b in brokers}

    def is_settled(self) -> bool:
        """Whether both servers have exactly the live brokers, each held by its servers."""
        self.parts.tend()
        truth = self.truth()
        alive = {life.key for life in truth.lives if life.down_ms is None}
        return all(self.served(server) == alive for server in SERVERS)

    def has_tables(self) -> bool:
        """Whether the tables of both servers contain brokers: without any, a server does not start without Kafka."""
        self.parts.tend()
        answers = [
            self.get(server, f"/state/keys?partition={partition}")
            for server in SERVERS
            for partition in range(self.scale.partitions)
        ]
        return all(found and any(part["kind"] == "broker" for part in found["parts"]) for found in answers)


def _settings(work_dir: Path, scale: Scale) -> dict[str, Settings]:
    ports: list[int] = []

    def port() -> int:
        ports.append(choose_port("127.0.0.1", taken=ports))
        return ports[-1]

    kafka_port = port()
    shared = {
        "data.tables": str(work_dir / "tables"),
        "kafka.partitions": scale.partitions,
        "kafka.bootstrap_servers": f"127.0.0.1:{kafka_port}",
        "remoting.listen_host": "127.0.0.1",
        "embedded_kafka.listen_port": kafka_port,
        "advanced.embedded_kafka.heap": "384m",
        "liveness.default_timeout_ms": scale.size.default_timeout_ms,
        "advanced.liveness.tick_interval_ms": scale.tick_ms,
        "advanced.liveness.max_gap_ms": scale.max_gap_ms,
        "advanced.liveness.server_silent_ms": scale.server_silent_ms,
        "advanced.liveness.server_lost_ms": scale.server_lost_ms,
        # The guard is off. The scenario of the guard switches it on for one cluster only.
        "liveness.guard_share_percent": 100,
        "advanced.liveness.guard_known_ms": 1_000,
        "liveness.guard_off_clusters": ",".join((*CLUSTERS, DIRECT_CLUSTER)),
        "streaming.driver_memory": "768m",
        "advanced.streaming.compaction_interval_ms": 5_000,
    }
    found: dict[str, Settings] = {}
    for name in (KAFKA, JOB, *SERVERS):
        own = {
            "data.dir": str(work_dir / name),
            "remoting.listen_port": port(),
            "http.listen_port": port(),
            "server.server_id": name if name in SERVERS else "",
        }
        flags = [Flag("chaos", key, str(value)) for key, value in (shared | own).items()]
        found[name] = load_settings(environ={}, flags=flags).settings
    return found
