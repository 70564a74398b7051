"""The command line: reads flags, loads the settings, and runs one command.

A command imports the modules that it needs only when it runs, so that commands that do not use Spark start quickly and
work without it.
docs/operations.md has the exit codes.
"""

import logging
import sys
from collections.abc import Iterable
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.exceptions import Abort, Exit, TyperException
from typer.models import OptionInfo

from namesrv_stream import __version__
from namesrv_stream.client import commands as client_commands
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.history import history_commands
from namesrv_stream.history.report import report_command
from namesrv_stream.logs import configure_logging, report_error
from namesrv_stream.ports import PORT_FLAGS
from namesrv_stream.processes import die_with_parent
from namesrv_stream.settings import Flag, LoadedSettings, Settings, load_settings, parse_set_flag, to_json, to_toml
from namesrv_stream.settings.installation import Configuration, ConfOption, DataDirOption, SetOption, usage_error_text
from namesrv_stream.tools.agent import agent_command
from namesrv_stream.tools.doctor import doctor_command
from namesrv_stream.tools.drain import drain_command
from namesrv_stream.tools.operate import (
    operator_commands,
    orphans_command,
    refused_records,
    servers_command,
    skew,
    status_command,
    why_command,
)
from namesrv_stream.tools.replay import replay_commands
from namesrv_stream.tools.what_if import what_if_command

logger = logging.getLogger(__name__)

_EXIT_INTERRUPTED: Final = 130  # the shell's 128 + SIGINT
_OLD_REMOTING_PORT_FLAG: Final = "--listen-port"  # its name in the previous release


def _port_option(flag: str, what: str, *, hidden: bool = False) -> OptionInfo:
    option: OptionInfo = typer.Option(flag, help=f"Port for {what}; 0 for any free one.", metavar="PORT", hidden=hidden)
    return option


RemotingPortOption = Annotated[str | None, _port_option(PORT_FLAGS["remoting"], "brokers and clients")]
HttpPortOption = Annotated[str | None, _port_option(PORT_FLAGS["http"], "HTTP")]
KafkaPortOption = Annotated[str | None, _port_option(PORT_FLAGS["embedded_kafka"], "the embedded Kafka")]
ListenPortOption = Annotated[str | None, _port_option(_OLD_REMOTING_PORT_FLAG, "brokers and clients", hidden=True)]
PrintOption = Annotated[bool, typer.Option("--print", "-p", help="Print the effective configuration and exit.")]

app = typer.Typer(
    name="namesrv-stream",
    help="A name server for Apache RocketMQ, with Kafka, Spark and Delta Lake.",
    epilog="mqadmin's names, such as clusterList, are commands too: `namesrv-stream mqadmin --help`.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Show the configuration, and change it at run time.", no_args_is_help=True)
app.add_typer(config_app, name="config")
kv_app = typer.Typer(help="Read and change the KV table.", no_args_is_help=True)
app.add_typer(kv_app, name="kv")
mqadmin_app = typer.Typer(help="Run commands under mqadmin's own names and flags.", no_args_is_help=True)
app.add_typer(mqadmin_app, name="mqadmin")

# Every module of commands adds its own.
agent_command.register(app)
operator_commands.register_config(config_app)
operator_commands.register_kv(kv_app)
history_commands.register_route(app, mqadmin_app)
client_commands.register(app, kv_app, mqadmin_app)
for _module in (
    *(history_commands, report_command),
    *(skew, servers_command, status_command, why_command, orphans_command, refused_records, operator_commands),
    *(doctor_command, drain_command, replay_commands, what_if_command),
):
    _module.register(app)


def main() -> int:
    """Run the command in ``sys.argv`` and return its exit code; print an expected error as one line on stderr."""
    die_with_parent()
    if isinstance(sys.stdout, TextIOWrapper):
        # Names may contain characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        outcome = app(standalone_mode=False, prog_name="namesrv-stream")
    except NamesrvStreamError as error:
        report_error(str(error))
        return error.exit_code
    except TyperException as error:
        if error.format_message():  # empty if the help has been printed instead
            report_error(usage_error_text(error))
        return error.exit_code
    except Exit as request:
        return request.exit_code
    except (Abort, KeyboardInterrupt):
        return _EXIT_INTERRUPTED
    return outcome if isinstance(outcome, int) else 0


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise Exit(0)


@app.command()
def up(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    remoting_port: RemotingPortOption = None,
    listen_port: ListenPortOption = None,
    http_port: HttpPortOption = None,
    kafka_port: KafkaPortOption = None,
    sets: SetOption = None,
    print_only: PrintOption = False,
) -> int:
    """Run everything on this machine, in the foreground."""
    from namesrv_stream.up.launcher import run_up

    ports = _ports(listen_port, remoting=remoting_port, http=http_port, embedded_kafka=kafka_port)
    settings = _load(conf, data_dir, sets, print_only, ports)
    return run_up(settings)


