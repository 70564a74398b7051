"""A name server on ::1 alone, with our own brokers, client and discovery."""

from pathlib import Path

import pytest

from namesrv_stream.client import Client
from namesrv_stream.processes import read_run_file
from namesrv_stream.settings import Settings
from namesrv_stream.tools.agent import AgentConfig, BrokerAgent
from tests.integration.test_server import Serve
from tests.support.kafka import settings_for
from tests.support.scripted_name_server import until

pytestmark = pytest.mark.integration


async def test_brokers_and_clients_use_a_server_on_an_ipv6_address(kafka_settings: Settings, tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path / "data",
        kafka__bootstrap_servers=f"127.0.0.1:{kafka_settings.embedded_kafka.listen_port}",
        kafka__broker_events_topic="ipv6-events",
        remoting__listen_host="[::1]",
        http__listen_host="::1",
    )
    server = Serve(settings, tmp_path)
    server.start()
    agent = BrokerAgent(AgentConfig(server.addr.replace("[", "").replace("]", ""), broker_addr="::1:21911"))
    try:
        agent.start()
        await until(lambda: agent.is_registered, "the broker is registered", 20)
        facts = read_run_file(settings.data.run_dir / "serve.json") or {}
        async with Client(f"http://{facts['http']}/rocketmq/") as client:
            assert client.name_servers.addrs == [server.addr]
            (broker,) = (await client.route("Topic0")).data.broker_datas
        assert broker.broker_addrs == {0: "[::1]:21911"}
    finally:
        await agent.stop()
        server.process.close()
