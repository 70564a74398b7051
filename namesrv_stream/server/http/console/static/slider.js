// A slider for the what-if table: every step selects one of its rows.

export function wireSlider() {
  const part = document.getElementById("part-what-if");
  const box = part.querySelector(".slider");
  if (!box || !box.hidden) return;
  const rows = [...part.querySelectorAll("tr[data-timeout]")];
  const slider = box.querySelector("input");
  const now = rows.find((row) => "now" in row.dataset);
  box.hidden = false;
  const show = () => {
    const row = rows[Number(slider.value)];
    rows.forEach((one) => one.classList.toggle("chosen", one === row));
    box.querySelector("#timeout-text").textContent = row.dataset.timeout;
    slider.setAttribute("aria-valuetext", row.dataset.timeout);
    box.querySelector("#timeout-effect").textContent = effect(row.dataset, now?.dataset);
  };
  slider.addEventListener("input", show);
  show();
}

function effect(row, now) {
  const brokers = Number(row.brokers);
  const count = brokers === 1 ? "1 live broker" : `${brokers.toLocaleString()} live brokers`;
  const often = Number(row.expiries) === 1 ? "once" : `${Number(row.expiries).toLocaleString()} times`;
  const dead = now && row.timeout !== now.timeout ? ` A dead broker would be removed ${row.timeout} after its last heartbeat, not ${now.timeout}.` : "";
  if (!brokers) return `No live broker was silent for that long: none would have expired.${dead}`;
  return `${count} would have expired, ${often} in total, and returned with the next registration.${dead}`;
}
