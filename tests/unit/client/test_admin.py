"""Changes of operators are sent to every name server."""

from collections.abc import Sequence

import orjson
import pytest

from namesrv_stream.client import (
    NameServers,
    NameServersUnreachable,
    NotOnAllServers,
    UnexpectedAnswer,
    delete_kv,
    delete_topic,
    import_kv,
    kv_table,
    kv_value,
    name_server_config,
    put_kv,
    update_name_server_config,
    wipe_write_perm,
)
from namesrv_stream.client.admin import ADMIN_TIMEOUT_MS, Imported
from namesrv_stream.errors import QueryNotFound
from namesrv_stream.ports import choose_port
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to
from namesrv_stream.settings import load_settings
from tests.support.scripted_name_server import Answers, ScriptedNameServer


def refuse(request: RemotingCommand) -> Answers:
    return [response_to(request, ResponseCode.NO_PERMISSION, remark="not you")]


class KvScript:
    """A name server's key-value table."""

    def __init__(self) -> None:
        self.table: dict[str, dict[str, str]] = {}

    def __call__(self, request: RemotingCommand) -> Answers:
        fields = request.ext_fields or {}
        entries = self.table.get(fields["namespace"])
        if request.code == RequestCode.PUT_KV_CONFIG:
            self.table.setdefault(fields["namespace"], {})[fields["key"]] = fields["value"]
        elif request.code == RequestCode.GET_KVLIST_BY_NAMESPACE and entries is not None:
            return [response_to(request, 0, body=orjson.dumps({"table": entries}))]
        elif request.code == RequestCode.GET_KV_CONFIG and entries is not None and fields["key"] in entries:
            return [response_to(request, 0, ext_fields={"value": entries[fields["key"]]})]
        elif request.code != RequestCode.DELETE_KV_CONFIG:
            return [response_to(request, ResponseCode.QUERY_NOT_FOUND, remark="No config item")]
        return [response_to(request, 0, ext_fields={})]


def fields_of(servers: Sequence[ScriptedNameServer]) -> list[list[tuple[int, object]]]:
    return [[(request.code, request.ext_fields) for request in server.requests] for server in servers]


async def test_a_change_goes_to_every_server() -> None:
    async with ScriptedNameServer() as a, ScriptedNameServer() as b:
        servers = NameServers([a.addr, b.addr])
        assert await put_kv(servers, "ns", "k", "v") == (a.addr, b.addr)
        await delete_kv(servers, "ns", "k")
        await delete_topic(servers, "t")
        await delete_topic(servers, "t", "c")
        await servers.close()
    asked = [
        (100, {"namespace": "ns", "key": "k", "value": "v"}),
        (102, {"namespace": "ns", "key": "k"}),
        (216, {"topic": "t"}),
        (216, {"topic": "t", "clusterName": "c"}),
    ]
    assert fields_of([a, b]) == [asked, asked]


async def test_partly_refused_change_names_both_groups_of_servers() -> None:
    away = f"127.0.0.1:{choose_port('127.0.0.1')}"
    async with ScriptedNameServer() as good, ScriptedNameServer(refuse) as bad:
        servers = NameServers([away, bad.addr, good.addr])
        with pytest.raises(NotOnAllServers) as caught:
            await put_kv(servers, "ns", "k", "v")
        await servers.close()
    assert caught.value.done == (good.addr,)
    assert caught.value.reasons == {
        away: "connection refused",
        bad.addr: "PUT_KV_CONFIG (100) was answered NO_PERMISSION (16): not you",
    }
    assert str(caught.value).startswith("not changed at 2 of 3 name servers: ")


async def test_a_refusal_of_the_only_server_keeps_its_code_and_remark() -> None:
    async with ScriptedNameServer(refuse) as server:
        servers = NameServers([server.addr])
        with pytest.raises(UnexpectedAnswer) as caught:
            await put_kv(servers, "ns", "k", "v")
        await servers.close()
    assert (caught.value.code, caught.value.remark) == (ResponseCode.NO_PERMISSION, "not you")


async def test_change_without_any_reachable_server_is_an_error() -> None:
    servers = NameServers([f"127.0.0.1:{choose_port('127.0.0.1')}" for _ in range(2)])
    with pytest.raises(NameServersUnreachable):
        await put_kv(servers, "ns", "k", "v")


async def test_entries_are_read_back() -> None:
    script = KvScript()
    async with ScriptedNameServer(script) as server:
        servers = NameServers([server.addr])
        await put_kv(servers, "ns", "k2", "v2")
        await put_kv(servers, "ns", "k1", "")
        assert list((await kv_table(servers, "ns")).items()) == [("k1", ""), ("k2", "v2")]
        assert await kv_value(servers, "ns", "k2") == "v2"
        with pytest.raises(QueryNotFound):
            await kv_value(servers, "ns", "none")
        with pytest.raises(QueryNotFound):
            await kv_table(servers, "none")
        await servers.close()


async def test_import_puts_only_differing_entries_at_each_server() -> None:
    full, empty = KvScript(), KvScript()
    full.table = {"ns": {"same": "1", "other": "2", "own": "3"}}
    wanted = {"ns": {"same": "1", "other": "x", "new": "y"}, "empty": {}}
    async with ScriptedNameServer(full) as a, ScriptedNameServer(empty) as b:
        servers = NameServers([a.addr, b.addr])
        first = await import_kv(servers, wanted)
        again = await import_kv(servers, wanted)
        await servers.close()
    assert [outcome.value for outcome in first] == [Imported(1, 1, 1), Imported(3, 0, 0)]
    assert [outcome.value for outcome in again] == [Imported(0, 0, 3)] * 2
    assert full.table == {"ns": {"same": "1", "other": "x", "own": "3", "new": "y"}}


async def test_an_answer_without_the_number_of_topics_is_unexpected() -> None:
    def count(request: RemotingCommand) -> Answers:
        return [response_to(request, 0, ext_fields={"wipeTopicCount": "7"})]

    async with ScriptedNameServer(count) as a, ScriptedNameServer() as b:
        servers = NameServers([a.addr, b.addr])
        good, bad = await wipe_write_perm(servers, "broker-a")
        await servers.close()
    assert (good.value, bad.value) == (7, None)
    assert isinstance(bad.error, UnexpectedAnswer)


async def test_a_configuration_is_read_from_lines_of_keys_and_values() -> None:
    async with ScriptedNameServer(lambda request: [response_to(request, 0, body=b"a=1\nb=x=\\y\nempty=\n")]) as server:
        servers = NameServers([server.addr])
        (outcome,) = await name_server_config(servers)
        await servers.close()
    assert outcome.value == {"a": "1", "b": "x=\\y", "empty": ""}


async def test_settings_are_escaped_as_java_reads_them() -> None:
    async with ScriptedNameServer() as server:
        servers = NameServers([server.addr])
        await update_name_server_config(servers, {"k:1": " a\\b\n=ü\U0001f600"})
        await servers.close()
    assert server.requests[0].body == b"k\\:1=\\ a\\\\b\\n\\=\\u00FC\\uD83D\\uDE00\n"


def test_timeout_of_the_client_is_longer_than_that_of_a_change_at_the_server() -> None:
    settings = load_settings(environ={}).settings
    assert settings.server.change_timeout_ms + settings.liveness.tick_interval_ms < ADMIN_TIMEOUT_MS
