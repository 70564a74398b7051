"""The client for programs without asyncio."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from namesrv_stream.client import BlockingClient, ClientClosed, TopicNotExist, kv_value
from namesrv_stream.client.client_errors import AddressServerUnreachable
from namesrv_stream.ports import choose_port
from tests.support.scripted_name_server import ScriptedNameServer, ScriptedRoutes


@pytest.fixture
def name_server() -> Iterator[ScriptedNameServer]:
    """A scripted name server with an event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = ScriptedNameServer(ScriptedRoutes({"t": {"a": 4}}))
    asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    yield server
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_calls_wait_for_their_answers(name_server: ScriptedNameServer) -> None:
    with BlockingClient(name_server.addr) as client:
        assert client.topic_list() == ("t",)
        assert client.select_queue("t").broker_addr == "a:10911"
        assert len(client.readable_queues("t")) == 4
        with pytest.raises(TopicNotExist):
            client.route("none")
        with pytest.raises(Exception, match="no value"):
            client.run(lambda client: kv_value(client.name_servers, "ns", "k"))


def test_threads_can_share_a_client(name_server: ScriptedNameServer) -> None:
    with BlockingClient(name_server.addr) as client, ThreadPoolExecutor(8) as threads:
        chosen = list(threads.map(lambda _: client.select_queue("t").queue_id, range(400)))
    assert [chosen.count(queue_id) for queue_id in range(4)] == [100] * 4
    assert name_server.connections == 1


def test_client_is_closed_outside_the_block(name_server: ScriptedNameServer) -> None:
    client = BlockingClient(name_server.addr)
    with pytest.raises(ClientClosed):
        client.topic_list()
    with client:
        client.topic_list()
    with pytest.raises(ClientClosed):
        client.topic_list()
    assert not [thread for thread in threading.enumerate() if thread.name == "name-server-client"]


def test_a_start_that_fails_leaves_no_thread() -> None:
    client = BlockingClient(f"http://127.0.0.1:{choose_port('127.0.0.1')}/rocketmq/nsaddr")
    with pytest.raises(AddressServerUnreachable), client:
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "name-server-client"]


def test_close_ends_the_calls_of_every_thread(name_server: ScriptedNameServer) -> None:
    def ask(client: BlockingClient) -> BaseException | None:
        try:
            while True:
                client.topic_list()
        except Exception as error:
            return error

    with ThreadPoolExecutor(8) as threads:
        for _ in range(10):
            with BlockingClient(name_server.addr) as client:
                asking = [threads.submit(ask, client) for _ in range(8)]
                client.topic_list()
            assert [type(future.result(30)) for future in asking] == [ClientClosed] * 8


_ENDLESS_CALL = """
import asyncio, sys
from namesrv_stream.client import BlockingClient

async def wait():
    print("waiting", flush=True)
    await asyncio.sleep(3_600)

with BlockingClient(sys.argv[1]) as client:
    client.run(lambda _: wait())
"""


def test_interrupted_call_does_not_delay_the_close(name_server: ScriptedNameServer) -> None:
    command = [sys.executable, "-c", _ENDLESS_CALL, name_server.addr]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        for _ in range(6):
            # Repeated because CPython does not notice a signal that arrives just before the caller begins to wait.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        process.kill()
    assert process.returncode == -signal.SIGINT
