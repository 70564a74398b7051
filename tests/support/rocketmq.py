"""Unmodified RocketMQ 5.3.3 servers as child processes: the Java NameServer and the broker.

Every name-server address is an argument, so that a broker can use the Java NameServer or namesrv-stream.
"""

import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from namesrv_stream.addresses import join_addr, split_addr
from tests.support.jvm import JARS, rocketmq_jvm
from tests.support.processes import Process, free_port, wait_until
from tests.support.remoting_client import RemotingClient

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
REGISTRATION_TIMEOUT_S = 30.0

BROKER_MAIN = "org.apache.rocketmq.broker.BrokerStartup"

# RequestCode.UPDATE_BROKER_CONFIG; AdminBrokerProcessor registers again when brokerPermission is among the keys.
_UPDATE_BROKER_CONFIG = 25
# A broker listens on two more ports: "fast remoting" on listenPort - 2 (BrokerController) and replication on
# haListenPort, which BrokerStartup sets to listenPort + 1.
_FAST_REMOTING_OFFSET = -2
_HA_OFFSET = 1


class _RocketmqServer:
    """The common part of the Java NameServer and the broker: one JVM, signals, an address."""

    def __init__(self, process: Process, port: int, host: str = "127.0.0.1") -> None:
        self.process = process
        self.port = port
        self._host = host

    @property
    def addr(self) -> str:
        """``host:port`` it listens on."""
        return join_addr(self._host, self.port)

    @property
    def is_alive(self) -> bool:
        """Whether its process runs; a frozen one does."""
        return self.process.is_alive

    def start(self) -> None:
        """Start the server and wait until it is up.

        Raises:
            AssertionError: The server did not start; shows the end of its log.
        """
        self.process.start()
        self.process.wait_for_log("boot success", START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop it gracefully (SIGTERM) and wait for its end.

        Raises:
            AssertionError: It did not end in time.
        """
        self.process.terminate(STOP_TIMEOUT_S)

    def begin_stop(self) -> None:
        """Begin to stop the server (SIGTERM): a broker unregisters at once, and ends some ten seconds later."""
        self.process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (SIGKILL): its connections close, and nothing is unregistered."""
        self.process.kill()

    def freeze(self) -> None:
        """Suspend the server (SIGSTOP): it is silent, and its connections stay open."""
        self.process.freeze()

    def thaw(self) -> None:
        """Let the server continue (SIGCONT)."""
        self.process.thaw()

    def close(self) -> None:
        """Kill it and its child processes."""
        self.process.close()

    def __enter__(self) -> Self:
        """Start it and wait until it is up."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it."""
        self.close()


class JavaNameServer(_RocketmqServer):
    """The Java NameServer, the original that namesrv-stream is compared with.

    Args:
        work_dir: Its home, with its key-value file and log.
        port: Port to listen on; a free one if not given.
        heap_mb: Maximum heap in MiB. RocketMQ's script sets 4 GB.
        properties: Keys of its configuration file, such as ``orderMessageEnable``.
        fast_start: Whether the JVM compiles quickly (tests) or thoroughly (benchmarks).
        jars_dir: Directory of the release's jars.
        jvm_flags: Further flags of the JVM.
    """

    def __init__(
        self,
        work_dir: Path,
        *,
        port: int | None = None,
        heap_mb: int = 192,
        properties: Mapping[str, str] | None = None,
        fast_start: bool = True,
        jars_dir: Path = JARS,
        jvm_flags: Sequence[str] = (),
    ) -> None:
        port = port or free_port()
        config = {"listenPort": str(port), "bindAddress": "127.0.0.1", **(properties or {})}
        process = rocketmq_jvm(
            "java-name-server",
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            ["-c", str(_write_properties(work_dir / "namesrv.properties", config))],
            work_dir,
            heap_mb=heap_mb,
            fast_start=fast_start,
            jars_dir=jars_dir,
            jvm_flags=jvm_flags,
        )
        super().__init__(process, port)


class Broker(_RocketmqServer):
    """A RocketMQ 5.3.3 broker with a small store.

    After a restart, the broker has the same address and messages.

    Args:
        work_dir: Its home, with store and log.
        namesrv_addr: Name servers, ``host:port`` separated by ``;``; None for those that an HTTP server lists.
        name: ``brokerName``.
        cluster: ``brokerClusterName``.
        broker_id: 0 for a master, more for a slave.
        port: ``listenPort``; if not given, a port whose neighbours are also free.
        properties: Further keys of its configuration file, such as ``enableSlaveActingMaster``; they override others.
        system_properties: System properties of its JVM, such as ``tls.enable``.
    """

    # BrokerOuterAPI.registerBrokerAll logs it for each name server that answered with code 0.
    _registered = "Registering current broker to name server completed"

    def __init__(
        self,
        work_dir: Path,
        namesrv_addr: str | None,
        *,
        name: str = "broker-a",
        cluster: str = "c0",
        broker_id: int = 0,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        system_properties: Mapping[str, str] | None = None,
    ) -> None:
        self._system_properties = system_properties
        port = port or free_port(offsets=(0, _FAST_REMOTING_OFFSET, _HA_OFFSET))
        config = {
            **({"namesrvAddr": namesrv_addr} if namesrv_addr else {"fetchNamesrvAddrByAddressServer": "true"}),
            "brokerName": name,
            "brokerClusterName": cluster,
            "brokerId": str(broker_id),
            "brokerRole": "ASYNC_MASTER" if broker_id == 0 else "SLAVE",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(port + _HA_OFFSET),
            "storePathRootDir": str(work_dir / "store"),
            "storePathCommitLog": str(work_dir / "store" / "commitlog"),
            **_LIGHT_BROKER,
            **(properties or {}),
        }
        process = self._jvm(name, _write_properties(work_dir / "broker.properties", config), work_dir)
        super().__init__(process, port, config["brokerIP1"])
        self.name = name
        self.cluster = cluster
        self.broker_id = broker_id

    def start(self) -> None:
        """Start it and wait until it has registered with a name server. Raises as ``wait_registered``."""
        self.process.start()
        self.wait_registered()

    def wait_registered(self) -> None:
        """Wait until it is up, and has registered with a name server. Several brokers can start at the same time.

        Raises:
            AssertionError: It did not start, or no name server accepted its registration; shows the end of its log.
        """
        self.process.wait_for_log("boot success", START_TIMEOUT_S)
        wait_until(self._is_registered, REGISTRATION_TIMEOUT_S, f"{self.name} registered with a name server")

    def start_unregistered(self) -> None:
        """Start it and wait until it is up, whether or not a name server accepts its registration.

        It tries to register at once if it is already connected to a name server, otherwise 10 s later.

        Raises:
            AssertionError: It did not start; shows the end of its log.
        """
        super().start()

    def register(self) -> None:
        """Make it register in full at once with a new data version, by a configuration change without effect.

        Raises:
            AssertionError: The broker refused the change.
        """
        with RemotingClient(self.addr) as client:
            answer = client.ask(_UPDATE_BROKER_CONFIG, body=b"brokerPermission=6")
        assert answer.code == 0, answer

    def _jvm(self, name: str, properties: Path, work_dir: Path) -> Process:
        # It logs its registrations at INFO.
        return rocketmq_jvm(
            name,
            BROKER_MAIN,
            ["-c", str(properties)],
            work_dir,
            heap_mb=384,
            log_level="INFO",
            properties=self._system_properties,
        )

    def _is_registered(self) -> bool:
        if self._registered in self.process.log_text():
            return True
        # At its start, a broker often checks before it is connected to a name server, and then waits for 10 s.
        self.register()
        return self._registered in self.process.log_text()


_LIGHT_BROKER = {
    # The shortest period that BrokerController allows (it clamps to 10 to 60 s).
    "registerNameServerPeriod": "10000",
    "mappedFileSizeCommitLog": str(16 << 20),
    # A multiple of ConsumeQueue.CQ_STORE_UNIT_SIZE, 20 bytes.
    "mappedFileSizeConsumeQueue": str(20 * 2_000),
    "mappedFileSizeTimerLog": str(1 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "flushDiskType": "ASYNC_FLUSH",
    # The broker never refuses messages because the disk of the test machine is full.
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "99",
    # The broker never refuses messages because the test machine is busy. By default, it answers "broker busy" if a
    # message has waited for 200 ms, or while a write takes longer than 1 s.
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "timerWheelEnable": "false",
    "reviveQueueNum": "1",
    "enableCompaction": "false",
    "coldDataFlowControlEnable": "false",
    "defaultTopicQueueNums": "4",
    "sendMessageThreadPoolNums": "2",
    "pullMessageThreadPoolNums": "2",
    "litePullMessageThreadPoolNums": "1",
    "ackMessageThreadPoolNums": "1",
    "processReplyMessageThreadPoolNums": "1",
    "queryMessageThreadPoolNums": "1",
    "clientManageThreadPoolNums": "2",
    "consumerManageThreadPoolNums": "2",
    "loadBalanceProcessorThreadPoolNums": "1",
    "heartbeatThreadPoolNums": "1",
    "endTransactionThreadPoolNums": "1",
    "adminBrokerThreadPoolNums": "2",
}


def _write_properties(path: Path, config: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    return path


def is_listening(addr: str) -> bool:
    """Whether something accepts connections at ``host:port``."""
    try:
        socket.create_connection(split_addr(addr), timeout=1).close()
    except OSError:
        return False
    return True
