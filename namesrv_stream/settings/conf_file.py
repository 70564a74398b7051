"""Reads the file given by ``--conf``: TOML, or a Java-style ``.properties`` file with RocketMQ's keys.

``COUNTERPARTS`` is read in both directions: a ``.properties`` file becomes settings, and settings become the answer to
GET_NAMESRV_CONFIG. Source: rocketmq 5.3.3, NamesrvConfig and NettyServerConfig.

The keys for TLS are separate, since the answer to GET_NAMESRV_CONFIG does not contain them. In Java they are system
properties, and keys of the file ``tls.config.file``; here they may be in that file or in the ``.properties`` file.
Source: TlsSystemConfig, TlsHelper.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from namesrv_stream.errors import ConfigError
from namesrv_stream.processor.configuration import OPTION_OF
from namesrv_stream.remoting import java_properties
from namesrv_stream.settings.names import (
    Given,
    KeyPath,
    Layer,
    all_keys,
    internal_path,
    is_known,
    key_path,
    public_path,
    scalar,
)
from namesrv_stream.settings.sections import Settings


class Counterpart(NamedTuple):
    """The setting that corresponds to a key of RocketMQ.

    Attributes:
        section: Its section, without ``advanced``.
        key: Its key in that section.
        factor: The setting's number is RocketMQ's number multiplied by this.
    """

    section: str
    key: str
    factor: int = 1

    def value_of(self, text: str) -> str | int | bool:
        """Return the setting's value for RocketMQ's ``text``; Java silently skips text that raises an error here.

        Raises:
            ValueError: The text does not have the setting's type; the message says what is expected.
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
        """Return the setting's value as text for RocketMQ; a number is rounded down to RocketMQ's unit."""
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
    "kvConfigPath": "KV entries are in the log; import those of a file with `namesrv-stream kv import FILE`",
    "configStorePath": "the configuration is never written to a file",
    "productEnvName": "there is no cluster-test mode",
    "clusterTest": "there is no cluster-test mode",
    "clientRequestThreadPoolNums": _NO_POOLS,
    "defaultThreadPoolNums": _NO_POOLS,
    "clientRequestThreadPoolQueueCapacity": _NO_POOLS,
    "defaultThreadPoolQueueCapacity": _NO_POOLS,
    "scanNotActiveBrokerInterval": "nothing scans: a broker expires with the first tick after its timeout "
    "(advanced.liveness.tick_interval_ms)",
    "unRegisterBrokerQueueCapacity": "brokers unregister without a queue",
    "enableControllerInNamesrv": "this server contains no controller; run RocketMQ's own next to it",
    "serverWorkerThreads": _NO_POOLS,
    "serverCallbackExecutorThreads": _NO_POOLS,
    "serverSelectorThreads": _NO_POOLS,
    "serverOnewaySemaphoreValue": _NETTY,
    "serverAsyncSemaphoreValue": _NETTY,
    "serverSocketSndBufSize": "the operating system sizes the buffers, as it does for Java by default",
    "serverSocketRcvBufSize": "the operating system sizes the buffers, as it does for Java by default",
    "writeBufferHighWaterMark": "see advanced.remoting.write_buffer_bytes",
    "writeBufferLowWaterMark": "see advanced.remoting.write_buffer_bytes",
    "serverSocketBacklog": "it is always 1024, RocketMQ's default",
    "serverNettyWorkerGroupEnable": _NETTY,
    "serverPooledByteBufAllocatorEnable": _NETTY,
    "enableShutdownGracefully": "every stop is a graceful one, see advanced.server.drain_timeout_ms",
    "shutdownWaitTimeSeconds": "see advanced.server.drain_timeout_ms and advanced.server.stop_timeout_ms",
    "useEpollNativeSelector": _NETTY,
}


def rocketmq_config(settings: Settings) -> dict[str, str]:
    """Return RocketMQ's keys with the effective settings as values; keys without meaning here are left out."""
    return {name: counterpart.text_in(settings) for name, counterpart in COUNTERPARTS.items()}


#: The keys for TLS.
TLS_COUNTERPARTS: Final[Mapping[str, Counterpart]] = {
    "tls.server.mode": Counterpart("tls", "mode"),
    "tls.server.certPath": Counterpart("tls", "cert_file"),
    "tls.server.keyPath": Counterpart("tls", "key_file"),
    "tls.server.keyPassword": Counterpart("tls", "key_password"),
    "tls.server.need.client.auth": Counterpart("tls", "client_auth"),
    "tls.server.trustCertPath": Counterpart("tls", "trust_file"),
    "tls.config.file": Counterpart("tls", "config_file"),
    "tls.enable": Counterpart("tls", "calls"),
    "tls.client.trustCertPath": Counterpart("tls", "calls_trust_file"),
    "tls.client.certPath": Counterpart("tls", "calls_cert_file"),
    "tls.client.keyPath": Counterpart("tls", "calls_key_file"),
}

#: The keys for TLS that do nothing, with the reason.
TLS_WITHOUT_MEANING: Final[Mapping[str, str]] = {
    "tls.test.mode.enable": "this server generates no certificate: set tls.server.certPath and tls.server.keyPath",
    "tls.server.authClient": "if a client's certificate is requested, it is always verified",
    "tls.client.authServer": "a broker's certificate is verified if tls.client.trustCertPath is set",
    "tls.client.keyPassword": "put it into its own file, and set advanced.tls.calls_key_password_file to that file",
}

