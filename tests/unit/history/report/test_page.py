"""The report page is self-contained, accessible, and safe against hostile names."""

import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from namesrv_stream import history
from namesrv_stream.history.answer import Window
from namesrv_stream.history.database import Row
from namesrv_stream.history.report.page import page
from namesrv_stream.history.report.report_tables import answer_of
from tests.support.report_figures import DAY_MS, HOUR_MS, MONDAY_MS, Heartbeats, a_session, figures_of
from tests.support.settings_tables import REPOSITORY

SINCE, UNTIL = MONDAY_MS, MONDAY_MS + 10 * DAY_MS
EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></svg><iframe src=//evil>",
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% for x in y %}",
    "javascript:alert(1)",
    "\u202egpj.exe\x00\x1b[31m",
    "x" * 5_000,
)


class Elements(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@cache
def lives(name: str, cluster: str, addr: str, cause: str = "expired", server_id: str = "ns1") -> tuple[str, Elements]:
    """Return the page of a broker with this name that flapped, missed heartbeats and ended, and its elements."""
    ups = [SINCE + n * HOUR_MS // 4 for n in range(6)]
    sessions = [a_session(up_ms, up_ms + 60_000, cause, name=name, cluster=cluster, addr=addr) for up_ms in ups]
    sessions.append(a_session(SINCE + DAY_MS, name=name, cluster=cluster, addr=addr))
    sessions.append(a_session(SINCE, name=name, cluster=f"{cluster}2", addr=addr))
    return made(sessions, server_id)


def made(sessions: Sequence[Row], server_id: str = "ns1", objective: float = 0.999) -> tuple[str, Elements]:
    process = {key: sessions[0][key] for key in ("cluster", "broker_name", "broker_addr")}
    figures = {"heartbeats": 100, "missed": 7, "silences": 3, "longest_ms": 90_000, "usual_ms": 30_000.0, "number": 1}
    minutes = range(SINCE, UNTIL, 60_000)
    heard = Heartbeats([process | figures | {"server_id": server_id}], minutes, Window(SINCE, UNTIL))
    found = figures_of(sessions, SINCE, UNTIL, heard=heard, objective=objective, cluster=process["cluster"])
    html = page(found, answer_of(found), UNTIL)
    return html, Elements(html)


@pytest.mark.parametrize("evil", EVIL, ids=range(len(EVIL)))
def test_names_are_escaped(evil: str) -> None:
    html, found = lives(evil, evil, evil, evil, evil)
    _, plain = lives("broker", "cluster", "address", "cause", "server")
    assert {tag for tag, _ in found.found} == {tag for tag, _ in plain.found}
    assert {key for _, attributes in found.found for key in attributes} == {
        key for _, attributes in plain.found for key in attributes
    }
    assert html.encode().decode() == html
    assert not re.search("[\u202e\x00\x1b]", html)


def test_names_are_shown_unchanged() -> None:
    _, found = lives("<b>broker & co</b>", "c", "a")
    assert "<b>broker & co</b>" in found.text


def test_long_names_are_truncated() -> None:
    html, _ = lives("x" * 100_000, "c", "a")
    assert len(html) < 300_000


def test_page_loads_nothing_and_runs_no_script() -> None:
    html, found = lives("broker", "cluster", "address")
    assert {tag for tag, _ in found.found} & {"script", "link", "img", "iframe", "object", "form", "base"} == set()
    attributes = [(key, value or "") for _, of in found.found for key, value in of.items()]
    assert all(value.startswith("#") for key, value in attributes if key in ("href", "src", "xlink:href", "action"))
    assert not [key for key, _ in attributes if key.startswith("on")]
    assert "url(" not in html
    assert "@import" not in html
    assert "://" not in html
    policies = [of["content"] for of in found.of("meta") if of.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_links_lead_to_places_on_the_page() -> None:
    _, found = lives("broker", "cluster", "address")
    places = {of["id"] for _, of in found.found if "id" in of}
    assert {(of["href"] or "")[1:] for of in found.of("a")} <= places


def test_page_is_accessible_to_screen_readers() -> None:
    html, found = lives("broker", "cluster", "address")
    assert found.of("html") == [{"lang": "en"}]
    assert len(found.of("h1")) == 1
    assert all(of.get("scope") in ("col", "row") for of in found.of("th"))
    assert len(found.of("caption")) == len(found.of("table")) > 5
    assert all(of.get("role") == "img" and of.get("aria-label") for of in found.of("svg"))
    assert all(
        of.get("tabindex") == "0" and of.get("aria-label") for of in found.of("div") if of.get("class") == "scroll"
    )
    assert 'name="viewport"' in html


def test_text_has_enough_contrast() -> None:
    html, _ = lives("broker", "cluster", "address")
    themes = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    light, dark, printed = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", theme)) for theme in themes)
    for theme in (light, dark, printed):
        for text, ground in (
            *(("text", "ground"), ("text", "card"), ("quiet", "ground"), ("quiet", "card"), ("bad", "card")),
            *(("text", "bad-card"), ("text", "good-card"), ("text", "warn-card")),
        ):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground, theme)


def test_page_says_whether_the_objective_was_met() -> None:
    assert "was met" in made([a_session(SINCE)])[1].text
    html, found = made([a_session(SINCE, SINCE + DAY_MS)])
    assert "was missed" in found.text
    assert 'class="verdict bad"' in html


def test_period_without_events_has_a_page_too() -> None:
    _, found = made([a_session(SINCE)])
    assert "No broker was down." in found.text
    assert "no broker flapped" in found.text


def test_shortened_table_shows_the_total_number() -> None:
    sessions = [
        session
        for n in range(300)
        for session in (
            a_session(SINCE, SINCE + DAY_MS + n, addr=f"10.0.0.{n}:1", name=f"b{n}"),
            a_session(SINCE + 2 * DAY_MS, addr=f"10.0.0.{n}:1", name=f"b{n}"),
        )
    ]
    html, found = made(sessions)
    assert "brokers by how long they were down: 25 of 300" in found.text
    assert len(html) < 400_000


def test_the_templates_and_the_sql_are_part_of_the_package() -> None:
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = built[history.__name__]
    folder = Path(str(history.__file__)).parent
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    others = [str(path.relative_to(folder)) for path in files]
    assert {Path(name).parts[0] for name in others} == {"sql", "templates"}
    assert all(any(fnmatch(name, pattern) for pattern in patterns) for name in others)


def contrast(one: str, other: str) -> float:
    """Return the contrast as WCAG 2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
