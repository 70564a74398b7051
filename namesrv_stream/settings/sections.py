"""The sections of the settings, one for every part of the product, with all keys and defaults.

Names end with their units (``_ms``, ``_bytes``). ``conf/defaults.toml`` explains every key, and a test compares it with
these models.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr

from namesrv_stream.settings.values import (
    AccessKey,
    Addrs,
    Advanced,
    AdvertisedAddress,
    DataSettings,
    HostNames,
    HttpUrls,
    JarsSettings,
    Listeners,
    ListenHost,
    LowerCase,
    Names,
    Networks,
    NonEmptyStr,
    Number,
    Options,
    Port,
    PositiveInt,
    Secret,
    Section,
    ServerId,
    SparkMaster,
    TlsOrPlain,
    WebhookEvents,
)

DAY_MS: Final = 86_400_000
MIB: Final = 1 << 20


class RemotingSettings(Section):
    """The port for brokers, clients and mqadmin."""

    listen_host: ListenHost = "0.0.0.0"
    listen_port: Port = 9876
    advertised_address: AdvertisedAddress = ""
    max_frame_bytes: Advanced[Annotated[Number, Field(ge=1024, le=1 << 30)]] = 16 * MIB
    idle_timeout_ms: Advanced[PositiveInt] = 120_000
    max_connections: PositiveInt = 20_000
    max_connections_per_address: PositiveInt = 10_000
    frame_timeout_ms: Advanced[PositiveInt] = 30_000
    partial_frames_bytes: Advanced[PositiveInt] = 96 * MIB
    write_buffer_bytes: Advanced[PositiveInt] = 4 * MIB
    unread_answers_bytes: Advanced[PositiveInt] = 96 * MIB
    slow_reader_ms: Advanced[PositiveInt] = 30_000
    max_requests_in_flight: Advanced[PositiveInt] = 256
    native_lane: Advanced[Annotated[Literal["auto", "on", "python", "off"], LowerCase]] = "auto"
    native_lane_answers_bytes: Advanced[PositiveInt] = 128 * MIB
    view_listeners: Advanced[Listeners] = ()
    view_files: Advanced[Names] = ()
    proxy_networks: Advanced[Networks] = ()

    @property
    def port_of_view_listener(self) -> dict[str, int]:
        """The ports of the additional listeners, by name."""
        pairs = (listener.rpartition(":") for listener in self.view_listeners)
        return {name: int(port) for name, _, port in pairs}


class TlsSettings(Section):
    """TLS of the remoting port, of the HTTP port where ``http.tls`` is true, and of the server's own calls."""

    mode: Annotated[Literal["disabled", "permissive", "enforcing"], LowerCase] = "permissive"
    cert_file: str = ""
    key_file: str = ""
    key_password: Advanced[SecretStr] = SecretStr("")
    key_password_file: str = ""
    client_auth: Annotated[Literal["none", "optional", "require"], LowerCase] = "none"
    trust_file: str = ""
    config_file: str = ""
    reload_interval_ms: Advanced[PositiveInt] = 1_000
    calls: Advanced[Annotated[Literal["auto", "plain", "tls"], TlsOrPlain, LowerCase]] = "auto"
    calls_trust_file: Advanced[str] = ""
    calls_cert_file: Advanced[str] = ""
    calls_key_file: Advanced[str] = ""
    calls_key_password_file: Advanced[str] = ""

    @property
    def is_for_calls(self) -> bool:
        """Whether the server uses TLS for its calls to brokers.

        Source: rocketmq 5.3.3, NettyClientConfig.useTLS: ``tls.enable``; by default if tls.server.mode is enforcing.
        """
        return self.calls == "tls" or (self.calls == "auto" and self.mode == "enforcing")


class HttpSettings(Section):
    """The HTTP port: health, metrics, JSON queries, the name servers' addresses for clients."""

    listen_host: ListenHost = "127.0.0.1"
    listen_port: Port = 9880
    allowed_hosts: HostNames = ()
    nsaddr: Addrs = ()
    tls: bool = False
    console_servers: HttpUrls = ()
    max_connections: Advanced[PositiveInt] = 1_000
    max_connections_per_address: Advanced[PositiveInt] = 500
    max_requests: Advanced[PositiveInt] = 64
    max_streams: Advanced[PositiveInt] = 256
    request_timeout_ms: Advanced[PositiveInt] = 10_000
    slow_reader_ms: Advanced[PositiveInt] = 30_000
    changes_kept_rows: Advanced[PositiveInt] = 20_000
    changes_kept_bytes: Advanced[PositiveInt] = 64 * MIB
    changes_catch_up_rows: Advanced[PositiveInt] = 100_000


