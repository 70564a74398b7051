// Between two answers, the page itself advances the ages of the heartbeats; the next answer has the exact ages.

const since = new WeakMap();

export function tickAges() {
  const now = performance.now();
  for (const age of document.querySelectorAll("[data-age-ms]")) {
    if (!since.has(age)) since.set(age, now);
    const ms = Number(age.dataset.ageMs) + now - since.get(age);
    const timeout = Number(age.dataset.timeoutMs);
    age.querySelector("[data-age]").textContent = `${Math.floor(ms / 1000)} s`;
    age.querySelector(".fill").setAttribute("width", Math.min(100, (100 * ms) / timeout).toFixed(2));
  }
}
