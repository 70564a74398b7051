"""The fleet as a process: ``python -m tests.chaos.fleet SPEC``; it reads commands from its standard input.

``cut SERVER CLUSTER`` and ``heal SERVER CLUSTER`` ("*" for all clusters), ``calm`` (from now on no broker ends or
starts), ``stop``. It runs alone in its process, records every stall of its own loop, and knows only the answers of the
name servers.
"""

import asyncio
import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import uvloop

from tests.chaos.fleet_link import FleetLink, Network
from tests.chaos.fleet_plan import FleetSize, Slot, SlotDraws, slots
from tests.chaos.truth import STALL_MS, Journal

_WATCH_S: Final = 0.1
_LATE_CLOSE_S: Final = 3.0


class Fleet:
    """The fleet: a task for each slot."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._journal = Journal(Path(spec["journal"]))
        self._network = Network()
        self._network.addrs = {server: (host, port) for server, (host, port) in spec["servers"].items()}
        self._size = FleetSize.from_json(spec["size"])
        self._seed = int(spec["seed"])
        self._lives = itertools.count(1)
        self._calm = asyncio.Event()

    async def run(self) -> None:
        """Run until ``stop``; an exception that ends a broker is a mistake in this program and is raised."""
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._watch())]
            for slot in slots(self._size, tuple(self._network.addrs), self._seed):
                running.append(tasks.create_task(self._live(slot)))
            await self._obey(tasks)
            for task in running:
                task.cancel()
        self._journal.close()

    async def _obey(self, tasks: asyncio.TaskGroup) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).decode().split():
            self._journal.write("told", line=" ".join(line))
            match line:
                case ["cut", server, cluster]:
                    self._network.cut(server, cluster.strip("*"))
                case ["heal", server, cluster]:
                    self._network.heal(server, cluster.strip("*"))
                    tasks.create_task(self._close_late(server))
                case ["calm"]:
                    self._calm.set()
                case _:
                    return

    async def _close_late(self, server: str) -> None:
        await asyncio.sleep(_LATE_CLOSE_S)
        self._network.close_lingering(server)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        before_s = loop.time()
        while True:
            await asyncio.sleep(_WATCH_S)
            stood_ms = int((loop.time() - before_s - _WATCH_S) * 1000)
            before_s = loop.time()
            if stood_ms > STALL_MS:
                self._journal.write("stall", ms=stood_ms, part="fleet")

    async def _live(self, slot: Slot) -> None:
        """Run one broker process after another."""
        fate = SlotDraws(slot, self._size, self._seed)
        await asyncio.sleep(slot.number * 0.005)
        addr_number, broker_id = 0, slot.broker_id
        while True:
            await self._one_life(slot, fate, broker_id, slot.addr(addr_number))
            if await self._is_calm_after(fate.down_s()):
                return
            restart = fate.restart()
            if restart != "same":
                addr_number += 1
            if restart == "broker_id":
                broker_id = (broker_id + 2) % 8

    async def _one_life(self, slot: Slot, fate: SlotDraws, broker_id: int, addr: str) -> None:
        number = next(self._lives)
        self._journal.write(
            "up",
            life=number,
            broker_name=slot.broker_name,
            cluster=slot.cluster,
            broker_addr=addr,
            broker_id=broker_id,
            timeout_ms=slot.effective_ms,
            servers=slot.servers,
        )
        links = [
            FleetLink(slot, number, broker_id, addr, server, self._network, self._journal, fate.jitter)
            for server in slot.servers
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(link.run()) for link in links]
            if slot.is_immortal or await self._is_calm_after(fate.up_s()):
                await asyncio.Event().wait()
            how = fate.death()
            self._journal.write("down", life=number, how=how)
            for task in running:
                task.cancel()
        if how == "unregistered":
            await asyncio.gather(*(link.unregister() for link in links))
        is_abrupt = fate.is_abrupt()
        for link in links:
            link.end(how, is_abrupt=is_abrupt)

    async def _is_calm_after(self, seconds: float) -> bool:
        """Wait; returns whether ``calm`` was received before the end of that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._calm.wait()
        except TimeoutError:
            return False
        return True


def spec_of(journal: Path, servers: dict[str, tuple[str, int]], size: FleetSize, seed: int) -> str:
    """Return the only argument of the command line."""
    return json.dumps({"journal": str(journal), "servers": servers, "size": asdict(size), "seed": seed})


async def _main() -> None:
    await Fleet(json.loads(sys.argv[1])).run()


if __name__ == "__main__":
    uvloop.run(_main())
