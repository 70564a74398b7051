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
    cluster: Annotated[str, typer.Option(help="brokerClusterName.")] = "DefaultCluster",
    name: Annotated[
        str, typer.Option(help="brokerName; with several brokers, what their names begin with.")
    ] = "broker-a",
    addr: Annotated[
        str, typer.Option(help="The first broker's address; the others' ports follow in steps of 10.")
    ] = "127.0.0.1:10911",
    broker_id: Annotated[int, typer.Option(help="brokerId; 0 for a master.")] = 0,
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 1,
    topics: Annotated[int, typer.Option(help="Topics on each broker.")] = 1,
    total_topics: Annotated[
        int, typer.Option(help="Topics altogether, handed out in turn; 0: every broker has the same ones.")
    ] = 0,
    topic: Annotated[list[str] | None, typer.Option(help="A further topic on each broker; may be repeated.")] = None,
    queues: Annotated[int, typer.Option(help="Read and write queues of each topic.")] = 8,
    system_topics: Annotated[bool, typer.Option(help="Register the topics that a broker has of itself.")] = True,
    heartbeat_interval: Annotated[
        int, typer.Option(help="Between registrations (registerNameServerPeriod).", **_DURATION_OPTION)
    ] = "30s",  # type: ignore[assignment] # typer parses the default too
    jitter: Annotated[float, typer.Option(help="Part of the interval that varies, both ways.")] = 0.1,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout",
            "--timeout-ms",
            help="heartbeatTimeoutMillis: expire this broker after such a silence. Default: the name server's.",
            **_DURATION_OPTION,
        ),
    ] = None,
    register_timeout: Annotated[
        int, typer.Option(help="For an answer (registerBrokerTimeoutMills).", **_DURATION_OPTION)
    ] = "24s",  # type: ignore[assignment] # typer parses the default too
    start_spread: Annotated[
        int | None,
        typer.Option(help="Spread the first registrations over this long. Default: 5 ms a broker.", **_DURATION_OPTION),
    ] = None,
    status_interval: Annotated[int, typer.Option(help="Between status lines.", **_DURATION_OPTION)] = "10s",  # type: ignore[assignment] # typer parses the default too
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    tls: TlsOption = False,
    tls_trust: TlsTrustOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
) -> int:
    """Be a broker to name servers, or thousands: register, heartbeat, and unregister at the end."""
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
