"""A client for name servers, Java's and this product's: routes, queues, and operators' changes.

``docs/client.md`` shows how to use it. Most programs need only `Client`, `client_for` or `BlockingClient`. The client
knows nothing of Kafka, the tables or the server; the commands on top of it are in ``client.commands``. Every package
of a higher layer may import it; ``tables`` and ``kafka``, in the same layer, may not (pyproject.toml).
"""

from namesrv_stream.client.admin import (
    Imported,
    add_write_perm,
    delete_kv,
    delete_topic,
    import_kv,
    name_server_config,
    put_kv,
    update_name_server_config,
    wipe_write_perm,
)
from namesrv_stream.client.client_connection import RemotingConnection, client_context
from namesrv_stream.client.client_errors import (
    AddressServerUnreachable,
    ClientClosed,
    ConnectionLost,
    NameServersUnreachable,
    NoQueue,
    NotOnAllServers,
    RequestTimedOut,
    RequestTooLarge,
    UnexpectedAnswer,
)
from namesrv_stream.client.name_server_client import Client, ClientOptions
from namesrv_stream.client.name_servers import NameServers, Outcome, parse_name_servers
from namesrv_stream.client.queries import cluster_info, kv_table, kv_value, topic_list, topic_route, topics_of_cluster
from namesrv_stream.client.queues import MessageQueue, readable_queues, writable_queues
from namesrv_stream.client.route import BrokerData, ClusterInfo, QueueData, TopicQueueMapping, TopicRouteData
from namesrv_stream.client.route_cache import TopicRoute
from namesrv_stream.client.server_link import BackOff
from namesrv_stream.client.shared_clients import BlockingClient, client_for
from namesrv_stream.errors import QueryNotFound, TopicNotExist
from namesrv_stream.remoting.command import AclCredentials
from namesrv_stream.remoting.headers import ORDER_TOPIC_CONFIG

__all__ = [
    "ORDER_TOPIC_CONFIG",
    "AclCredentials",
    "AddressServerUnreachable",
    "BackOff",
    "BlockingClient",
    "BrokerData",
    "Client",
    "ClientClosed",
    "ClientOptions",
    "ClusterInfo",
    "ConnectionLost",
    "Imported",
    "MessageQueue",
    "NameServers",
    "NameServersUnreachable",
    "NoQueue",
    "NotOnAllServers",
    "Outcome",
    "QueryNotFound",
    "QueueData",
    "RemotingConnection",
    "RequestTimedOut",
    "RequestTooLarge",
    "TopicNotExist",
    "TopicQueueMapping",
    "TopicRoute",
    "TopicRouteData",
    "UnexpectedAnswer",
    "add_write_perm",
    "client_context",
    "client_for",
    "cluster_info",
    "delete_kv",
    "delete_topic",
    "import_kv",
    "kv_table",
    "kv_value",
    "name_server_config",
    "parse_name_servers",
    "put_kv",
    "readable_queues",
    "topic_list",
    "topic_route",
    "topics_of_cluster",
    "update_name_server_config",
    "wipe_write_perm",
    "writable_queues",
]
