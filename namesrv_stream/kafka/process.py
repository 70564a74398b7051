"""The embedded Kafka: one KRaft node on this machine, its log under the data directory.

This process makes the configuration, formats the storage once and then *becomes* the Java process, so whoever started
it watches, signals and reaps Kafka itself.
"""

import base64
import os
import subprocess
import uuid
from pathlib import Path
from typing import Final, NoReturn

from namesrv_stream.errors import ConfigError, NamesrvStreamError
from namesrv_stream.kafka.clients import bootstrap_servers
from namesrv_stream.kafka.node_config import log4j2_properties, node_properties
from namesrv_stream.logs import progress
from namesrv_stream.ports import choose_port, reachable_host, require_free
from namesrv_stream.prerequisites import find_java, kafka_jars
from namesrv_stream.run_files import read_run_file, write_run_file
from namesrv_stream.settings import Settings

_FORMAT_TIMEOUT_S: Final = 120

# C1 only: half the start-up processor time of C2 on two cores, and fast enough for the log of one machine (docs/adr).
_JVM_FLAGS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def run_kafka(settings: Settings) -> NoReturn:
    """Become the embedded Kafka; stops on SIGTERM.

    Raises:
        PrerequisiteMissing: No Java 17 or no jars.
        ConfigError: The port is taken, or the data directory cannot be written.
    """
    java = find_java()
    jars = settings.jars.kafka_dir
    kafka_jars(jars).require()
    home = settings.data.kafka_dir
    try:
        home.mkdir(parents=True, exist_ok=True)
        config = _configure(settings)
    except OSError as error:
        raise ConfigError("settings", "data.dir", f"{home} cannot be written: {error.strerror}") from None
    classpath = f"{jars}/*"
    if not (home / "log" / "meta.properties").is_file():
        progress("formatting Kafka's storage")
        _format(java, classpath, home, config)
    command = [
        str(java),
        f"-Xmx{settings.embedded_kafka.heap}",
        *_JVM_FLAGS,
        f"-XX:ErrorFile={settings.data.logs_dir}/kafka-hs-err.log",
        f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
        "-cp",
        classpath,
        "kafka.Kafka",
        str(config),
    ]
    progress(f"Kafka is going to listen at {bootstrap_servers(settings)}")
    os.execv(command[0], command)


def _configure(settings: Settings) -> Path:
    """Write the node's files and say where it will listen; returns the path of its configuration."""
    home = settings.data.kafka_dir
    if "," in str(home):
        raise ConfigError("settings", "data.dir", f"{home}: Kafka's log.dirs cannot name a folder with a comma")
    host = settings.embedded_kafka.listen_host
    last = read_run_file(home / "ports.json") or {}
    listen_port = settings.embedded_kafka.listen_port or choose_port(host, int(last.get("listen_port", 0)))
    require_free(host, listen_port, "embedded_kafka")
    controller_port = choose_port("127.0.0.1", int(last.get("controller_port", 0)), taken=[listen_port])
    write_run_file(home / "ports.json", {"listen_port": listen_port, "controller_port": controller_port})
    (home / "log4j2.properties").write_text(log4j2_properties(), encoding="utf-8")
    config = home / "server.properties"
    config.write_text(node_properties(settings, home / "log", listen_port, controller_port), encoding="utf-8")
    write_run_file(settings.data.run_dir / "kafka.json", {"kafka": f"{reachable_host(host)}:{listen_port}"})
    return config


def _format(java: Path, classpath: str, home: Path, config: Path) -> None:
    # An id is 16 bytes in base64; one that begins with a dash would be read as a flag.
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    command: list[str | Path] = [java, "-Xmx128m", *_JVM_FLAGS]
    command += [f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}", "-cp", classpath]
    command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config]
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NamesrvStreamError(f"Kafka's storage was not formatted within {_FORMAT_TIMEOUT_S} s") from None
    if outcome.returncode:
        output = (outcome.stderr or outcome.stdout).strip().splitlines() or ["no reason given"]
        raise NamesrvStreamError(f"Kafka's storage in {home} cannot be formatted: {output[-1]}")
