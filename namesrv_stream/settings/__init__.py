"""Typed, frozen settings; the only reader of configuration files and of NAMESRV_STREAM__ variables."""

from namesrv_stream.settings.layers import (
    ENVIRONMENT_PREFIX,
    Flag,
    LoadedSettings,
    load_settings,
    parse_set_flag,
)
from namesrv_stream.settings.sections import (
    DataSettings,
    EmbeddedKafkaSettings,
    HttpSettings,
    JarsSettings,
    KafkaSettings,
    LivenessSettings,
    LogsSettings,
    RemotingSettings,
    ServerSettings,
    Settings,
    SnapshotSettings,
    StreamingSettings,
    project_home,
)
from namesrv_stream.settings.toml_text import to_toml

__all__ = [
    "ENVIRONMENT_PREFIX",
    "DataSettings",
    "EmbeddedKafkaSettings",
    "Flag",
    "HttpSettings",
    "JarsSettings",
    "KafkaSettings",
    "LivenessSettings",
    "LoadedSettings",
    "LogsSettings",
    "RemotingSettings",
    "ServerSettings",
    "Settings",
    "SnapshotSettings",
    "StreamingSettings",
    "load_settings",
    "parse_set_flag",
    "project_home",
    "to_toml",
]
