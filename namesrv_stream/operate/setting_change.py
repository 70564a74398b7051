"""Changes a setting of the fold at run time: an event in the log, and the wait until it is folded."""

import getpass
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.operate.broadcast import broadcast
from namesrv_stream.operate.fold_settings import check_change, default_texts, running_texts, setting_key
from namesrv_stream.operate.tables_watch import TablesWatch
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import DIRECT, Origin, SettingsChanged
from namesrv_stream.route.liveness_settings import SettingChange, setting_changes, setting_text
from namesrv_stream.settings import Settings
from namesrv_stream.settings.command_line import Configuration
from namesrv_stream.tables.snapshot import read_rows
from namesrv_stream.tables.storage import tables_of

_CONFIG = "config"  # source of what an edited configuration file changes
_MOST_CHARS = 200


class SettingRefused(NamesrvStreamError):
    """The fold has read the change and did not make it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What became of a change.

    Attributes:
        key: ``liveness.default_timeout_ms``.
        old: JSON text.
        new: JSON text.
        by: Who.
        offsets: partition → offset of the event; empty where the setting had this value everywhere.
        behind: Partitions whose fold has not come to it; None where there are no tables here to see it in.
        waited_ms: From when Kafka had it in all partitions to the tables.
        since: JSON text of what somebody else has made of it since; None where it is ``new``, as far as was seen.
    """

    key: str
    old: str
    new: str
    by: str
    offsets: Mapping[int, int]
    behind: tuple[int, ...] | None
    waited_ms: int
    since: str | None = None


def this_person() -> str:
    """``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def check_person(by: str) -> str:
    """``by`` as it can stand in the history.

    Raises:
        ConfigError: It is empty, too long, means the configuration, or is no line of text.
    """
    by = by.strip()
    if not by or by == _CONFIG or len(by) > _MOST_CHARS or not by.isprintable():
        raise ConfigError(
            "command line", "--by", f"expected a name of at most {_MOST_CHARS} characters, other than {_CONFIG}"
        )
    return by


def change_setting(configuration: Configuration, key: str, text: str, by: str, timeout_s: float) -> Changed:
    """Log the change and wait until the tables have it; blocks.

    The event comes from no server: it moves no broker's clock.

    Args:
        configuration: Where Kafka and the tables are.
        key: As typed.
        text: The value as typed.
        by: Who changes it.
        timeout_s: Seconds to wait for the tables.

    Raises:
        ConfigError: The setting does not exist or cannot have the value.
        KafkaUnreachable: No Kafka.
        PartlyLogged: Only some partitions have it.
        SettingRefused: The fold did not take it.
    """
    settings = configuration.load().settings
    by = check_person(by)
    partitions = range(settings.kafka.partitions)
    with TablesWatch(settings) as watch:
        before = {p: running_texts(watch.table, p) for p in partitions}
        name, value = check_change(configuration, before[0], key, text)
        old, new = before[0].get(name, default_texts()[name]), setting_text(value)
        if watch.exists and all(of_partition[name] == new for of_partition in before.values()):
            return Changed(setting_key(name), old, new, by, {}, (), 0)
        offsets = broadcast(settings, SettingsChanged(Origin(DIRECT, 0), by, ((name, value),)))
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
                f"{setting_key(name)} is {folded[min(folded)]}: the fold did not take the change;"
                f" the topic {settings.kafka.dead_letter_topic} says why"
            )
        old = made.old or old  # which somebody else may have changed meanwhile
    since = next((text for text in folded.values() if text != new), None)
    return Changed(setting_key(name), old, new, by, offsets, tuple(behind), waited_ms, since)


def _made(settings: Settings, offsets: Mapping[int, int]) -> SettingChange | None:
    """The change that the tables have from these records; None where the fold made none of them."""
    changes = setting_changes(read_rows(tables_of(settings), ChangeKind.SETTING))
    return next((c for c in reversed(changes) if offsets.items() <= c.partitions.items()), None)
