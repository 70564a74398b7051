"""Typed, frozen settings, and the installation that a command works on.

Only this package reads configuration files and NAMESRV_STREAM__ variables. It starts nothing and opens no connection.
Every package above it may import it; the pure ones (``route``, ``remoting``, ``processor``) get values, not settings.
"""

from namesrv_stream.settings.conf_file import rocketmq_config
from namesrv_stream.settings.layers import Flag, LoadedSettings, load_settings, parse_set_flag
from namesrv_stream.settings.printing import to_json, to_toml
from namesrv_stream.settings.secrets import (
    ENVIRONMENT_PREFIX,
    Accounts,
    is_secret,
    passed_through_secrets,
    read_accounts,
    server_secrets,
)
from namesrv_stream.settings.sections import (
    AdminSettings,
    EmbeddedKafkaSettings,
    HttpSettings,
    KafkaSettings,
    LivenessSettings,
    LogsSettings,
    NameServerSettings,
    RemotingSettings,
    ServerSettings,
    Settings,
    SnapshotSettings,
    StreamingSettings,
    TlsSettings,
    WebhookSettings,
)
from namesrv_stream.settings.values import DataSettings, JarsSettings, project_home

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Accounts",
    "AdminSettings",
    "DataSettings",
    "EmbeddedKafkaSettings",
    "Flag",
    "HttpSettings",
    "JarsSettings",
    "KafkaSettings",
    "LivenessSettings",
    "LoadedSettings",
    "LogsSettings",
    "NameServerSettings",
    "RemotingSettings",
    "ServerSettings",
    "Settings",
    "SnapshotSettings",
    "StreamingSettings",
    "TlsSettings",
    "WebhookSettings",
    "is_secret",
    "load_settings",
    "parse_set_flag",
    "passed_through_secrets",
    "project_home",
    "read_accounts",
    "rocketmq_config",
    "server_secrets",
    "to_json",
    "to_toml",
]
