// Fetches parts of the page, which the server renders, and replaces the old ones.

// Part → the URL parameters that its links set; a field with the same id shows the value.
const OWNED = {
  brokers: ["cluster", "state", "find", "shown"],
  topics: ["topics", "find_topic"],
  route: ["topic", "as_of"],
  timeline: ["window"],
  "what-if": ["past"],
};

export class Parts {
  constructor() {
    this.asked = new Map();
    this.last = new Map();
    this.changed = () => {};
  }

  // Links and forms that are about one part load that part; anything else is left to the browser.
  wire(changed) {
    this.changed = changed;
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-for], a[data-later]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      if ("later" in link.dataset) this.refresh("servers");
      else this.go(new URL(link.href), link.dataset.for, link.id);
    });
    document.addEventListener("submit", (event) => {
      const name = event.target.dataset.for;
      if (!name) return;
      event.preventDefault();
      this.search(event.target, name);
    });
    // A search runs while the user types; the route waits for its button.
    let typing = null;
    for (const id of ["find", "find_topic"]) {
      document.getElementById(id).addEventListener("input", (event) => {
        clearTimeout(typing);
        typing = setTimeout(() => this.search(event.target.form, event.target.form.dataset.for), 250);
      });
    }
    document.getElementById("topic").addEventListener("input", (event) => this.suggest(event.target.value));
    addEventListener("popstate", () => location.reload());
  }

  search(form, name) {
    const url = new URL(location.href);
    for (const field of form.querySelectorAll("input[name]:not([type=hidden])")) {
      if (field.value.trim()) url.searchParams.set(field.name, field.value.trim());
      else url.searchParams.delete(field.name);
    }
    url.hash = name;
    history.replaceState(null, "", url);
    return this.refresh(name);
  }

  async go(url, name, id) {
    // The link was rendered with its part, and may contain outdated parameters of other parts: take only this part's.
    const here = new URL(location.href);
    const owned = OWNED[name] ?? [];
    for (const key of owned) {
      if (url.searchParams.has(key)) here.searchParams.set(key, url.searchParams.get(key));
      else here.searchParams.delete(key);
    }
    here.hash = name;
    history.pushState(null, "", here);
    for (const key of owned) {
      const field = document.getElementById(key);
      if (field) field.value = here.searchParams.get(key) ?? "";
    }
    // The selected cluster limits the topics as well as the brokers.
    await Promise.all([this.refresh(name), name === "brokers" && this.refresh("topics")]);
    const part = document.getElementById(`part-${name}`);
    if (!part.contains(document.activeElement)) {
      const next = document.getElementById(id);
      const wanted = next && part.contains(next) ? next : part.querySelector("[aria-current]");
      wanted?.focus({ preventScroll: true });
    }
    const heading = document.getElementById(name);
    if (heading.getBoundingClientRect().top > innerHeight * 0.7) heading.scrollIntoView();
  }

  // Returns whether the server answered with the part.
  async refresh(name) {
    const number = (this.asked.get(name) ?? 0) + 1;
    this.asked.set(name, number);
    const part = document.getElementById(`part-${name}`);
    try {
      const answer = await fetch(`/console/parts/${name}${location.search}`, { headers: { Accept: "text/html, application/problem+json" } });
      const text = await answer.text();
      if (this.asked.get(name) !== number) return answer.ok; // a newer request is under way
      if (answer.ok) this.put(part, name, text);
      else this.complain(part, answer.status, text);
      return answer.ok;
    } catch {
      return false; // the feed reports that the server does not answer
    }
  }

  put(part, name, text) {
    if (this.last.get(name) === text) return;
    this.last.set(name, text);
    const made = new DOMParser().parseFromString(text, "text/html").body;
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [...part.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    part.replaceChildren(...made.childNodes);
    part.querySelectorAll(".scroll").forEach((one, n) => {
      if (scrolled[n]) [one.scrollLeft, one.scrollTop] = scrolled[n];
    });
    part.querySelectorAll("details").forEach((one, n) => (one.open = open[n] ?? one.open));
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    this.changed(name);
  }

  complain(part, status, text) {
    let detail = `the server answered ${status}`;
    try {
      detail = JSON.parse(text).detail ?? detail;
    } catch {
      // not problem details, for example a page of a proxy
    }
    const said = document.createElement("p");
    said.className = "missing";
    said.textContent = detail;
    part.querySelector(":scope > .missing.asked")?.remove();
    said.classList.add("asked");
    part.prepend(said);
    this.last.delete(part.dataset.part);
  }

  async suggest(text) {
    if (text.length < 2) return;
    try {
      const answer = await fetch(`/topics?limit=20&prefix=${encodeURIComponent(text)}`);
      const { topics } = await answer.json();
      const options = topics.map((topic) => Object.assign(document.createElement("option"), { value: topic }));
      document.getElementById("topic-names").replaceChildren(...options);
    } catch {
      // there are no suggestions
    }
  }
}
