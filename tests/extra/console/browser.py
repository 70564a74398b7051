"""Headless Chromium, controlled with the keyboard and scripts."""

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.support.processes import wait_until

_FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars")
DESKTOP, PHONE, SMALLEST = (1280, 900), (390, 844), (320, 640)


class Browser:
    """A context manager."""

    def __init__(self) -> None:
        chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
        assert None not in (chromium, driver), "no chromium: on Debian, apt-get install chromium chromium-driver"
        options = webdriver.ChromeOptions()
        options.binary_location = str(chromium)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for flag in _FLAGS:
            options.add_argument(flag)
        self._driver: Any = webdriver.Chrome(options=options, service=Service(str(driver)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.quit()

    def become(self, size: tuple[int, int] = DESKTOP, *, is_dark: bool = False, is_calm: bool = False) -> None:
        """Set the size of the screen and the preferences of the user."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        tastes = [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if is_calm else "no-preference"},
        ]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": tastes})

    def open(self, url: str) -> None:
        """Load a page of the console, and wait until it is live."""
        self.visit(url)
        self.wait(
            lambda: self.run("return document.getElementById('live').dataset.state") == "live", "the page is live"
        )

    def visit(self, url: str) -> None:
        """Load any page."""
        self._driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page; returns its value."""
        return self._driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def wait(self, is_so: Callable[[], object], what: str, timeout_s: float = 30.0) -> None:
        wait_until(is_so, timeout_s, what)

    def press(self, *keys: str) -> None:
        """Press keys; the focused element receives them."""
        ActionChains(self._driver).send_keys(*keys).perform()

    def tab(self) -> None:
        self.press(Keys.TAB)

    def complaints(self) -> list[str]:
        """Return Chromium's errors and policy violations since the last call."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def violations(self) -> list[str]:
        """Return the findings of axe-core for WCAG 2.2 AA and its best practices."""
        source = files("axe_playwright_python").joinpath("axe.min.js").read_text()
        # The debugger loads the script, because the page's Content-Security-Policy forbids foreign scripts.
        self._driver.execute_cdp_cmd("Runtime.evaluate", {"expression": source})
        run = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        shown = f"{run}.then((found) => JSON.stringify(found.violations))"
        asked = {"expression": shown, "awaitPromise": True, "returnByValue": True}
        found = self._driver.execute_cdp_cmd("Runtime.evaluate", asked)
        return [
            f"{one['id']}: {one['help']}: {[node['html'] for node in one['nodes'][:3]]}"
            for one in json.loads(found["result"]["value"])
        ]

    def save(self, path: Path) -> None:
        """Save the visible page as a PNG."""
        self._driver.save_screenshot(str(path))
