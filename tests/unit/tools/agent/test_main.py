"""The status lines of an agent."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from namesrv_stream.tools.agent.agent_command import _log_status_until
from namesrv_stream.tools.agent.broker_agent import BrokerAgent
from namesrv_stream.tools.agent.name_server_link import Tally


async def test_a_pause_is_followed_by_one_status_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    begin_s, passed_s = loop.time(), 0.0
    monkeypatch.setattr(loop, "time", lambda: begin_s + passed_s)
    agent: Any = SimpleNamespace(raise_if_broken=lambda: None, is_registered=False, tally=Tally())
    stop = asyncio.Event()
    with caplog.at_level(logging.INFO, "namesrv_stream.tools.agent.agent_command"):
        telling = asyncio.ensure_future(_log_status_until(stop, cast(BrokerAgent, agent), 10_000))
        for step_s in (0.0, 3_600.0, *(0.6,) * 10):  # frozen for an hour, then awake for 6 s
            passed_s += step_s
            for _ in range(5):
                await asyncio.sleep(0)
        stop.set()
        await telling
    assert len(caplog.records) == 1
