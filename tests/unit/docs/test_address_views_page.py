"""The examples of docs/address-views.md: valid views and Services, and addresses that agree with the Services."""

import re
import tomllib
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from namesrv_stream.route.address_views import AddressView, Broker, parse_view
from namesrv_stream.settings import load_settings
from tests.support.kafka import REPOSITORY

_PAGE: Final = (REPOSITORY / "docs/address-views.md").read_text(encoding="utf-8")
_BROKER: Final = Broker("broker-1", 0, "10.244.1.8:10911")


def _blocks(language: str, text: str = _PAGE) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def _example(heading: str) -> tuple[dict[str, Any], AddressView]:
    """The Service and the view below a heading."""
    section = _PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    (service,), (document,) = _blocks("yaml", section), _blocks("json", section)
    return yaml.safe_load(service), parse_view("example", document)


def test_every_view_is_valid() -> None:
    assert len([parse_view("example", document) for document in _blocks("json")]) == 4


@pytest.mark.parametrize("service", _blocks("yaml"))
def test_every_service_conforms_to_the_schema_of_kubernetes(service: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(service), "1.32", strict=True)


def test_the_example_settings_are_loaded() -> None:
    (text,) = _blocks("toml")
    (listener,) = tomllib.loads(text)["advanced"]["remoting"]["view_listeners"]
    environ = {"NAMESRV_STREAM__ADVANCED__REMOTING__VIEW_LISTENERS": listener}
    assert load_settings(environ=environ).settings.remoting.port_of_view_listener == {"outside": 9877}


def test_the_load_balancer_has_the_address_that_clients_receive() -> None:
    service, view = _example("LoadBalancer")
    host = service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"]
    assert view.mapped(_BROKER) == f"{host}:{service['spec']['ports'][0]['port']}"


def test_the_node_port_is_the_one_that_clients_receive() -> None:
    service, view = _example("NodePort")
    assert view.mapped(_BROKER) == f"nodes.example.org:{service['spec']['ports'][0]['nodePort']}"
    assert view.mapped(_BROKER._replace(broker_id=1)) == "nodes.example.org:30911"
    assert view.mapped(_BROKER._replace(broker_name="broker-2")) == "nodes.example.org:30920"


def test_the_cluster_ip_has_the_name_that_clients_receive() -> None:
    service, view = _example("ClusterIP")
    names = service["metadata"]
    port = service["spec"]["ports"][0]["port"]
    assert view.mapped(_BROKER) == f"{names['name']}.{names['namespace']}.svc.cluster.local:{port}"
