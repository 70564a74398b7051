"""``skew``: whether servers serve the same routes, and where they differ.

Two servers can be compared if they cover the same offsets of a partition. Running servers catch up with each other
within a second, so servers at different offsets are queried again a few times before one counts as behind.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Annotated, Any, Final, NamedTuple

import orjson
import typer
from rich.markup import escape
from rich.table import Table

from namesrv_stream.client.server_states import (
    BadAnswer,
    PartitionParts,
    PartRows,
    ServerState,
    ServerUnreachable,
    ask_each,
    get,
)
from namesrv_stream.logs import report_error, safe
from namesrv_stream.settings.installation import Configuration, configured, duration_option
from namesrv_stream.text_table import JsonOption, counted
from namesrv_stream.tools.tool_options import HttpOption, OldHttpOption, emit_json, http_servers, print_table

_RETRY_INTERVAL_S: Final = 0.1
#: Number of differing parts of a pair of servers whose rows are fetched.
_MOST_PARTS: Final = 20

Row = Mapping[str, Any]
Failure = ServerUnreachable | BadAnswer
_DIGEST_CHARS = 12  # of a digest, for people
_MOST_ROWS = 20  # of one side of a difference, for people


class Key(NamedTuple):
    """A part of a partition, such as a broker group; parts are named as in ``route.digest``."""

    partition: int
    kind: str
    name: str


class Pair(NamedTuple):
    """The URLs of two servers, in the order of the command line."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Lag:
    """A server that covers less of a partition than another.

    Attributes:
        server: URL of the server that is behind.
        records: Number of records that it is behind.
    """

    server: str
    ahead: str
    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class Difference:
    """A part that differs between two servers at the same offsets.

    Attributes:
        only_first: Rows that only the first has; None if they were not fetched.
        only_second: Rows that only the second has; None if they were not fetched.
    """

    pair: Pair
    key: Key
    only_first: Sequence[Row] | None
    only_second: Sequence[Row] | None


@dataclass(slots=True)
class Skew:
    """The result of a comparison of servers.

    Attributes:
        states: URL → the last state that the server reported.
        failures: URL → why the server did not answer.
        lags: Servers that are behind another.
        differences: Parts that differ.
        moving: Pairs of servers that differ, and that advanced before the difference could be read.
    """

    states: dict[str, ServerState] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    lags: list[Lag] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    moving: set[Pair] = field(default_factory=set)

    @property
    def is_none(self) -> bool:
        """Whether all servers answered and serve the same routes."""
        return not (self.failures or self.lags or self.differences or self.moving)

    @property
    def exit_code(self) -> int:
        return max([0 if self.is_none else 1, *(failure.exit_code for failure in self.failures.values())])


async def find_skew(urls: Sequence[str], patience_s: float) -> Skew:
    """Query all servers at once, repeatedly until those that answer can be compared.

    Args:
        urls: URLs of the servers' HTTP ports.
        patience_s: Seconds to wait for servers that are behind.
    """
    until_s = time.monotonic() + patience_s
    failures: dict[str, Failure] = {}
    while True:
        waiting = [url for url in urls if url not in failures]
        states, failed = await ask_each(waiting, lambda url: get(url, "/state", ServerState))
        failures |= failed
        skew = Skew(states, failures)
        for first, second in combinations(skew.states, 2):
            await _compare(skew, Pair(first, second))
        if not (skew.lags or skew.moving) or time.monotonic() >= until_s:
            return skew
        await asyncio.sleep(_RETRY_INTERVAL_S)


async def _compare(skew: Skew, pair: Pair) -> None:
    first, second = (skew.states[url] for url in pair)
    for partition in sorted(first.next_offsets.keys() | second.next_offsets.keys()):
        records = first.next_offsets.get(partition, 0) - second.next_offsets.get(partition, 0)
        if records:
            behind, ahead = reversed(pair) if records > 0 else pair
            skew.lags.append(Lag(behind, ahead, partition, abs(records)))
        elif first.partitions.get(partition) != second.partitions.get(partition):
            try:
                await _find_differences(skew, pair, partition)
            except (ServerUnreachable, BadAnswer) as failure:
                skew.failures[failure.url] = failure
                return


async def _find_differences(skew: Skew, pair: Pair, partition: int) -> None:
    first, second = await asyncio.gather(
        *(get(url, "/state/keys", PartitionParts, partition=partition) for url in pair)
    )
    if first.next_offset != second.next_offset:
        skew.moving.add(pair)
        return
    digests = [{(part.kind, part.name): part.digest for part in found.parts} for found in (first, second)]
    for kind, name in sorted({part for part, _ in digests[0].items() ^ digests[1].items()}):
        key = Key(partition, kind, name)
        rows = await _rows(pair, key) if len(skew.differences) < _MOST_PARTS else (None, None)
        skew.differences.append(Difference(pair, key, *rows))


async def _rows(pair: Pair, key: Key) -> tuple[list[Row], list[Row]] | tuple[None, None]:
    """Return the rows that only one of two servers has; None twice if they no longer cover the same offsets."""
    first, second = await asyncio.gather(*(get(url, "/state/rows", PartRows, **key._asdict()) for url in pair))
    if first.next_offsets.get(key.partition) != second.next_offsets.get(key.partition):
        return None, None
    by_text = [{orjson.dumps(row, option=orjson.OPT_SORT_KEYS): row for row in found.rows} for found in (first, second)]
    return _without(by_text[0], by_text[1]), _without(by_text[1], by_text[0])


def _without(rows: Mapping[bytes, Row], others: Mapping[bytes, Row]) -> list[Row]:
    return [row for text, row in rows.items() if text not in others]


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(configured(skew))


def skew(
    configuration: Configuration,
    http: HttpOption = None,
    servers: OldHttpOption = None,
    patience: Annotated[
        int, duration_option("--patience", help="How long to wait for a server that is behind.", bare="s")
    ] = "5s",  # type: ignore[assignment] # typer parses the default too
    as_json: JsonOption = False,
) -> int:
    """Compare what several servers serve.

    Exit code 1 if they differ, 3 if one does not answer. By default, it compares the installation's server and those of
    http.console_servers.
    """
    urls = http_servers(http, servers, configuration)
    if http is None and servers is None:
        urls = tuple(dict.fromkeys([*urls, *configuration.load().settings.http.console_servers]))
    found = asyncio.run(find_skew(urls, patience / 1000))
    if as_json:
        emit_json(to_json(found))
    else:
        print_skew(found)
    return found.exit_code


def print_skew(skew: Skew) -> None:
    """Print a line for every server that answers, then which one is behind and what differs."""
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
        print(f"{first} and {second} differ, but change too fast to show what differs")
    for difference in skew.differences:
        _print_difference(difference)
    if not (skew.lags or skew.moving or skew.differences):
        print(_same_text(len(skew.states), all_answer=not skew.failures))


def _same_text(servers: int, *, all_answer: bool) -> str:
    if servers > 1:
        return "they serve the same" if all_answer else "all servers that answered serve the same"
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
            print(f"  only at {url}: {len(rows) - _MOST_ROWS} more rows, which --json shows")


def _row_text(row: Row) -> str:
    return " ".join(f"{name}={safe(str(value))}" for name, value in row.items())


def to_json(skew: Skew) -> dict[str, Any]:
    """Return the result as JSON."""
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
