"""One partition of the log, folded with several timeouts at once."""

from collections.abc import Mapping, Sequence

from namesrv_stream.route.events import JOB, BrokerHeartbeat, BrokerRegistered, Event
from namesrv_stream.route.fold import Record
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import Registration
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.what_if.gaps import GapWatch
from namesrv_stream.what_if.silences import SilenceWatch
from namesrv_stream.what_if.thin_log import ThinLog
from namesrv_stream.what_if.timeout_run import Override, TimeoutRun


class PartitionAnalysis:
    """Takes the records of one partition, in order.

    Run 0 is the log as it was, the others are those asked for.

    Attributes:
        silences: What the runs ended.
        gaps: How long live brokers were silent.
        timeouts: Broker process to the timeout that it asks for; None for the default.
        at_ms: LogAppendTime of the first and the last record, epoch milliseconds; None without records.
        observed_ms: Observed time that passed.
    """

    def __init__(
        self,
        partition: int,
        partitions: int,
        overrides: Sequence[Override],
        settings: FoldSettings | None = None,
        elsewhere: Mapping[LeaseKey, Registration] | None = None,
    ) -> None:
        """Begin with no broker known: each is of age zero where it is first heard.

        Args:
            partition: Kafka partition.
            partitions: Of the topic.
            overrides: Of the runs besides the first.
            settings: As they hold where the log that is read begins.
            elsewhere: Registrations of brokers that may have registered before that.
        """
        self.silences = SilenceWatch()
        self.gaps = GapWatch()
        self.timeouts: dict[LeaseKey, int | None] = {}
        self.at_ms: tuple[int, int] | None = None
        settings = settings or FoldSettings()
        self.runs = [TimeoutRun(partition, partitions, settings, o) for o in (Override(), *overrides)]
        self._partition = partition
        self._partitions = partitions
        self._thin = ThinLog(elsewhere or {})
        self._is_ours: dict[str, bool] = {}
        self._folded = 0

    @property
    def observed_ms(self) -> int:
        return self.runs[0].state.observed_ms

    @property
    def unregistered(self) -> set[LeaseKey]:
        """Brokers of which no registration is known: they were left out."""
        return self._thin.unregistered

    def feed(self, record: Record) -> None:
        """Fold one record in every run."""
        self.at_ms = (self.at_ms[0] if self.at_ms else record.at_ms, record.at_ms)
        for thin, events in self._thin.thinned(record):
            counted = thin._replace(offset=self._folded)
            self._folded += 1
            for number, run in enumerate(self.runs):
                for row in run.fold(counted, events):
                    self.silences.ended(number, row, run.state.observed_ms)
            ours = [event for event in events if self._is_heard(event)]
            if ours:
                self._take(ours, record.at_ms)

    def _take(self, events: Sequence[Event], at_ms: int) -> None:
        self.silences.told(events, self.observed_ms, at_ms)
        for event in events:
            match event:
                case BrokerHeartbeat():
                    self._take_gap(LeaseKey(event.broker_name, event.live_key), event, at_ms)
                case BrokerRegistered():
                    key = LeaseKey(event.registration.broker_name, event.registration.live_key)
                    self.timeouts[key] = event.registration.timeout_ms
                    self._take_gap(key, event, at_ms)

    def _take_gap(self, key: LeaseKey, event: BrokerHeartbeat | BrokerRegistered, at_ms: int) -> None:
        clock = self.runs[0].state.servers[event.origin.server_id]
        self.gaps.heard(key, event.origin, clock.observed_ms, at_ms)

    def _is_heard(self, event: Event) -> bool:
        """Whether the fold takes the event for one of a broker of this partition."""
        name = getattr(event, "broker_name", None)
        if isinstance(event, BrokerRegistered):
            name = event.registration.broker_name
        if name is None or event.origin.server_id == JOB:
            return False
        if name not in self._is_ours:
            self._is_ours[name] = partition_of(name, self._partitions) == self._partition
        return self._is_ours[name]
