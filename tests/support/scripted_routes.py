"""A scripted name server with routes that a test can change."""

from dataclasses import dataclass, field

import orjson

from namesrv_stream.remoting.command import RemotingCommand, RequestCode, ResponseCode, response_to
from tests.support.scripted_name_server import Answers


@dataclass
class ScriptedRoutes:
    """A script for `ScriptedNameServer`.

    Attributes:
        routes: Topic to broker name to write (and read) queues; the master of ``b`` is ``b:10911``.
        asked: Topics of all route requests so far.
    """

    routes: dict[str, dict[str, int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def __call__(self, request: RemotingCommand) -> Answers:
        topic = (request.ext_fields or {}).get("topic", "")
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            self.asked.append(topic)
            if topic not in self.routes:
                return [response_to(request, ResponseCode.TOPIC_NOT_EXIST, remark="none")]
            return [response_to(request, 0, body=self._body(self.routes[topic]))]
        if request.code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            return [response_to(request, 0, body=orjson.dumps({"topicList": sorted(self.routes)}))]
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            return [response_to(request, 0, body=self._cluster_info())]
        if request.code == RequestCode.GET_KVLIST_BY_NAMESPACE:
            return [response_to(request, ResponseCode.QUERY_NOT_FOUND, remark="none")]
        return [response_to(request, 0, ext_fields={})]

    def _cluster_info(self) -> bytes:
        names = sorted({name for queues in self.routes.values() for name in queues})
        brokers = {n: {"brokerName": n, "cluster": "c0", "brokerAddrs": {"0": f"{n}:10911"}} for n in names}
        return orjson.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {"c0": names} if names else {}})

    def _body(self, queues: dict[str, int]) -> bytes:
        brokers = [
            {"brokerName": name, "cluster": "c0", "brokerAddrs": {"0": f"{name}:10911"}, "enableActingMaster": False}
            for name in queues
        ]
        datas = [
            {"brokerName": name, "perm": 6, "readQueueNums": n, "writeQueueNums": n, "topicSysFlag": 0}
            for name, n in queues.items()
        ]
        return orjson.dumps({"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": datas})