_AGREED: Final = frozenset({("tls.test.mode.enable", "false"), ("tls.server.authClient", "true")})


def is_agreed(name: str, text: str, properties: Mapping[str, str]) -> bool:
    """Whether a key without effect asks for what this server always does, so that no warning is needed.

    Args:
        name: The key.
        text: Its value, in lower case.
        properties: All keys and values of the file that contains it.
    """
    if name == "tls.client.authServer":
        return text == ("true" if properties.get("tls.client.trustCertPath", "").strip() else "false")
    return (name, text) in _AGREED


_TOML: Final = (".toml",)
#: RocketMQ's operators call the file namesrv.properties or namesrv.conf.
_PROPERTIES: Final = (".properties", ".conf")
_ROCKETMQ_KEYS: Final = {**COUNTERPARTS, **TLS_COUNTERPARTS}
_WITHOUT_EFFECT: Final = {**WITHOUT_MEANING, **TLS_WITHOUT_MEANING}
#: Some editors on Windows begin a file with this mark. Java takes it as a part of the first key.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def read_conf(path: Path) -> tuple[Layer, list[str]]:
    """Return the settings in a configuration file, and warnings for its author.

    Raises:
        ConfigError: The file cannot be read, or an entry is invalid; the error names the file and, if any, the key.
    """
    if path.is_dir():
        raise ConfigError(str(path), "--conf", "is a directory, not a file")
    if path.suffix not in _TOML + _PROPERTIES and path.exists():
        known = ", ".join(_TOML + _PROPERTIES)
        raise ConfigError(str(path), "--conf", f"the name of the file must end in one of {known}")
    try:
        if path.suffix in _PROPERTIES:
            return _read_properties(path)
        return _read_toml(path), []
    except OSError as error:
        raise ConfigError(str(path), "--conf", error.strerror or str(error)) from None


def _read_toml(path: Path) -> Layer:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), "TOML", str(error)) from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "TOML", f"not UTF-8: {error.reason}") from None
    return {key: Given(value, str(path)) for key, value in _flatten((), tables)}


def _flatten(path: KeyPath, value: object) -> Iterable[tuple[KeyPath, Any]]:
    if not isinstance(value, dict) or (not value and len(path) > 1):
        yield path, value
        return
    for key, inner in value.items():
        # Below an `extra` table the dots belong to the name: `spark.ui.enabled` is one option.
        inner_path = (*path[:2], f"{path[2]}.{key}") if len(path) > 2 else (*path, str(key))
        yield from _flatten(inner_path, inner)


def read_tls_config(name: object, source: str) -> tuple[Layer, list[str]]:
    """Return the settings in the file of ``tls.config_file``, which has RocketMQ's keys; and warnings for its author.

    Args:
        name: The file; relative to the current directory.
        source: Where ``tls.config_file`` was set.

    Raises:
        ConfigError: The file cannot be read, or a value in it is invalid.
    """
    if not isinstance(name, str):
        raise ConfigError(source, "tls.config_file", f"is not a path: {name!r}")
    path = Path(name).expanduser()
    try:
        layer, warnings = _read_properties(path)
    except OSError as error:
        raise ConfigError(source, "tls.config_file", f"{path}: {error.strerror or error}") from None
    foreign = next((key for key in layer if internal_path(key)[0] != "tls"), None)
    if foreign is not None:
        raise ConfigError(str(path), ".".join(foreign), "does not belong in tls.config_file")
    return layer, warnings


def _read_properties(path: Path) -> tuple[Layer, list[str]]:
    try:
        properties = java_properties.loads(path.read_bytes().removeprefix(_BYTE_ORDER_MARK))
    except ValueError as error:
        raise ConfigError(str(path), "properties", str(error)) from None
    layer: Layer = {}
    warnings: list[str] = []
    written: dict[KeyPath, str] = {}  # setting → its name in the file
    # RocketMQ's first: if a file gives the same setting twice, the name of this product wins.
    for name in sorted(properties, key=lambda name: name not in _ROCKETMQ_KEYS):
        text = properties[name].strip()
        if is_agreed(name, text.lower(), properties):
            continue
        source = f"{path} ({name})"
        if name in _ROCKETMQ_KEYS:
            key: KeyPath = _ROCKETMQ_KEYS[name][:2]
            given = Given(_converted(path, name, text), source, is_rocketmq_name=True)
        elif is_known(key_path(name)):
            key = key_path(name)
            given = Given(scalar(key, text), source)
        else:
            warnings.append(f"{path}: {name}: {_why_ignored(name)}")
            continue
        found = internal_path(key)
        if found in written:
            warnings.append(f"{path}: {written[found]}: ignored, since {name} is given too")
        written[found] = name
        layer[key] = given
    return layer, warnings


def _converted(path: Path, name: str, text: str) -> object:
    try:
        return _ROCKETMQ_KEYS[name].value_of(text)
    except ValueError as error:
        raise ConfigError(str(path), name, f"{error}, not {text!r}") from None


def _why_ignored(name: str) -> str:
    if name in _WITHOUT_EFFECT:
        return f"has no effect here: {_WITHOUT_EFFECT[name]}"
    own = (".".join(public_path(key)) for key in all_keys())
    close = difflib.get_close_matches(name, [*_ROCKETMQ_KEYS, *_WITHOUT_EFFECT, *own], n=1)
    return f"unknown key, ignored; did you mean {close[0]}?" if close else "unknown key, ignored"
