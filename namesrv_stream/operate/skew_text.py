"""What was found about servers, for people and for scripts."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from namesrv_stream.operate.output import print_table
from namesrv_stream.operate.server_states import offsets_of
from namesrv_stream.operate.skew import Difference, Skew

_DIGEST_CHARS = 12  # of a digest, for people


def print_skew(skew: Skew) -> None:
    """A line a server, then who is behind and what differs."""
    table = Table("server", "id", "version", "age", "offsets", "pending", "digest", box=None, pad_edge=False)
    for url, state in skew.states.items():
        offsets = " ".join(f"{p}:{o}" for p, o in sorted(offsets_of(state).items()))
        age, digest = f"{state['age_ms'] / 1000:.1f} s", state["digest"][:_DIGEST_CHARS]
        cells = (url, state["server_id"], state["version"], age, offsets, state["pending_events"], digest)
        table.add_row(*(escape(_printable(str(cell))) for cell in cells))
    print_table(table)
    for lag in skew.lags:
        print(f"{lag.server} is behind {lag.ahead} by {lag.records} records in partition {lag.partition}")
    for first, second in skew.moving:
        print(f"{first} and {second} differ, and move on too fast to see by what")
    for difference in skew.differences:
        _print_difference(difference)
    if skew.is_none:
        print("they serve the same" if len(skew.states) > 1 else "one server has nobody to differ from")


def _print_difference(difference: Difference) -> None:
    key = difference.key
    name = f" {_printable(key.name)}" if key.name else ""
    print(f"partition {key.partition}: {key.kind}{name} differs:")
    for url, rows in ((difference.first, difference.only_first), (difference.second, difference.only_second)):
        for row in rows or ():
            print(f"  only at {url}: {_row_text(row)}")


def _row_text(row: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_printable(str(value))}" for name, value in row.items())


def _printable(text: str) -> str:
    """Control characters escaped, so that they do nothing to the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def as_json(skew: Skew) -> dict[str, Any]:
    """All that was found."""
    return {
        "is_same": skew.is_none,
        "servers": dict(skew.states),
        "behind": [asdict(lag) for lag in skew.lags],
        "differences": [
            {
                "first": d.first,
                "second": d.second,
                **d.key._asdict(),
                "only_first": d.only_first,
                "only_second": d.only_second,
            }
            for d in skew.differences
        ],
        "moving": [list(pair) for pair in skew.moving],
    }
