"""Values of ``/metrics``, over a real socket."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from namesrv_stream.metric_catalogue import METRICS
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.route.events import KvPut, WritePermChanged
from namesrv_stream.route.model import DRAINED_BROKERS, DataVersion, DrainRecord
from namesrv_stream.settings import Flag, load_settings
from tests.support.builders import BASE, READ_ONLY, S1, S2, Log, a_registration
from tests.support.history_tables import HistoryOfLogs
from tests.support.http_rig import FLEET, JOB, HttpRig, a_served_fleet
from tests.support.name_server import a_registration_request


async def test_brokers_are_counted_by_cluster_and_state() -> None:
    served, log = a_served_fleet()
    taken = len(log.output.changes)
    log.pass_time(121_000)
    async with served.serving():
        alive = await served.samples()
        served.commit(log.output.changes[taken:], {0: len(log.records)})
        held = await served.samples()
        taken = len(log.output.changes)
        log.heard(FLEET[1])
        log.unregister(FLEET[0])
        served.commit(log.output.changes[taken:], {0: len(log.records)})
        gone = await served.samples()
    counts = [
        [samples["rocketmq_namesrv_brokers", ("c0", state)] for state in ("alive", "held", "gone")]
        for samples in (alive, held, gone)
    ]
    assert counts == [[3, 0, 0], [0, 3, 0], [1, 1, 1]]
    assert gone["rocketmq_namesrv_active_brokers", ()] == 2
    assert gone["rocketmq_namesrv_changes_total", ("guard_held", "false", "guard")] == 3


async def test_overlapping_times_in_which_routes_are_behind_count_once() -> None:
    served, log = a_served_fleet()
    async with served.serving():
        before = await served.samples()
        first = log.register(a_registration("10.0.0.8:1", broker_name="b8"), connection=8)
        second = log.register(a_registration("10.0.0.9:1", broker_name="b9"), connection=9, after_ms=200)
        served.rig.clock.advance(300)
        served.commit(first, {0: 4})
        served.rig.clock.advance(100)
        served.commit(second, {0: 5})
        served.rig.clock.advance(1_000)
        served.commit(log.started(S2), {0: 6})  # changes no route
        after = await served.samples()
    name = ("rocketmq_namesrv_routes_behind_seconds_total", ())
    assert (before[name], after[name]) == (0, 0.4)


async def test_a_broker_that_contradicts_its_data_version_is_shown() -> None:
    served, log = a_served_fleet()
    other = a_registration(
        "10.0.0.1:1", broker_name="b1", topics={"TopicTest": READ_ONLY, **BASE}, registration_hash=""
    )
    served.commit(log.register(other), {0: 4})
    async with served.serving():
        samples = await served.samples()
        brokers = (await served.get("/brokers")).json()
        page = (await served.get("/")).body.decode()
    assert samples["rocketmq_namesrv_contradicting_brokers", ()] == 1
    assert samples["rocketmq_namesrv_changes_total", ("contradiction", "false", "broker_live")] == 1
    assert [broker["contradictions"] for broker in brokers] == [[], ["TopicTest"], []]
    assert "other content under an unchanged DataVersion is ignored: TopicTest" in page


async def test_a_broker_that_is_being_drained_is_shown() -> None:
    served, log = a_served_fleet()
    began = len(log.output.changes)
    log.say(
        KvPut(S1, DRAINED_BROKERS, "b1", DrainRecord("2026-11-25T10:00:00.000Z", "ada@host", {"TopicTest": 6}).encode())
    )
    log.say(WritePermChanged(S1, "b1", False))
    log.say(KvPut(S1, DRAINED_BROKERS, "b2", "{}"))
    served.commit(log.output.changes[began:], {0: len(log.records)})
    async with served.serving():
        samples = await served.samples()
        drained = [broker["drained"] for broker in (await served.get("/brokers")).json()]
        page = (await served.get("/?state=drained")).body.decode()
        wiped = await _drain_line(served)
        served.commit(log.register(replace(FLEET[1], data_version=DataVersion(9, 9, 9))), {0: len(log.records)})
        served.rig.clock.advance(1_000)
        registered = await _drain_line(served)
    assert samples["rocketmq_namesrv_draining_brokers", ()] == 2
    unreadable = {"at": None, "by": None, "topics": 0, "writable_topics": 0}
    of_b1 = {"at": "2026-11-25T10:00:00.000Z", "by": "ada@host", "topics": 1, "writable_topics": 0}
    assert drained == [None, of_b1, unreadable]
    assert "<strong>b1</strong>" in page
    assert "<strong>b0</strong>" not in page
    assert "<code>namesrv-stream drain b1 --undo</code>" in page
    assert f"<code>namesrv-stream kv delete {DRAINED_BROKERS} b2</code>" in page
    assert wiped == "drained since 2026-11-25T10:00:00.000Z by ada@host"
    assert registered == f"{wiped}, but the write permission is back for 1 of 1 topic"


async def _drain_line(served: HttpRig) -> str:
    page = (await served.get("/console/parts/brokers")).body.decode()
    return page[page.index("drained since") :].partition("<")[0]


async def test_requests_are_counted_and_timed_by_code() -> None:
    served, _ = a_served_fleet()
    peer = served.rig.connect()
    for opaque in range(3):
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=opaque, ext_fields={"topic": "TopicTest"})
        served.rig.ask(peer, request)
    served.rig.ask(peer, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "none"}))
    served.rig.ask(peer, RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields={"brokerName": "b0"}))
    for code in (4_711, 4_712):
        served.rig.ask(peer, RemotingCommand(code))
    async with served.serving():
        found = await served.samples()
    requests = {labels: n for (name, labels), n in found.items() if name == "rocketmq_namesrv_requests_total"}
    assert requests == {
        ("get_routeinfo_by_topic", "route-read", "success", "success"): 3,
        ("get_routeinfo_by_topic", "route-read", "topic_not_exist", "error"): 1,
        ("wipe_write_perm_of_broker", "admin", "no_permission", "rejected"): 1,
        ("unknown", "admin", "request_code_not_supported", "error"): 2,
    }
    latency = ("nameserver", "remoting", "get_routeinfo_by_topic", "success")
    assert found["rocketmq_rpc_latency_count", latency] == 3
    assert found["rocketmq_rpc_latency_bucket", ("3000", *latency)] == 3
    assert found["rocketmq_namesrv_route_end_to_end_latency_count", ()] == 4
    assert found["rocketmq_namesrv_security_events_total", ("auth", "denied")] == 1
    assert found["rocketmq_namesrv_active_connections", ()] == 1


async def test_figures_of_the_job_are_exported() -> None:
    served, _ = a_served_fleet()
    async with served.serving():
        found = await served.samples()
    assert found["rocketmq_namesrv_job_records_total", ()] == 4_711
    assert found["rocketmq_namesrv_job_batch_seconds_bucket", ("0.1",)] == 5
    assert found["rocketmq_namesrv_job_batch_seconds_sum", ()] == 31
    assert found["rocketmq_namesrv_event_lag_seconds", ()] == 0


async def test_the_lag_grows_while_nothing_is_folded() -> None:
    served, _ = a_served_fleet()
    served.rig.clock.advance(9_000)
    async with served.serving():
        found = await served.samples()
    assert found["rocketmq_namesrv_event_lag_seconds", ()] == 9
    assert found["rocketmq_namesrv_snapshot_age_seconds", ()] == 9


async def test_exported_metrics_are_exactly_those_that_are_described() -> None:
    served, _ = a_served_fleet()
    async with served.serving():
        text = (await served.get("/metrics")).body.decode()
    families = {f.name: f for f in text_string_to_metric_families(text) if not f.name.startswith("process_")}
    assert set(families) == {name.removesuffix("_total") for name in METRICS}
    for name, metric in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


#: Metrics without a value until a native lane, a certificate, a heartbeat, an address view or a first request exists.
ABSENT_AT_FIRST = {
    *(
        f"rocketmq_namesrv_{lane}_{what}"
        for lane in ("native_lane", "express")
        for what in ("connections", "answers_bytes")
    ),
    *("rocketmq_namesrv_tls_certificate_expiry_timestamp_seconds", "rocketmq_namesrv_tls_certificate_expires_seconds"),
    *("rocketmq_namesrv_oldest_heartbeat_age_seconds", "rocketmq_namesrv_oldest_heartbeat_timeout_ratio"),
    *("rocketmq_namesrv_view_unmapped_addresses", "rocketmq_namesrv_http_requests", "rocketmq_namesrv_why"),
}


async def test_every_metric_has_a_value() -> None:
    served, _ = a_served_fleet()
    async with served.serving():
        text = (await served.get("/metrics")).body.decode()
    absent = {family.name for family in text_string_to_metric_families(text) if not family.samples}
    assert absent - ABSENT_AT_FIRST == set(), "described in METRICS, but neither counted from zero nor read at a scrape"


async def test_the_number_of_clusters_with_separate_values_is_bounded() -> None:
    log = Log()
    for n in range(120):
        log.register(a_registration(f"10.0.1.{n}:1", broker_name=f"b{n}", cluster=f"cluster-{n}"))
    served = HttpRig()
    served.commit(log.output.changes, {0: 120})
    async with served.serving():
        found = await served.samples()
    clusters = {labels[0] for name, labels in found if name == "rocketmq_namesrv_brokers"}
    assert len(clusters) == 101
    assert found["rocketmq_namesrv_brokers", ("(other)", "alive")] == 20


async def test_counters_begin_at_zero_so_that_the_first_event_is_an_increase() -> None:
    served = HttpRig()
    async with served.serving():
        found = await served.samples()
    for name, *labels in (
        *(("rocketmq_namesrv_http_events_total", event) for event in ("host_refused", "request_late", "slow_reader")),
        *(("rocketmq_namesrv_change_resets_total", reason) for reason in ("tables", "too_old")),
        *(("rocketmq_namesrv_connection_events_total", why) for why in ("rejected", "late", "unread", "idle")),
        ("rocketmq_namesrv_security_events_total", "tls_handshake", "failed"),
        ("rocketmq_namesrv_changes_total", "expired", "true", "broker_live"),
        ("rocketmq_namesrv_changes_total", "returned", "false", "broker_live"),
        ("rocketmq_namesrv_changes_total", "guard_held", "false", "guard"),
    ):
        assert found[name, tuple(labels)] == 0


async def test_the_age_of_the_oldest_heartbeat_is_exported_for_every_cluster() -> None:
    served = HttpRig()
    served.rig.talk()
    peer = served.rig.connect()
    for name, cluster, timeout in (("a", "c0", None), ("b", "c0", "25000"), ("c", "c1", None)):
        served.rig.ask(
            peer, a_registration_request(brokerName=name, clusterName=cluster, heartbeatTimeoutMillis=timeout)
        )
    for _ in range(10):
        served.rig.clock.advance(1_500)
        served.rig.beat()
    served.rig.ask(peer, a_registration_request(brokerName="c", clusterName="c1"))
    async with served.serving():
        found = await served.samples()
    assert found["rocketmq_namesrv_oldest_heartbeat_age_seconds", ("c0",)] == 20
    assert found["rocketmq_namesrv_oldest_heartbeat_timeout_ratio", ("c0",)] == 0.8
    assert found["rocketmq_namesrv_oldest_heartbeat_age_seconds", ("c1",)] == 0


async def test_brokers_that_only_other_servers_hear_have_no_heartbeat_here() -> None:
    served, _ = a_served_fleet()  # s1, another server, receives their heartbeats
    async with served.serving():
        found = await served.samples()
    assert not [name for name, _ in found if "oldest_heartbeat" in name]


async def test_the_age_of_the_history_counts_from_its_last_data_or_from_the_start_of_the_server(tmp_path: Path) -> None:
    history = HistoryOfLogs(tmp_path, Log())
    served, name = HttpRig(history.settings), "rocketmq_namesrv_history_age_seconds"
    async with served.serving():
        served.rig.clock.advance(9_000)
        assert (await served.samples())[name, ()] == 9
        history.logs[0].tick()
        history.write_all()
        served.rig.clock.advance(30_000)
        await served.samples()  # starts to read the table
        expected = (served.rig.clock.now_ms() - history.logs[0].records[-1].at_ms) / 1000
        assert expected != 39
        for _ in range(600):
            if (await served.samples())[name, ()] == expected:
                break
            await asyncio.sleep(0.1)
        else:
            pytest.fail("the table was not read within a minute")


async def test_a_history_that_is_switched_off_has_no_age() -> None:
    settings = load_settings(environ={}, flags=[Flag("test", "history.enabled", "false")]).settings
    served = HttpRig(settings)
    async with served.serving():
        assert ("rocketmq_namesrv_history_age_seconds", ()) not in await served.samples()


async def test_timestamp_metrics_are_exported_under_their_old_names_as_well() -> None:
    served, _ = a_served_fleet()
    async with served.serving():
        found = await served.samples()
    new, old = "rocketmq_namesrv_job_start_timestamp_seconds", "rocketmq_namesrv_job_started_seconds"
    assert found[new, ()] == found[old, ()] == JOB.started_ms / 1000
