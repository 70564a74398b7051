"""Who changed which setting of the fold when, from what to what: read out of rows of kind ``setting``.

Each partition of the log has a row of its own for a change, since the fold of each learns it by itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from namesrv_stream.route.changes import ChangeKind, RouteChange
from namesrv_stream.route.settings import EFFECTIVE

_BY = "by "
_WAS = ", was "
#: The records of one change reach all partitions within this, or the command that sends them has failed.
_APART_MS = 60_000


def change_detail(source: str, old: str | None) -> str:
    """The ``detail`` of a row of kind ``setting``.

    Args:
        source: Who changed it.
        old: JSON text of the value before; None where there was none.
    """
    return f"{_BY}{source}" if old is None else f"{_BY}{source}{_WAS}{old}"


def read_detail(detail: str) -> tuple[str, str | None]:
    """Inverse of ``change_detail``: who, and the old value; None too in rows from before old values were kept."""
    text = detail.removeprefix(_BY)
    source, was, old = text.partition(_WAS)
    return (source, old) if was else (text, None)


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One change of a setting.

    Attributes:
        at_ms: LogAppendTime of the event, epoch milliseconds; the earliest of its partitions.
        name: Of a field of ``FoldSettings``.
        old: JSON text of the value before; None where it is not known.
        new: JSON text.
        source: ``config`` for an edited configuration file, else who changed it.
        partitions: Where it is folded: partition → offset of its record.
    """

    at_ms: int
    name: str
    old: str | None
    new: str
    source: str
    partitions: Mapping[int, int]


def setting_changes(rows: Iterable[RouteChange]) -> list[SettingChange]:
    """The changes of what holds, oldest first; the rows that one change has in several partitions are one.

    Args:
        rows: Of ``route_changes``, any kinds, in log order of each partition.
    """
    found: list[SettingChange] = []
    latest: dict[tuple[str, str, str], int] = {}
    effective = (r for r in rows if r.kind == ChangeKind.SETTING and r.namespace == EFFECTIVE)
    for row in sorted(effective, key=lambda row: (row.at_ms, row.partition, row.offset, row.seq)):
        source, old = read_detail(row.detail or "")
        name, new = row.key or "", row.value or ""
        index = latest.get((name, source, new))
        known = None if index is None else found[index]
        if known is None or row.partition in known.partitions or row.at_ms - known.at_ms > _APART_MS:
            latest[name, source, new] = len(found)
            found.append(SettingChange(row.at_ms, name, old, new, source, {row.partition: row.offset}))
        elif index is not None:
            found[index] = replace(known, partitions={**known.partitions, row.partition: row.offset})
    return found


def values_before(rows: Iterable[RouteChange], partition: int, offset: int) -> dict[str, str]:
    """Name → JSON text of what held in a partition just before the record at ``offset``, as far as rows tell.

    Args:
        rows: In log order of each partition.
        partition: Kafka partition.
        offset: Of a record in it.
    """
    values: dict[str, str] = {}
    for row in rows:
        if row.kind != ChangeKind.SETTING or row.namespace != EFFECTIVE or row.partition != partition:
            continue
        name = row.key or ""
        if row.offset < offset:
            values[name] = row.value or ""
        elif name not in values:
            _, old = read_detail(row.detail or "")
            if old is not None:
                values[name] = old
    return values
