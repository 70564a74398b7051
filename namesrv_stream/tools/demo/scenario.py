"""The steps of the demo, in order. Each prints what it does and measures, and fails if its effect is missing."""

import asyncio
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

from namesrv_stream.client import topic_route
from namesrv_stream.client.commands.answer_text import route_lines
from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.tools.demo.output import COLUMNS, History, Output, cells, ends_of
from namesrv_stream.tools.demo.stage import TOPIC, Stage, StepFailed

_EXIT_INTERRUPTED: Final = 130  # the shell's 128 + SIGINT

_HEARTBEAT_S: Final = 1.0
_TIMEOUT_S: Final = 5.0
_SHORT_HEARTBEATS: Final = ("--heartbeat-interval", "1s", "--timeout-ms", "5000")

_READING_S: Final = 3.0  # time for a person to read a step

# How long each step may take.
_REGISTER_LIMIT_S: Final = 20.0  # three Python processes start, perhaps on a busy machine
_LEFT_LIMIT_S: Final = 2.0  # an unregistration is seen at once
_EXPIRE_LIMIT_S: Final = 15.0
_RETURN_LIMIT_S: Final = 5.0
_JOB_LIMIT_S: Final = 120.0
_TABLE_LIMIT_S: Final = 30.0


def run_demo(data_dir: Path | None = None) -> int:
    """Run all steps; blocks for about a minute.

    Args:
        data_dir: Data directory to keep; it must be empty or absent. None for a temporary one, which is kept only
            after a failure.

    Returns:
        0 if all steps succeeded and everything stopped cleanly, else 1; the exit code of `up` if that did not start;
        130 if interrupted.

    Raises:
        ConfigError: ``data_dir`` is in use.
    """
    if data_dir is not None and data_dir.exists() and any(data_dir.iterdir()):
        raise ConfigError("command line", "--data-dir", f"{data_dir} is not empty")
    place = data_dir or Path(tempfile.mkdtemp(prefix="namesrv-stream-demo-"))
    try:
        code = asyncio.run(_run(place.absolute()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = _EXIT_INTERRUPTED
    if data_dir is None and code in (0, _EXIT_INTERRUPTED):
        shutil.rmtree(place, ignore_errors=True)
    return code


async def _run(data_dir: Path) -> int:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    output = Output()
    stage = Stage(output, data_dir, History(data_dir))
    code = 0
    output.title("namesrv-stream: a name server for Apache RocketMQ, with Kafka, Spark and Delta Lake")
    try:
        for step in (_start, _register, _query, _kill, _freeze, _thaw, _leave, _show_history):
            await step(stage)
            await asyncio.sleep(_READING_S if output.is_watched else 0)
    except NamesrvStreamError as error:
        output.failed(str(error))
        code = error.exit_code
    finally:
        output.step("Stopping everything")
        complaints = await stage.close()
    for complaint in complaints:
        output.failed(complaint)
    if code == 0 and not complaints:
        output.done("All steps succeeded, nothing is left running.")
        return 0
    output.note(f"see {data_dir} for the data and {data_dir / 'logs'} for the logs")
    return code or 1


async def _start(stage: Stage) -> None:
    stage.output.step(
        "Starting Kafka, the Spark job and the name server on this machine: `namesrv-stream up`",
        "Brokers can register as soon as it prints READY, while Spark is still starting.",
    )
    await stage.start_up()
    stage.output.done(f"READY: the name server listens at {stage.name_server}")


async def _register(stage: Stage) -> None:
    names = ("broker-a", "broker-b", "broker-c")
    stage.output.step(
        f"Three brokers register topic `{TOPIC}`: {', '.join(names)}", "Each one is a `namesrv-stream agent`."
    )
    for name in names:
        await stage.start_broker(name, *_SHORT_HEARTBEATS)
    took_s = await stage.until_serving(set(names), _REGISTER_LIMIT_S)
    stage.output.measured("All three started and serve the topic", took_s, _REGISTER_LIMIT_S)


async def _query(stage: Stage) -> None:
    stage.output.step("Querying the route, as RocketMQ clients and mqadmin do (request code 105)")
    assert stage.servers is not None, "the name server runs"
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    route = await topic_route(stage.servers, TOPIC)
    took_s = loop.time() - began_s
    stage.output.command(f"namesrv-stream route {TOPIC} -n {stage.name_server}")
    stage.output.output(route_lines(route, None))
    stage.output.done(f"Answered from memory in {took_s * 1000:.1f} ms")


async def _kill(stage: Stage) -> None:
    if not stage.is_job_ready:
        stage.output.note("waiting for the Spark job, which still starts: it alone removes brokers")
        await stage.measure(lambda: stage.is_job_ready, _JOB_LIMIT_S, "the Spark job's first batch")
    stage.output.step(
        "kill -9 of broker-b",
        "Its connection closes, so the job's next commit removes it from the route.",
    )
    stage.brokers["broker-b"].kill()
    took_s = await stage.until_serving({"broker-a", "broker-c"}, _TABLE_LIMIT_S)
    stage.output.measured("broker-b is removed from the route", took_s, _TABLE_LIMIT_S)
    await _show_end(stage, "broker-b", "disconnected")


async def _freeze(stage: Stage) -> None:
    stage.output.step(
        f"Freezing broker-c (SIGSTOP); its timeout is {_TIMEOUT_S:g} s, it sent a heartbeat every {_HEARTBEAT_S:g} s",
        f"Its connection stays open, so it expires by its timeout. The {_TIMEOUT_S:g} s count from its last heartbeat,"
        " which it sent up to one interval before the freeze.",
    )
    stage.brokers["broker-c"].freeze()
    took_s = await stage.until_serving({"broker-a"}, _EXPIRE_LIMIT_S)
    # Its last heartbeat was at most one jittered interval before the freeze.
    earliest_s = _TIMEOUT_S - 1.1 * _HEARTBEAT_S
    if took_s < earliest_s:
        raise StepFailed(f"broker-c expired after {took_s:.1f} s, before its timeout of {_TIMEOUT_S:g} s")
    stage.output.measured("broker-c has expired, measured from the freeze", took_s, _EXPIRE_LIMIT_S)
    await _show_end(stage, "broker-c", "expired")


async def _thaw(stage: Stage) -> None:
    stage.output.step("Resuming broker-c (SIGCONT)", "Its next heartbeat registers it again with all its topics.")
    stage.brokers["broker-c"].thaw()
    took_s = await stage.until_serving({"broker-a", "broker-c"}, _RETURN_LIMIT_S)
    stage.output.measured("broker-c is in the route again", took_s, _RETURN_LIMIT_S)


async def _leave(stage: Stage) -> None:
    stage.output.step("Stopping broker-a cleanly (SIGTERM): it unregisters")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    code = await stage.brokers["broker-a"].stop(_RETURN_LIMIT_S)
    if code != 0:
        raise StepFailed(f"broker-a ended with {code}: {stage.brokers['broker-a'].lines[-1:]}")
    await stage.until_serving({"broker-c"}, _LEFT_LIMIT_S)
    stage.output.measured("broker-a is unregistered", loop.time() - began_s, _RETURN_LIMIT_S)
    await _show_end(stage, "broker-a", "unregistered")


async def _show_history(stage: Stage) -> None:
    stage.output.step(
        "The audit trail: what happened to every broker, when and why",
        "Rows of the Delta table tables/route_changes, read with Polars; `offset` is the Kafka record behind each.",
    )
    rows = await _rows(stage)
    stage.output.table(COLUMNS, map(cells, rows))
    more = await asyncio.to_thread(stage.history.count) - len(rows)
    stage.output.done(
        f"{len(rows)} rows about broker processes; {more} more about their topics, connections and servers"
    )


async def _show_end(stage: Stage, broker_name: str, cause: str) -> None:
    """Show the row with the cause of a broker's end; it must be in the table, with this cause."""

    async def is_written() -> bool:
        return bool(ends_of(await _rows(stage), broker_name))

    took_s = await stage.measure(is_written, _TABLE_LIMIT_S, f"a row about the end of {broker_name}")
    end = ends_of(await _rows(stage), broker_name)[-1]
    if end["cause"] != cause:
        raise StepFailed(f"the table has cause {end['cause']} for {broker_name}, not {cause}")
    stage.output.measured(f"The table has the cause: {cause}, Kafka offset {end['offset']}", took_s, _TABLE_LIMIT_S)
    if end["detail"]:
        stage.output.note(end["detail"])


async def _rows(stage: Stage) -> list[dict[str, Any]]:
    return await asyncio.to_thread(stage.history.brokers)
