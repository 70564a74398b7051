"""The cost of a query and of a heartbeat with growing tables and logs, in one process without sockets, Kafka and Spark.

Goals: the cost of a query does not depend on the number of topics and brokers, and the fold's cost is linear in
records. The figures include the effect of processor caches on a hundred times the memory, so up to twice the cost
counts as equal.
"""

import random
from time import process_time
from typing import Final

from namesrv_stream.processor.dispatch import process
from namesrv_stream.processor.name_server import Call, Peer
from namesrv_stream.remoting.frame import decode_frame, encode_frame
from namesrv_stream.route.events import Origin
from namesrv_stream.server.native.lane import open_lane
from namesrv_stream.server.net.cached_answers import CachedRouteAnswers
from namesrv_stream.server.net.response_cache import ResponseCache
from namesrv_stream.settings import RemotingSettings
from tests.bench.contenders import OURS
from tests.bench.figures import Figure, Spread
from tests.bench.fold_speed import heartbeats_per_second
from tests.bench.frames import registrations, route_reads
from tests.bench.rows.bench import Bench
from tests.bench.shape import Shape
from tests.support.name_server import Exchange

#: The first shape is that of the other rows. With 200 topics, everything would fit into a core's own cache.
SHAPES: Final = (Shape(2_000, 100), Shape(20_000, 1_000), Shape(100_000, 5_000))
#: Number of brokers, and of heartbeats of each.
FLEETS: Final = ((100, 100), (1_000, 10), (1_000, 100), (10_000, 10))
_QUERIES: Final = 20_000
_REPEATS: Final = 5
_MOST_TIMES: Final = 2


def measure(_: Bench) -> list[Figure]:
    """Measure the processor time of both at each size; the median of a few runs."""
    queries = {f"µs, {one.topics:,} topics on 4 of {one.brokers:,} brokers": query_us(one) for one in SHAPES}
    beats = {f"µs, {rounds} of each of {brokers:,}": heartbeat_us(brokers, rounds) for brokers, rounds in FLEETS}
    return [*_growth("a query as the table grows", queries), *_growth("a heartbeat folded as the log grows", beats)]


def query_us(shape: Shape) -> Spread:
    """Return the processor time of a route query for a random topic, from its frame to the answer's frame."""
    exchange = Exchange()
    for number, (frame, _) in enumerate(registrations(shape)):
        exchange.send(decode_frame(frame[4:]), connection=number + 1)
    exchange.logged.clear()
    exchange.server.answers = CachedRouteAnswers(exchange.view)
    responses = ResponseCache(open_lane(RemotingSettings())[0])
    frames = [framed.frame[4:] for framed in route_reads(shape.topic_names)]
    origin, peer = Origin("s1", 1), Peer("127.0.0.1", False)
    for frame in frames:
        request = decode_frame(frame)
        answer = process(exchange.server, Call(request, origin, 0, peer))
        responses.keep(frame, request, answer, encode_frame(answer.response), 1)
    asked = random.Random(1).choices(frames, k=_QUERIES)
    taken = []
    for _ in range(1 + _REPEATS):
        began = process_time()
        for frame in asked:
            assert responses.find(frame, 1) is not None
        taken.append((process_time() - began) / len(asked) * 1e6)
    return Spread.of(taken[1:])


def heartbeat_us(brokers: int, rounds: int) -> Spread:
    """Return the processor time of one heartbeat in a record of fifty."""
    return Spread.of([1e6 / heartbeats_per_second(brokers, rounds=rounds) for _ in range(_REPEATS)])


def _growth(row: str, costs: dict[str, Spread]) -> list[Figure]:
    first, *others = costs
    least = costs[first].median
    return [
        Figure(row, first, {OURS: costs[first]}, digits=2),
        *(
            Figure(
                row,
                name,
                {OURS: costs[name]},
                f"≤ {_MOST_TIMES} times the first",
                costs[name].median <= _MOST_TIMES * least,
                digits=2,
            )
            for name in others
        ),
    ]