class ServerSettings(Section):
    """The name-server process."""

    server_id: ServerId = ""
    publish_queue_records: Advanced[PositiveInt] = 10_000
    publish_queue_bytes: Advanced[PositiveInt] = 64 * MIB
    full_registration_interval_ms: Advanced[PositiveInt] = DAY_MS
    change_timeout_ms: Advanced[PositiveInt] = 4_000
    log_tail_timeout_ms: Advanced[PositiveInt] = 2_000
    log_tail_bytes: Advanced[PositiveInt] = 64 * MIB
    drain_timeout_ms: Advanced[Annotated[Number, Field(ge=0)]] = 500
    stop_timeout_ms: Advanced[PositiveInt] = 2_000
    hang_timeout_ms: Advanced[Annotated[Number, Field(ge=0)]] = 5_000


class NameServerSettings(Section):
    """RocketMQ's own switches; every key except the last one is a setting of RocketMQ's NamesrvConfig."""

    support_acting_master: bool = False
    order_message_enable: Advanced[bool] = False
    return_order_topic_config_to_broker: Advanced[bool] = True
    enable_all_topic_list: Advanced[bool] = True
    enable_topic_list: Advanced[bool] = True
    need_wait_for_service: Advanced[bool] = False
    wait_seconds_for_service: Advanced[Annotated[Number, Field(ge=0)]] = 45
    notify_min_broker_id_changed: bool = False
    kv_log_interval_ms: Advanced[PositiveInt] = 600_000


class AdminSettings(Section):
    """Who may administer and who may register."""

    trusted_networks: Networks = ("127.0.0.0/8", "::1/128")
    broker_networks: Networks = ("0.0.0.0/0", "::/0")
    accounts_file: str = ""
    enable_config_update: bool = False
    config_black_list: Advanced[Names] = ("configBlackList", "configStorePath", "kvConfigPath")
    accounts: dict[AccessKey, Secret] = Field(default={})


def _dead_letter_topic(kafka: dict[str, Any]) -> str:
    return f"{kafka['broker_events_topic']}.dead-letters"


class KafkaSettings(Section):
    """The event log. Without ``bootstrap_servers`` it is in the embedded Kafka."""

    bootstrap_servers: str = ""
    broker_events_topic: NonEmptyStr = "namesrv.broker-events"
    dead_letter_topic: Advanced[NonEmptyStr] = Field(default_factory=_dead_letter_topic)
    partitions: Annotated[Number, Field(ge=1, le=1024)] = 1
    replication_factor: Annotated[Number, Field(ge=1, le=16)] = 1
    retention_ms: Annotated[Number, Field(ge=7 * DAY_MS)] = 7 * DAY_MS
    max_message_bytes: Advanced[Annotated[Number, Field(ge=20 * MIB, le=1 << 30)]] = 20 * MIB
    connect_timeout_ms: PositiveInt = 5_000
    delivery_timeout_ms: Advanced[PositiveInt] = 10_000
    extra: Options = Field(default={})


