"""Requests of clients and tools."""

from tests.differential.request import Request
from tests.differential.wire import V5_3_3


def route(topic_name: str, version: int = V5_3_3, **fields: str) -> Request:
    return Request(105, {"topic": topic_name, **fields}, version=version)


def cluster_info() -> Request:
    return Request(106)


def all_topics() -> Request:
    return Request(206)


def topics_of_cluster(cluster: str) -> Request:
    return Request(224, {"cluster": cluster})


def system_topics() -> Request:
    return Request(304)


def unit_topics() -> Request:
    return Request(311)


def unit_sub_topics() -> Request:
    return Request(312)


def unit_sub_un_unit_topics() -> Request:
    return Request(313)


def wipe_write_perm(name: str) -> Request:
    return Request(205, {"brokerName": name})


def add_write_perm(name: str) -> Request:
    return Request(327, {"brokerName": name})


def delete_topic(topic_name: str, cluster: str | None = None) -> Request:
    return Request(216, {"topic": topic_name} | ({} if cluster is None else {"clusterName": cluster}))


def put_kv(namespace: str, key: str, value: str) -> Request:
    return Request(100, {"namespace": namespace, "key": key, "value": value})


def get_kv(namespace: str, key: str) -> Request:
    return Request(101, {"namespace": namespace, "key": key})


def delete_kv(namespace: str, key: str) -> Request:
    return Request(102, {"namespace": namespace, "key": key})


def kv_list(namespace: str) -> Request:
    return Request(219, {"namespace": namespace})


def update_config(**values: str) -> Request:
    return Request(318, body="".join(f"{k}={v}\n" for k, v in values.items()).encode())


def config() -> Request:
    return Request(319)
