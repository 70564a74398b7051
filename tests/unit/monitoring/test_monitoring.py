"""Dashboard and alert rules use existing metrics, and each alert has a run book."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from namesrv_stream.metric_catalogue import METRICS
from namesrv_stream.settings.installation import HISTORY_BEHIND_MS
from tests.support.kafka import REPOSITORY

_FOLDER: Final = REPOSITORY / "conf" / "monitoring"
_OPERATIONS: Final = REPOSITORY / "docs" / "operations.md"
_HTTP: Final = REPOSITORY / "docs" / "http.md"
#: Metrics of Prometheus itself, and of its client library.
_FOREIGN: Final = frozenset({"up", "process_resident_memory_bytes"})
_RUNBOOKS: Final = "https://runbooks.example.com/namesrv-stream"
_DEPRECATED: Final = frozenset(name for name, metric in METRICS.items() if metric.text.startswith("Deprecated: "))
_TARGET_LABELS: Final = frozenset({"job", "instance"})
_METRIC: Final = re.compile(r"\b(up|(?:rocketmq|process)_\w+)(?:\{([^}]*)\})?")
_GROUPING: Final = re.compile(r"\bby \(([^)]*)\)")


class Rule(NamedTuple):
    """An alert."""

    name: str
    expr: str
    text: str


def _rules() -> Iterator[Rule]:
    """Return the rules of the file; its simple style needs no YAML library."""
    text = (_FOLDER / "alerts.yaml").read_text(encoding="utf-8")
    for part in text.split("      - alert: ")[1:]:
        name, _, rest = part.partition("\n")
        match = re.search(r"^        expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", rest, re.MULTILINE)
        assert match is not None, name
        yield Rule(name, " ".join((match[1] or match[2]).split()), rest)


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return found


def _panels() -> list[dict[str, Any]]:
    return [panel for panel in _dashboard()["panels"] if panel["type"] != "row"]


_EXPRESSIONS: Final = [(rule.name, rule.expr) for rule in _rules()] + [
    (panel["title"], target["expr"]) for panel in _panels() for target in panel["targets"]
]


def _metric(name: str) -> str:
    """Return the metric of a series."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in METRICS and METRICS[base].kind == "histogram" else name


@pytest.mark.parametrize(("where", "expr"), _EXPRESSIONS)
def test_expressions_use_existing_metrics_and_labels(where: str, expr: str) -> None:
    found = _METRIC.findall(expr)
    assert found, where
    labels = {"le", *_TARGET_LABELS}
    for name, matchers in found:
        if name in _FOREIGN:
            continue
        assert _metric(name) in METRICS, name
        own = METRICS[_metric(name)].labels
        labels |= set(own)
        for matcher in filter(None, re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers)):
            assert matcher in _TARGET_LABELS | set(own), f"{name} has no label {matcher}"
    for grouping in _GROUPING.findall(expr):
        assert {label.strip() for label in grouping.split(",")} <= labels, grouping


@pytest.mark.parametrize(("where", "expr"), _EXPRESSIONS)
def test_counters_are_used_with_rate_and_histograms_with_buckets(where: str, expr: str) -> None:
    for name, _ in _METRIC.findall(expr):
        metric = METRICS.get(_metric(name))
        if metric is None or metric.kind == "gauge":
            continue
        if metric.kind == "histogram":
            assert name.endswith("_bucket"), where
        is_of_one_start = name in ("rocketmq_namesrv_job_dead_letters_total",) and where == "Dead letters"
        assert is_of_one_start or re.search(rf"(rate|increase)\({name}\b", expr), where


def test_parentheses_are_balanced() -> None:
    for where, expr in _EXPRESSIONS:
        assert expr.count("(") == expr.count(")"), where
        assert expr.count("{") == expr.count("}"), where


def test_every_alert_has_severity_description_and_run_book() -> None:
    for rule in _rules():
        assert re.search(r"labels: {severity: (critical|warning)}", rule.text), rule.name
        for key in ("summary", "description"):
            assert f"          {key}: " in rule.text, rule.name
        assert f"runbook_url: {_RUNBOOKS}/operations.md#{rule.name.lower()}\n" in rule.text


