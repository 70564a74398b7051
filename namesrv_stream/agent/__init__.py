"""The broker agent: registers brokers with name servers as RocketMQ brokers do, one or thousands from one process."""

from namesrv_stream.agent.agent import BrokerAgent
from namesrv_stream.agent.config import AgentConfig
from namesrv_stream.agent.tally import Tally

__all__ = ["AgentConfig", "BrokerAgent", "Tally"]
