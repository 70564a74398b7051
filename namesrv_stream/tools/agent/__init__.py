"""The broker agent: registers one or thousands of simulated brokers with name servers, as RocketMQ brokers do.

It uses the connections of ``client`` and knows nothing of the product behind a name server, so it also works with the
Java one. ``cli`` imports its command, and tests import the classes that this module exports.
"""

from namesrv_stream.tools.agent.broker_agent import BrokerAgent
from namesrv_stream.tools.agent.name_server_link import Tally
from namesrv_stream.tools.agent.simulated_broker import AgentConfig

__all__ = ["AgentConfig", "BrokerAgent", "Tally"]
