// How far the rows of each stream are on their way into files and tables, and how long they are kept.

const RETENTION_POLL_MS = 10000, LATE_S = 80;
const SPANS = { s: 1, m: 60, h: 3600, d: 86400 };
const LONGEST_SPAN_S = 3155760000;

/** How far an offset is behind the end, as the table shows it. */
function behind(cell, end, offset) {
  if (offset === null || offset === undefined) { setText(cell, "–"); return; }
  setText(cell, end > offset ? `${count(offset)} (${count(end - offset)} to go)` : count(offset));
}

function lakeGrid(choose) {
  return new Grid(byId("lake-table"), [
    { title: "Stream", make: (name) => el("button", { type: "button", class: "name", title: `Show ${shown(name)} below`, text: shown(name), click: () => choose(name, true) }) },
    { title: "Next offset", number: true, text: (item) => count(item.end_offset) },
    { title: "Sealed to", hint: "Rows before it are in files", number: true, fill: (cell, item) => behind(cell, item.end_offset, item.sealed_end) },
    { title: "Published to", hint: "Rows before it are in the table", number: true, fill: (cell, item) => behind(cell, item.end_offset, item.published_end) },
    { title: "Journal from", hint: "Rows before it have left the journal", number: true, text: (item) => count(item.evicted_end) },
    { title: "Oldest unpublished", hint: "Age of the oldest row that is not in the table", number: true, fill: (cell, item) => {
      const waits = item.published_end === null ? null : item.end_offset > item.published_end ? Math.max(1, item.unpublished_s) : 0;
      setText(cell, waits === null ? "–" : waits === 0 ? "none" : span(waits));
      cell.classList.toggle("hot", waits > LATE_S);
    } },
    { title: "Files", number: true, text: (item) => count(item.files) },
    { title: "Size", number: true, text: (item) => bytes(item.file_bytes) },
    { title: "Moving rows", fill: (cell, item) => {
      const error = item.table_error;
      setText(cell, error ? `${error} (${age(item.table_error_age_s)})` : "works");
      cell.classList.toggle("hot", Boolean(error));
      cell.classList.add("wrap");
    } },
  ], "No stream with a log is served.");
}

/** Seconds of a span such as 30d; null for “none”. Throws an Error that says what is wrong. */
function spanSeconds(text) {
  const found = /^(\d{1,10})\s*([smhd])$/.exec(text.trim());
  if (text.trim() === "none") return null;
  if (!found) throw new Error("give a number with s, m, h or d, such as 30d; or none, to keep rows for ever");
  const seconds = Number(found[1]) * SPANS[found[2]];
  if (seconds < 1 || seconds > LONGEST_SPAN_S) throw new Error("it is at least 1s and at most a hundred years");
  return seconds;
}

/** The shortest span text of some seconds. */
function spanText(seconds) {
  if (seconds === null) return "none";
  const unit = ["d", "h", "m"].find((name) => seconds % SPANS[name] === 0) ?? "s";
  return `${seconds / SPANS[unit]}${unit}`;
}

class RetentionForm {
  constructor() {
    Object.assign(this, { name: null, kept: null, touched: false });
    byId("retain-form").addEventListener("submit", (event) => { event.preventDefault(); this.set(); });
    byId("retain-span").addEventListener("input", () => { this.touched = true; this.check(); });
    setInterval(() => document.hidden || session.closed || this.look(), RETENTION_POLL_MS);
  }

  show(name, durable) {
    if (name === this.name) return;
    Object.assign(this, { name, durable, kept: null, touched: false });
    setText(byId("retain-stream"), shown(name));
    byId("retain-span").value = "";
    this.facts([]);
    this.say("");
    this.look();
  }

  again() {
    const { name, durable } = this;
    this.name = null;
    if (name !== null) this.show(name, durable);
  }

  async look() {
    const name = this.name;
    if (name === null) return;
    if (!this.durable || name === "") { this.facts([["Rows are kept", "not at all: they are not logged"]]); this.check(); return; }
    const lacking = session.lacks("data.read", name);
    if (lacking) { this.facts([["Rows are kept", `seeing it ${lacking}`]]); this.check(); return; }
    const answer = await session.ask("GET", `${batchesPath(name)}/retention`);
    if (name !== this.name) return;
    if (answer.status === 200) this.took(answer.body);
    else this.facts([["Rows are kept", batchRefusal(answer)]]);
    this.check();
  }

  took(kept) {
    this.kept = kept;
    const due = kept.pendingSince === null ? null : Date.parse(kept.pendingSince) + 3600e3;
    this.facts([
      ["Rows are kept", kept.maxAgeS === null ? "for ever" : `for ${span(kept.maxAgeS)}`],
      ["First offset kept", count(kept.firstOffset)],
      ["To be deleted", due === null ? "nothing" : `files below offset ${count(kept.pendingFloor)}, from ${clock(due)} on`],
    ]);
    if (!this.touched) byId("retain-span").value = spanText(kept.maxAgeS);
  }

  facts(list) {
    byId("retain-facts").replaceChildren(...list.map(([term, text]) => el("div", {}, el("dt", { text: term }), el("dd", { text }))));
  }

  /** The span if it can be set, and says why not otherwise. */
  check() {
    const field = byId("retain-span"), button = byId("retain-button");
    const lacking = this.name === null ? "" : session.lacks("control.mutate", this.name);
    button.disabled = true;
    field.disabled = lacking !== "" || this.kept === null;
    field.removeAttribute("aria-invalid");
    if (lacking) { this.say(`Setting it ${lacking}.`); return undefined; }
    if (this.kept === null) return undefined;
    try {
      const seconds = spanSeconds(field.value);
      button.disabled = seconds === this.kept.maxAgeS;
      if (this.touched) this.say("");
      return seconds;
    } catch (error) {
      field.setAttribute("aria-invalid", "true");
      this.say(`Keep rows: ${error.message}.`, "bad");
      return undefined;
    }
  }

  async set() {
    const [name, seconds] = [this.name, this.check()];
    if (seconds === undefined) return;
    const warning = `Rows of ${shown(name)} that are older than ${seconds === null ? "" : span(seconds)} are cut off within seconds, and their files deleted an hour later. Go on?`;
    if (seconds !== null && !confirm(warning)) return;
    byId("retain-button").disabled = true;
    const headers = { "Content-Type": "application/json" };
    const answer = await session.ask("PUT", `${batchesPath(name)}/retention`, { headers, body: JSON.stringify({ maxAgeS: seconds }) });
    if (name !== this.name) return;
    if (answer.status !== 200) { this.check(); this.say(`Not set: ${batchRefusal(answer)}`, "bad"); return; }
    this.touched = false;
    this.took(answer.body);
    this.check();
    this.say(seconds === null ? "Rows are kept for ever." : `Rows are kept for ${span(seconds)}.`, "good");
  }

  say(text, tone) {
    const status = byId("retain-status");
    setText(status, text);
    status.toggleAttribute("data-tone", false);
    if (tone) status.setAttribute("data-tone", tone);
  }
}
