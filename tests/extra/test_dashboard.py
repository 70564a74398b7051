"""The calls of rocketmq-dashboard, against this name server with a real broker.

The dashboard is released as source only, with its own build. The test therefore makes its calls with the admin client
that it uses, `DefaultMQAdminExt` of rocketmq-tools 5.3.3, in the order of its pages.
"""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.jvm import java_tool, rocketmq_jars
from tests.support.rocketmq import Broker
from tests.support.stack import Stack

_PROGRAM: Final = Path(__file__).parent / "dashboard" / "DashboardCalls.java"
_TIMEOUT_S: Final = 180


def _calls(name_servers: str, broker: str, topic: str, work_dir: Path) -> dict[str, Any]:
    classpath = ":".join(map(str, rocketmq_jars()))
    java = [java_tool("java"), f"-Duser.home={work_dir}", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(_PROGRAM)]
    done = subprocess.run(
        [*java, name_servers, broker, topic], capture_output=True, text=True, cwd=work_dir, timeout=_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


@pytest.mark.timeout(_TIMEOUT_S + 120)
def test_calls_of_the_dashboard_succeed(stack: Stack, tmp_path: Path) -> None:
    # Without its timer wheel, a broker of 5.3.3 fails to delete a topic.
    properties = {"timerWheelEnable": "true"}
    with Broker(
        tmp_path / "broker", stack.remoting, name="broker-dash", cluster="dash", properties=properties
    ) as broker:
        seen = _calls(stack.remoting, broker.name, "FromDashboard", tmp_path)
    assert seen["brokers"]["dash"] == ["broker-dash"]
    assert seen["version"] == "V5_3_3"
    assert seen["broker_config"] == "broker-dash"
    assert seen["name_servers"] == [stack.remoting]
    assert seen["route_brokers"] == [broker.addr]
    assert (seen["queues"], seen["queues_with_offsets"], seen["config"]) == (6, 6, 6)
    assert (seen["perm_wiped"], seen["perm_added"]) == (4, 6)
    for what in ("created", "changed", "groups", "wiped", "added", "deleted", "others_stay"):
        assert seen[what] is True, what
