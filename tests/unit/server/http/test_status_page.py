"""``/healthz`` and ``/readyz`` over a real socket."""

import pytest

from namesrv_stream.route.table import RouteTable
from namesrv_stream.server.native.lane import LaneStatus
from namesrv_stream.server.view.commit_applier import search_missed_tables
from namesrv_stream.settings import load_settings
from namesrv_stream.tables.job_commits import JobFigures
from tests.support.http_rig import JOB, Answer, HttpRig, a_served_fleet
from tests.support.server_rig import TICK_MS


async def test_a_server_is_not_ready_before_kafka_accepts_its_records_and_gives_the_reason() -> None:
    served = HttpRig()
    async with served.serving():
        before, text = await served.get("/readyz"), await served.get("/readyz", Accept="text/plain")
        served.rig.talk()
        after = await served.get("/readyz")
    assert (before.status, text.status, after.status) == (503, 503, 200)
    assert before.json()["reasons"][0].startswith("kafka: Kafka has accepted no records since this server's start")
    assert text.body.startswith(b"not ready\n[+] server ok\n[-] kafka failed: ")
    assert after.json()["ready"]


async def test_a_server_that_loses_kafka_stays_ready_and_reports_since_when() -> None:
    served, _ = a_served_fleet()
    served.rig.clock.advance(5_000)
    served.rig.publisher.fail("no broker answers")
    async with served.serving():
        ready, health = await served.get("/readyz"), (await served.get("/healthz")).json()
    (kafka,) = [part for part in health["parts"] if part["name"] == "kafka"]
    assert (ready.status, health["state"], health["kafka"]) == (200, "yellow", "down")
    assert kafka["since_ms"] == served.rig.clock.now_ms()
    assert "no broker answers" in kafka["reason"]
    assert kafka["run_book"] == "docs/operations.md#namesrvkafkadown"


async def test_a_server_that_loses_one_partition_names_it() -> None:
    served = HttpRig(partitions=3)
    served.rig.talk()
    served.rig.publisher.fail("no leader", partition=1)
    async with served.serving():
        ready, health = await served.get("/readyz"), (await served.get("/healthz")).json()
    (kafka,) = [part for part in health["parts"] if part["name"] == "kafka"]
    assert (ready.status, kafka["state"]) == (200, "degraded")
    assert kafka["reason"].startswith("Kafka accepts no records of partitions 1: no leader; ")
    assert "none of their brokers expires" in kafka["reason"]


async def test_a_stopping_server_is_not_ready() -> None:
    served, _ = a_served_fleet()
    served.rig.gateway.begin_stop()
    async with served.serving():
        ready, health = await served.get("/readyz"), await served.get("/healthz?format=text")
    assert (ready.status, health.status) == (503, 200)
    assert health.body.startswith(b"red\n[-] server failed: it is stopping")


async def test_a_server_that_was_started_again_after_a_hang_is_degraded_for_ten_minutes() -> None:
    served, _ = a_served_fleet()
    served.figures.hang_restarts = 2
    started_ms = served.rig.clock.now_ms()
    async with served.serving():

        async def server_after(minutes: int) -> dict[str, object]:
            served.rig.clock.advance(minutes * 60_000)
            served.rig.beat(5)  # the server notices a stall, and is not blind any more
            served.rig.publisher.ack()
            health = (await served.get("/healthz")).json()
            return dict(next(part for part in health["parts"] if part["name"] == "server"))

        first, still, over = [await server_after(minutes) for minutes in (0, 9, 1)]
        assert (await served.get("/readyz")).status == 200
        assert (await served.samples())["rocketmq_namesrv_hang_restarts_total", ()] == 2
    assert first == still
    assert (first["state"], first["since_ms"]) == ("degraded", started_ms)
    assert first["reason"] == "it hung, was killed and started again (2 times so far)"
    assert over["state"] == "ok"


async def test_tables_without_commits_or_that_cannot_be_read_make_health_yellow() -> None:
    served, _ = a_served_fleet()
    async with served.serving():
        green = (await served.get("/healthz")).json()
        served.rig.clock.advance(60_000)
        served.rig.beat()
        stale = (await served.get("/healthz?format=text")).body.decode()
        served.failure = "a file is gone"
        unreadable = (await served.get("/healthz?format=text")).body.decode()
    assert green["state"] == "green"
    assert "[~] tables degraded: no commit of the job for 60 s" in stale
    assert "[~] job degraded: no commit for 60 s: no broker expires; see docs/operations.md#namesrvjobdown\n" in stale
    assert "[~] tables degraded: answers come from memory: a file is gone" in unreadable
    assert "[+] job ok" in unreadable


async def test_the_state_of_the_job_counts_from_the_commit_that_ended_an_outage() -> None:
    served, log = a_served_fleet()
    async with served.serving():
        before = _job(await served.get("/healthz"))
        served.rig.clock.advance(60_000)
        served.rig.beat()
        served.commit([], {0: len(log.records)}, JOB)
        after = _job(await served.get("/healthz"))
    assert (before["since_ms"], after["since_ms"]) == (JOB.started_ms, served.rig.clock.now_ms())


