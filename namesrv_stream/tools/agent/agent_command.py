"""``namesrv-stream agent``: runs an agent until a signal, with a status line at intervals."""

import asyncio
import logging
import signal
from typing import Annotated, Final, Literal

import typer
import uvloop

from namesrv_stream.client.commands.query_options import (
    NameServersOption,
    TlsCertOption,
    TlsKeyOption,
    TlsOption,
    TlsTrustOption,
    chosen_name_servers,
    requested_tls,
)
from namesrv_stream.logs import configure_logging
from namesrv_stream.settings.installation import (
    Configuration,
    ConfOption,
    DataDirOption,
    check_conf,
    duration_option,
)
from namesrv_stream.tools.agent.broker_agent import BrokerAgent
from namesrv_stream.tools.agent.simulated_broker import AgentConfig

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5


def run_agent(config: AgentConfig, status_interval_ms: int = 10_000) -> int:
    """Simulate brokers until SIGINT, SIGTERM or SIGHUP, then unregister them; blocks.

    Args:
        config: What to simulate.
        status_interval_ms: Milliseconds between status lines.

    Returns:
        0 if every name server acknowledged the unregistration of every broker, else 1.

    Raises:
        ConfigError: The ports from ``broker_addr`` on are too few for the brokers, and the host is no IP address.
    """
    return uvloop.run(_run(config, status_interval_ms))


async def _run(config: AgentConfig, status_interval_ms: int) -> int:
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, stop_requested.set)
    agent = BrokerAgent(config)
    logger.info(
        "starting brokers=%d topics=%d cluster=%s name_servers=%s heartbeat_interval_ms=%d",
        config.brokers,
        len(config.topics_of(0)),
        config.cluster,
        ";".join(config.name_server_addrs),
        config.heartbeat_interval_ms,
    )
    agent.start()
    try:
        await _log_status_until(stop_requested, agent, status_interval_ms)
    finally:
        began_s = loop.time()
        left = await agent.stop()
        logger.info(
            "stopped unregistered=%d failed=%d took_ms=%.0f",
            agent.tally.unregistered,
            agent.tally.links - left,
            (loop.time() - began_s) * 1000,
        )
    return 0 if left == agent.tally.links else 1


async def _log_status_until(stop_requested: asyncio.Event, agent: BrokerAgent, status_interval_ms: int) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    next_status_s = began_s + status_interval_ms / 1000
    is_complete = False
    while not stop_requested.is_set():
        agent.raise_if_broken()
        if agent.is_registered and not is_complete:
            is_complete = True
            logger.info("all brokers registered took_ms=%.0f", (loop.time() - began_s) * 1000)
        if loop.time() >= next_status_s:
            # After a pause of the process (SIGSTOP, a suspended machine) one line is enough.
            next_status_s = loop.time() + status_interval_ms / 1000
            logger.info("status %s", agent.tally.line())
        try:
            async with asyncio.timeout(_POLL_S):
                await stop_requested.wait()
        except TimeoutError:
            continue


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(agent)


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
        int, duration_option("--heartbeat-interval", help="Time between registrations (registerNameServerPeriod).")
    ] = "30s",  # type: ignore[assignment] # typer parses the default too
    jitter: Annotated[
        float, typer.Option(help="Random variation of the interval: 0.1 for 10%.", metavar="SHARE")
    ] = 0.1,
    timeout: Annotated[
        int | None,
        duration_option(
            "--timeout", help="heartbeatTimeoutMillis: expire after this silence. Default: the name server's."
        ),
    ] = None,
    timeout_ms: Annotated[int | None, typer.Option("--timeout-ms", hidden=True)] = None,
    register_timeout: Annotated[
        int, duration_option("--register-timeout", help="Longest wait for an answer (registerBrokerTimeoutMills).")
    ] = "24s",  # type: ignore[assignment] # typer parses the default too
    start_spread: Annotated[
        int | None,
        duration_option(
            "--start-spread", help="Time over which to spread the first registrations. Default: 5 ms per broker."
        ),
    ] = None,
    status_interval: Annotated[int, duration_option("--status-interval", help="Time between status lines.")] = "10s",  # type: ignore[assignment] # typer parses the default too
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], typer.Option(help="Which lines to log.", case_sensitive=False)
    ] = "INFO",
    tls: TlsOption = False,
    tls_trust: TlsTrustOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
) -> int:
    """Simulate one or more brokers.

    They register, send heartbeats, and unregister at the end.
    """
    configure_logging(log_level)
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
        timeout_ms=timeout_ms if timeout is None else timeout,
        register_timeout_ms=register_timeout,
        start_spread_ms=start_spread,
        tls=requested_tls(tls, tls_trust, tls_cert, tls_key),
    )

    return run_agent(config, status_interval)
