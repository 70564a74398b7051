"""The product and an unmodified broker on ::1 alone: discovery, routes, messages, address views and commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import run_command
from tests.support.java_client import JavaClient
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

TOPIC = "OverIpv6"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Broker]]:
    folder = tmp_path_factory.mktemp("ipv6")
    hosts = {"remoting__listen_host": "::1", "http__listen_host": "[::1]", "embedded_kafka__listen_host": "::1"}
    only = {"brokerIP1": "::1", "brokerIP2": "::1", "bindAddress": "::1"}
    with (
        Stack(folder / "data", **hosts) as product,
        Broker(folder / "broker", product.remoting, name="six", cluster="c6", properties=only) as broker,
    ):
        yield product, broker


def test_a_broker_without_brackets_is_routed_and_found_over_http(
    site: tuple[Stack, Broker], mqadmin: Mqadmin, java_client: JavaClient
) -> None:
    product, broker = site
    assert product.remoting.startswith("[::1]:")
    mqadmin.run("updateTopic", "-n", product.remoting, "-b", broker.addr, "-t", TOPIC, "-r", "2", "-w", "2")
    (data,) = product.get(f"/routes/{TOPIC}")["brokerDatas"]
    assert data["brokerAddrs"] == {"0": f"::1:{broker.port}"}
    queues = java_client.publish_queues(TOPIC, namesrv_domain=product.http, subgroup="")
    assert sorted(queues) == [("six", 0), ("six", 1)]
    assert java_client.exchange(product.remoting, TOPIC) == {"six"}


def test_the_commands_reach_every_part(site: tuple[Stack, Broker], tmp_path: Path) -> None:
    product, broker = site
    product.wait_job()
    here = ("--data-dir", str(product.data_dir))
    checked = json.loads(run_command("doctor", "--json", *here).out)
    assert [each for each in checked if each["grade"] == "fail"] == []
    listed = run_command("brokers", "-n", product.remoting.replace("[", "").replace("]", ""))
    assert f"::1:{broker.port}" in listed.out, listed
    document = tmp_path / "view.json"
    document.write_text(json.dumps({"mappings": [{"broker_addr": broker.addr, "to": "{host}:7"}]}))
    assert run_command("view", "set", "outside", str(document), *here).code == 0
    shown = run_command("route", broker.name, "--view", "outside", *here)
    assert "[::1]:7" in shown.out, shown
