"""A client of name servers: connections, fail-over between servers, the decoded answers."""

from namesrv_stream.client.back_off import BackOff
from namesrv_stream.client.connection import RemotingConnection
from namesrv_stream.client.errors import ConnectionLost, NameServersUnreachable, RequestTimedOut, UnexpectedAnswer
from namesrv_stream.client.name_servers import NameServers, parse_name_servers
from namesrv_stream.client.queries import cluster_info, topic_list, topic_route, topics_of_cluster
from namesrv_stream.client.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

__all__ = [
    "BackOff",
    "BrokerData",
    "ClusterInfo",
    "ConnectionLost",
    "NameServers",
    "NameServersUnreachable",
    "QueueData",
    "RemotingConnection",
    "RequestTimedOut",
    "TopicRouteData",
    "UnexpectedAnswer",
    "cluster_info",
    "parse_name_servers",
    "topic_list",
    "topic_route",
    "topics_of_cluster",
]
