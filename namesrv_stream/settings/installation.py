"""Finds the installation that a command works on: the options that name it, its settings, the addresses of its parts.

An installation is a data directory. Its parts write their addresses to ``DATA/run/*.json``, and ``up`` writes the
settings that it runs with to ``DATA/run/effective.toml``; both are valid while the process that wrote them is alive.
"""

import inspect
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.exceptions import TyperException

from namesrv_stream.addresses import join_addr, parts_of, split_addr
from namesrv_stream.errors import ConfigError
from namesrv_stream.instants import parse_duration_ms
from namesrv_stream.ports import reachable_host
from namesrv_stream.processes import STARTING, is_writer_alive, read_run_file
from namesrv_stream.settings.layers import (
    DATA_VARIABLE,
    EFFECTIVE_FILE,
    Flag,
    LoadedSettings,
    load_settings,
    parse_set_flag,
)
from namesrv_stream.settings.sections import Settings

PARTS: Final = ("kafka", "job", "history-job", "serve")
#: Age of the history's newest data above which it is late in any case; the alert NamesrvHistoryBehind has the same one.
HISTORY_BEHIND_MS: Final = 900_000

#: ``up`` writes the chosen ports into this run file when it starts.
PORTS_FILE: Final = "ports.json"
_DEFAULT_PORTS: Final = {"remoting": 9876, "http": 9880}


def _parser(bare: Literal["s"] | None, least_ms: int, most_ms: int | None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            return parse_duration_ms(text, bare, least_ms=least_ms, most_ms=most_ms)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def duration_option(
    *flags: str, help: str, bare: Literal["s"] | None = None, least_ms: int = 0, most_ms: int | None = None
) -> Any:
    """Return an option for a duration; its value is in milliseconds, its default a text such as ``30s``.

    Args:
        flags: Its names.
        help: Its help.
        bare: The unit of a number without one; None if it needs one.
        least_ms: The shortest permitted duration.
        most_ms: The longest one; None for no limit.
    """
    return typer.Option(*flags, help=help, parser=_parser(bare, least_ms, most_ms), metavar="DURATION")


ConfOption = Annotated[
    Path | None,
    typer.Option("--conf", "-c", help="Configuration file: TOML, or RocketMQ's .properties.", metavar="FILE"),
]
#: Without -c, which has other meanings in mqadmin.
LongConfOption = Annotated[
    Path | None,
    typer.Option("--conf", help="Configuration file: TOML, or RocketMQ's .properties.", metavar="FILE"),
]
DataDirOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        help=f"Data directory of the installation. Default: {DATA_VARIABLE}, or data.dir of the configuration.",
        metavar="DIR",
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="One setting; may be repeated.", metavar="SECTION.KEY=VALUE")
]


def running_parts(run_dir: Path) -> dict[str, dict[str, str | int]]:
    """Return the parts that run on a data directory: name → content of their run file.

    Raises:
        ConfigError: The directory cannot be read.
    """
    found = {part: _read(run_dir / f"{part}.json") for part in PARTS}
    return {part: fields for part, fields in found.items() if fields is not None and is_writer_alive(fields)}


def starting_parts(run_dir: Path) -> dict[str, dict[str, str | int]]:
    """Return part → fields of its run file, for the parts that run on a data directory and are not ready yet."""
    ready = running_parts(run_dir)
    return {part: fields for part, fields in running_parts(run_dir / STARTING).items() if part not in ready}


def is_up_running(run_dir: Path) -> bool:
    """Return whether ``up`` runs on a data directory."""
    fields = _read(run_dir / PORTS_FILE)
    return fields is not None and is_writer_alive(fields)


PartState = Literal["ready", "starting", "absent"]


def part_state(run_dir: Path, part: str) -> PartState:
    """Return "ready" or "starting" for a part that runs on a data directory, "absent" for one that does not."""
    if part in running_parts(run_dir):
        return "ready"
    return "starting" if part in starting_parts(run_dir) else "absent"


