"""What the fold goes by now, beside what the configuration says."""

from collections.abc import Mapping
from dataclasses import dataclass

from namesrv_stream.operate.fold_settings import configured_texts, running_texts, setting_key
from namesrv_stream.route.changes import ChangeKind
from namesrv_stream.route.liveness_settings import SettingChange, setting_changes
from namesrv_stream.settings import LoadedSettings
from namesrv_stream.tables.snapshot import load_settings_table, read_rows
from namesrv_stream.tables.storage import tables_of


@dataclass(frozen=True, slots=True)
class RunningSetting:
    """One setting of the fold.

    Attributes:
        name: Of a field of ``FoldSettings``.
        running: JSON text of what holds, in the lowest partition.
        by_partition: JSON text to the partitions where that holds: two of them while a change is under way.
        configured: JSON text of what the configuration says; None where it has no such key.
        configured_in: The file, variable or flag that says so; "" for a default.
        last_change: None where it was never changed, or the table no longer tells.
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
    """All settings of the fold, as the tables here have them; blocks."""
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
