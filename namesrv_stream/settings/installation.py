"""Which installation a command works on: the settings that are in force there, and the addresses that its parts have.

An installation is a data directory. Its parts write their addresses to ``DATA/run/*.json``, and ``up`` writes the
settings that it runs with to ``DATA/run/effective.toml``; both count while the process that wrote them is alive.
"""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from namesrv_stream.errors import ConfigError
from namesrv_stream.ports import reachable_host
from namesrv_stream.run_files import read_run_file
from namesrv_stream.settings.layers import EFFECTIVE_FILE, Flag, LoadedSettings, load_settings
from namesrv_stream.settings.sections import Settings

PARTS: Final = ("kafka", "job", "history-job", "serve")

#: ``up`` writes the ports that it has chosen into this run file when it starts.
PORTS_FILE: Final = "ports.json"
_DEFAULT_PORTS: Final = {"remoting": 9876, "http": 9880}
#: Words of the command lines of our processes: `python -m namesrv_stream`, the console script, the embedded Kafka, and
#: what `spark-submit` runs.
_OURS: Final = frozenset({b"namesrv_stream", b"namesrv-stream", b"kafka.Kafka", b"route_table.py", b"history.py"})


def running_parts(run_dir: Path) -> dict[str, dict[str, str | int]]:
    """The parts that run on a data directory: name → content of their run file.

    Raises:
        ConfigError: The directory cannot be read.
    """
    found = {part: _read(run_dir / f"{part}.json") for part in PARTS}
    return {part: facts for part, facts in found.items() if facts is not None and _is_alive(facts)}


def installed_settings(conf: Path | None, flags: Iterable[Flag]) -> LoadedSettings:
    """The settings of the installation that ``--conf`` and the flags name.

    Without ``--conf``, the settings that a running ``up`` has written to the data directory count, below the
    environment and the flags; so does the port of an embedded Kafka that runs there.

    Raises:
        ConfigError: Naming the layer and the key.
    """
    flags = list(flags)
    asked = load_settings(conf, flags=flags)
    if conf is not None:
        return asked
    data = asked.settings.data
    effective, up = data.run_dir / EFFECTIVE_FILE, _read(data.run_dir / PORTS_FILE)
    if up is not None and _is_alive(up) and effective.exists():
        # A directory that was moved is where it was found, not where its settings say.
        running = load_settings(effective, flags=[Flag("--data-dir", "data.dir", str(data.dir)), *flags])
        return replace(running, sources=_without_defaults(running, str(effective)))
    kafka = running_parts(data.run_dir).get("kafka")
    if kafka is not None and asked.settings.is_kafka_embedded:
        port = str(kafka["kafka"]).rpartition(":")[2]
        return load_settings(None, flags=[Flag("--data-dir", "embedded_kafka.listen_port", port), *flags])
    return asked


def _without_defaults(loaded: LoadedSettings, effective: str) -> dict[str, str]:
    """The sources without the keys that ``up``'s file, which lists every key, has at their defaults."""
    defaults = Settings()

    def is_default(key: str) -> bool:
        section, _, name = key.removeprefix("advanced.").partition(".")
        at_default = getattr(getattr(defaults, section), name, None)
        return at_default is not None and getattr(getattr(loaded.settings, section), name) == at_default

    return {key: source for key, source in loaded.sources.items() if source != effective or not is_default(key)}


def server_address(settings: Settings, section: str, *, prefer_running: bool) -> str:
    """Where this machine reaches the installation's server.

    Args:
        settings: Of the installation.
        section: ``remoting`` or ``http``.
        prefer_running: Whether the address of a server that runs there counts more than a configured port.

    Returns:
        ``host:port``; without a running server and with any free port configured, the section's default port.
    """
    configured = getattr(settings, section)
    if prefer_running or not configured.listen_port:
        running = running_parts(settings.data.run_dir).get("serve")
        if running is not None:
            host, _, port = str(running[section]).rpartition(":")
            return _reachable(host.removeprefix("[").removesuffix("]"), port)
    return _reachable(configured.listen_host, configured.listen_port or _DEFAULT_PORTS[section])


def _reachable(listen_host: str, port: str | int) -> str:
    host = reachable_host(listen_host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(path: Path) -> dict[str, str | int] | None:
    data_dir = path.parent.parent
    try:
        return read_run_file(path)
    except NotADirectoryError:
        raise ConfigError("settings", "data.dir", f"{data_dir} is not a directory") from None
    except PermissionError:
        reason = f"{path.parent} cannot be read by this user: run the command as the user that the server runs as"
        raise ConfigError("settings", "data.dir", reason) from None


def _is_alive(facts: dict[str, str | int]) -> bool:
    """Whether the process that wrote a run file is still there; the system gives process ids again."""
    try:
        words = Path(f"/proc/{facts.get('pid')}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _has_process(facts)
    except OSError:
        return False
    return not _OURS.isdisjoint(word.rpartition(b"/")[2] for word in words)


def _has_process(facts: dict[str, str | int]) -> bool:
    """The same where the system has no /proc, as on macOS: some process has the id."""
    try:
        os.kill(int(facts.get("pid", 0)), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
