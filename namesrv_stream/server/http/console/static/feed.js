// Follows /changes from the position at which the page was rendered, without gaps: missed changes are sent again.

// Not `queue_data`: for a broker with ten thousand topics, all of them would be sent. The next refresh shows topics.
const KINDS = "broker_live,broker_data,guard,setting,server,kv";
const AGAIN_MS = 2000;

export class Feed {
  constructor(position, { opened, lost, changed }) {
    this.position = position;
    this.handlers = { opened, lost, changed };
    this.source = null;
    this.isOpen = false;
  }

  open() {
    const since = this.position ? `&since=${encodeURIComponent(this.position)}` : "";
    this.source = new EventSource(`/changes?kind=${KINDS}${since}`);
    this.source.addEventListener("open", () => {
      this.isOpen = true;
      this.handlers.opened();
    });
    this.source.addEventListener("changes", (event) => this.take(event, JSON.parse(event.data).rows));
    this.source.addEventListener("position", (event) => this.take(event, []));
    // The server cannot continue from our position, so the page is refreshed, whatever it has missed.
    this.source.addEventListener("reset", () => this.handlers.changed([]));
    this.source.addEventListener("error", () => this.lose());
  }

  take(event, rows) {
    if (event.lastEventId) this.position = event.lastEventId;
    if (rows.length) this.handlers.changed(rows);
  }

  lose() {
    if (this.isOpen) this.handlers.lost();
    else if (this.source.readyState === EventSource.CLOSED) this.handlers.lost();
    this.isOpen = false;
    // The browser does not retry a refused stream. The server may have refused our position, so begin without one.
    if (this.source.readyState === EventSource.CLOSED) {
      this.position = "";
      this.source.close();
      setTimeout(() => this.open(), AGAIN_MS);
    }
  }
}
