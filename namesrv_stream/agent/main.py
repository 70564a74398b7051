"""Runs an agent as a process: until a signal, with a status line now and then."""

import asyncio
import logging
import signal
from typing import Final

import uvloop

from namesrv_stream.agent.agent import BrokerAgent
from namesrv_stream.agent.config import AgentConfig

logger = logging.getLogger(__name__)

_POLL_S: Final = 0.5


def run_agent(config: AgentConfig, status_interval_ms: int = 10_000) -> int:
    """Simulate brokers until SIGINT, SIGTERM or SIGHUP, then unregister them; blocks.

    Args:
        config: What to simulate.
        status_interval_ms: Milliseconds between status lines.

    Returns:
        0 if every name server that knew a broker took note of its end, else 1.

    Raises:
        ConfigError: The configuration cannot work.
    """
    return uvloop.run(_run(config, status_interval_ms))


async def _run(config: AgentConfig, status_interval_ms: int) -> int:
    stop_asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, stop_asked.set)
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
        await _tell_until(stop_asked, agent, status_interval_ms)
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


async def _tell_until(stop_asked: asyncio.Event, agent: BrokerAgent, status_interval_ms: int) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    next_status_s = began_s + status_interval_ms / 1000
    is_complete = False
    while not stop_asked.is_set():
        agent.raise_if_broken()
        if agent.is_registered and not is_complete:
            is_complete = True
            logger.info("all brokers are registered took_ms=%.0f", (loop.time() - began_s) * 1000)
        if loop.time() >= next_status_s:
            # After a pause of the process (SIGSTOP, a suspended machine) one line is enough.
            next_status_s = loop.time() + status_interval_ms / 1000
            logger.info("status %s", agent.tally.line())
        try:
            async with asyncio.timeout(_POLL_S):
                await stop_asked.wait()
        except TimeoutError:
            continue
