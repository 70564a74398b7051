"""What operators do at run time, with the whole product and a second server: settings, skew, what-if, the guard.

One stack for all: each test leaves the settings as it found them.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.kafka import REPOSITORY
from tests.support.processes import Process, wait_until
from tests.support.second_server import SecondServer
from tests.support.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.spark]

SETTLE_S = 60.0
BROKERS = 6
DEFAULT = "liveness.default_timeout_ms"


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Finished]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("operate") / "data", kafka__partitions=2) as running:
        running.wait_job()
        yield running


@pytest.fixture(scope="module")
def second_server(stack: Stack) -> Iterator[SecondServer]:
    with SecondServer(stack.data_dir.parent / "second", stack, kafka__partitions=2) as running:
        yield running


@pytest.fixture
def run(stack: Stack) -> Run:
    """Runs a command on the stack's own configuration."""

    def run_command(*arguments: str, configured: bool = True) -> Finished:
        conf = ["-c", str(stack.settings.data.run_dir / "effective.toml")] if configured else []
        command = [sys.executable, "-m", "namesrv_stream", *arguments, *conf]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=REPOSITORY, check=False)
        return Finished(done.returncode, done.stdout, done.stderr)

    return run_command


@pytest.fixture
def fleet(stack: Stack, second_server: SecondServer, tmp_path: Path) -> Iterator[Process]:
    """Six brokers at both servers, each heard every second."""
    both = f"{stack.remoting};{second_server.remoting}"
    flags = ["--brokers", str(BROKERS), "--cluster", "fleet", "--name", "fleet", "--heartbeat-interval", "1s"]
    with Process(
        "agent",
        [sys.executable, "-m", "namesrv_stream", "agent", "-n", both, *flags],
        tmp_path / "agent.log",
        cwd=REPOSITORY,
    ) as agent:
        wait_until(lambda: _is_whole(stack), SETTLE_S, "all brokers are heard by both servers")
        yield agent


