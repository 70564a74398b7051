"""The lists are complete: differences have scenarios, ADRs and documentation; each request code has scenarios."""

import re
from pathlib import Path

import pytest

from namesrv_stream.processor.authorisation import ADMIN_CODES, BROKER_CODES
from namesrv_stream.remoting.command import RequestCode
from tests.differential.differences import DIFFERENCES, EVERYWHERE, Difference
from tests.differential.scenario import Ask
from tests.differential.scenarios import ALL

_DOCS = Path(__file__).parents[3] / "docs"
_LISTED = [*EVERYWHERE, *DIFFERENCES.values()]

every_difference = pytest.mark.parametrize("difference", [pytest.param(d, id=d.name) for d in _LISTED])


@every_difference
def test_listed_difference_is_documented_with_its_adr(difference: Difference) -> None:
    rows = [row for row in _rows() if row.startswith(f"| `{difference.name}` |")]
    assert rows, f"docs/differences.md has no row for {difference.name}"
    assert any(f"adr/{difference.adr}-" in row for row in rows), (
        f"no row of {difference.name} names ADR {difference.adr}"
    )
    assert list(_DOCS.glob(f"adr/{difference.adr}-*.md"))


def test_listed_differences_are_those_that_scenarios_show() -> None:
    shown = {step.differs for scenario in ALL for step in scenario.steps if isinstance(step, Ask) and step.differs}
    assert shown ^ DIFFERENCES.keys() == set(), "listed in differences.py or shown by a scenario, but not both"


def test_requests_that_need_permission_are_listed_for_operators() -> None:
    configuration = (_DOCS / "configuration.md").read_text(encoding="utf-8")
    for codes, difference in ((BROKER_CODES, "broker-networks"), (ADMIN_CODES, "admin")):
        row = next(row for row in _rows() if row.startswith(f"| `{difference}` |"))
        for code in codes:
            assert re.search(rf"\b{int(code)}\b", row), (
                f"docs/differences.md: {code.name} ({int(code)}) is missing in {row}"
            )
            is_listed = re.search(rf"[( ]{int(code)}[,)]", configuration.split("## Who may administer")[1])
            assert is_listed, f"docs/configuration.md, Who may administer: {code.name} ({int(code)}) is missing"


def test_links_of_the_page_lead_to_adrs() -> None:
    linked = set(re.findall(r"\]\((adr/[^)]+)\)", (_DOCS / "differences.md").read_text(encoding="utf-8")))
    assert [link for link in linked if not (_DOCS / link).is_file()] == []


def test_scenarios_have_unique_names() -> None:
    names = [scenario.name for scenario in ALL]
    assert len(names) == len(set(names))
    assert len(names) >= 120


def test_every_request_code_has_a_scenario() -> None:
    asked = {
        request.code
        for scenario in ALL
        for step in scenario.steps
        if isinstance(step, Ask)
        for request in step.requests
    }
    served = {code.value for code in RequestCode} - {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE}  # sent by the server
    assert served - asked == set(), "add a scenario to tests/differential/scenarios"


def _rows() -> list[str]:
    return (_DOCS / "differences.md").read_text(encoding="utf-8").splitlines()
