"""Settings that change at run time: their names, checks and values in force, and changes to them.

A change is an event in the log. ``change_setting`` waits until it is folded.
"""

import difflib
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.instants import parse_duration_ms
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import DIRECT, Origin, SettingsChanged
from namesrv_stream.route.liveness_settings import (
    FoldSettings,
    SettingChange,
    SettingValue,
    effective_texts,
    setting_changes,
    setting_text,
)
from namesrv_stream.route.table import RouteTable
from namesrv_stream.settings import Flag, LoadedSettings, Settings
from namesrv_stream.settings.installation import Configuration
from namesrv_stream.settings.names import all_keys, is_known, key_path, public_key, public_path
from namesrv_stream.tables.snapshot import load_settings_table, read_rows
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tools.operate.operator_events import TablesWatch, broadcast, check_operator

SECTION = "liveness"
_TYPED, _RUNNING = "KEY", "value in force"  # the sources of values
_KINDS = {field.name: type(field.default) for field in fields(FoldSettings)}

#: JSON text of a setting by its name in ``FoldSettings``.
Texts = Mapping[str, str]


def setting_key(name: str) -> str:
    """Return the key of a setting in configuration files, such as ``liveness.default_timeout_ms``."""
    return public_key(f"{SECTION}.{name}")


def default_texts() -> dict[str, str]:
    """Return the values in force before any change was logged: name in ``FoldSettings`` → JSON text."""
    return {name: setting_text(value) for name, value in asdict(FoldSettings()).items()}


def running_texts(table: RouteTable, partition: int) -> dict[str, str]:
    """Return the values in force in one partition: name → JSON text."""
    return default_texts() | effective_texts(table.settings_of(partition))


def configured_texts(settings: Settings) -> dict[str, str]:
    """Return the configured values of the fold's settings: name → JSON text."""
    known = settings.liveness.model_dump()
    return {name: setting_text(known[name]) for name in default_texts() if name in known}


def setting_name(configuration: Configuration, key: str) -> str:
    """Return the name in ``FoldSettings`` of the setting that ``key`` means, with its section or without.

    Raises:
        ConfigError: There is no such setting, or it does not change at run time.
    """
    section, dot, name = key.rpartition(".")
    if name in _KINDS and section in ("", SECTION, f"advanced.{SECTION}"):
        return name
    if is_known(key_path(key)) or (not dot and _sections_of(name)):
        raise ConfigError(
            "command line",
            key,
            "does not change at run time: edit the configuration and restart that part; these settings do: "
            + ", ".join(_runtime_keys()),
        )
    raise ConfigError("command line", key, f"there is no such setting{_suggestion(key)}")


def _runtime_keys() -> list[str]:
    """Return the settings that change at run time, the advanced ones last."""
    return sorted(map(setting_key, _KINDS), key=lambda key: (key.startswith("advanced."), key))


def _sections_of(name: str) -> list[str]:
    """Return the sections of the configuration that have a key of this name."""
    return [section for section, key in all_keys() if key == name]


def _suggestion(key: str) -> str:
    """Return a hint at similar names; settings that change at run time come first."""
    known = _runtime_keys()
    others = [".".join(public_path(key)) for key in all_keys()]
    by_name = {candidate.rpartition(".")[2]: candidate for candidate in (*others, *known)}
    close = difflib.get_close_matches(key, [*known, *others], n=1) or [
        by_name[name] for name in difflib.get_close_matches(key.rpartition(".")[2], by_name, n=1)
    ]
    return f"; did you mean {close[0]}?" if close else f"; these can change at run time: {', '.join(known)}"


def check_change(configuration: Configuration, running: Texts, key: str, text: str) -> tuple[str, SettingValue]:
    """Return name and value of the setting that ``key`` and ``text`` mean, checked against the other values in force.

    Args:
        configuration: Has the settings outside the fold that the value must fit, such as the interval of ticks.
        running: The values in force: name → JSON text.
        key: ``liveness.default_timeout_ms``, or without its section.
        text: The value as typed.

    Raises:
        ConfigError: There is no such setting, it cannot change at run time, or it cannot have this value.
    """
    name = setting_name(configuration, key)
    configured = configured_texts(Settings())
    value: SettingValue
    if name in configured:
        others = [Flag(_RUNNING, setting_key(n), running[n]) for n in configured if n in running]
        try:
            loaded = configuration.load(*others, Flag(_TYPED, setting_key(name), text))
        except ConfigError as error:
            if error.source not in (f"flag {_TYPED}", f"flag {_RUNNING}"):
                raise
            where = "" if error.key == setting_key(name) else f"{text} conflicts with {error.key}, which "
            raise ConfigError("command line", setting_key(name), where + error.reason) from None
        value = getattr(loaded.settings.liveness, name)
    else:
        value = _read(name, text, _KINDS[name])
    try:
        FoldSettings().with_values({name: value})
    except ValueError as error:
        raise ConfigError("command line", setting_key(name), str(error)) from None
    return name, value


def _read(name: str, text: str, kind: type) -> SettingValue:
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if name.endswith("_ms"):
        try:
            return parse_duration_ms(text, "ms")
        except ValueError as error:
            raise ConfigError("command line", setting_key(name), str(error)) from None
    if kind is int and text.removeprefix("-").isdecimal():
        return int(text)
    if kind is tuple:
        return tuple(part.strip() for part in text.replace(";", ",").split(",") if part.strip())
    expected = "true or false" if kind is bool else "a whole number"
    raise ConfigError("command line", setting_key(name), f"expected {expected}, not {text!r}")


