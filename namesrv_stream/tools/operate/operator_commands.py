"""The commands ``config``, ``kv export`` and ``guard``: settings, stored KV entries, brokers that the guard holds."""

import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from namesrv_stream.client import queries
from namesrv_stream.client.commands.answer_text import held_in, held_json, held_lines
from namesrv_stream.client.commands.query_options import TIMEOUT_MS, Target, name_server_command
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import instant, iso_instant
from namesrv_stream.logs import safe
from namesrv_stream.settings import Flag, LoadedSettings
from namesrv_stream.settings.installation import Configuration, configured, running_parts, starting_parts
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.text_table import JsonOption
from namesrv_stream.tools.tool_options import ByOption, WaitOption, current_operator, emit_json, print_table

# Commands import Kafka, Delta and Polars when they run, so that `--help` and other commands start quickly.


def register_config(config_app: typer.Typer) -> None:
    """Add the commands to the group ``config``."""
    config_app.command("set")(configured(config_set))
    config_app.command("history")(configured(config_history))


def config_set(
    configuration: Configuration,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Such as liveness.default_timeout_ms.")],
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    by: ByOption = None,
    wait: WaitOption = "10s",  # type: ignore[assignment] # typer parses the default too
    as_json: JsonOption = False,
) -> None:
    """Change a setting on all servers and jobs, without a restart."""
    from namesrv_stream.tools.operate.fold_settings import change_setting

    changed = change_setting(configuration, key, value, by or current_operator(), wait / 1000)
    if as_json:
        fields = {name: getattr(changed, name) for name in ("key", "old", "new", "by", "waited_ms", "behind", "since")}
        emit_json(fields | {"offsets": {str(p): o for p, o in changed.offsets.items()}})
        return
    if not changed.offsets:
        print(f"{changed.key} is already {changed.new}")
        return
    print(f"{changed.key}: {changed.old} -> {changed.new}, by {changed.by}")
    where = ", ".join(f"{partition}:{offset}" for partition, offset in sorted(changed.offsets.items()))
    if changed.behind is None:
        print(f"logged at {where}; there are no tables here to see whether it is folded", file=sys.stderr)
    elif changed.behind:
        print(f"logged at {where}, not folded yet in partitions {list(changed.behind)}: does the job run?")
    else:
        print(f"logged at {where} and folded {changed.waited_ms / 1000:.1f} s later")
    if changed.since is not None:
        print(f"changed again since then: it is now {changed.since}")


