"""The flags by which a command finds its configuration, for commands that need nothing else of the shells."""

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from namesrv_stream.settings.layers import Flag, LoadedSettings, load_settings, parse_set_flag

ConfOption = Annotated[
    Path | None,
    typer.Option(
        "--conf", "-c", help="Configuration file; of a running `up`: DATA/run/effective.toml.", metavar="FILE"
    ),
]
DataDirOption = Annotated[str | None, typer.Option("--data-dir", help="Same as --set data.dir=DIR.", metavar="DIR")]
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
        return command(Configuration(conf, data_dir, tuple(sets or ())), **own)

    return joined(run, command)


def joined(run: Callable[..., Any], command: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` as typer shall see it: ``command``'s name, text and parameters but the first, then those of its own.

    Args:
        run: Takes what it does not name as ``**own``, to call ``command`` with it.
        command: Takes first what ``run`` makes of the flags that it names.
    """
    own_parameters = list(inspect.signature(command).parameters.values())[1:]
    shared = [p for p in inspect.signature(run).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own_parameters, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # what typer reads
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


class Configuration:
    """What the flags say; read when it is asked for."""

    def __init__(self, conf: Path | None = None, data_dir: str | None = None, sets: Iterable[str] = ()) -> None:
        self._conf = conf
        self._flags = [parse_set_flag(text) for text in sets]
        if data_dir is not None:
            self._flags.append(Flag("--data-dir", "data.dir", data_dir))

    def load(self, *more: Flag) -> LoadedSettings:
        """The settings, with ``more`` above all other layers.

        Raises:
            ConfigError: Naming the layer and the key.
        """
        return load_settings(self._conf, flags=[*self._flags, *more])
