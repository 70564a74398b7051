"""The examination: all checks, from the machine to the tables; a failed check does not stop the next one."""

from collections.abc import Generator, Iterator

from namesrv_stream.clock import SystemClock
from namesrv_stream.errors import ConfigError, KafkaUnreachable
from namesrv_stream.kafka.inspection import InspectedLog, inspect_log
from namesrv_stream.settings import Settings
from namesrv_stream.settings.installation import running_parts
from namesrv_stream.tools.doctor import log_and_tables as event_log
from namesrv_stream.tools.doctor import log_and_tables as stored_tables
from namesrv_stream.tools.doctor import machine, running
from namesrv_stream.tools.doctor import machine as packages
from namesrv_stream.tools.doctor.finding import Finding, fault, note


def examine(settings: Settings, urls: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Look at everything; blocks, for some seconds where Kafka or a server does not answer. Changes nothing, but
    for a file that is written to an object store and removed.

    Args:
        settings: Of the set-up that is looked over.
        urls: Servers to ask, ``http://host:port``; that of this data directory where empty.
    """
    yield packages.packages()
    yield packages.native_lane(settings)
    yield from machine.java_and_jars(settings)
    yield machine.memory(settings, machine.memory_limit_bytes())
    yield machine.open_files(settings)
    yield from machine.disk(settings)
    yield machine.clock_sync()
    yield from running.processes(settings)
    yield from running.ports(settings)
    yield from running.exposure(settings)
    yield from stored_tables.object_store(settings)
    rows = stored_tables.read_route_tables(settings)
    log = yield from _log(settings)
    yield from stored_tables.route_tables(settings, rows, log)
    yield from stored_tables.history_tables(settings)
    yield from running.servers(settings, urls)


def _log(settings: Settings) -> Generator[Finding, None, InspectedLog | None]:
    """What is found of Kafka; returns what it said, None where it did not answer."""
    if settings.is_kafka_embedded and "kafka" not in running_parts(settings.data.run_dir):
        yield note("Kafka", "the embedded one does not run: `namesrv-stream up` starts it, or `namesrv-stream kafka`")
        return None
    try:
        log = inspect_log(settings)
    except KafkaUnreachable as error:
        yield fault("Kafka", error.name, error.remedy)
        return None
    except ConfigError as error:
        yield fault("Kafka", f"{error.key}: {error.reason}", f"correct it in {error.source}")
        return None
    yield from event_log.event_log(settings, log)
    yield from event_log.kafka_clock(log, SystemClock().now_ms(), "job" in running_parts(settings.data.run_dir))
    return log