class EmbeddedKafkaSettings(Section):
    """The Kafka node that ``up`` starts on this machine if ``kafka.bootstrap_servers`` is empty."""

    listen_host: Advanced[ListenHost] = "127.0.0.1"
    listen_port: Port = 9092
    heap: Advanced[Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")]] = "512m"


class LivenessSettings(Section):
    """When a broker expires."""

    default_timeout_ms: PositiveInt = 120_000
    min_timeout_ms: Advanced[PositiveInt] = 1_000
    max_timeout_ms: Advanced[PositiveInt] = 3_600_000
    server_silent_ms: Advanced[PositiveInt] = 15_000
    server_lost_ms: Advanced[PositiveInt] = 600_000
    max_gap_ms: Advanced[PositiveInt] = 2_000
    tick_interval_ms: Advanced[PositiveInt] = 505
    delete_topic_with_broker_registration: bool = False
    take_over_contradictions: Advanced[bool] = False
    guard_share_percent: Annotated[Number, Field(ge=1, le=100)] = 50
    guard_min_brokers: Advanced[Annotated[Number, Field(ge=1, le=1_000_000)]] = 5
    guard_hold_timeouts: Advanced[Annotated[Number, Field(ge=1, le=1_000)]] = 2
    guard_known_ms: Advanced[Annotated[Number, Field(ge=0)]] = 600_000
    guard_close_window_ms: Advanced[PositiveInt] = 2_000
    guard_off_clusters: Names = ()


class StreamingSettings(Section):
    """The Spark job."""

    master: SparkMaster = "local[2]"
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    max_offsets_per_trigger: Advanced[PositiveInt] = 2_000
    progress_commit_interval_ms: Advanced[PositiveInt] = 1_000
    compaction_interval_ms: Advanced[PositiveInt] = 60_000
    changes_retention_ms: Annotated[Number, Field(ge=DAY_MS)] = 30 * DAY_MS
    vacuum_retention_ms: Advanced[Annotated[Number, Field(ge=DAY_MS)]] = DAY_MS
    extra: Options = Field(default={})


class HistorySettings(Section):
    """The history process: when it writes, how much at a time, and how long rows are kept."""

    enabled: bool = True
    interval_ms: Advanced[PositiveInt] = 30_000
    master: SparkMaster = "local[1]"
    driver_memory: Annotated[str, Field(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    max_records: Advanced[PositiveInt] = 50_000
    heartbeats_interval_ms: Advanced[PositiveInt] = 60_000
    upkeep_interval_ms: Advanced[PositiveInt] = 3_600_000
    optimize_file_bytes: Advanced[Annotated[Number, Field(ge=MIB)]] = 64 * MIB
    vacuum_retention_ms: Advanced[Annotated[Number, Field(ge=DAY_MS // 24)]] = DAY_MS
    events_retention_ms: Annotated[Number, Field(ge=DAY_MS)] = 14 * DAY_MS
    minutes_retention_ms: Annotated[Number, Field(ge=DAY_MS)] = 90 * DAY_MS
    sessions_retention_ms: Advanced[Annotated[Number, Field(ge=DAY_MS)]] = DAY_MS
    routes_retention_ms: Annotated[Number, Field(ge=DAY_MS)] = 730 * DAY_MS
    changes_wait_ms: Advanced[Annotated[Number, Field(ge=DAY_MS)]] = 7 * DAY_MS

    @property
    def late_after_ms(self) -> int:
        """Age of the newest history data above which the history process is late, in milliseconds.

        240 s of it allow for the start of Spark, the end of the current minute, and a slow machine.
        """
        return 240_000 + self.interval_ms + self.heartbeats_interval_ms


class SnapshotSettings(Section):
    """How a server follows the Delta tables."""

    poll_interval_ms: Advanced[PositiveInt] = 100
    object_store_poll_interval_ms: Advanced[PositiveInt] = 250
    stale_after_ms: Advanced[PositiveInt] = 10_000


class WebhookSettings(Section):
    """The process that reports changes of routes and deaths of brokers to a URL; without a URL ``up`` starts none."""

    url: Annotated[str, Field(pattern=r"^(https?://\S+)?$")] = ""
    url_file: str = ""
    secret_file: str = ""
    events: WebhookEvents = ("broker_down", "broker_held", "broker_route")
    clusters: Names = ()
    topics: Names = ()
    servers: HttpUrls = ()
    timeout_ms: Advanced[PositiveInt] = 10_000
    give_up_ms: Advanced[PositiveInt] = DAY_MS

    @property
    def is_configured(self) -> bool:
        """Whether there is a URL to report to."""
        return bool(self.url or self.url_file)


class LogsSettings(Section):
    """The log of every process of the product."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["text", "json"] = "text"
    max_file_bytes: Advanced[PositiveInt] = 10 * MIB


class Settings(Section):
    """All settings. They are read once, at the start of a process."""

    remoting: RemotingSettings = RemotingSettings()
    tls: TlsSettings = TlsSettings()
    http: HttpSettings = HttpSettings()
    server: ServerSettings = ServerSettings()
    name_server: NameServerSettings = NameServerSettings()
    admin: AdminSettings = AdminSettings()
    kafka: KafkaSettings = KafkaSettings()
    embedded_kafka: EmbeddedKafkaSettings = EmbeddedKafkaSettings()
    liveness: LivenessSettings = LivenessSettings()
    streaming: StreamingSettings = StreamingSettings()
    history: HistorySettings = HistorySettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    webhook: WebhookSettings = WebhookSettings()
    logs: LogsSettings = LogsSettings()
    data: DataSettings = DataSettings()
    jars: JarsSettings = JarsSettings()

    @property
    def has_history(self) -> bool:
        """Whether ``up`` starts the history process."""
        return self.history.enabled

    @property
    def poll_interval_ms(self) -> int:
        """The interval at which a server looks for new commits."""
        snapshot = self.snapshot
        is_in_folder = self.data.store is None
        return snapshot.poll_interval_ms if is_in_folder else snapshot.object_store_poll_interval_ms

    @property
    def is_kafka_embedded(self) -> bool:
        """Whether the log is in the embedded Kafka."""
        return not self.kafka.bootstrap_servers
