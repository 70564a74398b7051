"""All metrics of a server: their names, kinds, labels and meanings.

Names that exist elsewhere are kept: ``rocketmq_rpc_latency`` is RocketMQ's own (5.1 and later, brokers and proxies, in
milliseconds). Where the name server of rocketmq-rust has a metric, its name, labels and unit are the same, so that its
Grafana board works here as well. All others are ``rocketmq_namesrv_*`` in seconds and bytes. Labels are bounded: never
a topic, a broker or an address.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from namesrv_stream.route.changes import Cause, ChangeKind


class Metric(NamedTuple):
    """The declaration of a metric.

    Attributes:
        text: The HELP text.
        labels: Names of the labels.
        from_zero: Label values that are exported as 0 from the start, so that the first event is visible as a rise.
    """

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    from_zero: tuple[tuple[str, ...], ...] = ()


#: The causes of the removal of a broker.
_ENDS: Final = (Cause.EXPIRED, Cause.DISCONNECTED, Cause.UNREGISTERED, Cause.SERVER_LOST, Cause.SERVER_SILENT)

METRICS: Final[Mapping[str, Metric]] = {
    # ---- requests over remoting ----
    "rocketmq_namesrv_requests_total": Metric(
        "counter",
        "Remoting requests answered, including oneway ones.",
        ("request_type", "request_code", "response_code", "result"),
    ),
    "rocketmq_rpc_latency": Metric(
        "histogram",
        "Milliseconds from taking a remoting request from its socket to handing over its answer (name and "
        "unit are RocketMQ's).",
        ("node_type", "protocol_type", "request_code", "response_code"),
    ),
    "rocketmq_namesrv_route_end_to_end_latency": Metric(
        "histogram",
        "Microseconds from taking a route query (GET_ROUTEINFO_BY_TOPIC) from its socket to handing over its "
        "answer (name and unit are rocketmq-rust's).",
    ),
    "rocketmq_namesrv_active_connections": Metric("gauge", "Open remoting connections."),
    "rocketmq_namesrv_connection_events_total": Metric(
        "counter",
        "Remoting connections by what happened: admitted, closed, rejected (too many are open), "
        "rejected_address (too many of one address), broken (protocol error); closed by this server because "
        "they were idle, late, crowded, slow_reader or unread.",
        ("result",),
        (
            *(("admitted",), ("broken",), ("rejected",), ("rejected_address",)),
            *(("idle",), ("late",), ("crowded",), ("slow_reader",), ("unread",)),
        ),
    ),
    "rocketmq_namesrv_partial_frames_bytes": Metric(
        "gauge",
        "Bytes buffered for incomplete remoting frames and TLS handshakes.",
    ),
    "rocketmq_namesrv_unread_answers_bytes": Metric("gauge", "Bytes of answers that wait until their peers read them."),
    "rocketmq_namesrv_native_lane_active": Metric(
        "gauge", "1 while the native lane (native code for known route queries) is active, otherwise 0."
    ),
    "rocketmq_namesrv_native_lane_connections": Metric(
        "gauge", "Remoting connections that the native lane, or else the Python lane, answers; absent without a lane."
    ),
    "rocketmq_namesrv_native_lane_answers_bytes": Metric(
        "gauge",
        "Bytes of the route answers that the native lane, or else the Python lane, keeps; absent without a lane.",
    ),
    "rocketmq_namesrv_express_connections": Metric(
        "gauge",
        "Deprecated: use rocketmq_namesrv_native_lane_connections; the next release removes this name.",
    ),
    "rocketmq_namesrv_express_answers_bytes": Metric(
        "gauge",
        "Deprecated: use rocketmq_namesrv_native_lane_answers_bytes; the next release removes this name.",
    ),
    "rocketmq_namesrv_security_events_total": Metric(
        "counter",
        "Requests refused because of who asked (auth, denied); TLS handshakes (tls_handshake) and reloads of "
        "the certificate (tls_reload), ok or failed; peers without TLS where it is required (tls_plain, "
        "denied).",
        ("operation", "result"),
        (
            *(("tls_handshake", "ok"), ("tls_handshake", "failed"), ("tls_plain", "denied")),
            *(("tls_reload", "ok"), ("tls_reload", "failed")),
        ),
    ),
    "rocketmq_namesrv_tls_certificate_expiry_timestamp_seconds": Metric(
        "gauge",
        "Time at which the certificate in use expires, in seconds since the epoch.",
    ),
    "rocketmq_namesrv_tls_certificate_expires_seconds": Metric(
        "gauge",
        "Deprecated: use rocketmq_namesrv_tls_certificate_expiry_timestamp_seconds; "
        "the next release removes this name.",
    ),
    # ---- what is served ----
    "rocketmq_namesrv_brokers": Metric(
        "gauge",
        "Broker processes by state: alive, held (by the mass-expiry guard), gone (ended within the last day; "
        "decreases by itself a day later).",
        ("cluster", "state"),
    ),
    "rocketmq_namesrv_oldest_heartbeat_age_seconds": Metric(
        "gauge",
        "Seconds since the last heartbeat of the broker that has been silent longest, among the cluster's "
        "brokers that this server hears; only time in which the server could receive heartbeats counts.",
        ("cluster",),
    ),
    "rocketmq_namesrv_oldest_heartbeat_timeout_ratio": Metric(
        "gauge",
        "Highest ratio of a broker's silence to its own timeout, among the cluster's brokers that this server "
        "hears; a broker expires above 1.",
        ("cluster",),
    ),
    "rocketmq_namesrv_view_unmapped_addresses": Metric(
        "gauge",
        "Addresses of brokers in the routes for which an address view has no mapping.",
        ("view",),
    ),
    "rocketmq_namesrv_active_brokers": Metric(
        "gauge",
        "Broker processes in the routes: alive, or held by the mass-expiry guard.",
    ),
    "rocketmq_namesrv_contradicting_brokers": Metric(
        "gauge",
        "Brokers that report other topics than the routes have, but no new DataVersion; the routes keep the old ones.",
    ),
    "rocketmq_namesrv_draining_brokers": Metric(
        "gauge", "Broker names with the record of a drain, which the command drain writes and drain --undo deletes."
    ),
    "rocketmq_namesrv_topics": Metric("gauge", "Topics that at least one broker offers."),
    "rocketmq_namesrv_asked_topics": Metric(
        "gauge",
        "Topics with a route that clients have asked this server for since its start; /orphans lists the others.",
    ),
    "rocketmq_namesrv_listed_servers": Metric(
        "gauge",
        "Name servers that are alive according to the log and advertise an address for the list of name servers.",
    ),
    "rocketmq_namesrv_changes_total": Metric(
        "counter",
        "Rows of the table route_changes that this server applied from commits of the job, by kind of row, "
        "its cause, and whether the key is gone.",
        ("kind", "cause", "gone"),
        (
            *(
                (ChangeKind.BROKER_LIVE, cause, "false")
                for cause in (Cause.REGISTERED, Cause.RETURNED, Cause.CONTRADICTION)
            ),
            *((ChangeKind.BROKER_LIVE, cause, "true") for cause in _ENDS),
            (ChangeKind.GUARD, Cause.GUARD_HELD, "false"),
        ),
    ),
    # ---- publishing to the log ----
    "rocketmq_namesrv_kafka_up": Metric(
        "gauge", "1 while Kafka accepts this server's records in all partitions, otherwise 0."
    ),
    "rocketmq_namesrv_kafka_sessions_lost_total": Metric(
        "counter",
        "Times that Kafka stopped accepting this server's records.",
    ),
    "rocketmq_namesrv_blind": Metric(
        "gauge",
        "1 while this server does not treat closed connections as the end of brokers, in at least one partition, "
        "because Kafka is unavailable or the server was suspended; otherwise 0.",
    ),
    "rocketmq_namesrv_publish_queue_records": Metric(
        "gauge",
        "Records in this server's queue for Kafka that Kafka has not acknowledged.",
    ),
    "rocketmq_namesrv_publish_queue_bytes": Metric(
        "gauge",
        "Bytes in this server's queue for Kafka that Kafka has not acknowledged.",
    ),
    "rocketmq_namesrv_publish_queue_limit_records": Metric(
        "gauge",
        "Maximum number of records in this server's queue for Kafka (advanced.server.publish_queue_records).",
    ),
    "rocketmq_namesrv_publish_oldest_seconds": Metric(
        "gauge",
        "Seconds for which the oldest record in this server's queue for Kafka has been waiting.",
    ),
    "rocketmq_namesrv_pending_events": Metric(
        "gauge",
        "Events that this server accepted and that no commit of the job contains yet.",
    ),
    "rocketmq_namesrv_unpublished_events": Metric(
        "gauge",
        "Brokers and changes whose events this server keeps in memory and publishes when Kafka is back.",
        ("of",),
    ),
    "rocketmq_namesrv_unsaid_facts": Metric(
        "gauge",
        "Deprecated: use rocketmq_namesrv_unpublished_events; the next release removes this name.",
        ("of",),
    ),
    # ---- the tables ----
    "rocketmq_namesrv_snapshot_age_seconds": Metric(
        "gauge",
        "Seconds since this server applied a commit of the job; before the first, since its start.",
    ),
    "rocketmq_namesrv_snapshot_version": Metric(
        "gauge",
        "Version of the table route_changes that this server serves; -1 before there is one.",
    ),
    "rocketmq_namesrv_snapshot_commits_total": Metric(
        "counter", "Commits of the job that this server applied.", (), ((),)
    ),
    "rocketmq_namesrv_snapshot_reloads_total": Metric(
        "counter",
        "Times that this server opened the tables again from the start.",
        from_zero=((),),
    ),
    "rocketmq_namesrv_tables_readable": Metric(
        "gauge", "0 while this server cannot read the newest tables, or they lack rows that it has; otherwise 1."
    ),
    "rocketmq_namesrv_event_lag_seconds": Metric(
        "gauge",
        "Seconds since Kafka's time stamp of the newest record that the job has folded, in the partition that"
        " is furthest behind.",
    ),
    "rocketmq_namesrv_routes_behind_seconds_total": Metric(
        "counter",
        "Seconds for which this server lacked a change of a route that Kafka had already; its rate is the share of "
        "time in which it may have returned other routes than another server.",
    ),
    "rocketmq_namesrv_history_age_seconds": Metric(
        "gauge",
        "Seconds since the end of the data in the history tables, or since this server's start while there is none;"
        " only with history.enabled.",
    ),
    "rocketmq_namesrv_next_offset": Metric(
        "gauge",
        "First offset of a Kafka partition that this server does not serve yet.",
        ("partition",),
    ),
    # ---- the job, from its commits ----
    "rocketmq_namesrv_job_start_timestamp_seconds": Metric(
        "gauge",
        "Time at which the job was started, in seconds since the epoch.",
    ),
    "rocketmq_namesrv_job_started_seconds": Metric(
        "gauge",
        "Deprecated: use rocketmq_namesrv_job_start_timestamp_seconds; the next release removes this name.",
    ),
    "rocketmq_namesrv_job_batch_seconds": Metric(
        "histogram",
        "Seconds that the job takes to fold and commit a micro-batch, since the job's start.",
    ),
    "rocketmq_namesrv_job_records_total": Metric(
        "counter",
        "Records that the job has folded since the job's start; every server reports the same.",
    ),
    "rocketmq_namesrv_job_dead_letters_total": Metric(
        "counter",
        "Records, or items of them, that the job has refused since the job's start; every server reports the same.",
    ),
    # ---- this process ----
    "rocketmq_namesrv_info": Metric(
        "gauge",
        "Always 1; its labels name this server and its version.",
        ("server_id", "software"),
    ),
    "rocketmq_namesrv_event_loop_lag_seconds": Metric(
        "histogram",
        "Seconds by which the event loop's regular timer fired late.",
    ),
    "rocketmq_namesrv_hang_restarts_total": Metric(
        "counter",
        "Times that the parent process of the server has killed it because it hung, and has started it again.",
    ),
    # ---- the HTTP port ----
    "rocketmq_namesrv_http_requests_total": Metric(
        "counter",
        "Answers of the HTTP port, by path of the OpenAPI document and status.",
        ("route", "status"),
    ),
    "rocketmq_namesrv_http_inflight": Metric(
        "gauge",
        "HTTP requests that are being answered, without streams of /changes.",
    ),
    "rocketmq_namesrv_http_connections": Metric("gauge", "Open HTTP connections."),
    "rocketmq_namesrv_http_events_total": Metric(
        "counter",
        "HTTP peers that were turned away, by reason: too many connections, requests or streams; a request "
        "that was not HTTP, came late, named an unknown host, or came from a page of another site; a client that "
        "did not read its answer; unread answers of all clients above their limit; an answer that failed.",
        ("event",),
        (
            *(("connection_refused",), ("request_broken",), ("request_late",), ("request_refused",)),
            *(("host_refused",), ("cross_site_refused",), ("stream_refused",), ("slow_reader",), ("unread",)),
            ("answer_failed",),
        ),
    ),
    "rocketmq_namesrv_why_total": Metric(
        "counter",
        "Answers to why a topic or broker has no usable route, by subject and by the first cause found.",
        ("subject", "cause"),
    ),
    "rocketmq_namesrv_change_streams": Metric("gauge", "Open streams of /changes, and long polls that wait there."),
    "rocketmq_namesrv_change_resets_total": Metric(
        "counter",
        "Followers of /changes that had to start again, by reason: tables (they were rebuilt), too_old (the"
        " position is no longer kept).",
        ("reason",),
        (("tables",), ("too_old",)),
    ),
}
