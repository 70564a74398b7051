"""An unmodified RocketMQ 4.9.7 broker, the newest of 4.9 that Maven Central has whole."""

from pathlib import Path

from tests.support.jvm import JARS_4, JAVA_SOURCES, rocketmq_jvm
from tests.support.processes import Process
from tests.support.rocketmq import BROKER_MAIN, Broker

# It was written for Java 8: closing a mapped file reaches into java.base, and a stop ends where it may not.
_OPENED = ("java.nio", "jdk.internal.ref", "sun.nio.ch")


class Rocketmq4Broker(Broker):
    """Registers without what 5.x added: no acting master, no zone, no static topics, 322 only if asked to."""

    # BrokerOuterAPI.registerBrokerAll.
    _registered = "to name server"

    def _jvm(self, name: str, properties: Path, work_dir: Path) -> Process:
        # BrokerStartup reads this file, and takes no property that names another.
        logback = work_dir / "conf" / "logback_broker.xml"
        logback.parent.mkdir(parents=True, exist_ok=True)
        logback.write_text((JAVA_SOURCES / "logback.xml").read_text().replace("org.apache.rocketmq.logging.ch.", "ch."))
        return rocketmq_jvm(
            name,
            BROKER_MAIN,
            ["-c", str(properties)],
            work_dir,
            heap_mb=384,
            log_level="INFO",
            jars_dir=JARS_4,
            jvm_flags=[f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED],
        )
