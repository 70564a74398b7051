"""What was found about servers, for people and for scripts."""

from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from namesrv_stream.client.server_states import ServerState
from namesrv_stream.logs import report_error, safe
from namesrv_stream.operate.output import print_table
from namesrv_stream.operate.skew import Difference, Row, Skew
from namesrv_stream.plurals import counted

_DIGEST_CHARS = 12  # of a digest, for people
_MOST_ROWS = 20  # of one side of a difference, for people


def print_skew(skew: Skew) -> None:
    """A line for every server that answers, then which one is behind and what differs."""
    for failure in skew.failures.values():
        report_error(str(failure))
    if not skew.states:
        return
    table = Table("server", "id", "version", "age", "offsets", "pending", "digest", box=None, pad_edge=False)
    for url, state in skew.states.items():
        table.add_row(*(escape(safe(cell)) for cell in (url, *_cells(state))))
    print_table(table)
    for lag in skew.lags:
        print(f"{lag.server} is behind {lag.ahead} by {counted(lag.records, 'record')} in partition {lag.partition}")
    for first, second in sorted(skew.moving):
        print(f"{first} and {second} differ, and move on too fast to see by what")
    for difference in skew.differences:
        _print_difference(difference)
    if not (skew.lags or skew.moving or skew.differences):
        print(_same_text(len(skew.states), all_answer=not skew.failures))


def _same_text(servers: int, *, all_answer: bool) -> str:
    if servers > 1:
        return "they serve the same" if all_answer else "those that answer serve the same"
    return "there is only one server: nothing to compare it with"


def _cells(state: ServerState) -> tuple[str, ...]:
    offsets = " ".join(f"{p}:{o}" for p, o in sorted(state.next_offsets.items()))
    age, digest = f"{state.age_ms / 1000:.1f} s", state.digest[:_DIGEST_CHARS]
    return (state.server_id, str(state.version), age, offsets, str(state.pending_events), digest)


def _print_difference(difference: Difference) -> None:
    key = difference.key
    name = f" {safe(key.name)}" if key.name else ""
    first, second = difference.pair
    print(f"partition {key.partition}: {key.kind}{name} differs between {first} and {second}:")
    if difference.only_first is None or difference.only_second is None:
        print("  its rows were not fetched")
        return
    for url, rows in ((first, difference.only_first), (second, difference.only_second)):
        for row in rows[:_MOST_ROWS]:
            print(f"  only at {url}: {_row_text(row)}")
        if len(rows) > _MOST_ROWS:
            print(f"  only at {url}: {len(rows) - _MOST_ROWS} more rows, which --json tells")


def _row_text(row: Row) -> str:
    return " ".join(f"{name}={safe(str(value))}" for name, value in row.items())


def as_json(skew: Skew) -> dict[str, Any]:
    """All that was found."""
    return {
        "is_same": skew.is_none,
        "servers": {url: _state_json(state) for url, state in skew.states.items()},
        "failures": {url: failure.reason for url, failure in skew.failures.items()},
        "behind": [asdict(lag) for lag in skew.lags],
        "differences": [
            {
                **d.pair._asdict(),
                **d.key._asdict(),
                "only_first": d.only_first,
                "only_second": d.only_second,
            }
            for d in skew.differences
        ],
        "moving": [list(pair) for pair in sorted(skew.moving)],
    }


def _state_json(state: ServerState) -> dict[str, Any]:
    by_partition = {
        name: {str(partition): value for partition, value in sorted(values.items())}
        for name, values in (("next_offsets", state.next_offsets), ("partitions", state.partitions))
    }
    return asdict(state) | by_partition
