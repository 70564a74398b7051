// Follows /changes from the position that the page was made at, without a gap: missed changes are sent again.

// Not `queue_data`: a broker of ten thousand topics would send them all; topics are seen with the next refresh.
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
    // The server cannot go on from where we were: all of the page is asked for anew, whatever was missed.
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
    // A refused stream is not tried again by itself. Our position may be what was refused: begin without one.
    if (this.source.readyState === EventSource.CLOSED) {
      this.position = "";
      this.source.close();
      setTimeout(() => this.open(), AGAIN_MS);
    }
  }
}
