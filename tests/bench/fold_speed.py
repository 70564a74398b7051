"""How many records the fold processes in a second of processor time: ``python -m tests.bench.fold_speed``."""

import argparse
from collections.abc import Callable
from time import process_time

from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import BrokerHeartbeat, BrokerRegistered, Proof, Tick
from namesrv_stream.route.fold.fold_record import fold
from namesrv_stream.route.fold.state import encode_state
from namesrv_stream.route.fold.step import Record
from namesrv_stream.route.model import Registration
from tests.support.builders import RW, S1, S2, Log, a_proof, a_registration

ITEMS_A_RECORD = 50


def a_fleet(brokers: int, topics: int) -> list[Registration]:
    offered = {f"topic-{n}": RW for n in range(topics)}
    return [
        a_registration(f"10.0.{n >> 8}.{n & 255}:10911", broker_name=f"b{n}", topics=offered) for n in range(brokers)
    ]


def heartbeats_per_second(brokers: int = 1_000, topics: int = 20, rounds: int = 200) -> float:
    """Return how many heartbeats of a fleet the fold processes per second; only the fold is timed."""
    log = Log()
    fleet = a_fleet(brokers, topics)
    for registration in fleet:
        log.register(registration)
    return _folded_per_second(log, _heartbeats(fleet) * rounds) * ITEMS_A_RECORD


def _heartbeats(fleet: list[Registration]) -> list[bytes]:
    """Return one heartbeat of each broker."""
    mere = [BrokerHeartbeat(S1, r.broker_name, r.live_key, Proof.HEARTBEAT) for r in fleet]
    return [encode_heartbeats(mere[i : i + ITEMS_A_RECORD]) for i in range(0, len(mere), ITEMS_A_RECORD)]


def measure(what: str, log: Log, values: list[bytes], items: int = 1, step_ms: int = 1) -> None:
    """Fold ``values`` and print records and items per second; only the fold is timed."""
    rate = _folded_per_second(log, values, step_ms)
    print(f"{what:<46} {rate:>10,.0f} records/s {rate * items:>12,.0f} items/s")


def _folded_per_second(log: Log, values: list[bytes], step_ms: int = 1) -> float:
    """Return the records per second."""
    offset = len(log.records)
    records = [Record(0, offset + n, log.now_ms + n * step_ms, value) for n, value in enumerate(values)]
    log.records += records
    began = process_time()
    for record in records:
        fold(log.state, log.groups, record, log.output)
    seconds = process_time() - began
    log.now_ms = records[-1].at_ms
    return len(values) / seconds


def timed(what: str, run: Callable[[], object]) -> None:
    began = process_time()
    run()
    print(f"{what:<46} {(process_time() - began) * 1_000:>10,.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1_000)
    parser.add_argument("--topics", type=int, default=20, help="of each broker")
    parser.add_argument("--rounds", type=int, default=20, help="heartbeats of each broker")
    options = parser.parse_args()
    fleet = a_fleet(options.brokers, options.topics)
    log = Log()
    cuts = range(0, len(fleet), ITEMS_A_RECORD)

    registered = [encode_event(BrokerRegistered(S1._replace(connection_id=1), r)) for r in fleet]
    measure(f"registrations of {options.topics} topics", log, registered)
    proofs = [a_proof(r) for r in fleet]
    for proof in proofs:  # The fold compares the first unchanged registration in full.
        log.say(proof)
    heard = [encode_heartbeats(proofs[i : i + ITEMS_A_RECORD]) for i in cuts] * options.rounds
    measure(f"unchanged registrations, {ITEMS_A_RECORD} a record", log, heard, ITEMS_A_RECORD)
    beats = _heartbeats(fleet) * options.rounds
    measure(f"mere heartbeats, {ITEMS_A_RECORD} a record", log, beats, ITEMS_A_RECORD)
    measure("ticks", log, [encode_event(Tick(S1))] * 5_000)
    log.say(Tick(S2))
    measure("ticks beside a silent, then lost server", log, [encode_event(Tick(S1))] * 5_000, step_ms=200)
    timed("encoding the state once", lambda: encode_state(log.state))


if __name__ == "__main__":
    main()