def test_no_rule_compares_servers_of_different_deployments() -> None:
    for rule in _rules():
        for aggregation in re.findall(r"\b(?:min|max|sum|count|avg)\b(?: by \(([^)]*)\))?", rule.expr):
            assert "job" in aggregation.split(", "), rule.expr
        for matching in re.findall(r"\bon \(([^)]*)\)", rule.expr):
            assert "job" in matching, rule.expr
        if "$labels.instance" not in rule.text:
            assert "{{ $labels.job }}" in rule.text, f"{rule.name} does not say of which deployment"


def test_every_panel_shows_the_chosen_deployment_and_servers() -> None:
    variables = {variable["name"]: variable for variable in _dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["instance"]["query"] == 'label_values(rocketmq_namesrv_info{job="$job"}, instance)'
    for panel in _panels():
        for target in panel["targets"]:
            for name, matchers in _METRIC.findall(target["expr"]):
                assert matchers.startswith('job="$job",instance=~"$instance"'), f"{panel['title']}: {name}"


def test_rules_match_the_scrape_job() -> None:
    jobs = re.findall(r"job_name: (\S+)", (_FOLDER / "prometheus.yaml").read_text(encoding="utf-8"))
    (pattern,) = re.findall(r'up{job=~"([^"]*)"}', (_FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
    assert jobs == ["namesrv-stream"]
    assert all(re.fullmatch(pattern, job) for job in (*jobs, "namesrv-stream-staging"))


def test_every_alert_has_a_run_book_and_every_run_book_an_alert() -> None:
    headings = re.findall(r"^### (Namesrv\w+)$", _OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule.name for rule in _rules()]


def test_every_metric_is_documented() -> None:
    rows = re.findall(r"^\| `(rocketmq_\w+)` .* \| (.*) \|$", _HTTP.read_text(encoding="utf-8"), re.MULTILINE)
    names = [name for name, _ in rows]
    assert set(names) ^ METRICS.keys() == set(), "in docs/http.md or in METRICS, but not in both"
    assert names == list(METRICS), "docs/http.md must list the metrics in the order of METRICS"
    assert [(name, text) for name, text in rows if METRICS[name].text != text] == [], (
        "docs/http.md must have the texts of METRICS"
    )


def test_every_help_text_is_a_complete_sentence() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch(r"[A-Z0-9].*\.", metric.text), name
        assert not re.search(r"\b([Tt]he same|likewise|of these|of them waits)\b", metric.text.split(";")[0]), name
    assert len({metric.text for metric in METRICS.values()}) == len(METRICS)


def test_names_of_instants_end_with_timestamp() -> None:
    instants = {name for name, metric in METRICS.items() if "since the epoch" in metric.text}
    assert instants == {name for name in METRICS if name.endswith("_timestamp_seconds")}


def test_a_deprecated_metric_names_the_one_that_replaces_it() -> None:
    for old in _DEPRECATED:
        new = METRICS[METRICS[old].text.split(":")[1].split(";")[0].removeprefix(" use ")]
        assert (new.kind, new.labels) == (METRICS[old].kind, METRICS[old].labels)


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    asked = {_metric(name) for _, expr in _EXPRESSIONS for name, _ in _METRIC.findall(expr)}
    asked |= {"rocketmq_namesrv_info"}  # the dashboard's list of servers
    # The same as the number of records, in another unit.
    asked |= {"rocketmq_namesrv_publish_queue_bytes"}
    assert METRICS.keys() - asked - _DEPRECATED == set(), (
        "add a query to conf/monitoring/grafana-dashboard.json, or an alert to conf/monitoring/alerts.yaml"
    )


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    fields: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not covered & fields, panel["title"]
        fields |= covered


def test_every_panel_has_a_description() -> None:
    for panel in _panels():
        assert panel["description"].endswith((".", "*")), panel["title"]
        assert all(target["legendFormat"] or panel["type"] == "stat" for target in panel["targets"])


def test_commands_report_the_history_as_late_at_the_same_age_as_the_alert() -> None:
    (rule,) = (rule for rule in _rules() if rule.name == "NamesrvHistoryBehind")
    assert rule.expr.endswith(f"(rocketmq_namesrv_history_age_seconds) > {HISTORY_BEHIND_MS // 1_000}")
