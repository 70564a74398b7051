"""``namesrv-stream agent``."""

from typing import Annotated

import typer

from namesrv_stream.agent.config import AgentConfig
from namesrv_stream.client.command_line import NameServersOption, chosen_name_servers
from namesrv_stream.client.tls_options import TlsCertOption, TlsKeyOption, TlsOption, TlsTrustOption, asked_for
from namesrv_stream.durations import parse_duration_ms
from namesrv_stream.logs import configure_logging
from namesrv_stream.settings.command_line import Configuration, ConfOption, DataDirOption, check_conf

_DURATION_OPTION = {"parser": parse_duration_ms, "metavar": "DURATION"}


def agent(
    name_servers: NameServersOption = None,
    conf: ConfOption = None,
    data_dir: DataDirOption = None,
    cluster: Annotated[str, typer.Option(help="brokerClusterName.", metavar="NAME")] = "DefaultCluster",
    name: Annotated[
        str,
        typer.Option(help="brokerName; with several brokers, the prefix of their names.", metavar="NAME"),
    ] = "broker-a",
    addr: Annotated[
        str,
        typer.Option(help="Address of the first broker; the other ports follow in steps of 10.", metavar="HOST:PORT"),
    ] = "127.0.0.1:10911",
    broker_id: Annotated[int, typer.Option(help="brokerId; 0 for a master.", metavar="N")] = 0,
    brokers: Annotated[int, typer.Option(help="Number of brokers.", metavar="N")] = 1,
    topics: Annotated[int, typer.Option(help="Topics of every broker.", metavar="N")] = 1,
    total_topics: Annotated[
        int,
        typer.Option(help="Topics in total, distributed over the brokers; 0: all have the same ones.", metavar="N"),
    ] = 0,
    topic: Annotated[
        list[str] | None, typer.Option(help="One more topic of every broker; may be repeated.", metavar="TOPIC")
    ] = None,
    queues: Annotated[int, typer.Option(help="Read and write queues of every topic.", metavar="N")] = 8,
    system_topics: Annotated[bool, typer.Option(help="Register RocketMQ's system topics as well.")] = True,
    heartbeat_interval: Annotated[
        int, typer.Option(help="Time between registrations (registerNameServerPeriod).", **_DURATION_OPTION)
    ] = "30s",  # type: ignore[assignment] # typer parses the default too
    jitter: Annotated[
        float, typer.Option(help="Random variation of the interval: 0.1 for 10%.", metavar="SHARE")
    ] = 0.1,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            "--timeout-ms",
            help="heartbeatTimeoutMillis: expire after this silence. Default: the name server's.",
            **_DURATION_OPTION,
        ),
    ] = None,
    register_timeout: Annotated[
        int, typer.Option(help="Longest wait for an answer (registerBrokerTimeoutMills).", **_DURATION_OPTION)
    ] = "24s",  # type: ignore[assignment] # typer parses the default too
    start_spread: Annotated[
        int | None,
        typer.Option(
            help="Time over which to spread the first registrations. Default: 5 ms per broker.", **_DURATION_OPTION
        ),
    ] = None,
    status_interval: Annotated[int, typer.Option(help="Time between status lines.", **_DURATION_OPTION)] = "10s",  # type: ignore[assignment] # typer parses the default too
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.", metavar="LEVEL")] = "INFO",
    tls: TlsOption = False,
    tls_trust: TlsTrustOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
) -> int:
    """Simulate one or more brokers.

    They register, send heartbeats, and unregister at the end.
    """
    configure_logging(log_level.upper())
    check_conf(conf, has_cluster=True)
    config = AgentConfig(
        name_servers=chosen_name_servers(name_servers, Configuration(conf, data_dir)),
        cluster=cluster,
        broker_name=name,
        broker_addr=addr,
        broker_id=broker_id,
        brokers=brokers,
        topics=topics,
        total_topics=total_topics,
        topic_names=tuple(topic or ()),
        queues=queues,
        system_topics=system_topics,
        heartbeat_interval_ms=heartbeat_interval,
        jitter=jitter,
        timeout_ms=timeout,
        register_timeout_ms=register_timeout,
        start_spread_ms=start_spread,
        tls=asked_for(tls, tls_trust, tls_cert, tls_key),
    )
    from namesrv_stream.agent.main import run_agent

    return run_agent(config, status_interval)
