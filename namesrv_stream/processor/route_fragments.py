"""Route bodies put together of parts that are encoded once: a broker's data, and its queues of one shape.

A fleet has many topics, few brokers and very few shapes of queues, and a route names its topic nowhere. So what is kept
grows with the brokers, not with the topics, and is right as long as a broker's data are the same: a changed topic makes
nothing wrong. The parts are encoded by ``route_body``, so the whole is what that would write at once.
"""

from collections.abc import Mapping
from operator import is_
from typing import Final

from namesrv_stream.processor.route_body import encode_broker_data, encode_order_conf, encode_queue_data
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import PERM_WRITE, QueueData
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import broker_data_of, is_in_zone, with_acting_master

#: Shapes kept of one broker; all are forgotten at more, which only a malicious one has.
_MAX_SHAPES: Final = 1_000
#: Brokers kept beyond those that there are.
_SPARE_BROKERS: Final = 1_000
#: Sets of brokers kept; topics of others take some microseconds more.
_MAX_LINEUPS: Final = 4_000


class _Queues(dict[QueueData, bytes]):
    """The queues of one broker name by shape, encoded when first asked for."""

    def __init__(self, broker_name: str, *, strict: bool) -> None:
        super().__init__()
        self._broker_name = broker_name
        self._strict = strict

    def __missing__(self, queue_data: QueueData) -> bytes:
        if len(self) >= _MAX_SHAPES:
            self.clear()
        written = self[queue_data] = encode_queue_data(self._broker_name, queue_data, strict=self._strict)
        return written


class _Broker:
    """The parts of one broker name.

    Attributes:
        group: As it was when they were last found right.
        data: Its BrokerData.
        acting_data: The same for topics that cannot be written, for which a slave stands in for a missing master.
        written: ``data`` and ``acting_data`` encoded; None where no broker of the name is registered.
    """

    __slots__ = ("acting_data", "data", "group", "queues", "written")

    def __init__(self, group: BrokerGroup, *, strict: bool) -> None:
        self.group = group
        self.queues = _Queues(group.broker_name, strict=strict)
        self.data = broker_data_of(group)
        self.acting_data = with_acting_master(self.data)
        self.written: tuple[bytes, bytes] | None = None
        if group.is_registered:
            self.written = (
                encode_broker_data(self.data, strict=strict),
                encode_broker_data(self.acting_data, strict=strict),
            )


class _Lineup:
    """The brokers that offer the same topics.

    Attributes:
        version: Of the table in which their groups were last looked up.
        groups: As they were then.
        offers: Topics and encoded queues of each.
        broker_datas: Of all that are registered, as they are.
    """

    __slots__ = ("broker_datas", "brokers", "groups", "offers", "version")

    def __init__(self, brokers: list[_Broker], version: object) -> None:
        self.version = version
        self.brokers = brokers
        self.groups = [b.group for b in brokers]
        self.offers: list[tuple[Mapping[str, QueueData], _Queues]] = [(b.group.topics, b.queues) for b in brokers]
        self.broker_datas = b",".join([b.written[0] for b in brokers if b.written])


class RouteFragments:
    """Bodies in one JSON form, of routes without filter servers and static mappings.

    Args:
        strict: The strict form, or the legacy one.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._brokers: dict[str, _Broker] = {}
        self._lineups: dict[tuple[str, ...], _Lineup] = {}

    def body(
        self, table: RouteTable, topic: str, *, with_acting: bool, order_conf: str | None, zone_name: str | None = None
    ) -> bytes | None:
        """The encoded route; None where no registered broker offers the topic.

        Args:
            table: Where it is looked up.
            topic: Its name.
            with_acting: Whether a slave stands in for its group's missing master where the topic cannot be written.
            order_conf: The topic's order of queues; None for none.
            zone_name: Without brokers of other zones; None for all.
        """
        names = table.names_offering(topic)
        lineup = self._lineups.get(names)
        if lineup is None or lineup.version is not table.version:
            lineup = self._line_up(table, names)
        broker_datas = lineup.broker_datas
        if not broker_datas:
            return None
        if with_acting or zone_name is not None:
            broker_datas, queue_datas = _told(lineup, topic, with_acting, zone_name)
        else:
            queue_datas = b",".join([queues[topics[topic]] for topics, queues in lineup.offers])
        order = (
            b"" if order_conf is None else b',"orderTopicConf":' + encode_order_conf(order_conf, strict=self._strict)
        )
        written = (broker_datas, order, queue_datas)
        return b'{"brokerDatas":[%b],"filterServerTable":{}%b,"queueDatas":[%b]}' % written

    def _line_up(self, table: RouteTable, names: tuple[str, ...]) -> _Lineup:
        known = self._lineups.get(names)
        groups = [table.groups[name] for name in names]
        if known is not None and all(map(is_, known.groups, groups)):
            known.version = table.version
            return known
        lineup = _Lineup([self._broker(table, group) for group in groups], table.version)
        if known is not None or len(self._lineups) < _MAX_LINEUPS:
            self._lineups[names] = lineup
        return lineup

    def _broker(self, table: RouteTable, group: BrokerGroup) -> _Broker:
        broker = self._brokers.get(group.broker_name)
        if broker is not None and (broker.group is group or broker.data == broker_data_of(group)):
            broker.group = group
            return broker
        if len(self._brokers) > len(table.groups) + _SPARE_BROKERS:
            self._brokers.clear()  # most of them are gone
            self._lineups.clear()
        broker = self._brokers[group.broker_name] = _Broker(group, strict=self._strict)
        return broker


def _told(lineup: _Lineup, topic: str, with_acting: bool, zone_name: str | None) -> tuple[bytes, bytes]:
    """What a lineup's brokers offer of a topic, with acting masters or for one zone: brokerDatas and queueDatas."""
    broker_datas, queue_datas = [], []
    for broker in lineup.brokers:
        queue_data = broker.group.topics[topic]
        if broker.written is not None:
            is_acting = with_acting and not queue_data.perm & PERM_WRITE
            if zone_name is not None and not is_in_zone(broker.acting_data if is_acting else broker.data, zone_name):
                continue
            broker_datas.append(broker.written[is_acting])
        queue_datas.append(broker.queues[queue_data])
    return b",".join(broker_datas), b",".join(queue_datas)