@pytest.mark.parametrize("folded_to", [0, 9])
async def test_a_job_that_has_not_committed_since_the_start_of_this_server_is_degraded(folded_to: int) -> None:
    served = HttpRig()
    served.rig.talk()
    served.reload(RouteTable(), {0: folded_to})  # the tables exist
    for _ in range(3_000 // TICK_MS):
        served.rig.beat()
        served.rig.publisher.ack()
    async with served.serving():
        before, console = await served.get("/readyz"), (await served.get("/")).body.decode()
        served.commit([], {0: 10}, JOB)
        after = (await served.get("/healthz")).json()
    assert before.status == 200
    silence = "since this server's start, for 3 s (it may still be starting)"
    assert before.json()["reasons"] == [
        f"tables: no commit of the job {silence}: routes are older, except for what this server has received since",
        f"job: no commit {silence}: no broker expires",
    ]
    assert "3 s old" not in console
    assert after["state"] == "green"


async def test_a_server_is_not_ready_while_it_cannot_find_the_tables_of_a_job_that_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served, is_found = HttpRig(), False
    served.rig.talk()
    monkeypatch.setattr("namesrv_stream.server.view.commit_applier.log_shows_commits", lambda _: is_found)
    settings = load_settings(environ={}).settings
    async with served.serving():
        await search_missed_tables(settings, served.tables)
        before_the_job = await served.get("/readyz")
        is_found = True
        await search_missed_tables(settings, served.tables)
        missed = await served.get("/readyz")
        served.reload(RouteTable(), {0: 1})
        found = await served.get("/readyz")
    assert (before_the_job.status, missed.status, found.status) == (200, 503, 200)
    (reason,) = missed.json()["reasons"]
    assert reason.startswith("tables: the log shows that the job has committed, but ")
    assert f"{settings.data.tables_dir} contains no tables: check data.tables" in reason


def _job(answer: Answer) -> dict[str, object]:
    return next(part for part in answer.json()["parts"] if part["name"] == "job")


async def test_dead_letters_and_held_brokers_are_reported_as_degraded() -> None:
    served, log = a_served_fleet()
    log.pass_time(121_000)
    served.commit(log.output.changes[-20:], {0: len(log.records)}, JobFigures(1, 2, dead_letters=2))
    async with served.serving():
        found = (await served.get("/healthz?format=text")).body.decode()
    assert (
        "[~] job degraded: it refused a record within the last 15 minutes, and 2 records or items since its start"
        in found
    )
    assert "[~] guard degraded: it holds 3 brokers" in found


@pytest.mark.parametrize("is_active", [True, False])
async def test_health_and_metrics_show_whether_the_native_lane_is_active(is_active: bool) -> None:
    served = HttpRig(native_lane=LaneStatus(is_active, "active or not"))
    served.rig.talk()
    served.commit([], {0: 0}, JOB)
    async with served.serving():
        health, text = await served.get("/healthz"), await served.get("/healthz", Accept="text/plain")
        ready, samples = await served.get("/readyz"), await served.samples()
    assert health.json()["state"] == "green"
    assert health.json()["parts"][-1] == {"name": "native_lane", "state": "ok", "detail": "active or not"}
    assert text.body.endswith(b"\n[+] native_lane ok: active or not\n")
    assert ready.json()["reasons"] == []
    assert samples["rocketmq_namesrv_native_lane_active", ()] == is_active


async def test_a_native_lane_that_cannot_be_used_makes_health_yellow() -> None:
    served = HttpRig(native_lane=LaneStatus(False, "its library cannot be used: file too short; …", is_fault=True))
    served.rig.talk()
    served.commit([], {0: 0}, JOB)
    async with served.serving():
        health, ready = await served.get("/healthz"), await served.get("/readyz")
    assert health.json()["state"] == "yellow"
    assert health.json()["parts"][-1]["reason"] == "its library cannot be used: file too short; …"
    assert ready.status == 200


async def test_the_job_is_ok_again_15_minutes_after_the_last_refused_record() -> None:
    served, log = a_served_fleet()
    async with served.serving():

        async def health_after(minutes: int, dead_letters: int) -> dict[str, object]:
            served.rig.clock.advance(minutes * 60_000)
            served.rig.beat()
            served.commit([], {0: len(log.records)}, JobFigures(JOB.started_ms, 2, dead_letters=dead_letters))
            return _job(await served.get("/healthz"))

        refused = await health_after(0, 1)
        refused_at_ms = served.rig.clock.now_ms()
        still = await health_after(14, 1)
        over = await health_after(1, 1)
        again = await health_after(60, 2)
        found = await served.samples()
    assert refused["state"] == still["state"] == again["state"] == "degraded"
    assert refused["since_ms"] == still["since_ms"] == refused_at_ms
    assert "it refused a record within the last 15 minutes, and 1 record or item since its start" in str(
        refused["reason"]
    )
    assert (over["name"], over["state"]) == ("job", "ok")
    assert found["rocketmq_namesrv_job_dead_letters_total", ()] == 2


async def test_a_restarted_job_without_refusals_keeps_the_time_of_the_last_refusal() -> None:
    served, log = a_served_fleet()
    served.commit([], {0: len(log.records)}, JobFigures(1, 2, dead_letters=3))
    served.rig.clock.advance(1_000)
    served.commit([], {0: len(log.records)}, JobFigures(2_000, 2_001, dead_letters=0))
    assert served.tables.refused_at_ms == served.rig.clock.now_ms() - 1_000
