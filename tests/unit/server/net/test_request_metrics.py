"""Counts of requests."""

import re
from pathlib import Path

import pytest

from namesrv_stream.metric_catalogue import METRICS
from namesrv_stream.metrics import LATENCY_BOUNDS_NS, Counters, Samples
from namesrv_stream.remoting.command import RequestCode, ResponseCode
from namesrv_stream.server.net.request_metrics import RequestMetrics


def test_a_latency_at_the_bound_of_a_bucket_counts_in_that_bucket() -> None:
    metrics = RequestMetrics()
    for took_ns in (LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[0], LATENCY_BOUNDS_NS[0] + 1, LATENCY_BOUNDS_NS[-1] + 1):
        metrics.answered(RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.SUCCESS, took_ns)
    samples = Samples()
    metrics.sample(samples)
    lines = samples.text().decode().splitlines()
    buckets = [line.rpartition(" ")[2] for line in lines if line.startswith("rocketmq_rpc_latency_bucket")]
    assert buckets == ["2.0", "3.0", *["3.0"] * (len(LATENCY_BOUNDS_NS) - 2), "4.0"]


def test_unknown_request_codes_share_one_series() -> None:
    metrics = RequestMetrics()
    for code in range(2_000, 3_000):
        metrics.answered(code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 1)
    samples = Samples()
    metrics.sample(samples)
    lines = samples.text().decode().splitlines()
    assert [line for line in lines if line.startswith("rocketmq_namesrv_requests_total{") and "unknown" in line] == [
        'rocketmq_namesrv_requests_total{request_code="unknown",request_type="admin",'
        'response_code="request_code_not_supported",result="error"} 1000.0'
    ]


def test_the_documentation_lists_the_values_of_request_type_and_result() -> None:
    metrics, samples = RequestMetrics(), Samples()
    for request in RequestCode:
        metrics.answered(request, ResponseCode.SUCCESS, 1)
    for response in ResponseCode:
        metrics.answered(RequestCode.GET_ROUTEINFO_BY_TOPIC, response, 1)
    metrics.sample(samples)
    text = samples.text().decode()
    codes: dict[str, list[int]] = {}
    for name, kind in re.findall(r'_requests_total{request_code="(\w+)",request_type="([\w-]+)"', text):
        codes.setdefault(kind, []).append(RequestCode[name.upper()])
    expected = {f"`{kind}` ({', '.join(map(str, sorted(set(of))))})" for kind, of in codes.items() if kind != "admin"}
    expected |= {"`admin` (every other code)"} | {f"`{result}`" for result in re.findall(r'result="(\w+)"', text)}
    page = (Path(__file__).resolve().parents[4] / "docs/http.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^(`request_type` is .*?)\n\n", page, re.MULTILINE | re.DOTALL)
    assert [value for value in sorted(expected) if value not in paragraph] == [], (
        "these texts are missing in docs/http.md, in the paragraph that begins with `request_type`"
    )


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_metric_with_undescribed_labels_is_refused(name: str) -> None:
    labels = (*METRICS[name].labels, "one more")
    with pytest.raises(ValueError, match="has the labels"):
        Samples().add(name, 1, *labels)
    with pytest.raises(ValueError, match="has the labels"):
        Counters().count(name, *labels)


def test_a_counter_with_an_undescribed_name_is_refused() -> None:
    with pytest.raises(KeyError, match="rocketmq_namesrv_misspelt_total"):
        Counters().count("rocketmq_namesrv_misspelt_total")
