"""Commands for operators' changes at every name server of the list: ``kv``, ``perm``, ``topic``, ``name-server``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from namesrv_stream.client import admin, queries
from namesrv_stream.client.commands import answer_text
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, emit, name_server_command
from namesrv_stream.client.name_servers import NameServers, Outcome
from namesrv_stream.client.server_states import ask
from namesrv_stream.errors import ConfigError, QueryNotFound
from namesrv_stream.remoting import fastjson
from namesrv_stream.text_table import JsonOption, json_text

T = TypeVar("T")

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]
Value = Annotated[str, typer.Argument(metavar="VALUE", show_default=False)]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", show_default=False)]


_STILL_AT_BROKERS = (
    "A broker that still has the topic registers it again within half a minute. `mqadmin deleteTopic` also deletes it"
    " at the brokers, with its messages."
)


def register(app: typer.Typer, kv_app: typer.Typer) -> None:
    """Add the groups ``perm``, ``topic`` and ``name-server`` to ``app``, and commands for KV entries to ``kv_app``."""
    for name, command in (
        ("get", kv_get),
        ("put", kv_put),
        ("delete", kv_delete),
        ("list", kv_list),
        ("import", kv_import),
    ):
        kv_app.command(name)(name_server_command(command))
    perm = typer.Typer(help="Remove the write permission of a broker, or restore it.", no_args_is_help=True)
    perm.command("wipe")(name_server_command(perm_wipe))
    perm.command("add")(name_server_command(perm_add))
    app.add_typer(perm, name="perm")
    topic = typer.Typer(help="Delete the route of a topic.", no_args_is_help=True)
    topic.callback()(lambda: None)  # keeps a group of one command a group
    topic.command("delete")(name_server_command(topic_delete))
    app.add_typer(topic, name="topic")
    config = typer.Typer(help="Read and change the configuration at run time.", no_args_is_help=True)
    config.command("get")(name_server_command(config_get))
    config.command("set")(name_server_command(config_set))
    name_server = typer.Typer(help="Read and change the configuration of name servers.", no_args_is_help=True)
    name_server.add_typer(config, name="config")
    app.add_typer(name_server, name="name-server")


def kv_get(target: Target, namespace: Namespace, key: Key, as_json: JsonOption = False) -> None:
    """Print the value of one entry."""
    value = target.ask(lambda servers: queries.kv_value(servers, namespace, key, TIMEOUT_MS))
    entry = {"namespace": namespace, "key": key, "value": value}
    emit(json_text(entry) if as_json else f"{answer_text.printable(value)}\n")


def kv_put(target: Target, namespace: Namespace, key: Key, value: Value, as_json: JsonOption = False) -> None:
    """Set one entry."""
    addrs = target.ask(lambda servers: admin.put_kv(servers, namespace, key, value, TIMEOUT_MS))
    report(f"put {key} in namespace {namespace}", addrs, as_json)


def kv_delete(target: Target, namespace: Namespace, key: Key, as_json: JsonOption = False) -> None:
    """Remove one entry."""
    addrs = target.ask(lambda servers: admin.delete_known_kv(servers, namespace, key, TIMEOUT_MS))
    report(f"deleted {key} in namespace {namespace}", addrs, as_json)


def kv_list(
    target: Target,
    namespace: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="Default: list the namespaces.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the entries of a namespace, or the namespaces."""
    if namespace is None:
        names = _namespaces(target)
        emit(json_text(names) if as_json else "".join(f"{answer_text.printable(name)}\n" for name in names))
        return
    table = target.ask(lambda servers: queries.kv_table(servers, namespace, TIMEOUT_MS))
    emit(json_text(table) if as_json else answer_text.kv_table(table))


def _namespaces(target: Target) -> list[str]:
    """Return the KV namespaces, which only the HTTP port lists: RocketMQ has no request for them."""
    if target.is_named:
        raise ConfigError(
            "command line",
            "NAMESPACE",
            "is missing: name servers have no request that lists namespaces; without -n and NAMESRV_ADDR, this command"
            " lists them over the HTTP port of the installation",
        )
    return sorted(
        ask(target.configuration.http_server(), "/kv", dict[str, dict[str, str]], is_certificate_checked=False)
    )


