"""``drain`` and ``--undo`` against scripted name servers and a scripted broker."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import pytest

from namesrv_stream.cli import main
from namesrv_stream.client import NameServers, NameServersUnreachable
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to
from namesrv_stream.route.model import DRAINED_BROKERS, DrainRecord, decode_drain
from namesrv_stream.tools.drain import drain_run, undo_run
from namesrv_stream.tools.drain.broker_routes import BrokerRoutes
from namesrv_stream.tools.drain.drain_run import DrainRefused, DrainRun, Limits, Progress
from namesrv_stream.tools.drain.drain_state import DrainState, Step
from namesrv_stream.tools.drain.undo_run import UndoRun
from tests.support.scripted_name_server import Answers, ScriptedNameServer

LIMITS = Limits(poll_interval_ms=20, quiet_ms=20, timeout_ms=5_000)


@dataclass
class Cluster:
    """The script of a name server and of all its brokers: permissions by topic and broker, and KV entries."""

    perms: dict[str, dict[str, int]]
    addrs: dict[str, dict[str, str]] = field(default_factory=dict)
    kv: dict[str, str] = field(default_factory=dict)
    puts: int = 5
    on_request: Callable[[RemotingCommand], object] = lambda request: None

    def __call__(self, request: RemotingCommand) -> Answers:
        self.on_request(request)
        fields = request.ext_fields or {}
        match request.code:
            case RequestCode.GET_BROKER_CLUSTER_INFO:
                brokers = {
                    name: {"brokerName": name, "cluster": "c0", "brokerAddrs": addrs}
                    for name, addrs in self.addrs.items()
                }
                return self._body(request, {"brokerAddrTable": brokers, "clusterAddrTable": {"c0": sorted(brokers)}})
            case RequestCode.GET_TOPICS_BY_CLUSTER:
                return self._body(request, {"topicList": sorted(self.perms)})
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                queues = [
                    {"brokerName": name, "perm": perm, "readQueueNums": 4, "writeQueueNums": 8, "topicSysFlag": 1}
                    for name, perm in self.perms[fields["topic"]].items()
                ]
                return self._body(request, {"queueDatas": queues, "brokerDatas": []})
            case RequestCode.WIPE_WRITE_PERM_OF_BROKER:
                for perms in self.perms.values():
                    if fields["brokerName"] in perms:
                        perms[fields["brokerName"]] &= ~2
                return [response_to(request, 0, ext_fields={"wipeTopicCount": "1"})]
            case RequestCode.REGISTER_TOPIC_IN_NAMESRV:
                (queues,) = orjson.loads(request.body or b"")["queueDatas"]
                assert (queues["readQueueNums"], queues["writeQueueNums"], queues["topicSysFlag"]) == (4, 8, 1)
                self.perms[fields["topic"]][queues["brokerName"]] = queues["perm"]
            case RequestCode.PUT_KV_CONFIG:
                assert fields["namespace"] == DRAINED_BROKERS
                self.kv[fields["key"]] = fields["value"]
            case RequestCode.DELETE_KV_CONFIG:
                del self.kv[fields["key"]]
            case RequestCode.GET_KV_CONFIG:
                if fields["key"] not in self.kv:
                    return [response_to(request, ResponseCode.QUERY_NOT_FOUND, remark="none")]
                return [response_to(request, 0, ext_fields={"value": self.kv[fields["key"]]})]
            case 28:
                return self._body(request, {"table": {"putMessageTimesTotal": str(self.puts), "bootTimestamp": "1"}})
        return [response_to(request, 0, ext_fields={})]

    def _body(self, request: RemotingCommand, body: object) -> Answers:
        return [response_to(request, 0, body=orjson.dumps(body))]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_run, "PAUSE_S", 0.01)
    monkeypatch.setattr(undo_run, "PAUSE_S", 0.01)


def a_cluster() -> Cluster:
    """Two brokers of two topics; a third topic is read-only at broker a."""
    return Cluster({"T": {"a": 6, "b": 6}, "U": {"a": 7, "b": 6}, "Old": {"a": 4, "b": 6}})


async def drain(
    server: ScriptedNameServer, *more: str, broker: str = "a", limits: Limits = LIMITS, **flags: bool
) -> tuple[DrainState, DrainRun]:
    """Drain a broker; brokers without an address get the address of the server."""
    if isinstance(server.script, Cluster):
        for name in {name for perms in server.script.perms.values() for name in perms}:
            server.script.addrs.setdefault(name, {"0": server.addr})
    servers = NameServers([server.addr, *more])
    routes = BrokerRoutes(servers, broker)
    try:
        run = DrainRun(routes, limits, Progress(as_json=False), **flags)
        return await run.drain(), run
    finally:
        await routes.close()
        await servers.close()


async def undo(server: ScriptedNameServer, broker: str = "a", limits: Limits = LIMITS) -> dict[str, object]:
    servers = NameServers([server.addr])
    routes = BrokerRoutes(servers, broker)
    try:
        return await UndoRun(routes, limits, Progress(as_json=False)).undo()
    finally:
        await routes.close()
        await servers.close()


async def test_undo_restores_each_permission_and_no_topic_that_was_read_only() -> None:
    cluster = a_cluster()
    before = {topic: dict(perms) for topic, perms in cluster.perms.items()}
    async with ScriptedNameServer(cluster) as server:
        state, run = await drain(server)
        assert state.step is Step.SAFE
        assert [perms["a"] for perms in cluster.perms.values()] == [4, 5, 4]
        assert run.record is not None
        assert run.record.perms == {"T": 6, "U": 7}
        assert await undo(server) == {"broker": "a", "restored": 2, "already_writable": 0, "gone": []}
    assert cluster.perms == before
    assert cluster.kv == {}


async def test_undo_keeps_permissions_that_the_broker_registered_and_names_removed_topics() -> None:
    cluster = a_cluster()
    async with ScriptedNameServer(cluster) as server:
        await drain(server)
        cluster.perms["T"]["a"] = 2
        del cluster.perms["U"]["a"]
        assert await undo(server) == {"broker": "a", "restored": 0, "already_writable": 1, "gone": ["U"]}
    assert cluster.perms["T"]["a"] == 2


async def test_undo_waits_until_the_broker_is_back() -> None:
    cluster = a_cluster()
    async with ScriptedNameServer(cluster) as server:
        await drain(server)
        addrs = cluster.addrs.pop("a")
        with pytest.raises(DrainRefused, match=f"not undone yet: a is not registered at name server {server.addr}"):
            await undo(server, limits=Limits(20, 20, 50))
        assert "a" in cluster.kv
        cluster.addrs["a"] = addrs
        assert (await undo(server))["restored"] == 2
        with pytest.raises(DrainRefused, match="no drain of a is recorded"):
            await undo(server)


async def test_a_registration_during_the_drain_is_wiped_again_and_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    cluster, counts = a_cluster(), iter(range(1000))

    def register_once(request: RemotingCommand) -> None:
        if request.code == 28 and next(counts) == 3:  # during the third observation
            cluster.perms |= {"T": {"a": 6, "b": 6}, "New": {"a": 6, "b": 6}}

    cluster.on_request = register_once
    async with ScriptedNameServer(cluster) as server:
        state, run = await drain(server, limits=Limits(250, 20, 20_000))
    assert (state.step, state.wipes) == (Step.SAFE, 2)
    assert run.record is not None
    assert run.record.perms == {"T": 6, "U": 7, "New": 6}
    assert decode_drain(cluster.kv["a"]) == run.record
    assert "restored the write permission of 2 topics: removed it again" in capsys.readouterr().out


async def test_a_broker_in_use_is_not_safe_after_the_time_limit_and_the_drain_can_be_resumed() -> None:
    cluster = a_cluster()

    def send(request: RemotingCommand) -> None:
        cluster.puts += request.code == 28

    cluster.on_request = send
    async with ScriptedNameServer(cluster) as server:
        state, _ = await drain(server, limits=Limits(20, 5_000, 300))
        assert state.step is Step.QUIETING
        assert "the broker has stored no message for" in state.obstacles()[0]
        with pytest.raises(DrainRefused, match=r"a is already drained .since .*, by .*: --resume"):
            await drain(server)
        cluster.on_request = lambda request: None
        state, run = await drain(server, is_resumed=True)
    assert state.step is Step.SAFE
    assert run.record is not None
    assert run.record.perms == {"T": 6, "U": 7}


async def test_a_broker_that_registered_again_after_a_finished_drain_can_be_drained_again() -> None:
    cluster = a_cluster()
    async with ScriptedNameServer(cluster) as server:
        await drain(server)
        cluster.perms = a_cluster().perms
        assert (await drain(server))[0].step is Step.SAFE


async def test_a_broker_that_leaves_during_the_drain_is_reported() -> None:
    cluster = a_cluster()

    def leave(request: RemotingCommand) -> None:
        if request.code == RequestCode.WIPE_WRITE_PERM_OF_BROKER:
            del cluster.addrs["a"]

    cluster.on_request = leave
    async with ScriptedNameServer(cluster) as server:
        with pytest.raises(DrainRefused, match="a left the routes before it was safe to stop"):
            await drain(server)


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        ("nobody", "no broker nobody is registered at"),
        ("1.2.3.4:1", "1.2.3.4:1 is an address: drain takes the name of the broker, m"),
        ("1.2.3.4:2", r"1.2.3.4:2 is the address of a slave \(brokerId 1 of m\): clients send to its master only"),
        ("s", "s has no master, only brokerId 1 at 1.2.3.4:3: no client sends to it"),
        ("m", r"m does not answer at 1.2.3.4:1 \(.*\): nothing shows whether it is in use"),
        ("r", "no topic of r has the write permission: there is nothing to drain"),
        ("o", "only o accepts messages of 1 topic, so sends would fail: Only; create the topics at another broker"),
    ],
)
async def test_a_broker_that_cannot_be_drained_is_refused_by_name(broker: str, reason: str) -> None:
    cluster = Cluster(
        {
            "T": {"m": 6, "a": 6},
            "Read": {"r": 4},
            "Only": {"o": 6, "r": 4, "s": 6},
            "o": {"o": 6},
            "%RETRY%g": {"o": 6},
        },
        {"m": {"0": "1.2.3.4:1", "1": "1.2.3.4:2"}, "s": {"1": "1.2.3.4:3"}},
    )
    async with ScriptedNameServer(cluster) as server:
        if broker == "m":
            cluster.addrs["m"]["0"] = "127.0.0.1:1"
            reason = reason.replace("1.2.3.4", "127.0.0.1")
        with pytest.raises(DrainRefused, match=reason):
            await drain(server, broker=broker)
        assert RequestCode.WIPE_WRITE_PERM_OF_BROKER not in server.codes()
        assert not cluster.kv


async def test_the_only_broker_of_a_topic_is_drained_by_force() -> None:
    async with ScriptedNameServer(Cluster({"Only": {"o": 6}})) as server:
        assert (await drain(server, broker="o", is_forced=True))[0].step is Step.SAFE


async def test_a_record_that_is_too_long_for_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_run, "_MOST_RECORD_BYTES", 50)
    async with ScriptedNameServer(a_cluster()) as server:
        with pytest.raises(DrainRefused, match="the names of 2 topics are too long for one KV entry"):
            await drain(server)
        assert RequestCode.WIPE_WRITE_PERM_OF_BROKER not in server.codes()


async def test_resuming_without_a_recorded_drain_is_refused() -> None:
    async with ScriptedNameServer(a_cluster()) as server:
        with pytest.raises(DrainRefused, match="no drain of a is recorded: there is nothing to resume"):
            await drain(server, is_resumed=True)


async def test_all_name_servers_have_to_answer() -> None:
    away = f"127.0.0.1:{choose_port('127.0.0.1')}"
    async with ScriptedNameServer(a_cluster()) as server:
        with pytest.raises(DrainRefused, match=f"name server {away} does not answer"):
            await drain(server, away)
    with pytest.raises(NameServersUnreachable):
        await drain(server)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["b", "--undo", "--resume"], "--resume: cannot be combined with --undo"),
        (["b", "--undo", "--quiet", "5s"], "--quiet: cannot be combined with --undo"),
        (["b", "--resume", "--force"], "--force: cannot be combined with --resume"),
        (["b", "--timeout", "1m"], "--timeout: 1 min 00 s is too short"),
        ([" "], "BROKER: is empty"),
    ],
)
def test_contradictory_flags_are_refused(
    arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", "drain", *arguments])
    assert main() == 2
    assert capsys.readouterr().err.startswith(f"error: command line: {reason}")


async def test_an_interrupted_drain_says_what_state_it_leaves() -> None:
    cluster = a_cluster()
    async with ScriptedNameServer(cluster) as server:
        cluster.addrs = {name: {"0": server.addr} for name in ("a", "b")}
        command = [sys.executable, "-m", "namesrv_stream", "drain", "a", "-n", server.addr]
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        assert process.stdout is not None
        while b"removed the write permission" not in await process.stdout.readline():
            assert not process.stdout.at_eof()
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert process.returncode == 130
    state = "the write permission of a stays removed: --resume continues to wait, --undo restores it"
    assert f"interrupted: {state}" in out.decode().splitlines()[-1]


def test_a_record_is_read_back() -> None:
    record = DrainRecord("2026-11-25T10:00:00.000Z", "ada@host", {"T": 6, "U": 7, "V": 6})
    assert record.encode() == '{"at":"2026-11-25T10:00:00.000Z","by":"ada@host","topics":{"6":["T","V"],"7":["U"]}}'
    assert decode_drain(record.encode()) == record
