"""The flags by which every command finds its installation, for commands that need nothing else of the shells."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from namesrv_stream.errors import ConfigError
from namesrv_stream.settings.installation import installed_settings, server_address
from namesrv_stream.settings.layers import DATA_VARIABLE, Flag, LoadedSettings, parse_set_flag

ConfOption = Annotated[
    Path | None,
    typer.Option("--conf", "-c", help="Configuration file: TOML, or RocketMQ's .properties.", metavar="FILE"),
]
#: mqadmin has other meanings for -c.
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


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """``command(configuration, …)`` as a command that has ``--conf``, ``--data-dir`` and ``--set`` besides its own."""

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
    """``run`` as typer shall see it: ``command``'s name, text and parameters but the first, then those of its own.

    Args:
        run: Takes what it does not name as ``**own``, to call ``command`` with it.
        command: Takes first what ``run`` makes of the flags that it names.
        annotations: Other ones for parameters of ``run``.
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
    """Explain ``-c NAME`` to those who know ``-c`` as mqadmin's flag for a cluster.

    Raises:
        ConfigError: The command can be limited to a cluster, and there is no such file.
    """
    if has_cluster and conf is not None and not conf.exists():
        raise ConfigError("command line", "--conf", f"there is no file {conf}; did you mean --cluster {conf}?")


def usage_error_text(error: TyperException) -> str:
    """What is wrong with a command line, and which help to read."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "namesrv-stream"
    return f"{error.format_message()} (see `{command} --help`)"


class Configuration:
    """The installation that the flags name; read when it is asked for.

    Attributes:
        is_explicit: Whether a flag names one, rather than the environment or a default.
    """

    def __init__(self, conf: Path | None = None, data_dir: str | None = None, sets: Iterable[str] = ()) -> None:
        self._conf = conf
        self._flags = [parse_set_flag(text) for text in sets]
        if data_dir is not None:
            self._flags.append(Flag("--data-dir", "data.dir", data_dir))
        self.is_explicit = conf is not None or bool(self._flags)

    def load(self, *more: Flag) -> LoadedSettings:
        """The settings in force there, with ``more`` above all other layers.

        Raises:
            ConfigError: Naming the layer and the key.
        """
        return installed_settings(self._conf, [*self._flags, *more])

    def name_server(self) -> str:
        """``host:port`` of the remoting port of its server.

        Raises:
            ConfigError: Naming the layer and the key.
        """
        return server_address(self.load().settings, "remoting", prefer_running=self._conf is None)

    def http_server(self) -> str:
        """``http://host:port`` of its server.

        Raises:
            ConfigError: Naming the layer and the key.
        """
        settings = self.load().settings
        scheme = "https" if settings.http.tls else "http"
        return f"{scheme}://{server_address(settings, 'http', prefer_running=self._conf is None)}"
