"""Metrics of the tables that a server follows: the served version, its age, and the job's own figures."""

from collections.abc import Callable, Iterable

from namesrv_stream.clock import Clock
from namesrv_stream.metrics import Counters, Histogram, Samples
from namesrv_stream.route.changes import RouteChange
from namesrv_stream.tables.job_commits import BATCH_BOUNDS_MS, JobFigures
from namesrv_stream.tables.snapshot import Snapshot


class TableStatus:
    """Status of the tables. It is notified of every commit and reload, on the event loop.

    Attributes:
        version: The served version of ``route_changes``; -1 if there is no table.
        failure: Returns why the tables cannot be read; "" if they can.
        job: The job's latest figures; None if it has committed none since this server's start.
        refused_at_ms: When this server last noticed that the job refused a record, epoch milliseconds; None for never.
    """

    def __init__(self, snapshot: Snapshot, counters: Counters, clock: Clock) -> None:
        self.version = snapshot.version
        self.failure: Callable[[], str] = lambda: ""
        self.job: JobFigures | None = None
        self.refused_at_ms: int | None = None
        self._moved_ms = clock.monotonic_ms()
        self._at_ms = min(snapshot.at_ms.values(), default=0)
        self._counters = counters
        self._clock = clock

    def count(self, changes: Iterable[RouteChange]) -> None:
        """Count rows of a commit; a commit can come in several slices."""
        for change in changes:
            self._counters.count("rocketmq_namesrv_changes_total", change.kind, change.cause, str(change.gone).lower())

    def committed(self, version: int, job: JobFigures | None) -> None:
        """Record a commit that was applied; its rows are already counted."""
        self._counters.count("rocketmq_namesrv_snapshot_commits_total")
        self._move(version)
        if job is not None:
            known = self.job.dead_letters if self.job and self.job.started_ms == job.started_ms else 0
            if job.dead_letters > known:
                self.refused_at_ms = self._clock.now_ms()
            self.job = job
            self._at_ms = max(self._at_ms, job.at_ms)

    def reloaded(self, snapshot: Snapshot) -> None:
        """Record that the tables were reopened."""
        self._counters.count("rocketmq_namesrv_snapshot_reloads_total")
        self._move(snapshot.version)
        self._at_ms = max(self._at_ms, min(snapshot.at_ms.values(), default=0))

    def _move(self, version: int) -> None:
        self.version = version
        self._moved_ms = self._clock.monotonic_ms()

    @property
    def age_ms(self) -> int:
        """Time since the last applied commit; the job commits about once a second."""
        return self._clock.monotonic_ms() - self._moved_ms

    @property
    def lag_ms(self) -> int | None:
        """Age of the newest folded record, in the partition that is furthest behind; None if nothing is folded.

        Kafka's clock and this machine's clock can differ. If Kafka's clock is ahead, the lag is 0.
        """
        return max(0, self._clock.now_ms() - self._at_ms) if self._at_ms else None

    def sample(self, samples: Samples) -> None:
        """Add all metrics to a scrape, except unknown values."""
        samples.add("rocketmq_namesrv_snapshot_age_seconds", self.age_ms / 1000)
        samples.add("rocketmq_namesrv_snapshot_version", self.version)
        samples.add("rocketmq_namesrv_tables_readable", not self.failure())
        if (lag_ms := self.lag_ms) is not None:
            samples.add("rocketmq_namesrv_event_lag_seconds", lag_ms / 1000)
        if self.job is not None:
            batches = Histogram(BATCH_BOUNDS_MS, self.job.batch_counts, self.job.batch_ms)
            samples.add("rocketmq_namesrv_job_start_timestamp_seconds", self.job.started_ms / 1000)
            samples.add("rocketmq_namesrv_job_started_seconds", self.job.started_ms / 1000)
            samples.add_histogram("rocketmq_namesrv_job_batch_seconds", batches, 1e-3)
            samples.add("rocketmq_namesrv_job_records_total", self.job.records)
            samples.add("rocketmq_namesrv_job_dead_letters_total", self.job.dead_letters)