def installed_settings(conf: Path | None, flags: Iterable[Flag]) -> LoadedSettings:
    """Return the settings of the installation that ``--conf`` and the flags name.

    Without ``--conf``, the settings that a running ``up`` has written to the data directory take the place of the file;
    without ``up``, the port of an embedded Kafka that runs there applies.

    Raises:
        ConfigError: A setting is unknown or invalid; the error names the layer and the key.
    """
    flags = list(flags)
    loaded = load_settings(conf, flags=flags)
    if conf is not None:
        return loaded
    data = loaded.settings.data
    effective = data.run_dir / EFFECTIVE_FILE
    if is_up_running(data.run_dir) and effective.exists():
        # A moved directory is where it was found, not where its settings say.
        running = load_settings(effective, flags=[Flag("--data-dir", "data.dir", str(data.dir)), *flags])
        return replace(running, sources=_without_defaults(running, str(effective)))
    kafka = running_parts(data.run_dir).get("kafka")
    if kafka is not None and loaded.settings.is_kafka_embedded:
        _, port = parts_of(str(kafka["kafka"]))
        return load_settings(None, flags=[Flag("--data-dir", "embedded_kafka.listen_port", port), *flags])
    return loaded


def _without_defaults(loaded: LoadedSettings, effective: str) -> dict[str, str]:
    """Return the sources without keys for which ``up``'s file, which contains every key, has the default value."""
    defaults = Settings()

    def is_default(key: str) -> bool:
        section, _, name = key.removeprefix("advanced.").partition(".")
        at_default = getattr(getattr(defaults, section), name, None)
        return at_default is not None and getattr(getattr(loaded.settings, section), name) == at_default

    return {key: source for key, source in loaded.sources.items() if source != effective or not is_default(key)}


def server_address(settings: Settings, section: str, *, prefer_running: bool) -> str:
    """Return the address at which this machine reaches the installation's server.

    Args:
        section: ``remoting`` or ``http``.
        prefer_running: Whether the address of a running server has priority over a configured port.

    Returns:
        ``host:port``. The port is the default of the section if port 0 (any free one) is configured and no server runs.
    """
    configured = getattr(settings, section)
    if prefer_running or not configured.listen_port:
        running = running_parts(settings.data.run_dir).get("serve")
        if running is not None:
            return _reachable(*split_addr(str(running[section])))
    return _reachable(configured.listen_host, configured.listen_port or _DEFAULT_PORTS[section])


def refuse_other_installation(settings: Settings, section: str, address: str) -> None:
    """Refuse the default address of a part if only another installation can be listening there.

    That is the case if something listens there, but nothing runs on this data directory although it contains tables.

    Args:
        section: ``remoting``, ``http`` or ``embedded_kafka``.
        address: ``host:port`` on this machine.

    Raises:
        ConfigError: Another installation listens at the address.
    """
    data = settings.data
    is_default = getattr(settings, section).listen_port == getattr(Settings(), section).listen_port
    runs = bool(running_parts(data.run_dir)) or is_up_running(data.run_dir)
    if runs or not is_default or data.tables or not data.tables_dir.is_dir():
        return
    try:
        socket.create_connection(split_addr(address), timeout=1).close()
    except OSError:
        return
    reason = f"nothing runs on {data.dir}, but another installation listens at {address}: name it with --data-dir DIR"
    raise ConfigError("settings", "data.dir", f"{reason} or {DATA_VARIABLE}, or name addresses (-n, --http)")


def _reachable(listen_host: str, port: int) -> str:
    return join_addr(reachable_host(listen_host), port)


