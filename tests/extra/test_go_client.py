"""The unmodified rocketmq-client-go/v2, another implementation of the protocol, from the Go module proxy."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.outside import outside_network
from tests.support.rocketmq import Broker
from tests.support.rocketmq_peers import Mqadmin
from tests.support.stack import Stack

SOURCE = Path(__file__).parent / "go"
MESSAGES = 20
# The first run compiles the client and all its dependencies.
BUILD_TIMEOUT_S = 900
RUN_TIMEOUT_S = 150


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    assert go, "no `go` on the PATH; on Debian: apt-get install golang-go"
    binary = tmp_path_factory.mktemp("go") / "client"
    subprocess.run(
        [go, "build", "-mod=readonly", "-o", str(binary), "."], cwd=SOURCE, check=True, timeout=BUILD_TIMEOUT_S
    )
    return binary


def _exchange(client: Path, namesrv_addr: str, topic: str) -> dict[str, Any]:
    args = [str(client), "-namesrv", namesrv_addr, "-topic", topic, "-count", str(MESSAGES), "-timeout", "60s"]
    # The client stores a snapshot of name servers in its home directory.
    env = {**os.environ, "HOME": str(client.parent)}
    run = subprocess.run(args, capture_output=True, text=True, env=env, timeout=RUN_TIMEOUT_S, check=False)
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return seen


@pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)
def test_go_client_produces_and_consumes(
    stack: Stack, periodic_broker: Broker, mqadmin: Mqadmin, go_client: Path
) -> None:
    mqadmin.create_topic(stack.remoting, periodic_broker.addr, "GoExchanged")
    seen = _exchange(go_client, stack.remoting, "GoExchanged")
    assert seen["brokers"] == {periodic_broker.name: MESSAGES}
    assert sorted(seen["received"]) == sorted(seen["sent"])


@pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)
def test_go_client_outside_a_network_uses_the_addresses_of_its_view(
    stack: Stack, mqadmin: Mqadmin, go_client: Path, tmp_path: Path
) -> None:
    with outside_network(stack, mqadmin, tmp_path, "GoOutside") as outside:
        before = outside.forwarder.connections
        seen = _exchange(go_client, outside.name_server, "GoOutside")
        assert seen["brokers"] == {outside.broker.name: MESSAGES}
        assert sorted(seen["received"]) == sorted(seen["sent"])
        assert outside.forwarder.connections > before
