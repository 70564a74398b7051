"""What rows are wanted, said so that files without any are not opened: by Delta's statistics and partition values."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import polars as pl

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVERY: Final = pl.lit(True)
_NONE: Final = pl.lit(False)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows.

    Attributes:
        rows: On the columns of a row.
        files: From the names of the statistics that a table has, one on those of a file that may hold such rows.
    """

    rows: pl.Expr
    files: Callable[[Collection[str]], pl.Expr]


def timestamp(at_ms: int) -> datetime:
    """Epoch milliseconds as the tables' TIMESTAMP."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def day_of(at_ms: int) -> date:
    """The day, in UTC, of an instant: what the tables are partitioned by."""
    return timestamp(at_ms).date()


def equals(column: str, value: str | int) -> Condition:
    return one_of(column, [value])


def one_of(column: str, values: Iterable[str | int]) -> Condition:
    """The column has one of the values, which are of one type; of none, no row."""
    wanted: list[Any] = sorted(set(values))
    if not wanted:
        return Condition(_NONE, lambda names: _NONE)
    low, high = wanted[0], wanted[-1]
    rows = pl.col(column) == low if len(wanted) == 1 else pl.col(column).is_in(wanted)

    def files(names: Collection[str]) -> pl.Expr:
        reaches_low = _statistic(names, f"max.{column}", lambda highest: highest >= low)
        return reaches_low & _statistic(names, f"min.{column}", lambda lowest: lowest <= high)

    return Condition(rows, files)


def at_most(column: str, value: int | datetime) -> Condition:
    return Condition(
        pl.col(column) <= value, lambda names: _statistic(names, f"min.{column}", lambda lowest: lowest <= value)
    )


def at_least(column: str, value: int | datetime) -> Condition:
    return Condition(
        pl.col(column) >= value, lambda names: _statistic(names, f"max.{column}", lambda highest: highest >= value)
    )


def above(column: str, value: int | datetime) -> Condition:
    return Condition(
        pl.col(column) > value, lambda names: _statistic(names, f"max.{column}", lambda highest: highest > value)
    )


def above_or_null(column: str, value: datetime) -> Condition:
    """The end of an interval that is open, or lies beyond ``value``."""

    def files(names: Collection[str]) -> pl.Expr:
        has_null = _statistic(names, f"null_count.{column}", lambda count: count > 0)
        return has_null | _statistic(names, f"max.{column}", lambda highest: highest > value)

    return Condition(pl.col(column).is_null() | (pl.col(column) > value), files)


def is_null(column: str) -> Condition:
    return Condition(
        pl.col(column).is_null(), lambda names: _statistic(names, f"null_count.{column}", lambda count: count > 0)
    )


def in_days(column: str, first: date, last: date) -> Condition:
    """Only partitions of these days; says nothing of rows, which do not hold the column."""
    name = f"partition.{column}"
    return Condition(_EVERY, lambda names: _statistic(names, name, lambda day: (day >= first) & (day <= last)))


def all_of(*conditions: Condition) -> Condition:
    return Condition(
        reduce(and_, (c.rows for c in conditions), _EVERY),
        lambda names: reduce(and_, (c.files(names) for c in conditions), _EVERY),
    )


def any_of(*conditions: Condition) -> Condition:
    return Condition(
        reduce(or_, (c.rows for c in conditions), _NONE),
        lambda names: reduce(or_, (c.files(names) for c in conditions), _NONE),
    )


def _statistic(names: Collection[str], name: str, test: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    """A test of one statistic; a file that does not have it may hold anything."""
    return pl.col(name).is_null() | test(pl.col(name)) if name in names else _EVERY
