"""The link between a simulated broker and a name server; its codec shares no code with the product.

A link connects, registers, and then sends a heartbeat (904) every interval, and every fourth time an unchanged
registration (103). Requests answered with SUCCESS are written to the journal with the time of sending.
"""

import asyncio
import itertools
import json
import struct
import zlib
from collections.abc import Callable
from typing import Final

from tests.chaos.fleet_plan import Slot
from tests.chaos.truth import Journal, now_ms
from tests.support.name_server import a_body, a_topic
from tests.support.remoting_client import encode_request

REGISTER_BROKER: Final = 103
UNREGISTER_BROKER: Final = 104
BROKER_HEARTBEAT: Final = 904
_SUCCESS: Final = 0
# RocketMQ's brokers wait for 24 s of 120 s, for heartbeats 1 s (BrokerConfig.registerBrokerTimeoutMills and
# sendHeartbeatTimeoutMillis); with timeouts of some seconds, brokers must wait for a shorter time.
_ANSWER_S: Final = 2.0
_CONNECT_S: Final = 2.0
_BACK_OFF_S: Final = 0.3
_REGISTER_EACH: Final = 4


class Network:
    """The network between brokers and servers. A cut loses all data; connections do not close."""

    def __init__(self) -> None:
        self._cuts: set[tuple[str, str]] = set()
        self.addrs: dict[str, tuple[str, int]] = {}
        self.lingering: list[tuple[str, asyncio.StreamWriter]] = []

    def is_cut(self, server: str, cluster: str) -> bool:
        return (server, "") in self._cuts or (server, cluster) in self._cuts

    def cut(self, server: str, cluster: str) -> None:
        self._cuts.add((server, cluster))

    def heal(self, server: str, cluster: str) -> None:
        """Repair the network; abandoned connections close only now, after newer ones were opened."""
        self._cuts.discard((server, cluster))

    def close_lingering(self, server: str) -> None:
        for of, writer in self.lingering:
            if of == server:
                writer.close()
        self.lingering = [(of, writer) for of, writer in self.lingering if of != server]


class FleetLink:
    """The link of one broker process to one server; ``run`` ends by cancellation."""

    def __init__(
        self,
        slot: Slot,
        life: int,
        broker_id: int,
        addr: str,
        server: str,
        network: Network,
        journal: Journal,
        jitter: Callable[[], float],
    ) -> None:
        self._slot = slot
        self._life = life
        self._server = server
        self._network = network
        self._journal = journal
        self._jitter = jitter
        self._opaques = itertools.count(1)
        self._identity = {
            "brokerName": slot.broker_name,
            "brokerAddr": addr,
            "clusterName": slot.cluster,
            "brokerId": str(broker_id),
        }
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Stay registered."""
        while True:
            try:
                await self._connect()
                await self._beat()
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self._journal.write("lost", life=self._life, server=self._server, why=type(error).__name__)
                self._give_up()
                await asyncio.sleep(_BACK_OFF_S * self._jitter())

    async def _connect(self) -> None:
        if self._network.is_cut(self._server, self._slot.cluster):
            raise TimeoutError
        host, port = self._network.addrs[self._server]
        async with asyncio.timeout(_CONNECT_S):
            self._reader, self._writer = await asyncio.open_connection(host, port)

    async def _beat(self) -> None:
        for count in itertools.count():
            if count % _REGISTER_EACH == 0:
                await self._register()
            else:
                await self._say(BROKER_HEARTBEAT, self._identity)
            await asyncio.sleep(self._slot.beat_ms / 1000 * self._jitter())

    async def _register(self) -> None:
        topics = {name: a_topic() for name in (f"of-{self._slot.cluster}", f"of-{self._slot.broker_name}")}
        body = a_body(topics, stamp=now_ms())
        fields = self._identity | {
            "haServerAddr": self._identity["brokerAddr"],
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        if self._slot.timeout_ms is not None:
            fields["heartbeatTimeoutMillis"] = str(self._slot.timeout_ms)
        await self._say(REGISTER_BROKER, fields, body)

    async def unregister(self) -> None:
        """Unregister, if possible."""
        if self._writer is not None:
            try:
                await self._say(UNREGISTER_BROKER, self._identity, is_life=False)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                return

    async def _say(self, code: int, fields: dict[str, str], body: bytes = b"", *, is_life: bool = True) -> None:
        assert self._writer is not None
        sent_ms = now_ms()
        async with asyncio.timeout(_ANSWER_S):
            if self._network.is_cut(self._server, self._slot.cluster):
                await asyncio.Event().wait()  # the request is lost
            opaque = next(self._opaques)
            self._writer.write(encode_request(code, opaque, fields, body))
            await self._writer.drain()
            answer = await self._answer(opaque)
        if answer != _SUCCESS:
            self._journal.write("refused", life=self._life, server=self._server, request=code, code=answer)
        elif is_life:
            self._journal.write("ack", life=self._life, server=self._server, at=sent_ms)

    async def _answer(self, opaque: int) -> int:
        """Return the code of the answer; other frames are ignored."""
        assert self._reader is not None
        while True:
            (total,) = struct.unpack(">I", await self._reader.readexactly(4))
            payload = await self._reader.readexactly(total)
            header = json.loads(payload[4 : 4 + int.from_bytes(payload[1:4], "big")])
            if header["opaque"] == opaque:
                return int(header["code"])

    def _give_up(self) -> None:
        """Abandon the connection; if the network is cut, it stays open."""
        writer, self._writer, self._reader = self._writer, None, None
        if writer is None:
            return
        if self._network.is_cut(self._server, self._slot.cluster):
            self._network.lingering.append((self._server, writer))
        else:
            writer.close()

    def end(self, how: str, *, is_abrupt: bool) -> None:
        """End the process: its connection stays open silently, or closes."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if how == "silent" or self._network.is_cut(self._server, self._slot.cluster):
            self._network.lingering.append((self._server if how != "silent" else "", writer))
        elif is_abrupt:
            writer.transport.abort()
        else:
            writer.close()
