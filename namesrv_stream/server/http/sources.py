"""The parts of the server that the HTTP port reads."""

from dataclasses import dataclass

from namesrv_stream.clock import Clock
from namesrv_stream.processor.name_server import NameServer
from namesrv_stream.server.changes.feed import ChangeFeed
from namesrv_stream.server.metrics.scrape import ServerMetrics
from namesrv_stream.server.peer_log import PeerLog
from namesrv_stream.server.start.listener import NameServerAddrs
from namesrv_stream.server.tls import ServerTls
from namesrv_stream.server.view.past_routes import PastRoutes
from namesrv_stream.server.view.recent_events import RecentEvents
from namesrv_stream.server.view.served_state import ServedState
from namesrv_stream.settings import Settings


@dataclass(frozen=True, slots=True)
class Sources:
    """Parts of the server that the pages read. ``tls`` is used only if ``http.tls`` is set."""

    server: NameServer
    name_server_addrs: NameServerAddrs
    state: ServedState
    past_routes: PastRoutes
    feed: ChangeFeed
    recent_events: RecentEvents
    figures: ServerMetrics
    tls: ServerTls
    clock: Clock
    settings: Settings
    peer_log: PeerLog
