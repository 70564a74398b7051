"""The gauge of held brokers, as Prometheus reads it."""

from namesrv_stream.metrics import Metrics
from namesrv_stream.route.settings import FoldSettings
from namesrv_stream.route.view import RouteView
from namesrv_stream.server.held_watch import HeldWatch
from tests.support.builders import Log, a_registration

FLEET = [a_registration(f"10.0.0.{n}:1", broker_name=f"b{n}") for n in range(3)]


class Watched:
    """A view with its figures, told of all that is folded."""

    def __init__(self) -> None:
        self.log = Log(FoldSettings(guard_min_brokers=2))
        self.view = RouteView()
        self.metrics = Metrics()
        self.watch = HeldWatch(self.view, self.metrics)
        self._committed = 0

    def commit(self) -> None:
        """The view takes over what was folded since the last time."""
        rows = self.log.output.changes[self._committed :]
        self._committed += len(rows)
        self.view.commit(rows, {0: len(self.log.records)})
        self.watch.committed(rows)

    @property
    def samples(self) -> list[str]:
        lines = self.metrics.text().decode().splitlines()
        return [line for line in lines if not line.startswith("#")]


def _held() -> Watched:
    watched = Watched()
    for registration in FLEET:
        watched.log.register(registration)
    watched.log.pass_time(121_000)
    watched.commit()
    return watched


def test_the_gauge_is_described_where_no_broker_was_ever_held() -> None:
    watched = Watched()
    watched.watch.opened()
    assert "# TYPE namesrv_held_brokers gauge" in watched.metrics.text().decode()
    assert watched.samples == []


def test_the_gauge_follows_the_held_brokers_of_a_cluster() -> None:
    watched = _held()
    assert watched.samples == ['namesrv_held_brokers{cluster="c0"} 3.0']
    watched.log.heard(FLEET[0])
    watched.commit()
    assert watched.samples == ['namesrv_held_brokers{cluster="c0"} 2.0']


def test_a_cluster_shows_0_once_its_brokers_are_let_go_and_vanishes_with_its_last_broker() -> None:
    watched = _held()
    for registration in FLEET:
        watched.log.heard(registration)
    watched.commit()
    assert watched.samples == ['namesrv_held_brokers{cluster="c0"} 0.0']
    watched.log.pass_time(121_000)
    for registration in FLEET:
        watched.log.unregister(registration)
    watched.commit()
    assert watched.samples == []


def test_brokers_held_in_tables_opened_anew_are_counted() -> None:
    before = _held()
    watched = Watched()
    watched.view.reload(before.view.table, before.view.next_offsets)
    watched.watch.opened()
    assert watched.samples == ['namesrv_held_brokers{cluster="c0"} 3.0']
