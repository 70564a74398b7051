"""Long frames are read by shares; who sends slowly keeps nobody from being read, and short requests never wait."""

import asyncio

from namesrv_stream.remoting.frame import encode_frame
from namesrv_stream.server.pace import ReadingPace
from namesrv_stream.settings import RemotingSettings
from tests.support.name_server import a_body, a_registration_request, a_route_request, a_topic
from tests.support.server_rig import TICK_MS, MemoryTransport, Rig, turn

BODY = a_body({f"topic-{number}": a_topic() for number in range(1_000)})
CHUNK = 20_000


class Peer:
    """Who notes whether he is held back."""

    def __init__(self) -> None:
        self.is_held = False
        self.held = 0

    def hold_back(self, *, is_held: bool) -> None:
        assert is_held is not self.is_held, "told twice"
        self.is_held = is_held
        self.held += is_held


def a_pace() -> ReadingPace:
    return ReadingPace(bytes_a_turn=100, least_resumed=2)


async def test_all_who_are_amid_a_frame_wait_once_a_turn_has_its_share_and_go_on_in_their_order() -> None:
    pace = a_pace()
    peers = [Peer() for _ in range(6)]
    for peer in peers[:5]:
        pace.read(peer, 25, is_amid=True)
    assert [peer.is_held for peer in peers] == [True, True, True, True, True, False]
    await turn()
    assert [peer.is_held for peer in peers] == [False, False, True, True, True, False]
    pace.read(peers[0], 60, is_amid=True)
    await turn()
    assert [peer.is_held for peer in peers] == [False] * 4 + [True, False]
    await turn()
    assert not any(peer.is_held for peer in peers)


async def test_a_new_turn_has_a_new_share() -> None:
    pace = a_pace()
    peer = Peer()
    for _ in range(10):
        pace.read(peer, 90, is_amid=True)
        await turn()
    assert peer.held == 0


async def test_who_is_done_or_gone_is_not_held_back() -> None:
    pace = a_pace()
    done, gone, other = Peer(), Peer(), Peer()
    pace.read(done, 20, is_amid=True)
    pace.read(done, 20, is_amid=False)
    pace.read(gone, 20, is_amid=True)
    pace.forget(gone)
    pace.read(other, 40, is_amid=True)
    assert [done.is_held, gone.is_held, other.is_held] == [False, False, True]
    pace.forget(other)
    await turn()
    assert other.is_held, "nobody speaks to the dead"


async def test_however_many_send_without_end_a_turn_reads_its_share() -> None:
    pace = a_pace()
    left = {Peer(): 1_000 for _ in range(100)}
    reads = []
    while any(left.values()):
        read = 0
        for peer in [peer for peer, size in left.items() if size]:
            if not peer.is_held:  # a read that comes while the others' are handled, as a loop's poll gives them
                left[peer] -= 20
                read += 20
                pace.read(peer, 20, is_amid=left[peer] > 0)
        reads.append(read)
        await turn()
    # The first of each cannot be held back.
    assert max(reads[1:]) <= 120 < reads[0] == 2_000
    assert len(reads) < 2_500, "and hardly less than its share"


async def test_those_who_send_little_keep_nobody_from_being_read() -> None:
    pace = a_pace()
    little, busy = [Peer() for _ in range(500)], Peer()
    reads = 0
    for _ in range(200):
        for peer in little:
            if not peer.is_held:
                pace.read(peer, 0, is_amid=True)
        if not busy.is_held:
            reads += 1
            pace.read(busy, 100, is_amid=True)
        await turn()
    assert reads > 15


async def test_one_that_fails_strands_nobody() -> None:
    class Failing(Peer):
        def hold_back(self, *, is_held: bool) -> None:
            super().hold_back(is_held=is_held)
            if not is_held:
                raise RuntimeError("a bug")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    pace = a_pace()
    peers = [Failing(), *(Peer() for _ in range(4))]
    for peer in peers:
        pace.read(peer, 25, is_amid=True)
    for _ in range(3):
        await turn()
    assert not any(peer.is_held for peer in peers)


def a_rig() -> Rig:
    rig = Rig(limits=RemotingSettings(frame_timeout_ms=1_000))
    rig.pace = ReadingPace(bytes_a_turn=3 * CHUNK, least_resumed=1)
    rig.talk()
    return rig


def receive(peer: MemoryTransport, data: bytes) -> None:
    peer.deliver(data)


async def test_brokers_that_register_at_once_are_read_in_turn_and_all_answered() -> None:
    rig = a_rig()
    frames = [
        encode_frame(a_registration_request(f"10.0.0.{number}:1", brokerName=f"b{number}", body=BODY))
        for number in range(10)
    ]
    senders = {rig.connect(): frame for frame in frames}
    client = rig.connect()
    rounds = []
    while any(senders.values()):
        brought = 0
        for peer, left in senders.items():
            if left and not peer.is_reading_paused:
                receive(peer, left[:CHUNK])
                brought += len(left[:CHUNK])
                senders[peer] = left[CHUNK:]
        rounds.append(brought)
        assert not client.is_reading_paused
        receive(client, encode_frame(a_route_request("topic-7")))
        await turn()
    for _ in range(20):
        await turn()
    assert all(len(peer.answers()) == 1 for peer in senders)
    # That it is amid a long frame is known of a peer once it has begun one.
    assert max(rounds[1:]) <= 4 * CHUNK < rounds[0] == 10 * CHUNK


async def test_a_peer_that_is_held_back_has_no_longer_for_its_frame_than_others() -> None:
    rig = a_rig()
    frame = encode_frame(a_registration_request(body=BODY))
    peers = [rig.connect() for _ in range(4)]
    for peer in peers:
        receive(peer, frame[:CHUNK])
    assert any(peer.is_reading_paused for peer in peers)
    for _ in range(2_000 // TICK_MS):
        rig.beat()
        rig.connections.beat(rig.gateway.observed_ms)
    assert all(peer.is_closing() for peer in peers)
    for _ in range(10):
        await turn()
