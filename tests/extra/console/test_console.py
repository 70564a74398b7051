"""The console of a running product with a fleet, in a real Chromium."""

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.extra.console.browser import DESKTOP, PHONE, SMALLEST, Browser
from tests.extra.console.fleet import AgentProcess
from tests.extra.console.past import PastConsole
from tests.support.processes import wait_until
from tests.support.stack import Stack

TAB, ENTER, HOME, RIGHT = "\ue004", "\ue007", "\ue011", "\ue014"
FOCUSED = """
const e = document.activeElement, s = getComputedStyle(e);
return [e.tagName, e.id || e.innerText || e.name || '', s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2];
"""


def _url(stack: Stack, path: str = "/") -> str:
    return f"http://{stack.http}{path}"


def _card(browser: Browser, name: str) -> str:
    """Return the text on the card of a broker; "" if there is none."""
    script = "return [...document.querySelectorAll('.card')].find((c) => c.innerText.includes(arguments[0]))?.innerText"
    return browser.run(script, name) or ""


@pytest.mark.parametrize(("size", "is_dark"), list(product((DESKTOP, PHONE), (False, True))))
def test_axe_finds_no_violation_in_the_console(
    console_stack: Stack, browser: Browser, size: tuple[int, int], is_dark: bool
) -> None:
    browser.become(size, is_dark=is_dark)
    browser.open(_url(console_stack, "/?topic=Shared&as_of=-1s&past=1h"))
    browser.wait(lambda: "this server" in browser.text("#part-servers"), "the servers are queried")
    assert browser.violations() == []


@pytest.mark.parametrize("is_dark", [False, True])
def test_axe_finds_no_violation_in_past_routes(past_console: PastConsole, browser: Browser, is_dark: bool) -> None:
    browser.become(is_dark=is_dark)
    browser.open(f"{past_console.url}/?topic=T&as_of={past_console.before}&past=1h")
    assert browser.violations() == []


def test_pages_respect_the_content_security_policy_and_load_nothing_external(
    console_stack: Stack, browser: Browser
) -> None:
    browser.complaints()
    browser.open(_url(console_stack, "/?topic=Shared&past=1h"))
    browser.wait(
        lambda: browser.run("return performance.getEntriesByType('resource').length") > 12, "the page was refreshed"
    )
    hosts = browser.run("return performance.getEntriesByType('resource').map((e) => new URL(e.name).host)")
    assert set(hosts) == {console_stack.http}
    assert browser.complaints() == []


def test_content_security_policy_is_enforced(console_stack: Stack, browser: Browser) -> None:
    browser.open(_url(console_stack))
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.broken = 1'; document.body.append(s);"
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\" id=painted>x</p>')"
    )
    assert browser.run("return window.broken") is None
    assert browser.run("return getComputedStyle(document.getElementById('painted')).color") != "rgb(255, 0, 0)"
    assert len(browser.complaints()) >= 2


@pytest.mark.parametrize("size", [PHONE, SMALLEST, DESKTOP])
def test_no_page_is_wider_than_the_screen(console_stack: Stack, browser: Browser, size: tuple[int, int]) -> None:
    browser.become(size)
    browser.open(_url(console_stack, "/?topic=Shared&past=1h"))
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_no_table_is_truncated(console_stack: Stack, browser: Browser, size: tuple[int, int]) -> None:
    browser.become(size)
    browser.open(_url(console_stack, "/?topic=Shared"))
    browser.wait(lambda: browser.text("#part-servers table"), "the servers are shown")
    tables = browser.run("return document.querySelectorAll('main table').length")
    cut = browser.run(
        "return [...document.querySelectorAll('main table, main .scroll:not(.tall)')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.outerHTML.slice(0, 100))"
    )
    assert (tables, cut) == (5, [])


def test_topic_is_found_and_a_click_shows_its_route(console_stack: Stack, browser: Browser) -> None:
    browser.open(_url(console_stack))
    browser.run("document.getElementById('find_topic').focus()")
    browser.press("shared")
    browser.wait(lambda: browser.text("#topics-own .count") == "1", "one is found")
    browser.run("document.getElementById('topic-1').click()")
    browser.wait(lambda: "Shared" in browser.text("#part-route caption"), "its route is shown")
    assert browser.run("return document.getElementById('topic').value") == "Shared"
    assert "find_topic=shared" in browser.run("return location.search")


def test_invalid_input_is_answered_with_a_page(console_stack: Stack, browser: Browser) -> None:
    browser.become(PHONE)
    browser.visit(_url(console_stack, "/?past=99h"))
    assert "past: expected one of 10m, 1h, 6h, 24h" in browser.text(".missing")
    assert browser.run("return getComputedStyle(document.querySelector('.missing')).borderLeftStyle") == "solid"
    assert browser.violations() == []


