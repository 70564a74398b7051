"""No command that prints settings shows a secret, in whatever way it was given."""

from pathlib import Path

import pytest

from tests.support.command_line import run_command

SECRET = "Tr0ub4dor"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "namesrv.properties"
    path.write_text(
        f"""\
tls.server.keyPassword={SECRET}-1
kafka.extra.sasl_plain_password={SECRET}-2
streaming.extra.kafka.sasl.jaas.config=x required password="{SECRET}-3";
admin.accounts.ops={SECRET}-4
"""
    )
    monkeypatch.setenv("NAMESRV_STREAM__ADMIN__ACCOUNTS__more", f"{SECRET}-5")
    monkeypatch.setenv("NAMESRV_STREAM__KAFKA__EXTRA__ssl_password", f"{SECRET}-6")
    return path


@pytest.mark.parametrize(
    "command",
    [["config", "show"], ["serve", "-p"], ["job", "-p"], ["history-job", "-p"], ["kafka", "-p"], ["up", "-p"]],
)
def test_no_command_that_prints_settings_prints_a_secret(conf: Path, command: list[str]) -> None:
    finished = run_command(*command, "-c", str(conf))
    assert finished.code in (0, 2)
    assert SECRET not in finished.out + finished.err
    if finished.code == 0:
        assert finished.out.count("is set, and not shown") == 6


def test_most_commands_print_settings() -> None:
    """Otherwise the test above would prove nothing."""
    assert run_command("serve", "-p").code == run_command("config", "show").code == 0


@pytest.mark.parametrize(
    "flag",
    [
        f"advanced.tls.key_password={SECRET}",
        f"admin.accounts.ops={SECRET}",
        f"kafka.extra.sasl_plain_password={SECRET}",
    ],
)
def test_a_secret_on_the_command_line_is_refused_without_repeating_it(flag: str) -> None:
    finished = run_command("serve", "-p", "--set", flag)
    assert finished.code == 2
    assert "everybody can read a command line" in finished.err
    assert SECRET not in finished.out + finished.err


def test_error_near_secrets_shows_no_secret(conf: Path) -> None:
    conf.write_text(conf.read_text() + "listenPort=many\n")
    finished = run_command("serve", "-p", "-c", str(conf))
    assert finished.code == 2
    assert SECRET not in finished.out + finished.err