@app.command()
def serve(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    remoting_port: RemotingPortOption = None,
    listen_port: ListenPortOption = None,
    http_port: HttpPortOption = None,
    sets: SetOption = None,
    print_only: PrintOption = False,
) -> int:
    """Run the name server."""
    ports = _ports(listen_port, remoting=remoting_port, http=http_port)
    settings = _load(conf, data_dir, sets, print_only, ports)
    from namesrv_stream.server.start.process import prepare_imports

    prepare_imports()
    from namesrv_stream.server.main import serve as run_server

    return run_server(settings)


@app.command()
def job(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    sets: SetOption = None,
    print_only: PrintOption = False,
) -> int:
    """Run the Spark job that computes the routes from the events."""
    settings = _load(conf, data_dir, sets, print_only)
    from namesrv_stream.streaming.route_table.route_job import run_job

    return run_job(settings)


@app.command("history-job")
def history_job(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    sets: SetOption = None,
    once: Annotated[
        bool, typer.Option("--once", help="Process the pending records and exit, for a scheduler.")
    ] = False,
    print_only: PrintOption = False,
) -> int:
    """Run the Spark job that writes the history tables."""
    settings = _load(conf, data_dir, sets, print_only)
    from namesrv_stream.streaming.history.history_job import run_history

    return run_history(settings, once=once)


@app.command()
def kafka(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    kafka_port: KafkaPortOption = None,
    sets: SetOption = None,
    print_only: PrintOption = False,
) -> int:
    """Run the embedded Kafka node, for one machine only."""
    settings = _load(conf, data_dir, sets, print_only, _ports(embedded_kafka=kafka_port))
    from namesrv_stream.kafka.embedded_node import run_kafka

    run_kafka(settings)


@app.command()
def webhook(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    url: Annotated[str | None, typer.Option("--url", help="Same as --set webhook.url=URL.", metavar="URL")] = None,
    sets: SetOption = None,
    print_only: PrintOption = False,
) -> int:
    """Report route changes and broker deaths to a URL, as JSON."""
    if url is not None:
        sets = [*(sets or ()), f"webhook.url={url}"]
    settings = _load(conf, data_dir, sets, print_only)
    from namesrv_stream.tools.webhook.reporter import run_webhook

    return run_webhook(settings)


@app.command()
def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data in this new folder. Default: a temporary one.", metavar="DIR"),
    ] = None,
) -> int:
    """Demonstrate everything on this machine, within a minute."""
    from namesrv_stream.tools.demo.scenario import run_demo

    return run_demo(data_dir)


@config_app.command("show")
def config_show(
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    remoting_port: RemotingPortOption = None,
    listen_port: ListenPortOption = None,
    http_port: HttpPortOption = None,
    kafka_port: KafkaPortOption = None,
    sets: SetOption = None,
    running: Annotated[
        bool,
        typer.Option("--running", help="Show the settings that can change at run time, with their current values."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for scripts.")] = False,
) -> None:
    """Print the settings and where each comes from.

    Advanced settings are printed only if they are set.
    """
    ports = _ports(listen_port, remoting=remoting_port, http=http_port, embedded_kafka=kafka_port)
    if running:
        if ports:
            raise ConfigError("command line", ports[0].name, "cannot be combined with --running")
        operator_commands.show_running(Configuration(conf, data_dir, sets or ()).load(), as_json=as_json)
    else:
        _print(_layers(conf, data_dir, sets, ports), as_json=as_json)


def _load(
    conf: Path | None, data_dir: str | None, sets: list[str] | None, print_only: bool, ports: Iterable[Flag] = ()
) -> Settings:
    loaded = _layers(conf, data_dir, sets, ports)
    if print_only:
        _print(loaded)
        raise Exit(0)
    configure_logging(loaded.settings.logs.level, loaded.settings.logs.format)
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def _ports(listen_port: str | None = None, **ports: str | None) -> list[Flag]:
    """Return a ``Flag`` for every given port; the names of ``ports`` are sections of the settings."""
    given = [("remoting", _OLD_REMOTING_PORT_FLAG, listen_port)]
    given += [(section, PORT_FLAGS[section], port) for section, port in ports.items()]
    return [Flag(flag, f"{section}.listen_port", port) for section, flag, port in given if port is not None]


def _layers(conf: Path | None, data_dir: str | None, sets: list[str] | None, ports: Iterable[Flag]) -> LoadedSettings:
    flags = [parse_set_flag(text) for text in sets or ()]
    if data_dir is not None:
        flags.append(Flag("--data-dir", "data.dir", data_dir))
    return load_settings(conf, flags=[*flags, *ports])


def _print(loaded: LoadedSettings, *, as_json: bool = False) -> None:
    # Not on stdout, where the settings can be saved and read back.
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    to_text = to_json if as_json else to_toml
    sys.stdout.write(to_text(loaded.settings, loaded.sources))
