"""The broker agent: registers simulated brokers with name servers as RocketMQ brokers do, one or thousands.

It uses the connections of ``client`` and knows nothing of the product behind a name server, so it also works with the
Java one. ``cli`` imports its command, and tests import the classes that this module exports.
"""

from namesrv_stream.tools.agent.broker_agent import BrokerAgent
from namesrv_stream.tools.agent.name_server_link import Tally
from namesrv_stream.tools.agent.simulated_broker import AgentConfig

__all__ = ["AgentConfig", "BrokerAgent", "Tally"]
