"""Counts and quantiles of an agent."""

from namesrv_stream.tools.agent import Tally


def test_quantiles_are_of_the_latencies_seen() -> None:
    tally = Tally()
    tally.latencies_ms.extend(float(ms) for ms in range(100))
    assert (tally.latency_ms(0.5), tally.latency_ms(0.99), tally.latency_ms(1.0)) == (50.0, 99.0, 99.0)


def test_latency_is_zero_before_the_first_registration() -> None:
    assert Tally().latency_ms(0.99) == 0.0


def test_the_status_line_counts_connections_and_registrations() -> None:
    assert "connected=1/2 registered=0/2" in Tally(links=2, connected=1).line()