@dataclass(frozen=True, slots=True)
class RunningSetting:
    """One setting of the fold.

    Attributes:
        name: Name of its field in ``FoldSettings``.
        running: JSON text of the value in force in the lowest partition.
        by_partition: JSON text → partitions where it is in force; two values while a change is under way.
        configured: JSON text of the configured value; None if the configuration has no such key.
        configured_in: The file, variable or flag that sets it; "" for a default.
        last_change: Its last change at run time; None if there was none, or the table no longer has it.
    """

    name: str
    running: str
    by_partition: dict[str, list[int]]
    configured: str | None
    configured_in: str
    last_change: SettingChange | None

    def as_json(self) -> Mapping[str, object]:
        change = self.last_change
        return {
            "running": self.running,
            "partitions": self.by_partition,
            "configured": self.configured,
            "configured_in": self.configured_in or "default",
            "changed_at_ms": change.at_ms if change else None,
            "changed_by": change.source if change else None,
        }


def running_settings(loaded: LoadedSettings) -> list[RunningSetting]:
    """Return all settings of the fold, from the tables of this installation; blocks."""
    settings = loaded.settings
    table = load_settings_table(tables_of(settings))
    running = {p: running_texts(table, p) for p in range(settings.kafka.partitions)}
    configured = configured_texts(settings)
    last = {c.name: c for c in setting_changes(read_rows(tables_of(settings), ChangeKind.SETTING))}
    found = []
    for name in running[0]:
        by_partition: dict[str, list[int]] = {}
        for partition, texts in running.items():
            by_partition.setdefault(texts[name], []).append(partition)
        source = loaded.sources.get(setting_key(name), "")
        found.append(RunningSetting(name, running[0][name], by_partition, configured.get(name), source, last.get(name)))
    return found


class SettingRefused(NamesrvStreamError):
    """The fold has read the change and refused it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of a change.

    Attributes:
        key: The setting, such as ``liveness.default_timeout_ms``.
        old: JSON text of the value before.
        new: JSON text of the new value.
        by: Who made the change.
        offsets: Partition → offset of the event; empty if the setting already had this value everywhere.
        behind: Partitions whose change the tables do not contain yet; None if there are no tables.
        waited_ms: Milliseconds from Kafka's acknowledgement until the tables had the change, or the wait ended.
        since: JSON text of the value that somebody else has set since then; None if it is still ``new``.
    """

    key: str
    old: str
    new: str
    by: str
    offsets: Mapping[int, int]
    behind: tuple[int, ...] | None
    waited_ms: int
    since: str | None = None


def change_setting(configuration: Configuration, key: str, text: str, by: str, timeout_s: float) -> Changed:
    """Log the change of a setting and wait until the tables contain it; blocks.

    The event belongs to no server, so it advances no observed time, and no broker ages by it.

    Args:
        configuration: Where Kafka and the tables are.
        key: The setting as typed.
        text: The value as typed.
        by: Who changes it.
        timeout_s: Seconds to wait for the tables.

    Raises:
        ConfigError: The setting does not exist or cannot have the value.
        KafkaUnreachable: Kafka does not answer.
        ForeignLog: Kafka has another log than that of the tables; nothing was changed.
        PartlyLogged: Only some partitions have the event.
        SettingRefused: The fold refused it.
    """
    settings = configuration.load().settings
    by = check_operator(by)
    partitions = range(settings.kafka.partitions)
    with TablesWatch(settings) as watch:
        before = {p: running_texts(watch.table, p) for p in partitions}
        name, value = check_change(configuration, before[0], key, text)
        old, new = before[0].get(name, default_texts()[name]), setting_text(value)
        if watch.exists and all(of_partition[name] == new for of_partition in before.values()):
            return Changed(setting_key(name), old, new, by, {}, (), 0)
        offsets = broadcast(settings, SettingsChanged(Origin(DIRECT, 0), by, ((name, value),)), watch.folded)
        logged_s = time.monotonic()
        behind = watch.wait(offsets, timeout_s) if watch.exists else []
        waited_ms = round((time.monotonic() - logged_s) * 1000)
    if not watch.exists:
        return Changed(setting_key(name), old, new, by, offsets, None, 0)
    folded = {p: running_texts(watch.table, p)[name] for p in offsets if p not in behind}
    if folded:
        made = _made(settings, {p: offsets[p] for p in folded})
        if made is None:
            raise SettingRefused(
                f"{setting_key(name)} is {folded[min(folded)]}: the fold refused the change;"
                f" the topic {settings.kafka.dead_letter_topic} has the reason"
            )
        old = made.old or old  # somebody else may have changed it meanwhile
    since = next((text for text in folded.values() if text != new), None)
    return Changed(setting_key(name), old, new, by, offsets, tuple(behind), waited_ms, since)


def _made(settings: Settings, offsets: Mapping[int, int]) -> SettingChange | None:
    """Return the change that the records at ``offsets`` made, according to the tables; None if they made none."""
    changes = setting_changes(read_rows(tables_of(settings), ChangeKind.SETTING))
    return next((c for c in reversed(changes) if offsets.items() <= c.partitions.items()), None)
