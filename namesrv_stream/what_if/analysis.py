"""One partition of the log, folded with several timeouts at once."""

from collections.abc import Callable, Mapping, Sequence

from namesrv_stream.route.events import (
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
)
from namesrv_stream.route.fold import Record
from namesrv_stream.route.fold_state import LeaseKey
from namesrv_stream.route.model import Registration
from namesrv_stream.route.partitioner import partition_of
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.what_if.gaps import GapWatch
from namesrv_stream.what_if.silences import Silence, SilenceTally, SilenceWatch
from namesrv_stream.what_if.thin_log import ThinLog, ThinRecord
from namesrv_stream.what_if.timeout_run import Override, TimeoutRun


class PartitionAnalysis:
    """Takes the records of one partition, in order.

    Run 0 is the log as it was, the others are those asked for.

    Attributes:
        tally: What the silences came to that some run ended, and that are over.
        silences: The others.
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
        on_over: Callable[[Silence], None] = lambda silence: None,
    ) -> None:
        """Begin with no broker known: each is of age zero where it is first heard.

        Args:
            partition: Kafka partition.
            partitions: Of the topic.
            overrides: Of the runs besides the first.
            settings: As they hold where the log that is read begins.
            elsewhere: Registrations of brokers that may have registered before that.
            on_over: Told of each silence that some run ended, once it is over.
        """
        self.tally = SilenceTally()
        self.silences = SilenceWatch(self._over)
        self._on_over = on_over
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
        for thin in self._thin.thinned(record):
            self._fold(thin)
            for event in thin.events:
                if thin.is_stand_in:
                    self._note_timeout(event)
                elif self._is_heard(event):
                    self._take(event, record.at_ms)

    def _over(self, silence: Silence) -> None:
        self.tally.add(silence)
        self._on_over(silence)

    def _fold(self, thin: ThinRecord) -> None:
        counted = thin.record._replace(offset=self._folded)
        self._folded += 1
        for number, run in enumerate(self.runs):
            for row in run.fold(counted, thin.events):
                self.silences.ended(number, row, run.state.observed_ms)

    def _take(self, event: Event, at_ms: int) -> None:
        if isinstance(event, BrokerUnregistered | BrokerDisconnected):
            self.silences.left(event)
        elif isinstance(event, BrokerHeartbeat):
            self._heard(LeaseKey(event.broker_name, event.live_key), event, at_ms)
        elif isinstance(event, BrokerRegistered):
            self._note_timeout(event)
            self._heard(LeaseKey(event.registration.broker_name, event.registration.live_key), event, at_ms)

    def _heard(self, key: LeaseKey, event: Event, at_ms: int) -> None:
        server_id = event.origin.server_id
        hearing = self.silences.heard(key, event.origin, self.observed_ms, at_ms)
        clock_ms = self.runs[0].state.servers[server_id].observed_ms
        self.gaps.heard(key, server_id, clock_ms, at_ms, hearing)

    def _note_timeout(self, event: Event) -> None:
        if isinstance(event, BrokerRegistered):
            registration = event.registration
            self.timeouts[LeaseKey(registration.broker_name, registration.live_key)] = registration.timeout_ms

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
