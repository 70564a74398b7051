"""The route cache: routes are fetched once, kept during failures, and removed when unused."""

import asyncio
import logging

import pytest

from namesrv_stream.client import ClientClosed, NameServersUnreachable, TopicNotExist, TopicRouteData
from namesrv_stream.client.route import decode_topic_route
from namesrv_stream.client.route_cache import RouteCache, TopicRoute
from namesrv_stream.errors import NamesrvStreamError

NEVER_MS = 3_600_000


class Answers:
    """Answers of a name server, returned at once or delayed.

    Attributes:
        asked: Topics in order of the requests.
        error: Raised instead of an answer.
        is_open: Cleared to delay answers.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: NamesrvStreamError | None = None
        self.queues = 1
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def fetch(self, topic: str) -> TopicRouteData:
        self.asked.append(topic)
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        body = (
            '{"brokerDatas":[{"brokerName":"a","cluster":"c","brokerAddrs":{"0":"h:1"}}],"queueDatas":'
            f'[{{"brokerName":"a","readQueueNums":1,"writeQueueNums":{self.queues},"perm":6}}]}}'
        )
        return decode_topic_route(topic, body.encode())


async def test_concurrent_callers_share_one_request() -> None:
    answers = Answers()
    answers.is_open.clear()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    calls = [asyncio.ensure_future(cache.get("t")) for _ in range(1_000)]
    await asyncio.sleep(0)
    calls[0].cancel()  # the other callers wait for the same request
    answers.is_open.set()
    _, *routes = await asyncio.gather(*calls, return_exceptions=True)
    assert answers.asked == ["t"]
    assert len(routes) == 999
    assert not any(isinstance(route, BaseException) for route in routes)


async def test_a_known_route_is_answered_from_memory() -> None:
    answers = Answers()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    routes = [await cache.get("t") for _ in range(10)]
    assert answers.asked == ["t"]
    assert routes[0].data is routes[9].data
    assert (routes[9].topic, routes[9].last_error) == ("t", None)
    assert len(routes[9].writable_queues) == 1


async def test_missing_topic_is_not_requested_by_every_caller() -> None:
    answers = Answers()
    answers.error = TopicNotExist("t")
    cache = RouteCache(answers.fetch, NEVER_MS, NEVER_MS)
    for _ in range(10):
        with pytest.raises(TopicNotExist):
            await cache.get("t")
    assert answers.asked == ["t"]


async def test_missing_topic_is_requested_again_after_a_while() -> None:
    answers = Answers()
    answers.error = TopicNotExist("t")
    cache = RouteCache(answers.fetch, 0, NEVER_MS)
    with pytest.raises(TopicNotExist):
        await cache.get("t")
    answers.error = None
    assert (await cache.get("t")).last_error is None


async def test_a_refresh_updates_a_changed_route() -> None:
    answers = Answers()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    await cache.get("t")
    answers.queues = 3
    await cache.refresh()
    assert len((await cache.get("t")).writable_queues) == 3


async def test_a_refresh_also_finds_topics_that_were_missing() -> None:
    answers = Answers()
    answers.error = TopicNotExist("t")
    cache = RouteCache(answers.fetch, NEVER_MS, NEVER_MS)
    with pytest.raises(TopicNotExist):
        await cache.get("t")
    answers.error = None
    await cache.refresh()
    assert (await cache.get("t")).topic == "t"


@pytest.mark.parametrize("error", [TopicNotExist("t"), NameServersUnreachable({"h:1": "gone"})])
async def test_route_stays_with_an_error_when_a_refresh_fails(
    error: NamesrvStreamError, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    await cache.get("t")
    answers.error = error
    with caplog.at_level(logging.INFO, logger="namesrv_stream.client.route_cache"):
        await cache.refresh()
        await cache.refresh()
        stale = await cache.get("t")
        assert stale.last_error is error
        assert len(stale.writable_queues) == 1
        answers.error = None
        await cache.refresh()
    assert (await cache.get("t")).last_error is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_age_is_counted_from_the_last_answer() -> None:
    answers = Answers()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    await cache.get("t")
    answers.error = TopicNotExist("t")
    began_s = asyncio.get_running_loop().time()
    await asyncio.sleep(0.03)
    await cache.refresh()
    route = await cache.get("t")
    assert 25 <= route.age_ms <= (asyncio.get_running_loop().time() - began_s) * 1000 + 1_000


async def test_round_of_refreshes_ends_early_when_no_server_answers() -> None:
    answers = Answers()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    for number in range(500):
        await cache.get(f"t{number}")
    answers.asked.clear()
    answers.error = NameServersUnreachable({"h:1": "gone"})
    await cache.refresh()
    assert len(answers.asked) < 50
    assert (await cache.get("t499")).last_error is answers.error


async def test_unused_topics_are_removed_from_the_cache() -> None:
    cache = RouteCache(Answers().fetch, 1_000, 0)
    await cache.get("t")
    assert cache.topics == {"t"}
    await cache.refresh()
    assert cache.topics == frozenset()


async def test_unexpected_exception_reaches_every_caller() -> None:
    async def fetch(topic: str) -> TopicRouteData:
        raise RuntimeError(topic)

    cache = RouteCache(fetch, NEVER_MS, NEVER_MS)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="t"):
            await cache.get("t")


async def a_pending_request() -> tuple[RouteCache, asyncio.Future[TopicRoute]]:
    """A cache, and a caller whose request is never answered."""
    answers = Answers()
    answers.is_open.clear()
    cache = RouteCache(answers.fetch, 1_000, NEVER_MS)
    call = asyncio.ensure_future(cache.get("t"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return cache, call


async def test_close_ends_pending_requests() -> None:
    cache, call = await a_pending_request()
    await cache.close()
    with pytest.raises(ClientClosed):
        await call
    with pytest.raises(ClientClosed):
        await cache.get("t")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_caller_that_is_cancelled_while_the_cache_closes_is_cancelled() -> None:
    cache, call = await a_pending_request()
    closing = asyncio.ensure_future(cache.close())
    await asyncio.sleep(0)
    call.cancel()
    await closing
    with pytest.raises(asyncio.CancelledError):
        await call
