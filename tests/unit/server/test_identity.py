"""The server's identity: stable, exclusive, and with an epoch that only grows."""

import errno
import os
from pathlib import Path

import pytest

from namesrv_stream.errors import ConfigError
from namesrv_stream.server.start.identity import IdentityFile


def begin(folder: Path, now_ms: int, configured_id: str = "", known_epoch: int = 0) -> tuple[str, int]:
    return IdentityFile(folder, configured_id).begin_epoch(now_ms, known_epoch)


def test_the_id_survives_a_restart(tmp_path: Path) -> None:
    assert begin(tmp_path, 1)[0] == begin(tmp_path, 2)[0]


def test_a_configured_id_is_used(tmp_path: Path) -> None:
    begin(tmp_path, 1)
    assert begin(tmp_path, 2, "ns-1") == ("ns-1", 2)


@pytest.mark.parametrize("now_ms", [1_000, 999, 0])
def test_every_start_has_a_later_epoch_even_if_the_clock_is_set_back(tmp_path: Path, now_ms: int) -> None:
    begin(tmp_path, 1_000)
    assert begin(tmp_path, now_ms)[1] == 1_001


@pytest.mark.parametrize(
    ("now_ms", "known_epoch", "epoch"), [(999, 1_500, 1_501), (999, 600, 1_001), (3_000, 1_500, 3_000)]
)
def test_an_epoch_is_later_than_clock_file_and_log(now_ms: int, known_epoch: int, epoch: int, tmp_path: Path) -> None:
    begin(tmp_path, 1_000)
    assert begin(tmp_path, now_ms, known_epoch=known_epoch)[1] == epoch


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"server_id":"","server_epoch":"x"}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity.json").write_bytes(content)
    first = begin(tmp_path, 5)
    assert first[0].startswith("ns-")
    assert begin(tmp_path, 6)[0] == first[0]


def test_an_epoch_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError, match="cannot be written"):
        begin(tmp_path, 1)
