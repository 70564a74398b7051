"""What the doctor prints."""

import sys
from pathlib import Path

import pytest

from namesrv_stream.cli import main
from namesrv_stream.tools.doctor import doctor_command
from namesrv_stream.tools.doctor.finding import warning


def test_the_name_of_a_broker_cannot_control_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = warning("drain", "b\x1b[2J has been drained", "end the drain with drain 'b\x1b[2J' --undo")
    monkeypatch.setattr(doctor_command, "examine", lambda *_: [found])
    monkeypatch.setattr(sys, "argv", ["namesrv-stream", "doctor", "--data-dir", str(tmp_path)])
    assert main() == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count(r"b\x1b[2J") == 2
