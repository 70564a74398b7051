"""The Compose file agrees with its schema and with the code; the tests do not use Docker."""

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest
import yaml

from namesrv_stream.settings import Settings
from namesrv_stream.streaming.history import history_job as history
from namesrv_stream.streaming.route_table import route_job
from tests.support.deployment import COMPOSE, compose, image_environment, plain_secrets, settings_with

_SERVICES: dict[str, dict[str, Any]] = compose()["services"]
_OURS = [name for name, service in _SERVICES.items() if service["image"] == "namesrv-stream"]
_SERVERS = [name for name in _OURS if _SERVICES[name]["command"][0] == "serve"]


def _variables(name: str) -> dict[str, str]:
    found: dict[str, str] = _SERVICES[name].get("environment", {})
    return found


def _mounts(name: str) -> dict[str, str]:
    """Return target → source of the mounts."""
    return {text.split(":")[1]: text.split(":")[0] for text in _SERVICES[name].get("volumes", [])}


def test_compose_file_conforms_to_its_schema() -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(compose())


def test_compose_file_has_two_servers_job_history_and_kafka() -> None:
    assert len(_SERVERS) == 2
    assert {"kafka", "job", "history"} <= _SERVICES.keys()


@pytest.mark.parametrize("name", _SERVICES)
def test_every_container_has_a_health_check_limits_and_bounded_logs(name: str) -> None:
    service = _SERVICES[name]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", _OURS)
def test_containers_have_no_privileges_and_write_only_to_volumes(name: str) -> None:
    service = _SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert {"/data", "/tables"} <= _mounts(name).keys()


@pytest.mark.parametrize("name", _OURS)
def test_variables_are_settings(name: str) -> None:
    settings = settings_with(_variables(name))
    host, port = settings.kafka.bootstrap_servers.split(":")
    assert f"PLAINTEXT://{host}:{port}" == _variables("kafka")["KAFKA_ADVERTISED_LISTENERS"]


def test_all_parts_share_the_log_and_the_tables() -> None:
    first, *others = (settings_with(_variables(name)).kafka for name in _OURS)
    assert all(kafka == first for kafka in others)
    assert {_mounts(name)["/tables"] for name in _OURS} == {"tables"}
    assert len({_mounts(name)["/data"] for name in _OURS}) == len(_OURS)


def test_only_the_job_and_the_history_may_write_the_tables() -> None:
    for name in _OURS:
        is_read_only = any(text.endswith("/tables:ro") for text in _SERVICES[name]["volumes"])
        assert is_read_only == (name in _SERVERS)


def test_each_server_has_an_id_and_an_address_of_its_own() -> None:
    settings = settings_with(_variables(_SERVERS[0]))
    assert len({settings_with(_variables(name)).server.server_id for name in _SERVERS}) == len(_SERVERS)
    published = [text.split(":") for name in _SERVERS for text in _SERVICES[name]["ports"]]
    assert len({words[-2] for words in published}) == len(published)
    assert {int(words[-1]) for words in published} == {settings.remoting.listen_port, settings.http.listen_port}


def test_health_checks_use_existing_files_and_pages() -> None:
    data = image_environment()["NAMESRV_STREAM__DATA__DIR"]
    assert _SERVICES["job"]["healthcheck"]["test"][-1] == f"{data}/run/{route_job.RUN_FILE}"
    assert _SERVICES["history"]["healthcheck"]["test"][-1] == f"{data}/run/{history.RUN_FILE}"
    for name in _SERVERS:
        assert f"127.0.0.1:{Settings().http.listen_port}/readyz" in _SERVICES[name]["healthcheck"]["test"][-1]


def test_kafka_takes_the_largest_record() -> None:
    largest = Settings().kafka.max_message_bytes
    assert int(_variables("kafka")["KAFKA_MESSAGE_MAX_BYTES"]) >= largest
    assert int(_variables("kafka")["KAFKA_REPLICA_FETCH_MAX_BYTES"]) >= largest


@pytest.mark.parametrize("name", _SERVICES)
def test_mounted_files_exist(name: str) -> None:
    for source in _mounts(name).values():
        assert (COMPOSE.parent / source).is_file() if source.startswith(".") else source in compose()["volumes"]


@pytest.mark.parametrize("name", _SERVICES)
def test_secrets_are_files_that_are_not_in_the_repository(name: str) -> None:
    assert plain_secrets(_variables(name)) == []
    declared = compose()["secrets"]
    for secret in _SERVICES[name].get("secrets", []):
        assert declared[secret]["file"].startswith("./secrets/")
    assert (COMPOSE.parent / "secrets" / ".gitignore").read_text().splitlines()[-2:] == ["*", "!.gitignore"]
    named = [value for value in _variables(name).values() if str(value).startswith("/run/secrets/")]
    named += [word for word in _SERVICES[name].get("command", []) if word.startswith("/run/secrets/")]
    assert {path.removeprefix("/run/secrets/") for path in named} <= set(_SERVICES[name].get("secrets", []))


def test_prometheus_scrapes_every_server() -> None:
    conf = yaml.safe_load((COMPOSE.parent / "prometheus.yaml").read_text())
    targets = conf["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"{name}:{Settings().http.listen_port}" for name in _SERVERS]
    for name in _SERVERS:
        assert settings_with(_variables(name)).http.allowed_hosts == (name,)
    # Alerts say job="namesrv-stream".
    assert conf["scrape_configs"][0]["job_name"] == "namesrv-stream"
    assert f"/etc/prometheus/{conf['rule_files'][0]}" in _mounts("prometheus")
