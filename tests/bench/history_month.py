"""`make bench-history`: a month of 1,000 brokers in the history tables, and the cost of reading them.

The fold, the job's writer and upkeep of ``route_changes`` and ``route_state``, and the history's writer and upkeep are
real. A shifted clock gives them the month's dates. They process every event that changes routes or sessions. The
heartbeats in between are simulated: their rows of ``broker_events`` and ``heartbeat_minutes`` are made directly, with
the number and size of the writer's rows, and the upkeep joins them with the writer's files. The last hours are entirely
real: a record for every heartbeat and tick, a run every minute, and a commit of the job every second.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, WriterProperties, write_deltalake
from pyspark.sql import SparkSession

from namesrv_stream.kafka.log_reader import TopicExtent
from namesrv_stream.settings import Flag, Settings, load_settings, to_toml
from namesrv_stream.streaming.history.history_job import build_history_session
from namesrv_stream.streaming.history.history_writer import History
from namesrv_stream.tables.history_files import commit_metadata, read_mark
from namesrv_stream.tables.history_upkeep import Upkeep
from namesrv_stream.tables.layout import BROKER_EVENTS, DAY_COLUMNS, HEARTBEAT_MINUTES, HISTORY_SCHEMAS
from namesrv_stream.tables.storage import Folder
from tests.bench.history_month_clock import ShiftedClock, run_again_with_shifted_clock
from tests.bench.history_month_figures import cold_opens, command, server_start, sizes
from tests.bench.history_month_fleet import DAY_MS, FleetLog
from tests.bench.history_month_job import MonthJob
from tests.support.history_rig import write_to_the_end
from tests.support.kafka import REPOSITORY

_RESULTS: Final = REPOSITORY / "build" / "bench" / "history-month.json"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_HEARTBEATS_MINUTES: Final = 5  # history.heartbeats_interval_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is simulated.

    Attributes:
        brokers: Number of brokers, with 80 topics each.
        days: Number of days of the month.
        step_days: Interval in days between runs of the history process and the upkeep, before the last minutes.
        dense_days: Number of last days with all rows of ``broker_events`` and ``heartbeat_minutes``.
        last_minutes: Number of last minutes that are entirely real.
    """

    brokers: int
    days: int
    step_days: int
    dense_days: int
    last_minutes: int


