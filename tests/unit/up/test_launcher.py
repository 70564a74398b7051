"""The messages of `up` when a start fails."""

from pathlib import Path

import pytest

from namesrv_stream.errors import KafkaUnreachable, PrerequisiteMissing
from namesrv_stream.ports import choose_port
from namesrv_stream.settings import Settings, load_settings, parse_set_flag
from namesrv_stream.up import launcher


def _settings(tmp_path: Path, *sets: str) -> Settings:
    return load_settings(None, {}, [parse_set_flag(text) for text in (f"data.dir={tmp_path}", *sets)]).settings


async def test_the_error_about_an_embedded_kafka_that_starts_too_slowly_quotes_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "_KAFKA_START_S", 0.1)
    port = choose_port("127.0.0.1")
    settings = _settings(tmp_path, f"embedded_kafka.listen_port={port}")
    with pytest.raises(PrerequisiteMissing) as failure:
        await launcher.wait_for_kafka(settings, f"127.0.0.1:{port}")
    assert not isinstance(failure.value, KafkaUnreachable)
    assert failure.value.exit_code == 3
    assert f"see {tmp_path / 'logs' / 'kafka.log'}; without an error there, the machine may be slow" in str(
        failure.value
    )


async def test_the_error_about_an_external_kafka_that_does_not_answer_names_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Settings) -> None:
        raise KafkaUnreachable(settings.kafka.bootstrap_servers, "refused")

    monkeypatch.setattr(launcher, "ensure_topics", refuse)
    with pytest.raises(KafkaUnreachable, match=r"correct kafka\.bootstrap_servers"):
        await launcher.wait_for_kafka(_settings(tmp_path, "kafka.bootstrap_servers=k:9092"), "k:9092")