def kv_import(
    target: Target,
    file: Annotated[Path, typer.Argument(help="A Java NameServer's kvConfig.json.", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Put all entries of a Java NameServer's kvConfig.json.

    Equal entries are not written again.
    """
    entries = read_kv_config(file)
    outcomes = target.ask(lambda servers: admin.import_kv(servers, entries, TIMEOUT_MS))
    emit(_json(outcomes, asdict) if as_json else answer_text.imported(outcomes))
    admin.check(outcomes)


def perm_wipe(target: Target, broker: BrokerName, as_json: JsonOption = False) -> None:
    """Remove the write permission of a broker.

    Producers then stop sending to it, and consumers read what it still has.
    """
    change_write_perm("wipe", target, broker, as_json)


def perm_add(target: Target, broker: BrokerName, as_json: JsonOption = False) -> None:
    """Restore the write permission of a broker."""
    change_write_perm("add", target, broker, as_json)


def change_write_perm(
    verb: Literal["wipe", "add"], target: Target, broker: str, as_json: bool, *, is_of_mqadmin: bool = False
) -> None:
    """Change the write permission of a broker at all servers; only mqadmin's command accepts an unknown broker."""
    change = admin.wipe_write_perm if verb == "wipe" else admin.add_write_perm
    outcomes = target.ask(lambda servers: change(servers, broker, TIMEOUT_MS))
    if all(outcome.value == 0 for outcome in outcomes) and not is_of_mqadmin:
        raise QueryNotFound(f"no name server knows a topic of a broker {broker}: nothing was changed")
    text = answer_text.write_perm(verb, broker, outcomes)
    emit(_json(outcomes, lambda count: {"topics": count}) if as_json else text)
    admin.check(outcomes)


def topic_delete(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Only from brokers of this cluster.", metavar="CLUSTER")
    ] = None,
    is_forced: Annotated[
        bool, typer.Option("--force", help="Also if no name server lists it: it may have a static mapping only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the route of a topic.

    A broker that still has the topic registers it again, within half a minute.
    """

    async def delete(servers: NameServers) -> tuple[str, ...]:
        if not is_forced:
            await admin.require_topic(servers, topic, cluster, TIMEOUT_MS)
        return await admin.delete_topic(servers, topic, cluster, TIMEOUT_MS)

    addrs = target.ask(delete)
    report(f"deleted the route of {topic}", addrs, as_json)
    if not as_json:
        emit(f"{_STILL_AT_BROKERS}\n")


def config_get(
    target: Target,
    key: Annotated[str | None, typer.Argument(metavar="KEY", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the configuration of every name server, or one of its settings."""
    outcomes = target.ask(lambda servers: admin.name_server_config(servers, TIMEOUT_MS))
    configs = {outcome.addr: outcome.value for outcome in outcomes if outcome.value is not None}
    if key is not None:
        configs = {addr: {key: config[key]} for addr, config in configs.items() if key in config}
    emit(json_text(configs) if as_json else answer_text.name_server_config(configs))
    admin.check(outcomes)
    if not configs:
        raise QueryNotFound(f"no name server has a setting {key}")


def config_set(target: Target, key: Key, value: Value, as_json: JsonOption = False) -> None:
    """Change one setting, if the name server allows it."""
    addrs = target.ask(lambda servers: admin.update_name_server_config(servers, {key: value}, TIMEOUT_MS))
    report(f"set {key}", addrs, as_json)


def read_kv_config(file: Path) -> dict[str, dict[str, str]]:
    """Return the content of a Java NameServer's ``kvConfig.json``: namespace → key → value.

    Raises:
        ConfigError: The file cannot be read, or is not a ``kvConfig.json``.

    Source: rocketmq 5.3.3, KVConfigSerializeWrapper.
    """
    try:
        content = fastjson.loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(str(file), "FILE", error.strerror or str(error)) from None
    except ValueError as error:
        raise ConfigError(str(file), "FILE", f"is not JSON: {error}") from None
    tables = content.get("configTable") if isinstance(content, dict) else None
    if not isinstance(tables, dict):
        raise ConfigError(str(file), "configTable", "is missing: expected a Java NameServer's kvConfig.json")
    for namespace, entries in tables.items():
        if not isinstance(entries, dict) or any(not isinstance(value, str) for value in entries.values()):
            raise ConfigError(str(file), f"configTable.{namespace}", "is not a table of strings")
    return tables


def report(what: str, addrs: Sequence[str], as_json: bool) -> None:
    """Print that the change ``what``, such as ``set KEY``, was made at these name servers."""
    done = {"name_servers": list(addrs)}
    emit(json_text(done) if as_json else f"{answer_text.printable(what)} at {', '.join(addrs)}\n")


def _json(outcomes: Sequence[Outcome[T]], fields: Callable[[T], Mapping[str, object]]) -> str:
    return json_text(
        {
            outcome.addr: {"error": str(outcome.error)} if outcome.value is None else dict(fields(outcome.value))
            for outcome in outcomes
        }
    )
