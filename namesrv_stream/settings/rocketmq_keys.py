"""RocketMQ's own keys for a name server: which of ours each is, and why others have no meaning here.

One table, read in both directions: a ``.properties`` file becomes settings of ours, and settings of ours become what
GET_NAMESRV_CONFIG answers. Source: rocketmq 5.3.3, NamesrvConfig and NettyServerConfig.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from namesrv_stream.processor.namesrv_config import OPTION_OF
from namesrv_stream.settings.sections import Settings


class Counterpart(NamedTuple):
    """Where a key of RocketMQ's stands in our settings.

    Attributes:
        section: Ours.
        key: Ours, in that section.
        factor: Our value of a number is theirs times this.
    """

    section: str
    key: str
    factor: int = 1

    def value_of(self, text: str) -> str | int | bool:
        """Our value for RocketMQ's ``text``. Stricter than Java, which skips what it cannot parse in silence.

        Raises:
            ValueError: It is not of the key's kind; the text says what is expected.
        """
        kind = type(self._value_in(Settings()))
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError("expected true or false")
            return text.lower() == "true"
        if kind is int:
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
                raise ValueError("expected a whole number")
            return int(text) * self.factor
        return text

    def text_in(self, settings: Settings) -> str:
        """RocketMQ's text for our value; the part of a number that its unit cannot say is cut off."""
        value = self._value_in(settings)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ";".join(value)
        return str(value // self.factor if isinstance(value, int) else value)

    def _value_in(self, settings: Settings) -> object:
        return getattr(getattr(settings, self.section), self.key)


COUNTERPARTS: Final[Mapping[str, Counterpart]] = {
    "bindAddress": Counterpart("remoting", "listen_host"),
    "listenPort": Counterpart("remoting", "listen_port"),
    "serverChannelMaxIdleTimeSeconds": Counterpart("remoting", "idle_timeout_ms", factor=1000),
    "configBlackList": Counterpart("admin", "config_black_list"),
    "deleteTopicWithBrokerRegistration": Counterpart("liveness", "delete_topic_with_broker_registration"),
    **{key: Counterpart("name_server", name) for key, name in OPTION_OF.items()},
}

_NO_POOLS: Final = "there are no thread pools to size"
_NETTY: Final = "it tunes Netty, which is not used here"

#: RocketMQ's other keys, each with the reason why it does nothing.
WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "rocketmqHome": "nothing is read from a RocketMQ installation",
    "kvConfigPath": "KV entries are in the log; take those of a file over with `namesrv-stream kv import FILE`",
    "configStorePath": "the configuration is never written to a file",
    "productEnvName": "there is no cluster-test mode",
    "clusterTest": "there is no cluster-test mode",
    "clientRequestThreadPoolNums": _NO_POOLS,
    "defaultThreadPoolNums": _NO_POOLS,
    "clientRequestThreadPoolQueueCapacity": _NO_POOLS,
    "defaultThreadPoolQueueCapacity": _NO_POOLS,
    "scanNotActiveBrokerInterval": "nothing scans: a broker expires with the first event after its timeout, within a "
    "tick (liveness.tick_interval_ms)",
    "unRegisterBrokerQueueCapacity": "brokers unregister without a queue",
    "enableControllerInNamesrv": "there is no controller inside; start RocketMQ's own beside",
    "serverWorkerThreads": _NO_POOLS,
    "serverCallbackExecutorThreads": _NO_POOLS,
    "serverSelectorThreads": _NO_POOLS,
    "serverOnewaySemaphoreValue": _NETTY,
    "serverAsyncSemaphoreValue": _NETTY,
    "serverSocketSndBufSize": "the operating system sizes the buffers, as it does for Java by default",
    "serverSocketRcvBufSize": "the operating system sizes the buffers, as it does for Java by default",
    "writeBufferHighWaterMark": "see remoting.write_buffer_bytes",
    "writeBufferLowWaterMark": "see remoting.write_buffer_bytes",
    "serverSocketBacklog": "it is always 1024, RocketMQ's default",
    "serverNettyWorkerGroupEnable": _NETTY,
    "serverPooledByteBufAllocatorEnable": _NETTY,
    "enableShutdownGracefully": "every stop is a graceful one, see server.drain_timeout_ms",
    "shutdownWaitTimeSeconds": "see server.drain_timeout_ms and server.stop_timeout_ms",
    "useEpollNativeSelector": _NETTY,
}


def rocketmq_config(settings: Settings) -> dict[str, str]:
    """The effective settings under RocketMQ's keys; those without meaning here are left out."""
    return {name: counterpart.text_in(settings) for name, counterpart in COUNTERPARTS.items()}
