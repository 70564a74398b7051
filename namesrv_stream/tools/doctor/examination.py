"""The examination: all checks, from the machine to the tables; a failed check does not stop the next one."""

from collections.abc import Generator, Iterator

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka.inspection import InspectedLog, inspect_log
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import running_parts
from namesrv_stream.tools.doctor import log_and_tables, machine, running
from namesrv_stream.tools.doctor.finding import Finding, fault, note


def examine(settings: Settings, urls: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Run all checks; blocks, for some seconds if Kafka or a server does not answer.

    It changes nothing, except for a file that it writes to an object store and removes.

    Args:
        urls: Servers to check, ``http://host:port``; if empty, the one of this data directory.
    """
    yield machine.packages()
    yield machine.native_lane(settings)
    yield from machine.java_and_jars(settings)
    yield machine.memory(settings, machine.memory_limit_bytes())
    yield machine.open_files(settings)
    yield from machine.disk(settings)
    yield machine.clock_sync()
    yield from running.processes(settings)
    yield from running.ports(settings)
    yield from running.exposure(settings)
    yield from log_and_tables.object_store(settings)
    rows = log_and_tables.read_route_tables(settings)
    log = yield from _log(settings)
    yield from log_and_tables.route_tables(settings, rows, log)
    yield from log_and_tables.history_tables(settings)
    yield from running.servers(settings, urls)


def _log(settings: Settings) -> Generator[Finding, None, InspectedLog | None]:
    """Check Kafka; returns the inspected log, None if Kafka did not answer."""
    if settings.is_kafka_embedded and "kafka" not in running_parts(settings.data.run_dir):
        yield note(
            "Kafka", "the embedded Kafka does not run: start it with `namesrv-stream up` or `namesrv-stream kafka`"
        )
        return None
    try:
        log = inspect_log(settings)
    except KafkaUnreachable as error:
        yield fault("Kafka", error.name, error.remedy)
        return None
    except ConfigError as error:
        yield fault("Kafka", f"{error.key}: {error.reason}", f"correct {error.source}")
        return None
    yield from log_and_tables.event_log(settings, log)
    yield from log_and_tables.kafka_clock(log, SystemClock().now_ms(), "job" in running_parts(settings.data.run_dir))
    return log
