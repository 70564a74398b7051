"""Hypothesis strategies for routes: arbitrary groups, events of every kind, and short logs of few brokers."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

from namesrv_stream.route.event_json import encode_event, encode_heartbeats
from namesrv_stream.route.events import (
    DIRECT,
    JOB,
    BrokerDisconnected,
    BrokerHeartbeat,
    BrokerRegistered,
    BrokerUnregistered,
    Event,
    GuardReleased,
    KvDeleted,
    KvPut,
    Origin,
    Proof,
    ServerResumed,
    ServerStarted,
    ServerStopped,
    SettingsChanged,
    Tick,
    TopicDeleted,
    TopicRegistered,
    WritePermChanged,
)
from namesrv_stream.route.group import BrokerGroup
from namesrv_stream.route.liveness_settings import SettingValue
from namesrv_stream.route.model import (
    BrokerLive,
    DataVersion,
    Holder,
    LiveKey,
    QueueData,
    Registration,
    TopicQueueMappingInfo,
)
from namesrv_stream.route.registration_json import retained

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NAMED = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)

QUEUE_DATA = st.builds(QueueData, INT32, INT32, INT32, INT32)
DATA_VERSIONS = st.builds(DataVersion, INT64, INT64, INT64)

# Few values, so that two draws often refer to the same thing.
_NAMES = st.sampled_from(("broker-a", "broker-b"))
_CLUSTERS = st.sampled_from(("c0", "c1"))
_ADDRS = st.sampled_from(("1.1.1.1:1", "2.2.2.2:2", "3.3.3.3:3"))
_IDS = st.sampled_from((-1, 0, 1, 2))
_TOPICS = st.sampled_from(("t1", "t2", "t3", "t4"))
_PERMS = st.sampled_from((QueueData(1, 1, 6), QueueData(1, 1, 4), QueueData(2, 2, 7, 1)))
_VERSIONS = st.builds(DataVersion, st.integers(1, 2), st.just(1), st.integers(0, 1))
_KEYS = st.builds(LiveKey, _CLUSTERS, _ADDRS)
_SMALL_HOLDERS = st.builds(Holder, st.integers(0, 1), st.integers(0, 1))


def mappings(topics: st.SearchStrategy[str] = NAMED) -> st.SearchStrategy[TopicQueueMappingInfo]:
    return st.builds(
        TopicQueueMappingInfo,
        topic=topics,
        bname=TEXT,
        total_queues=INT32,
        epoch=INT64,
        scope=TEXT,
        dirty=st.booleans(),
        curr_id_map=st.dictionaries(INT32, INT32, max_size=3),
    )


# Values for logs, so skewed that most events concern a registered broker.
_LOG_NAMES = st.sampled_from(("broker-a", "broker-a", "broker-a", "broker-b"))
_LOG_CLUSTERS = st.sampled_from(("c0", "c0", "c0", "c0", "c1"))
_LOG_ADDRS = st.sampled_from(("1.1.1.1:1", "1.1.1.1:1", "2.2.2.2:2"))
_LOG_KEYS = st.builds(LiveKey, _LOG_CLUSTERS, _LOG_ADDRS)
_HASHES = st.sampled_from(("h1", "h1", "h1", "h2"))


def _small_mappings() -> st.SearchStrategy[TopicQueueMappingInfo]:
    return st.builds(
        TopicQueueMappingInfo,
        topic=_TOPICS,
        bname=st.just("broker-a"),
        total_queues=st.just(4),
        epoch=st.integers(0, 1),
        scope=st.just(""),
        dirty=st.booleans(),
        curr_id_map=st.sampled_from(({}, {0: 0}, {0: 1, 7: 2})),
    )


def registrations() -> st.SearchStrategy[Registration]:
    """Arbitrary registrations."""
    return st.builds(
        Registration,
        cluster=NAMED,
        broker_name=NAMED,
        broker_addr=NAMED,
        broker_id=INT64,
        ha_server_addr=TEXT,
        data_version=DATA_VERSIONS,
        topics=st.dictionaries(NAMED, QUEUE_DATA, max_size=3),
        timeout_ms=st.none() | INT64,
        enable_acting_master=st.none() | st.booleans(),
        zone_name=st.none() | TEXT,
        topic_mappings=st.none() | st.dictionaries(NAMED, mappings(), max_size=2),
        filter_servers=st.none() | st.lists(TEXT, max_size=2).map(tuple),
        registration_hash=TEXT,
    )


def events() -> st.SearchStrategy[Event]:
    """Arbitrary events of every kind."""
    servers = st.builds(Origin, NAMED, INT64, INT64)
    server_only = st.builds(Origin, NAMED, INT64, st.just(0))
    origins = servers | st.just(Origin(DIRECT, 0))
    keys = st.builds(LiveKey, NAMED, NAMED)
    texts = st.lists(TEXT, max_size=2).map(tuple)
    settings = st.dictionaries(NAMED, INT64 | st.booleans() | texts, max_size=3).map(lambda v: tuple(sorted(v.items())))
    return st.one_of(
        st.builds(BrokerRegistered, origins, registrations()),
        st.builds(BrokerHeartbeat, origins, NAMED, keys, st.just(Proof.REGISTRATION), NAMED),
        st.builds(BrokerHeartbeat, origins, NAMED, keys, st.just(Proof.HEARTBEAT)),
        st.builds(BrokerUnregistered, origins, NAMED, keys, INT64),
        st.builds(BrokerDisconnected, origins, NAMED, keys, TEXT),
        st.builds(TopicRegistered, origins, NAMED, NAMED, QUEUE_DATA, TEXT),
        st.builds(TopicDeleted, origins, NAMED, st.none() | NAMED, TEXT),
        st.builds(WritePermChanged, origins, NAMED, st.booleans(), TEXT),
        st.builds(KvPut, origins, NAMED, NAMED, TEXT),
        st.builds(KvDeleted, origins, NAMED, NAMED),
        st.builds(SettingsChanged, origins, NAMED, settings),
        st.builds(GuardReleased, origins, NAMED, NAMED),
        st.builds(ServerStarted, server_only),
        st.builds(ServerResumed, server_only),
        st.builds(ServerStopped, server_only),
        st.builds(Tick, server_only, st.sampled_from(["", "10.0.0.1:9876", "ns1.example.com:9876"])),
    )


@st.composite
def groups(draw: st.DrawFn, names: st.SearchStrategy[str] = _NAMES) -> BrokerGroup:
    """Any consistent group: data of a registered broker exists only with that broker."""
    name = draw(names)
    live_brokers = st.builds(
        BrokerLive,
        data_version=_VERSIONS,
        timeout_ms=st.sampled_from((None, 0, 1, 2**63 - 1)),
        ha_server_addr=st.sampled_from(("", "ha")),
        filter_servers=st.sampled_from(((), ("f:1",), ("f:1", "f:2"))),
        registration_hash=st.sampled_from(("", "h1")),
        holders=st.dictionaries(st.sampled_from(("s1", "s2", "direct")), _SMALL_HOLDERS, min_size=1),
    )
    values: dict[str, Any] = {
        "live_brokers": draw(st.dictionaries(_KEYS, live_brokers, max_size=3)),
        "topic_mappings": draw(st.dictionaries(_TOPICS, _small_mappings(), max_size=2)),
        "registrations": draw(st.dictionaries(_KEYS, _small_registrations().map(retained), max_size=2)),
    }
    addrs = draw(st.dictionaries(_IDS, _ADDRS, max_size=3))
    if addrs:
        values |= {
            "broker_addrs": addrs,
            "cluster": draw(_CLUSTERS),
            "clusters": draw(st.frozensets(_CLUSTERS, min_size=1)),
            "zone_name": draw(st.sampled_from((None, "", "z1"))),
            "enable_acting_master": draw(st.booleans()),
            "topics": draw(st.dictionaries(_TOPICS, _PERMS, max_size=4)),
        }
    return BrokerGroup(name, **values)


class Entry(NamedTuple):
    """One record of a future log: its timestamp is that of the previous record plus ``after_ms``, even if negative."""

    after_ms: int
    value: bytes


def logs(min_size: int = 1, max_size: int = 60) -> st.SearchStrategy[list[Entry]]:
    """Logs of two broker names at three addresses, with three servers, direct publishers, and invalid records.

    Timeouts are 3 to 9 s and steps up to 3 s, so that brokers expire, return and fall silent often.
    """
    gaps = st.sampled_from((0, 0, 1, 500, 500, 1_000, 2_000, 3_000, -700))
    values = st.one_of(_ticks(), _ticks(), _of_brokers(), _of_brokers(), _heartbeats(), _heartbeats(), _rare())
    return st.lists(st.builds(Entry, gaps, values), min_size=min_size, max_size=max_size)


def _servers() -> st.SearchStrategy[Origin]:
    return st.sampled_from((Origin("s1", 1), Origin("s2", 1), Origin("s2", 2), Origin("s3", 1)))


def _origins() -> st.SearchStrategy[Origin]:
    held = st.builds(lambda o, c: o._replace(connection_id=c), _servers(), st.integers(1, 2))
    return held | held | st.just(Origin(DIRECT, 0))


def _ticks() -> st.SearchStrategy[bytes]:
    return (_servers() | st.just(Origin(JOB, 1))).map(Tick).map(encode_event)


def _of_brokers() -> st.SearchStrategy[bytes]:
    registered: st.SearchStrategy[Event] = st.builds(BrokerRegistered, _origins(), _small_registrations())
    return st.one_of(
        registered,
        registered,
        st.builds(BrokerUnregistered, _origins(), _LOG_NAMES, _LOG_KEYS, _IDS),
        st.builds(BrokerDisconnected, _origins(), _LOG_NAMES, _LOG_KEYS, st.just("closed")),
    ).map(encode_event)


def _small_registrations() -> st.SearchStrategy[Registration]:
    """The hash follows from the content, as far as these logs vary it."""
    built = st.builds(
        Registration,
        cluster=_LOG_CLUSTERS,
        broker_name=_LOG_NAMES,
        broker_addr=_LOG_ADDRS,
        broker_id=st.sampled_from((0, 0, 1, 2, -1)),
        ha_server_addr=st.just("ha"),
        data_version=_VERSIONS,
        topics=st.dictionaries(_TOPICS, _PERMS, max_size=3),
        timeout_ms=st.sampled_from((3_000, 5_000, None)),
        enable_acting_master=st.sampled_from((True, False, None)),
        topic_mappings=st.sampled_from(
            (None, None, {"t1": TopicQueueMappingInfo("t1", "b", 1, 1, "s", False, {0: 0})})
        ),
        filter_servers=st.sampled_from((None, (), ("f:1",))),
        registration_hash=_HASHES,
    )
    return built


def _heartbeats() -> st.SearchStrategy[bytes]:
    def items(origin: Origin) -> st.SearchStrategy[bytes]:
        item = st.builds(
            lambda n, k, p, h, c: BrokerHeartbeat(
                origin if origin.server_id == DIRECT else origin._replace(connection_id=c),
                n,
                k,
                p,
                h if p is Proof.REGISTRATION else "",
            ),
            _LOG_NAMES,
            _LOG_KEYS,
            st.sampled_from((Proof.REGISTRATION, Proof.REGISTRATION, Proof.HEARTBEAT)),
            _HASHES,
            st.integers(1, 2),
        )
        return st.lists(item, min_size=1, max_size=4).map(encode_heartbeats)

    return (_servers() | st.just(Origin(DIRECT, 0))).flatmap(items)


def _rare() -> st.SearchStrategy[bytes]:
    changed: st.SearchStrategy[dict[str, SettingValue]] = st.dictionaries(
        st.sampled_from(("default_timeout_ms", "min_timeout_ms", "max_gap_ms", "server_silent_ms", "server_lost_ms")),
        st.sampled_from((1_000, 2_000, 4_000, 9_000)),
        min_size=1,
    )
    switches = st.sampled_from(("delete_topic_with_broker_registration", "take_over_contradictions"))
    changed |= st.dictionaries(switches, st.booleans(), min_size=1)
    changed |= st.sampled_from(
        (
            {"guard_share_percent": 100},
            {"guard_share_percent": 30, "guard_off_clusters": ()},
            {"guard_off_clusters": ("c0",)},
            {"guard_close_window_ms": 500, "guard_hold_timeouts": 1},
        )
    )
    event: st.SearchStrategy[Event] = st.one_of(
        st.builds(TopicRegistered, _origins(), _NAMES, _TOPICS, _PERMS),
        st.builds(TopicDeleted, _origins(), _TOPICS, st.none() | _CLUSTERS),
        st.builds(WritePermChanged, _origins(), _NAMES, st.booleans()),
        st.builds(
            SettingsChanged, _servers(), st.sampled_from(("config", "ada")), changed.map(lambda v: tuple(v.items()))
        ),
        st.builds(GuardReleased, _origins(), _CLUSTERS, st.just("ada")),
        st.builds(KvPut, _origins(), st.just("ns"), st.sampled_from(("k1", "k2")), TEXT),
        st.builds(KvDeleted, _origins(), st.sampled_from(("ns", "other")), st.sampled_from(("k1", "k2"))),
        st.builds(ServerStarted, _servers()),
        st.builds(ServerResumed, _servers()),
        st.builds(ServerStopped, _servers()),
    )
    return event.map(encode_event) | st.sampled_from((b"", b"{}", b"[1]", b'{"schema_version":1,"kind":"tick"'))