def _fleet(stack: Stack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.get("/brokers?cluster=fleet")
    return found


def _is_whole(stack: Stack) -> bool:
    fleet = _fleet(stack)
    return len(fleet) == BROKERS and all(len(b["servers"]) == 2 and b["held"] is None for b in fleet)


def _records(stack: Stack) -> int:
    offsets: dict[str, int] = stack.get("/state")["next_offsets"]
    return min(offsets.values())


def _set(run: Run, value: str) -> dict[str, Any]:
    done = run("config", "set", DEFAULT, value, "--by", "ada@desk", "--wait", "60", "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    assert found["behind"] in ([], None), found
    return found


def test_a_setting_changes_at_every_server_and_job_without_a_restart(
    stack: Stack, second_server: SecondServer, run: Run
) -> None:
    changed = _set(run, "60000")
    assert (changed["key"], changed["old"], changed["new"]) == (DEFAULT, "120000", "60000")
    assert set(changed["offsets"]) == {"0", "1"}
    servers = f"http://{stack.http};http://{second_server.http}"
    assert run("skew", "-n", servers, "--patience", "30", configured=False).code == 0
    for url in servers.split(";"):
        rows = _rows(run, url)
        assert ("effective", "default_timeout_ms", "60000") in rows
    assert run("config", "set", DEFAULT, "60000").out == f"{DEFAULT} is 60000 already\n"
    _set(run, "120000")
    history = json.loads(run("config", "history", DEFAULT, "--json").out)
    assert [(c["old"], c["new"], c["by"], len(c["offsets"])) for c in history[-2:]] == [
        ("120000", "60000", "ada@desk", 2),
        ("60000", "120000", "ada@desk", 2),
    ]
    shown = json.loads(run("config", "show", "--running", "--json").out)
    assert (shown[DEFAULT]["running"], shown[DEFAULT]["configured"]) == ("120000", "120000")
    assert shown[DEFAULT]["changed_by"] == "ada@desk"


def _rows(run: Run, url: str) -> set[tuple[str, str, str]]:
    with urllib.request.urlopen(f"{url}/state/rows?partition=0&kind=settings", timeout=10) as answer:
        return {(row["namespace"], row["key"], row["value"]) for row in json.load(answer)["rows"]}


def test_two_servers_under_load_serve_the_same(
    stack: Stack, second_server: SecondServer, run: Run, fleet: Process
) -> None:
    servers = f"http://{stack.http};http://{second_server.http}"
    done = run("skew", "-n", servers, "--patience", "30", "--json", configured=False)
    found = json.loads(done.out)
    assert (done.code, found["is_same"]) == (0, True), done.out
    digests = {state["digest"] for state in found["servers"].values()}
    assert len(digests) == 1
    assert all(state["age_ms"] < 30_000 for state in found["servers"].values())


def test_a_server_that_is_frozen_is_said_to_be_behind(
    stack: Stack, second_server: SecondServer, run: Run, tmp_path: Path
) -> None:
    servers = f"http://{stack.http};http://{second_server.http}"
    second_server.process.terminate()
    try:
        done = run("skew", "-n", servers, "--patience", "1", configured=False)
        assert (done.code, done.err.count("\n")) == (3, 1)
        assert second_server.http in done.err
    finally:
        second_server.start()
    assert run("skew", "-n", servers, "--patience", "60", configured=False).code == 0


def test_what_if_tells_a_frozen_broker_from_a_dead_one(stack: Stack, run: Run, fleet: Process, tmp_path: Path) -> None:
    fleet.freeze()
    frozen_at = _records(stack)
    # Nothing but the ticks of two servers, two a second each: some eight seconds.
    wait_until(lambda: _records(stack) > frozen_at + 32, SETTLE_S, "time has passed in the log")
    fleet.thaw()
    path = tmp_path / "gaps.png"
    arguments = ("--timeout", "3s,60s", "--since", "1h", "--cluster", "fleet", "--json", "--plot", str(path))

    def analysed() -> dict[str, Any]:
        done = run("what-if", *arguments)
        assert done.code == 0, done.err
        found: dict[str, Any] = json.loads(done.out)["clusters"]["fleet"]
        return found

    def false_expiries() -> int:
        return int(analysed()["runs"][1]["false"])

    wait_until(lambda: false_expiries() >= BROKERS, SETTLE_S, "the frozen brokers are heard again")
    cluster = analysed()
    by_timeout = {r["timeout_ms"]: r for r in cluster["runs"]}
    assert (by_timeout[60_000]["expiries"], by_timeout[None]["expiries"]) == (0, 0)
    assert cluster["gaps"]["longest"][0]["gap_ms"] > 4_000
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "suggested:" in run("what-if", *arguments[:6]).out


def test_held_brokers_are_shown_and_an_operator_lets_them_go(
    stack: Stack, second_server: SecondServer, run: Run, fleet: Process
) -> None:
    # Commands take seconds each: two timeouts of 3 s would be over before the last of them.
    assert run("config", "set", "liveness.guard_hold_timeouts", "100").code == 0
    fleet.freeze()
    _set(run, "3000")
    wait_until(lambda: all(b["held"] for b in _fleet(stack)) and _fleet(stack), SETTLE_S, "all brokers are held")
    assert len(_fleet(stack)) == BROKERS
    for addr in (stack.remoting, second_server.remoting):
        listed = json.loads(run("guard", "list", "--json", "-n", addr, configured=False).out)
        assert len(listed) == BROKERS
    assert "held: fleet" in run("clusters", "-n", stack.remoting, configured=False).out
    done = run("guard", "release", "fleet", "--by", "ada@desk", "--wait", "60")
    assert (done.code, done.out.count("let go: ")) == (0, BROKERS), done
    wait_until(lambda: not _fleet(stack), SETTLE_S, "they are gone")
    rows = stack.changes(cause="guard_released", kind="guard")
    assert {row["detail"] for row in rows if row["gone"]} == {"by ada@desk"}
    fleet.thaw()
    _set(run, "120000")
    assert run("config", "set", "liveness.guard_hold_timeouts", "2").code == 0
    assert run("guard", "release", "fleet").code == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("config", "set", "liveness.nonsense", "1"), 2),
        (("config", "set", DEFAULT, "0"), 2),
        (("what-if", "--timeout", "soon"), 2),
        (("what-if", "--timeout", "60s", "--cluster", "nobody"), 1),
    ],
)
def test_a_mistake_is_one_line_and_its_exit_code(run: Run, arguments: tuple[str, ...], code: int) -> None:
    done = run(*arguments)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
