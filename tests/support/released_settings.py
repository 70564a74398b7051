"""The settings of the latest release, written out. The changelog names those that it refuses.

A release replaces them by its own.
"""

from typing import Final

RELEASE: Final = "0.2.0"
_KEYS: Final = """
    admin: accounts accounts_file broker_networks enable_config_update trusted_networks
    advanced.admin: config_black_list
    advanced.embedded_kafka: heap listen_host
    advanced.history: changes_wait_ms heartbeats_interval_ms interval_ms max_records optimize_file_bytes
        sessions_retention_ms upkeep_interval_ms vacuum_retention_ms
    advanced.http: changes_catch_up_rows changes_kept_bytes changes_kept_rows max_connections
        max_connections_per_address max_requests max_streams request_timeout_ms slow_reader_ms
    advanced.jars: kafka_dir spark_dir
    advanced.kafka: delivery_timeout_ms max_message_bytes
    advanced.liveness: guard_close_window_ms guard_hold_timeouts guard_min_brokers max_gap_ms max_timeout_ms
        min_timeout_ms server_lost_ms server_silent_ms tick_interval_ms
    advanced.logs: max_file_bytes
    advanced.name_server: enable_all_topic_list enable_topic_list kv_log_interval_ms need_wait_for_service
        order_message_enable return_order_topic_config_to_broker wait_seconds_for_service
    advanced.remoting: frame_timeout_ms idle_timeout_ms max_frame_bytes max_requests_in_flight native_lane
        native_lane_answers_bytes partial_frames_bytes slow_reader_ms unread_answers_bytes write_buffer_bytes
    advanced.server: change_timeout_ms drain_timeout_ms full_registration_interval_ms log_tail_bytes
        log_tail_timeout_ms publish_queue_bytes publish_queue_records stop_timeout_ms
    advanced.snapshot: object_store_poll_interval_ms poll_interval_ms stale_after_ms
    advanced.streaming: compaction_interval_ms max_offsets_per_trigger progress_commit_interval_ms
        vacuum_retention_ms
    advanced.tls: calls calls_cert_file calls_key_file calls_key_password_file calls_trust_file key_password
        reload_interval_ms
    advanced.webhook: give_up_ms timeout_ms
    data: dir extra tables
    embedded_kafka: listen_port
    history: driver_memory enabled events_retention_ms master minutes_retention_ms routes_retention_ms
    http: allowed_hosts console_servers listen_host listen_port nsaddr tls
    kafka: bootstrap_servers broker_events_topic connect_timeout_ms dead_letter_topic extra partitions
        replication_factor retention_ms
    liveness: default_timeout_ms delete_topic_with_broker_registration guard_off_clusters guard_share_percent
    logs: format level
    name_server: notify_min_broker_id_changed support_acting_master
    remoting: listen_host listen_port max_connections max_connections_per_address
    server: server_id
    streaming: changes_retention_ms driver_memory extra master
    tls: cert_file client_auth config_file key_file key_password_file mode trust_file
    webhook: clusters events secret_file servers topics url url_file
"""


def released_settings() -> frozenset[str]:
    """Return the keys as users write them, ``section.key`` or ``advanced.section.key``."""
    keys, section = set(), ""
    for word in _KEYS.split():
        if word.endswith(":"):
            section = word.removesuffix(":")
        else:
            keys.add(f"{section}.{word}")
    return frozenset(keys)
