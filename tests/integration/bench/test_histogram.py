"""The histogram of the load generator against the sorted list of the values it counted."""

import ctypes
import math
import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.compiler import compile_histogram

#: Half the width of a bucket relative to its values: 64 of them in each power of two.
PRECISION = 1 / 128
FRACTIONS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
LATENCIES_NS = st.integers(0, 2**63)


class _Histogram(ctypes.Structure):
    """``struct histogram``: (64 - 6 + 1) · 64 buckets, total, sum and maximum."""

    _fields_ = (
        ("counts", ctypes.c_uint64 * 3776),
        ("total", ctypes.c_uint64),
        ("sum_ns", ctypes.c_uint64),
        ("max_ns", ctypes.c_uint64),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile_histogram()))
    library.histogram_bucket_of.argtypes = (ctypes.c_uint64,)
    library.histogram_bucket_of.restype = ctypes.c_uint
    library.histogram_value_of.argtypes = (ctypes.c_uint,)
    library.histogram_value_of.restype = ctypes.c_uint64
    library.histogram_count.argtypes = (ctypes.POINTER(_Histogram), ctypes.c_uint64)
    library.histogram_count.restype = None
    library.histogram_percentile_ns.argtypes = (ctypes.POINTER(_Histogram), ctypes.c_double)
    library.histogram_percentile_ns.restype = ctypes.c_uint64
    return library


def _counted(latencies: Sequence[int]) -> _Histogram:
    histogram = _Histogram()
    for ns in latencies:
        _library().histogram_count(ctypes.byref(histogram), ns)
    return histogram


def _percentiles(latencies: Sequence[int]) -> list[int]:
    histogram = _counted(latencies)
    return [_library().histogram_percentile_ns(ctypes.byref(histogram), fraction) for fraction in FRACTIONS]


def _exact(latencies: Sequence[int]) -> list[int]:
    """Return the same as numpy.percentile with method="inverted_cdf"."""
    ordered = sorted(latencies)
    return [ordered[max(math.ceil(fraction * len(ordered)), 1) - 1] for fraction in FRACTIONS]


@given(st.lists(LATENCIES_NS, min_size=1, max_size=200))
def test_percentiles_equal_those_of_the_sorted_list(latencies: list[int]) -> None:
    for estimate, exact in zip(_percentiles(latencies), _exact(latencies), strict=True):
        assert estimate == pytest.approx(exact, rel=PRECISION, abs=0)


def test_percentiles_of_realistic_latencies() -> None:
    choose = random.Random(7)
    latencies = [int(choose.lognormvariate(12, 1.2)) for _ in range(50_000)]
    for estimate, exact in zip(_percentiles(latencies), _exact(latencies), strict=True):
        assert estimate == pytest.approx(exact, rel=PRECISION)


@given(LATENCIES_NS)
def test_bucket_contains_its_own_value(ns: int) -> None:
    bucket = _library().histogram_bucket_of(ns)
    assert _library().histogram_bucket_of(_library().histogram_value_of(bucket)) == bucket


@given(LATENCIES_NS, LATENCIES_NS)
def test_buckets_are_ordered_by_value(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert _library().histogram_bucket_of(low) <= _library().histogram_bucket_of(high)


def test_maximum_and_sum_are_exact() -> None:
    histogram = _counted([5, 1_000_003, 70])
    assert (histogram.total, histogram.sum_ns, histogram.max_ns) == (3, 1_000_078, 1_000_003)


def test_percentile_without_values_is_zero() -> None:
    assert _library().histogram_percentile_ns(ctypes.byref(_Histogram()), 0.99) == 0