def test_no_table_of_a_report_is_truncated(past_console: PastConsole, browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    command = [sys.executable, "-m", "namesrv_stream", "report", "--html", str(page)]
    subprocess.run([*command, "--data-dir", str(past_console.data_dir)], check=True, capture_output=True)
    browser.visit(page.as_uri())
    assert browser.run("return document.querySelectorAll('.scroll').length") > 2
    cut = "return [...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert browser.run(cut) == 0


def test_killed_broker_is_shown_within_seconds_and_announced(
    console_stack: Stack, browser: Browser, agent: Callable[..., AgentProcess]
) -> None:
    victim = agent("doomed")
    browser.open(_url(console_stack))
    browser.wait(lambda: "alive" in _card(browser, "doomed-broker"), "the broker is alive", 60)
    victim.kill()
    browser.wait(lambda: "down" in _card(browser, "doomed-broker"), "the broker is down", 15)
    assert "its connection was closed" in _card(browser, "doomed-broker")
    browser.wait(lambda: "attention" in browser.text("#now"), "the summary mentions the broker")
    assert "doomed-broker is down" in browser.run("return document.getElementById('news').textContent")
    assert "doomed-broker" in browser.text("#timeline .events")


def test_heartbeat_ages_are_updated_without_a_reload(console_stack: Stack, browser: Browser) -> None:
    browser.open(_url(console_stack, "/?cluster=steady"))
    age = "return parseInt(document.querySelector('[data-age]').textContent)"
    seen: list[int] = []

    def has_fallen() -> bool:
        seen.append(browser.run(age))
        return len(seen) > 1 and seen[-1] < seen[-2]

    browser.wait(has_fallen, "a heartbeat age decreases", 60)
    assert max(seen) <= 30


def test_page_is_updated_after_a_restart_of_the_server(
    console_stack: Stack, browser: Browser, agent: Callable[..., AgentProcess]
) -> None:
    browser.open(_url(console_stack))
    console_stack.kill("serve")
    agent("meanwhile")
    live = "return document.getElementById('live').dataset.state"
    browser.wait(lambda: browser.run(live) == "live", "the page is live again", 60)
    browser.wait(lambda: "alive" in _card(browser, "meanwhile-broker"), "the new broker is shown", 60)
    wait_until(lambda: len(console_stack.get("/brokers?cluster=steady")) == 12, 60, "all brokers are still live")


def test_console_can_be_used_with_the_keyboard_alone(console_stack: Stack, browser: Browser) -> None:
    browser.open(_url(console_stack))
    walked: list[str] = []
    while "find" not in walked:
        browser.tab()
        tag, name, is_seen = browser.run(FOCUSED)
        assert is_seen, f"{tag} {name} has the focus without a visible outline"
        walked.append(name)
        assert len(walked) < 60, walked
    assert walked[0] == "Skip to the brokers"
    assert {"Brokers", "Routes", "What if"} <= set(walked)
    browser.press("broker-07")
    browser.wait(lambda: browser.run("return document.querySelectorAll('.card').length") == 1, "one is found")
    assert "find=broker-07" in browser.run("return location.search")
    assert browser.run(FOCUSED)[1] == "find"
    while browser.run("return document.activeElement.id") != "find-all":
        browser.tab()
    browser.press(ENTER)
    browser.wait(lambda: browser.run("return document.querySelectorAll('.card').length") >= 12, "all are shown again")
    # The chip is removed, and the focus stays in this part.
    assert browser.run("return document.activeElement.closest('#part-brokers') !== null")


def test_focus_stays_while_parts_are_updated(console_stack: Stack, browser: Browser) -> None:
    browser.open(_url(console_stack))
    browser.run("document.getElementById('state-late').focus(); window.old = document.getElementById('state-late')")
    browser.wait(lambda: not browser.run("return window.old.isConnected"), "the part was updated")
    assert browser.run("return document.activeElement.id") == "state-late"


def test_slider_shows_the_effect_of_another_timeout(past_console: PastConsole, browser: Browser) -> None:
    browser.open(f"{past_console.url}/?past=1h")
    browser.run("document.getElementById('timeout').focus()")
    assert browser.text("#timeout-text") == "2 min"
    assert "none would have expired" in browser.text("#timeout-effect")
    browser.press(HOME)
    assert browser.text("#timeout-text") == "1 s"
    assert "5 live brokers would have expired" in browser.text("#timeout-effect")
    browser.press(*[RIGHT] * 10)
    assert browser.text("#timeout-text") == "50 s"
    assert "1 live broker would have expired, once in total" in browser.text("#timeout-effect")
    assert browser.text("tr.chosen th") == "50 s"


def test_route_is_compared_with_a_past_route(past_console: PastConsole, browser: Browser) -> None:
    browser.open(past_console.url)
    browser.run("document.getElementById('topic').focus()")
    browser.press("T", TAB, past_console.before, ENTER)
    browser.wait(lambda: "0 new, 1 gone, 1 changed" in browser.text("#part-route"), "the route is compared")
    assert "RW- R--" in browser.text("#part-route tr.changed").replace("\n", " ")
    assert browser.run("return location.search") == f"?topic=T&as_of={past_console.before}"


def test_reduced_motion_is_respected(console_stack: Stack, browser: Browser) -> None:
    behaviour = "return getComputedStyle(document.documentElement).scrollBehavior"
    browser.open(_url(console_stack))
    assert browser.run(behaviour) == "smooth"
    browser.become(is_calm=True)
    assert browser.run(behaviour) == "auto"