def _read(path: Path) -> dict[str, str | int] | None:
    data_dir = path.parent.parent
    try:
        return read_run_file(path)
    except NotADirectoryError:
        raise ConfigError("settings", "data.dir", f"{data_dir} is not a directory") from None
    except PermissionError:
        reason = f"{path.parent} cannot be read by this user: run the command as the user that the server runs as"
        raise ConfigError("settings", "data.dir", reason) from None


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``command(configuration, …)`` as a command that also has ``--conf``, ``--data-dir`` and ``--set``."""

    def run(
        *,
        conf: ConfOption = None,
        data_dir: DataDirOption = None,
        sets: SetOption = None,
        **own: Any,
    ) -> Any:
        check_conf(conf, "cluster" in own)
        return command(Configuration(conf, data_dir, tuple(sets or ())), **own)

    return joined(run, command)


def joined(run: Callable[..., Any], command: Callable[..., Any], **annotations: Any) -> Callable[..., Any]:
    """Return ``run`` with the name, the docstring and the parameters of ``command``, and its own parameters, for typer.

    Args:
        run: Converts the values of its own parameters to an object, and passes it to ``command``. It receives the
            parameters of ``command`` as ``**own``, and passes them on.
        command: Its first parameter receives the object; it is not visible to typer.
        annotations: Annotations that replace those of ``run``'s own parameters.
    """
    own_parameters = list(inspect.signature(command).parameters.values())[1:]
    shared = [p for p in inspect.signature(run).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    shared = [p.replace(annotation=annotations.get(p.name, p.annotation)) for p in shared]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own_parameters, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer reads
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def check_conf(conf: Path | None, has_cluster: bool) -> None:
    """Explain ``-c NAME`` to users who know ``-c`` as mqadmin's flag for a cluster.

    Raises:
        ConfigError: The command has ``--cluster``, and there is no file ``conf``.
    """
    if has_cluster and conf is not None and not conf.exists():
        raise ConfigError("command line", "--conf", f"there is no file {conf}; did you mean --cluster {conf}?")


def usage_error_text(error: TyperException) -> str:
    """Return one line about a mistake in a command line: the error, and the command that prints the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "namesrv-stream"
    return f"{error.format_message()} (see `{command} --help`)"


class Configuration:
    """The installation that the flags name; its files are read on demand.

    Attributes:
        is_explicit: Whether any flag was given; otherwise only the environment and defaults determine it.
    """

    def __init__(self, conf: Path | None = None, data_dir: str | None = None, sets: Iterable[str] = ()) -> None:
        self._conf = conf
        self._flags = [parse_set_flag(text) for text in sets]
        if data_dir is not None:
            self._flags.append(Flag("--data-dir", "data.dir", data_dir))
        self.is_explicit = conf is not None or bool(self._flags)

    def load(self, *more: Flag) -> LoadedSettings:
        """Return the settings of the installation, overridden by the flags in ``more``.

        Raises:
            ConfigError: A setting is unknown or invalid; the error names the layer and the key.
        """
        return installed_settings(self._conf, [*self._flags, *more])

    def name_server(self) -> str:
        """Return the remoting address of the installation's server, ``host:port``.

        Raises:
            ConfigError: A setting is unknown or invalid, or another installation listens at the address.
        """
        return self._address(self.load().settings, "remoting")

    def http_server(self) -> str:
        """Return the URL of the HTTP port of the installation's server: ``http://host:port``, or https.

        Raises:
            ConfigError: A setting is unknown or invalid, or another installation listens at the address.
        """
        settings = self.load().settings
        scheme = "https" if settings.http.tls else "http"
        return f"{scheme}://{self._address(settings, 'http')}"

    def _address(self, settings: Settings, section: str) -> str:
        address = server_address(settings, section, prefer_running=self._conf is None)
        if self._conf is None:
            refuse_other_installation(settings, section, address)
        return address


#: Why a history process that is not ready writes nothing.
_NOT_READY: Final[dict[PartState, str]] = {
    "ready": "",
    "starting": "its process is starting",
    "absent": "no history-job runs on this data directory",
}


def late_history(settings: Settings, newest_ms: int, now_ms: int) -> str:
    """Return why the history tables lag behind; "" if they do not, or if nothing runs on this data directory.

    After the start of the job, the history process has ``late_after_ms`` to write its first data. Tables whose newest
    data is older than ``HISTORY_BEHIND_MS`` lag behind in any case, even while the process catches up after an outage.

    Args:
        newest_ms: The time up to which the tables have data, epoch milliseconds; 0 if they have none.
        now_ms: This machine's clock, epoch milliseconds.
    """
    run_dir, late_after_ms = settings.data.run_dir, settings.history.late_after_ms
    parts, state = running_parts(run_dir), part_state(run_dir, "history-job")
    is_awaited = state == "absent" and "job" not in parts and is_up_running(run_dir)
    absent = "`up` starts its process after the job" if is_awaited else _NOT_READY[state]
    if "job" in parts:  # otherwise it may run elsewhere
        since_ms = round((run_dir / "job.json").stat().st_mtime * 1_000)
        if now_ms - max(since_ms, newest_ms) > late_after_ms:
            return absent or "its process does not write"
    if parts and newest_ms and now_ms - newest_ms > max(HISTORY_BEHIND_MS, late_after_ms):
        return f"it is behind: {absent or 'its process is catching up, or does not write'}"
    return ""
