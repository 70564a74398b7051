"""No command with a name accepts one that does not exist; the name server here knows no topic, broker or entry."""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import orjson
import pytest
import typer

from namesrv_stream.cli import app
from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to
from tests.support.command_line import run_command
from tests.support.scripted_name_server import Answers, ScriptedNameServer, ScriptedRoutes

#: They create the name.
_CREATE: Final = {"kv put", "view set", "kv import"}
#: They need the HTTP port or Kafka; tests with these have the same for them.
_ELSEWHERE: Final = {"history", "why", "config history", "config set", "guard release"}
_CHANGES: Final = frozenset({RequestCode.DELETE_KV_CONFIG, RequestCode.DELETE_TOPIC_IN_NAMESRV})


def _empty(request: RemotingCommand) -> Answers:
    match request.code:
        case RequestCode.GET_KV_CONFIG | RequestCode.GET_KVLIST_BY_NAMESPACE:  # the text is Java's
            fields = request.ext_fields or {}
            remark = f"No config item, Namespace: {fields['namespace']} Key: {fields.get('key')}"
            return [response_to(request, ResponseCode.QUERY_NOT_FOUND, remark=remark)]
        case RequestCode.GET_TOPICS_BY_CLUSTER:
            return [response_to(request, 0, body=orjson.dumps({"topicList": []}))]
        case RequestCode.GET_NAMESRV_CONFIG:
            return [response_to(request, 0, body=b"a=1\n")]
        case RequestCode.UPDATE_NAMESRV_CONFIG:  # as this product's server answers
            return [response_to(request, ResponseCode.NO_PERMISSION, remark="nosuch cannot change at run time")]
        case RequestCode.WIPE_WRITE_PERM_OF_BROKER:
            return [response_to(request, 0, ext_fields={"wipeTopicCount": "0"})]
        case RequestCode.ADD_WRITE_PERM_OF_BROKER:
            return [response_to(request, 0, ext_fields={"addTopicCount": "0"})]
        case _:
            return list(ScriptedRoutes()(request))


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    """Yield every command that has names as arguments, with their number."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))
    arguments = [p for p in getattr(command, "params", ()) if p.param_type_name == "argument"]
    if arguments and not hasattr(command, "commands"):
        yield " ".join(path), len(arguments)


_NAMED: Final = dict(_commands(typer.main.get_command(app)))


def test_all_commands_with_names_are_tested() -> None:
    assert _NAMED.keys() >= _CREATE | _ELSEWHERE
    assert {"topic delete", "perm wipe", "perm add", "kv delete", "view remove", "drain", "route"} <= _NAMED.keys()


@pytest.mark.parametrize("command", sorted(_NAMED.keys() - _CREATE - _ELSEWHERE))
@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["text", "json"])
async def test_unknown_name_is_refused_and_nothing_is_changed(command: str, flags: tuple[str, ...]) -> None:
    async with ScriptedNameServer(_empty) as server:
        words = [*command.split(), *["nosuch"] * _NAMED[command], "-n", server.addr, *flags]
        done = await asyncio.to_thread(run_command, *words)
        assert not _CHANGES & {request.code for request in server.requests}
    assert done.code == 1
    assert "nosuch" in done.err


async def test_topic_of_another_cluster_is_unknown() -> None:
    async with ScriptedNameServer(_empty) as server:
        words = ("topic", "delete", "t", "--cluster", "c", "-n", server.addr)
        done = await asyncio.to_thread(run_command, *words)
    assert done.err == "error: no name server knows a topic t in cluster c: nothing was changed\n"
