"""``/healthz``, ``/readyz`` and ``/metrics`` over real sockets."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from namesrv_stream.metric_catalogue import METRICS
from namesrv_stream.remoting.command import RemotingCommand, RequestCode
from namesrv_stream.route.liveness_settings import FoldSettings
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.tables.job_commits import JobFigures
from tests.support.builders import BASE, READ_ONLY, S2, Log, a_registration
from tests.support.http_rig import HttpRig
from tests.support.name_server import a_registration_request

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]
_JOB = JobFigures(1_700_000_000_000, 1_700_000_000_000, 4_711, 0, (3, 2, *[0] * 9, 1), 31_000)


def _of_fleet() -> tuple[HttpRig, Log]:
    log = Log(FoldSettings(guard_min_brokers=2))
    for registration in FLEET:
        log.register(registration)
    served = HttpRig()
    served.rig.talk()
    served.commit(log.output.changes, {0: 3}, _JOB)
    return served, log


async def _samples(served: HttpRig) -> dict[tuple[str, tuple[str, ...]], float]:
    """(name, values of the labels by their names) → value."""
    text = (await served.get("/metrics")).body.decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_time_for_which_routes_are_behind_counts_once() -> None:
    served, log = _of_fleet()
    async with served.serving():
        before = await _samples(served)
        first = log.register(a_registration("10.0.0.8:1", broker_name="b8"), connection=8)
        second = log.register(a_registration("10.0.0.9:1", broker_name="b9"), connection=9, after_ms=200)
        served.rig.clock.advance(300)
        served.commit(first, {0: 4})
        served.rig.clock.advance(100)
        served.commit(second, {0: 5})
        served.rig.clock.advance(1_000)
        served.commit(log.started(S2), {0: 6})  # no route
        after = await _samples(served)
    name = ("rocketmq_namesrv_routes_behind_seconds_total", ())
    assert (before[name], after[name]) == (0, 0.4)


async def test_a_broker_that_contradicts_its_data_version_is_shown() -> None:
    served, log = _of_fleet()
    other = a_registration(
        "10.0.0.1:1", broker_name="b1", topics={"TopicTest": READ_ONLY, **BASE}, registration_hash=""
    )
    served.commit(log.register(other), {0: 4})
    async with served.serving():
        samples = await _samples(served)
        brokers = (await served.get("/brokers")).json()
        page = (await served.get("/")).body.decode()
    assert samples["rocketmq_namesrv_contradicting_brokers", ()] == 1
    assert samples["rocketmq_namesrv_changes_total", ("contradiction", "false", "broker_live")] == 1
    assert [broker["contradictions"] for broker in brokers] == [[], ["TopicTest"], []]
    assert "other content under an old DataVersion is ignored: TopicTest" in page


async def test_a_server_is_not_ready_before_kafka_takes_its_records_and_says_why() -> None:
    served = HttpRig()
    async with served.serving():
        before, text = await served.get("/readyz"), await served.get("/readyz", Accept="text/plain")
        served.rig.talk()
        after = await served.get("/readyz")
    assert (before.status, text.status, after.status) == (503, 503, 200)
    assert before.json()["reasons"][0].startswith("kafka: Kafka has accepted no records since this server's start")
    assert text.body.startswith(b"not ready\n[+] server ok\n[-] kafka failed: ")
    assert after.json()["ready"]


async def test_a_server_that_loses_kafka_stays_ready_and_says_since_when_it_is_blind() -> None:
    served, _ = _of_fleet()
    served.rig.clock.advance(5_000)
    served.rig.publisher.fail("no broker answers")
    async with served.serving():
        ready, health = await served.get("/readyz"), (await served.get("/healthz")).json()
    (kafka,) = [part for part in health["parts"] if part["name"] == "kafka"]
    assert (ready.status, health["state"], health["kafka"]) == (200, "yellow", "down")
    assert kafka["since_ms"] == served.rig.clock.now_ms()
    assert "no broker answers" in kafka["reason"]


async def test_a_server_that_loses_one_partition_says_which() -> None:
    served = HttpRig(partitions=3)
    served.rig.talk()
    served.rig.publisher.fail("no leader", partition=1)
    async with served.serving():
        ready, health = await served.get("/readyz"), (await served.get("/healthz")).json()
    (kafka,) = [part for part in health["parts"] if part["name"] == "kafka"]
    assert (ready.status, kafka["state"]) == (200, "degraded")
    assert kafka["reason"].startswith("Kafka accepts no records of partitions 1: no leader; ")
    assert "none of their brokers expires" in kafka["reason"]


async def test_a_server_that_stops_is_not_ready() -> None:
    served, _ = _of_fleet()
    served.rig.gateway.begin_stop()
    async with served.serving():
        ready, health = await served.get("/readyz"), await served.get("/healthz?format=text")
    assert (ready.status, health.status) == (503, 200)
    assert health.body.startswith(b"red\n[-] server failed: it is stopping")


async def test_tables_that_stand_still_or_cannot_be_read_turn_health_yellow() -> None:
    served, _ = _of_fleet()
    async with served.serving():
        green = (await served.get("/healthz")).json()
        served.rig.clock.advance(60_000)
        served.rig.beat()
        stale = (await served.get("/healthz?format=text")).body.decode()
        served.failure = "a file is gone"
        unreadable = (await served.get("/healthz?format=text")).body.decode()
    assert green["state"] == "green"
    assert "[~] tables degraded: no commit of the job for 60 s" in stale
    assert "[~] tables degraded: they cannot be read: a file is gone" in unreadable


async def test_dead_letters_and_held_brokers_turn_health_yellow() -> None:
    served, log = _of_fleet()
    log.pass_time(121_000)
    served.commit(log.output.changes[-20:], {0: len(log.records)}, JobFigures(1, 2, dead_letters=2))
    async with served.serving():
        found = (await served.get("/healthz?format=text")).body.decode()
    assert "[~] job degraded: it refused 2 records or items since its start" in found
    assert "[~] guard degraded: it holds 3 brokers" in found


async def test_brokers_are_counted_by_cluster_and_state() -> None:
    served, log = _of_fleet()
    taken = len(log.output.changes)
    log.pass_time(121_000)
    async with served.serving():
        alive = await _samples(served)
        served.commit(log.output.changes[taken:], {0: len(log.records)})
        held = await _samples(served)
        taken = len(log.output.changes)
        log.heard(FLEET[1])
        log.unregister(FLEET[0])
        served.commit(log.output.changes[taken:], {0: len(log.records)})
        gone = await _samples(served)
    counts = [
        [samples["rocketmq_namesrv_brokers", ("c0", state)] for state in ("alive", "held", "gone")]
        for samples in (alive, held, gone)
    ]
    assert counts == [[3, 0, 0], [0, 3, 0], [1, 1, 1]]
    assert gone["rocketmq_namesrv_active_brokers", ()] == 2
    assert gone["rocketmq_namesrv_changes_total", ("guard_held", "false", "guard")] == 3


async def test_requests_are_counted_and_timed_by_code() -> None:
    served, _ = _of_fleet()
    peer = served.rig.connect()
    for opaque in range(3):
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, opaque=opaque, ext_fields={"topic": "TopicTest"})
        served.rig.ask(peer, request)
    served.rig.ask(peer, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "none"}))
    served.rig.ask(peer, RemotingCommand(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext_fields={"brokerName": "b0"}))
    for code in (4_711, 4_712):
        served.rig.ask(peer, RemotingCommand(code))
    async with served.serving():
        found = await _samples(served)
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


async def test_what_the_job_says_of_itself_is_told() -> None:
    served, _ = _of_fleet()
    async with served.serving():
        found = await _samples(served)
    assert found["rocketmq_namesrv_job_records_total", ()] == 4_711
    assert found["rocketmq_namesrv_job_batch_seconds_bucket", ("0.1",)] == 5
    assert found["rocketmq_namesrv_job_batch_seconds_sum", ()] == 31
    assert found["rocketmq_namesrv_event_lag_seconds", ()] == 0


async def test_the_lag_grows_while_nothing_is_folded() -> None:
    served, _ = _of_fleet()
    served.rig.clock.advance(9_000)
    async with served.serving():
        found = await _samples(served)
    assert found["rocketmq_namesrv_event_lag_seconds", ()] == 9
    assert found["rocketmq_namesrv_snapshot_age_seconds", ()] == 9


async def test_every_metric_is_described_and_no_other_is_told() -> None:
    served, _ = _of_fleet()
    async with served.serving():
        text = (await served.get("/metrics")).body.decode()
    families = {f.name: f for f in text_string_to_metric_families(text) if not f.name.startswith("process_")}
    assert set(families) == {name.removesuffix("_total") for name in METRICS}
    for name, metric in METRICS.items():
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


async def test_clusters_with_figures_of_their_own_are_bounded() -> None:
    log = Log()
    for n in range(120):
        log.register(a_registration(f"10.0.1.{n}:1", broker_name=f"b{n}", cluster=f"cluster-{n}"))
    served = HttpRig()
    served.commit(log.output.changes, {0: 120})
    async with served.serving():
        found = await _samples(served)
    clusters = {labels[0] for name, labels in found if name == "rocketmq_namesrv_brokers"}
    assert len(clusters) == 101
    assert found["rocketmq_namesrv_brokers", ("(other)", "alive")] == 20


@pytest.mark.parametrize("is_active", [True, False])
async def test_health_and_metrics_say_whether_the_native_lane_is_active(is_active: bool) -> None:
    served = HttpRig(native_lane=LaneStatus(is_active, "active or not"))
    served.rig.talk()
    served.commit([], {0: 0}, _JOB)
    async with served.serving():
        health, text = await served.get("/healthz"), await served.get("/healthz", Accept="text/plain")
        ready, samples = await served.get("/readyz"), await _samples(served)
    assert health.json()["state"] == "green"
    assert health.json()["parts"][-1] == {"name": "native_lane", "state": "ok", "detail": "active or not"}
    assert text.body.endswith(b"\n[+] native_lane ok: active or not\n")
    assert ready.json()["reasons"] == []
    assert samples["rocketmq_namesrv_native_lane_active", ()] == is_active


async def test_a_native_lane_that_cannot_be_used_makes_health_yellow() -> None:
    served = HttpRig(native_lane=LaneStatus(False, "its library cannot be used: file too short", is_fault=True))
    served.rig.talk()
    served.commit([], {0: 0}, _JOB)
    async with served.serving():
        health, ready = await served.get("/healthz"), await served.get("/readyz")
    assert health.json()["state"] == "yellow"
    assert "file too short; Python answers" in health.json()["parts"][-1]["reason"]
    assert ready.status == 200


async def test_health_is_green_again_when_the_last_refused_record_is_a_quarter_of_an_hour_old() -> None:
    served, log = _of_fleet()
    async with served.serving():

        async def health_after(minutes: int, dead_letters: int) -> dict[str, object]:
            served.rig.clock.advance(minutes * 60_000)
            served.rig.beat()
            served.commit([], {0: len(log.records)}, JobFigures(_JOB.started_ms, 2, dead_letters=dead_letters))
            parts = (await served.get("/healthz")).json()["parts"]
            return next(part for part in parts if part["name"] == "job")

        refused = await health_after(0, 1)
        refused_at_ms = served.rig.clock.now_ms()
        still = await health_after(14, 1)
        over = await health_after(1, 1)
        again = await health_after(60, 2)
        found = await _samples(served)
    assert refused["state"] == still["state"] == again["state"] == "degraded"
    assert refused["since_ms"] == still["since_ms"] == refused_at_ms
    assert "it refused 1 record or item since its start, the last within 15 minutes" in str(refused["reason"])
    assert over == {"name": "job", "state": "ok", "since_ms": _JOB.started_ms}
    assert found["rocketmq_namesrv_job_dead_letters_total", ()] == 2


async def test_a_started_job_that_has_refused_nothing_yet_is_well() -> None:
    served, log = _of_fleet()
    served.commit([], {0: len(log.records)}, JobFigures(1, 2, dead_letters=3))
    served.rig.clock.advance(1_000)
    served.commit([], {0: len(log.records)}, JobFigures(2_000, 2_001, dead_letters=0))
    assert served.tables.refused_at_ms == served.rig.clock.now_ms() - 1_000


async def test_counters_begin_at_zero_so_that_the_first_event_is_a_rise() -> None:
    served = HttpRig()
    async with served.serving():
        found = await _samples(served)
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


async def test_the_oldest_heartbeat_of_each_cluster_is_told_before_its_broker_expires() -> None:
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
        found = await _samples(served)
    assert found["rocketmq_namesrv_oldest_heartbeat_age_seconds", ("c0",)] == 20
    assert found["rocketmq_namesrv_oldest_heartbeat_timeout_ratio", ("c0",)] == 0.8
    assert found["rocketmq_namesrv_oldest_heartbeat_age_seconds", ("c1",)] == 0


async def test_brokers_that_only_other_servers_hear_have_no_heartbeat_here() -> None:
    served, _ = _of_fleet()  # heard by s1, which is another
    async with served.serving():
        found = await _samples(served)
    assert not [name for name, _ in found if "oldest_heartbeat" in name]


async def test_the_old_names_of_instants_work_for_one_release() -> None:
    served, _ = _of_fleet()
    async with served.serving():
        found = await _samples(served)
    new, old = "rocketmq_namesrv_job_start_timestamp_seconds", "rocketmq_namesrv_job_started_seconds"
    assert found[new, ()] == found[old, ()] == _JOB.started_ms / 1000
