"""Changes a setting at run time: an event in the log, and the wait until it is folded."""

import getpass
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.events import DIRECT, Origin, SettingsChanged
from namesrv_stream.route.liveness_settings import SettingChange, setting_changes, setting_text
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import Configuration
from namesrv_stream.tables.snapshot import read_rows
from namesrv_stream.tables.storage import tables_of
from namesrv_stream.tools.operate.fold_settings import check_change, default_texts, running_texts, setting_key
from namesrv_stream.tools.operate.operator_events import TablesWatch, broadcast

_CONFIG = "config"  # source of what an edited configuration file changes
_MOST_CHARS = 200


class SettingRefused(NamesrvStreamError):
    """The fold has read the change and refused it."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The outcome of a change.

    Attributes:
        key: ``liveness.default_timeout_ms``.
        old: JSON text of the value before.
        new: JSON text of the new value.
        by: Who made the change.
        offsets: Partition → offset of the event; empty if the setting already had this value everywhere.
        behind: Partitions that have not folded the change yet; None if there are no tables here.
        waited_ms: Time from the acknowledgement of all partitions to the tables.
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


def this_person() -> str:
    """``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def check_person(by: str) -> str:
    """``by``, checked for use in the history.

    Raises:
        ConfigError: It is empty, too long, reserved for the configuration, or not a line of text.
    """
    by = by.strip()
    if not by or by == _CONFIG or len(by) > _MOST_CHARS or not by.isprintable():
        raise ConfigError(
            "command line", "--by", f"expected a name of at most {_MOST_CHARS} characters, other than {_CONFIG}"
        )
    return by


def change_setting(configuration: Configuration, key: str, text: str, by: str, timeout_s: float) -> Changed:
    """Log the change and wait until the tables contain it; blocks.

    The event belongs to no server, so it advances no broker's clock.

    Args:
        configuration: Where Kafka and the tables are.
        key: As typed.
        text: The value as typed.
        by: Who changes it.
        timeout_s: Seconds to wait for the tables.

    Raises:
        ConfigError: The setting does not exist or cannot have the value.
        KafkaUnreachable: Kafka does not answer.
        PartlyLogged: Only some partitions have the event.
        SettingRefused: The fold refused it.
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
                f"{setting_key(name)} is {folded[min(folded)]}: the fold refused the change;"
                f" the topic {settings.kafka.dead_letter_topic} has the reason"
            )
        old = made.old or old  # somebody else may have changed it meanwhile
    since = next((text for text in folded.values() if text != new), None)
    return Changed(setting_key(name), old, new, by, offsets, tuple(behind), waited_ms, since)


def _made(settings: Settings, offsets: Mapping[int, int]) -> SettingChange | None:
    """The change that these records made according to the tables; None if they made none."""
    changes = setting_changes(read_rows(tables_of(settings), ChangeKind.SETTING))
    return next((c for c in reversed(changes) if offsets.items() <= c.partitions.items()), None)
