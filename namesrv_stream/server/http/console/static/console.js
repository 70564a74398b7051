// Keeps the page up to date: fetches its parts again when something changes, and every few seconds.
import { Parts } from "./parts.js";
import { Feed } from "./feed.js";
import { tickAges } from "./ages.js";
import { wireSlider } from "./slider.js";

const AGES_EACH_MS = 1000;
// Heartbeats are not changes, so /changes does not contain them: the parts are fetched at this interval.
const REFRESH_EACH_MS = 5000;
// A list of very many topics is expensive to render, and other servers may answer slowly.
const SLOW_EACH_MS = 15000;
// After a change, wait for others that belong to it.
const GATHER_MS = 150;
// Minimum time between two refreshes while many changes arrive.
const LEAST_BETWEEN_MS = 1000;
const MOST_NAMED = 3;

const LIVING = ["summary", "brokers", "timeline", "pipeline", "route"];
const live = document.getElementById("live");
const liveText = document.getElementById("live-text");
const news = document.getElementById("news");
const parts = new Parts();
let refreshedAt = 0;
let planned = null;

function show(state, text) {
  live.dataset.state = state;
  liveText.textContent = text;
}

function timeOfDay() {
  return new Date().toLocaleTimeString([], { hour12: false });
}

async function refresh() {
  planned = null;
  if (document.hidden) return;
  refreshedAt = Date.now();
  const refreshed = await Promise.all(LIVING.map((name) => parts.refresh(name)));
  if (refreshed.every(Boolean) && feed.isOpen) show("live", `live, ${timeOfDay()}`);
  tickAges();
}

function refreshSoon() {
  if (planned !== null) return;
  planned = setTimeout(refresh, Math.max(GATHER_MS, refreshedAt + LEAST_BETWEEN_MS - Date.now()));
}

// What a screen reader announces: brokers that came up or went down, not every changed figure.
function announce(rows) {
  const turns = rows.filter((row) => row.kind === "broker_live" && (row.gone || row.cause === "returned"));
  if (!turns.length) return;
  const named = turns.slice(0, MOST_NAMED).map((row) => `${row.broker_name} ${row.gone ? "is down" : "is back"}: ${row.cause}`);
  if (turns.length > MOST_NAMED) named.push(`and ${turns.length - MOST_NAMED} more`);
  news.textContent = named.join("; ");
}

const feed = new Feed(document.body.dataset.position, {
  opened: () => show("live", `live, ${timeOfDay()}`),
  lost: () => show("lost", `no answer from the server since ${timeOfDay()}; the page shows its last state`),
  changed: (rows) => {
    announce(rows);
    refreshSoon();
  },
});

document.addEventListener("visibilitychange", () => document.hidden || refresh());
parts.wire((name) => {
  if (name === "what-if") wireSlider();
  tickAges();
});
feed.open();
wireSlider();
setInterval(tickAges, AGES_EACH_MS);
setInterval(() => feed.isOpen && Date.now() - refreshedAt >= REFRESH_EACH_MS / 2 && refresh(), REFRESH_EACH_MS);
if (document.querySelector("[data-later]")) parts.refresh("servers");
setInterval(() => {
  if (document.hidden || !feed.isOpen) return;
  parts.refresh("topics");
  parts.refresh("servers");
}, SLOW_EACH_MS);