def config_history(
    configuration: Configuration,
    key: Annotated[str | None, typer.Argument(metavar="KEY", help="Only this setting.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show who changed which setting, and when."""
    from namesrv_stream.route.changes import ChangeKind
    from namesrv_stream.route.liveness_settings import setting_changes
    from namesrv_stream.tables.snapshot import read_rows
    from namesrv_stream.tools.operate.fold_settings import setting_key, setting_name

    name = None if key is None else setting_name(configuration, key)
    rows = read_rows(tables_of(configuration.load().settings), ChangeKind.SETTING)
    changes = [change for change in setting_changes(rows) if name in (None, change.name)]
    if as_json:
        emit_json(
            [
                {
                    "at": iso_instant(change.at_ms),
                    "at_ms": change.at_ms,
                    "key": setting_key(change.name),
                    "old": change.old,
                    "new": change.new,
                    "by": change.source,
                    "offsets": {str(p): o for p, o in change.partitions.items()},
                }
                for change in changes
            ]
        )
        return
    table = Table("at", "setting", "old", "new", "by", "partition:offset", box=None, pad_edge=False)
    for change in changes:
        where = " ".join(f"{p}:{o}" for p, o in sorted(change.partitions.items()))
        cells = (instant(change.at_ms), setting_key(change.name), change.old or "?", change.new, change.source, where)
        table.add_row(*(escape(safe(cell)) for cell in cells))
    print_table(table)


def register_kv(kv_app: typer.Typer) -> None:
    """Add the command to the group ``kv``."""
    kv_app.command("export")(configured(kv_export))


def kv_export(
    configuration: Configuration,
    tables: Annotated[
        str | None,
        typer.Option("--tables", help="Read these tables. Default: those of the installation.", metavar="DIR"),
    ] = None,
) -> None:
    """Print the KV table in the tables as JSON, for `kv import`.

    No server needs to run, and the tables may be those of a lost log.
    """
    from namesrv_stream.tables.snapshot import load_snapshot

    flags = [] if tables is None else [Flag("--tables", "data.tables", tables)]
    place = tables_of(configuration.load(*flags).settings)
    snapshot = load_snapshot(place)
    if snapshot.version < 0:
        raise ConfigError("command line" if flags else "settings", "data.tables", f"{place} has no route_changes")
    if snapshot.damage:
        print(f"warning: the newest rows are missing: {snapshot.damage}", file=sys.stderr)
    emit_json({"configTable": snapshot.table.kv})


def show_running(loaded: LoadedSettings, *, as_json: bool) -> None:
    """Print the settings in force, those of the configuration, and the last change of each."""
    from namesrv_stream.tools.operate.fold_settings import running_settings, setting_key

    data = loaded.settings.data
    if "job" not in running_parts(data.run_dir) | starting_parts(data.run_dir):
        where = f"the tables in {tables_of(loaded.settings)} say what ran last"
        print(f"no job runs on {data.dir}: {where}, or what a job on another machine runs with", file=sys.stderr)
    found = running_settings(loaded)
    if as_json:
        emit_json({setting_key(s.name): s.as_json() for s in found})
        return
    table = Table("setting", "running", "configured", "configured in", "last change", box=None, pad_edge=False)
    for setting in found:
        running = setting.running if len(setting.by_partition) < 2 else _by_partition(setting.by_partition)
        change = setting.last_change
        last = f"{instant(change.at_ms)} by {change.source}" if change else ""
        style = None if setting.running == setting.configured else "bold"
        configured = setting.configured if setting.configured is not None else "only `config set`"
        cells = (setting_key(setting.name), running, configured, setting.configured_in, last)
        table.add_row(*(escape(safe(cell)) for cell in cells), style=style)
    print_table(table)


def _by_partition(texts: dict[str, list[int]]) -> str:
    return "; ".join(f"{text} in partitions {partitions}" for text, partitions in texts.items())


def register(app: typer.Typer) -> None:
    """Add the group ``guard`` to ``app``."""
    guard = typer.Typer(help="List and release protected brokers.", no_args_is_help=True)
    guard.command("list")(name_server_command(guard_list))
    guard.command("release")(configured(guard_release))
    app.add_typer(guard, name="guard")


def guard_list(target: Target, as_json: JsonOption = False) -> None:
    """List the protected brokers, with the reasons."""
    held = list(held_in(*target.ask(lambda servers: queries.brokers_and_holds(servers, TIMEOUT_MS))))
    if as_json:
        emit_json(held_json(held))
    else:
        sys.stdout.write(held_lines(held) or "no broker is protected\n")


def guard_release(
    configuration: Configuration,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER")],
    by: ByOption = None,
    wait: WaitOption = "10s",  # type: ignore[assignment] # typer parses the default too
    as_json: JsonOption = False,
) -> None:
    """Remove the protected brokers of a cluster now.

    Use it for brokers that are really down. A broker that is alive returns with its next registration.
    """
    from namesrv_stream.tools.operate.operator_events import release

    released = release(configuration.load().settings, cluster, by or current_operator(), wait / 1000)
    if as_json:
        brokers = [
            {
                "broker_name": key.broker_name,
                **key.live_key._asdict(),
                "still_held": key in released.still_held,
            }
            for key in released.brokers
        ]
        emit_json({"brokers": brokers, "behind": released.behind})
        return
    for key in released.brokers:
        state = "still protected" if key in released.still_held else "released"
        print(f"{state}: {safe(key.broker_name)} {safe(key.live_key.broker_addr)}")
    if released.behind is None:
        print("logged; there are no tables here to see whether it is folded", file=sys.stderr)
    elif released.behind:
        print(f"logged, not folded yet in partitions {list(released.behind)}: does the job run?")
