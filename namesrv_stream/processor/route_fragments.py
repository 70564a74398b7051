"""Route bodies put together of parts that are encoded once: a broker's data, and its queues of one shape.

A fleet has many topics, few brokers and very few shapes of queues, and a route names its topic nowhere. So what is kept
grows with the brokers, not with the topics, and is right as long as a broker's data are the same: a changed topic makes
nothing wrong. The parts are encoded by ``route_body``, so the whole is what that would write at once.
"""

from operator import is_
from typing import Final

from namesrv_stream.processor.route_body import encode_broker_data, encode_order_conf, encode_queue_data
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.model import PERM_WRITE, QueueData
from namesrv_stream.route.table import RouteTable
from namesrv_stream.route.topic_route import broker_data_of, is_in_zone, with_acting_master

#: Shapes kept of one broker; all are forgotten at more, which only a malicious one has.
_MAX_SHAPES: Final = 1_000
#: Brokers kept beyond those that there are, each with the group that it had.
_SPARE_BROKERS: Final = 100
#: Sets of brokers kept; all are forgotten at more, for most may be of topics that are no more.
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

    __slots__ = ("_strict", "acting_data", "data", "group", "queues", "written")

    def __init__(self, group: BrokerGroup, *, strict: bool) -> None:
        self._strict = strict
        self.queues = _Queues(group.broker_name, strict=strict)
        self.group = group
        self.data = broker_data_of(group)
        self._write()

    def take(self, group: BrokerGroup) -> None:
        """Make the parts right for the group as it is now."""
        if group is self.group:
            return
        self.group = group
        data = broker_data_of(group)
        if data != self.data:
            self.data = data
            self._write()

    def _write(self) -> None:
        self.acting_data = with_acting_master(self.data)
        self.written: tuple[bytes, bytes] | None = None
        if self.group.is_registered:
            self.written = (
                encode_broker_data(self.data, strict=self._strict),
                encode_broker_data(self.acting_data, strict=self._strict),
            )


class _Lineup:
    """The brokers that offer the same topics. It keeps no group alive that its brokers have left behind.

    Attributes:
        version: Of the table of which its brokers last took their groups.
        broker_datas: Of all that are registered, as they are.
    """

    __slots__ = ("_joined", "broker_datas", "brokers", "version")

    def __init__(self, brokers: list[_Broker]) -> None:
        self.version: object = None
        self.brokers = brokers
        self.broker_datas = b""
        self._joined: list[tuple[bytes, bytes] | None] = []

    def take(self, table: RouteTable) -> None:
        """Make all right for the table as it is now."""
        for broker in self.brokers:
            broker.take(table.groups[broker.group.broker_name])
        self.version = table.version
        written = [broker.written for broker in self.brokers]
        if len(self._joined) != len(written) or not all(map(is_, self._joined, written)):
            self._joined = written
            self.broker_datas = b",".join([parts[0] for parts in written if parts])


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
        if lineup is None:
            lineup = self._line_up(table, names)
        if lineup.version is not table.version:
            lineup.take(table)
        broker_datas = lineup.broker_datas
        if not broker_datas:
            return None
        if with_acting or zone_name is not None:
            broker_datas, queue_datas = _told(lineup, topic, with_acting, zone_name)
        else:
            queue_datas = b",".join([b.queues[b.group.topics[topic]] for b in lineup.brokers])
        order = (
            b"" if order_conf is None else b',"orderTopicConf":' + encode_order_conf(order_conf, strict=self._strict)
        )
        written = (broker_datas, order, queue_datas)
        return b'{"brokerDatas":[%b],"filterServerTable":{}%b,"queueDatas":[%b]}' % written

    def _line_up(self, table: RouteTable, names: tuple[str, ...]) -> _Lineup:
        if len(self._brokers) > len(table.groups) + _SPARE_BROKERS:
            self._brokers.clear()  # some of them are gone
            self._lineups.clear()
        if len(self._lineups) >= _MAX_LINEUPS:
            self._lineups.clear()
        brokers = []
        for name in names:
            broker = self._brokers.get(name)
            if broker is None:
                broker = self._brokers[name] = _Broker(table.groups[name], strict=self._strict)
            brokers.append(broker)
        lineup = self._lineups[names] = _Lineup(brokers)
        return lineup


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