class Month:
    """The simulation.

    Args:
        data_dir: Its data directory.
        plan: How much is simulated.
        sets: More settings, ``section.key=value``.
    """

    def __init__(self, data_dir: Path, plan: Plan, sets: list[str]) -> None:
        self._plan = plan
        self._clock = ShiftedClock()
        # The simulation ends before now: files have later dates than the simulation until they are dated back.
        past_ms = self._clock.begun_ms - plan.days * DAY_MS - plan.last_minutes * _MINUTE_MS - 2 * DAY_MS
        self._begin_ms = past_ms // DAY_MS * DAY_MS
        self.settings = _settings(data_dir, sets)
        self.results: dict[str, Any] = {"plan": {name: getattr(plan, name) for name in Plan.__slots__}}
        self._tables = self.settings.data.tables_dir
        self._clock.set(self._begin_ms)
        self.spark = build_history_session(self.settings)
        self._log = FleetLog(plan.brokers)
        self._job = MonthJob(self.settings, self._log)
        self._read = partial(self._job.read, self.spark)

    def live(self) -> None:
        """Simulate the whole month."""
        self._log.begin(self._begin_ms)
        for first in range(0, self._plan.days, self._plan.step_days):
            began = time.perf_counter()
            days = range(first, min(first + self._plan.step_days, self._plan.days))
            self._days(days)
            self.results[f"after day {days.stop}"] = sizes(self._tables)
            self.save()
            _say(f"day {days.stop} of {self._plan.days}: {time.perf_counter() - began:.1f} s")
        self._last_hours(self._begin_ms + self._plan.days * DAY_MS)

    def save(self) -> None:
        """Write the results so far."""
        _RESULTS.parent.mkdir(parents=True, exist_ok=True)
        _RESULTS.write_text(json.dumps(self.results, indent=2) + "\n", encoding="utf-8")

    def _days(self, days: range) -> None:
        took: dict[str, float] = {}
        made: dict[str, list[pa.Table]] = {HEARTBEAT_MINUTES: [], BROKER_EVENTS: []}
        for day in days:
            begin_ms = self._begin_ms + day * DAY_MS
            if day >= self._plan.days - self._plan.dense_days:
                self._make_dense(made, begin_ms, begin_ms + DAY_MS - 3 * _MINUTE_MS)
            self._log.happen(self._log.changes_of_day(day, begin_ms))
            self._log.all_are_heard(begin_ms + DAY_MS - 2 * _MINUTE_MS)
        now_ms = self._begin_ms + days.stop * DAY_MS - _MINUTE_MS
        self._clock.set(now_ms)
        self._job.commit()
        before_s = _processor_s(self.spark)
        self._timed(took, "run", lambda: self._run(1))
        self._timed(took, "append", lambda: self._append(made))
        self._clock.date_back(self._tables)
        self._timed(took, "upkeep", lambda: self._upkeep(now_ms))
        self._clock.date_back(self._tables)
        took["JVM's processor"] = _processor_s(self.spark) - before_s
        self._timed(took, "job's clean-up", self._job.clean_up)
        self._clock.date_back(self._tables)
        self.results.setdefault("seconds of a step", []).append({k: round(v, 2) for k, v in took.items()})

    def _make_dense(self, made: dict[str, list[pa.Table]], from_ms: int, to_ms: int) -> None:
        """Make the heartbeats of a day, whose offsets are below those of its other records."""
        made[HEARTBEAT_MINUTES].append(self._log.minutes_at_full_density(from_ms, to_ms))
        made[BROKER_EVENTS] += self._log.events_at_full_density(from_ms, to_ms)

    def _append(self, made: dict[str, list[pa.Table]]) -> None:
        for name, parts in made.items():
            path = self._tables / name
            mark = read_mark(Folder(path))
            assert mark is not None
            for part in parts:
                write_deltalake(
                    path,
                    part,
                    mode="append",
                    partition_by=[DAY_COLUMNS[name]],
                    writer_properties=WriterProperties(compression="ZSTD"),
                    commit_properties=CommitProperties(custom_metadata=commit_metadata(mark)),
                )

    def _last_hours(self, begin_ms: int) -> None:
        """Simulate the last hours; the upkeep runs only at their end, although a real one runs every hour."""
        planned = self._log.changes_of_day(self._plan.days, begin_ms)
        runs: list[dict[str, Any]] = []
        for minute in range(self._plan.last_minutes):
            from_ms = begin_ms + minute * _MINUTE_MS
            self._clock.set(from_ms + _MINUTE_MS)
            self._log.minute_at_full_density(from_ms)
            self._log.happen([p for p in planned if from_ms <= p.at_ms < from_ms + _MINUTE_MS])
            self._job.commit(seconds=60)
            began = time.perf_counter(), time.process_time(), _processor_s(self.spark)
            is_fifth = minute % _HEARTBEATS_MINUTES == _HEARTBEATS_MINUTES - 1
            written = self._run(1 if is_fifth else 1 << 40)
            self._clock.date_back(self._tables)
            runs.append(
                {
                    "with_heartbeats": is_fifth,
                    "wall_s": time.perf_counter() - began[0],
                    "processor_s": time.process_time() - began[1] + _processor_s(self.spark) - began[2],
                    "written": written,
                }
            )
            if minute % 10 == 9:
                self._job.compact()
                _say(f"minute {minute + 1} of {self._plan.last_minutes}: {runs[-1]['wall_s']:.1f} s")
        self.results["runs"] = runs
        self._clock.set(begin_ms + self._plan.last_minutes * _MINUTE_MS)
        self._measure("before upkeep")
        before = time.perf_counter(), _processor_s(self.spark)
        upkeep = Upkeep(self.settings)
        upkeep.join_files()
        joined = time.perf_counter(), _processor_s(self.spark)
        upkeep.clean_up()
        self.results["last upkeep"] = {
            "join_wall_s": joined[0] - before[0],
            "join_processor_s": joined[1] - before[1],
            "clean_up_wall_s": time.perf_counter() - joined[0],
            "clean_up_processor_s": _processor_s(self.spark) - joined[1],
        }
        self._job.clean_up()
        self._clock.date_back(self._tables)
        self._measure("after upkeep")
        # A day later, the replaced files are old enough to be removed.
        self._clock.set(begin_ms + self._plan.last_minutes * _MINUTE_MS + DAY_MS + _HOUR_MS)
        upkeep.clean_up()
        self._job.clean_up()
        self.results["a day later"] = {"sizes": sizes(self._tables)}

    def _measure(self, when: str) -> None:
        conf = self.settings.data.dir / "conf.toml"
        conf.write_text(to_toml(self.settings))
        as_of = datetime.fromtimestamp((self._begin_ms + self._plan.days * DAY_MS // 2) / 1000, UTC).isoformat()
        self.results[when] = {
            "sizes": sizes(self._tables),
            "cold_opens": cold_opens(self.spark, self._tables, list(HISTORY_SCHEMAS)),
            "route_as_of": command("route", "topic-00040", "--as-of", as_of, "--conf", str(conf)),
            "history_broker": command("history", "broker-0007", "--since", "7d", "--conf", str(conf)),
            "server_start": server_start(self._tables),
        }
        self.save()
        _say(f"{when}: {json.dumps(self.results[when])}")

    def _run(self, heartbeats_ms: int) -> dict[str, int]:
        """Write the history up to the job's end."""
        extent: TopicExtent = self._job.extent()
        # A new history process, because another writer has changed the tables since the last one began.
        history = History(self.spark, self._with_heartbeats_each(heartbeats_ms), extent)
        return write_to_the_end(history, self._read, extent.end, self.settings.history.max_records)

    def _upkeep(self, now_ms: int) -> None:
        Upkeep(self.settings).run(now_ms)

    def _with_heartbeats_each(self, ms: int) -> Settings:
        history = self.settings.history.model_copy(update={"heartbeats_interval_ms": ms})
        return self.settings.model_copy(update={"history": history})

    @staticmethod
    def _timed(took: dict[str, float], what: str, work: Any) -> Any:
        began = time.perf_counter()
        result = work()
        took[what] = took.get(what, 0.0) + time.perf_counter() - began
        return result


def _settings(data_dir: Path, sets: list[str]) -> Settings:
    pairs = [pair.partition("=") for pair in (f"data.dir={data_dir}", *sets)]
    settings = load_settings(environ={}, flags=[Flag("--set", key, value) for key, _, value in pairs]).settings
    # Dates jump by hours, which must not make Spark believe that the executor is dead.
    patience = {"spark.network.timeout": "100000000s", "spark.executor.heartbeatInterval": "10000000s"}
    return settings.model_copy(update={"streaming": settings.streaming.model_copy(update={"extra": patience})})


def _processor_s(spark: SparkSession) -> float:
    """Return the processor time of the JVM so far."""
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # noqa: SLF001
    user, system = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--step-days", type=int, default=1, help="days between runs, except in the last hours")
    parser.add_argument(
        "--dense-days", type=int, default=30, help="number of last days with every heartbeat in the tables"
    )
    parser.add_argument("--last-minutes", type=int, default=120, help="number of last minutes that are entirely real")
    parser.add_argument("--keep", type=Path, help="make the tables in this new folder, and keep them")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    plan = Plan(arguments.brokers, arguments.days, arguments.step_days, arguments.dense_days, arguments.last_minutes)
    run_again_with_shifted_clock()
    with tempfile.TemporaryDirectory(prefix="history-month-") as folder:
        month = Month(arguments.keep or Path(folder), plan, arguments.set)
        began = time.perf_counter()
        month.live()
        month.results["wall_s"] = round(time.perf_counter() - began, 1)
        month.save()
        _say(f"{month.results['wall_s']} s; written to {_RESULTS.relative_to(REPOSITORY)}")
        month.spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
