// The history of a stream by the batch API: a page at a time, forward and backward, from any offset, filtered.

const BATCHES = "/v1/streams", LOOK_BACK_ROWS = 10000, MOST_LOOKS = 20;

const batchesPath = (name) => `${BATCHES}/${encodeURIComponent(name)}`;

/** A refusal of the batch API in words. */
function batchRefusal({ status, body }) {
  if (status === 0) return "the broker cannot be reached";
  return body?.error?.message ?? `HTTP ${status}`;
}

/** What an offset without a row means, for a run of them. */
function holeText(from, until) {
  const which = until - from === 1 ? `offset ${count(from)} holds` : `offsets ${count(from)} to ${count(until - 1)} hold`;
  return `${which} no row: erased, or the mark of an erasure`;
}

class Browse {
  constructor(endOffsetOf) {
    Object.assign(this, { endOffsetOf, name: null, columns: null, fields: null, turn: 0, where: null, entries: [], from: null, next: null, head: null, first: 1 });
    byId("browse-form").addEventListener("submit", (event) => { event.preventDefault(); this.go(); });
    byId("browse-first").addEventListener("click", () => this.load({ offset: 0 }));
    byId("browse-last").addEventListener("click", () => this.last());
    byId("browse-next").addEventListener("click", () => this.load({ after: this.next }));
    byId("browse-previous").addEventListener("click", () => this.previous());
    byId("browse-limit").addEventListener("change", () => this.from !== null && this.load({ offset: this.from }));
    byId("browse-rows").addEventListener("keydown", (event) => this.key(event));
  }

  get limit() { return Number(byId("browse-limit").value); }

  /** Another stream; its newest rows at first. */
  async show(name, durable) {
    if (name === this.name) return;
    Object.assign(this, { name, columns: null, fields: null, where: null, entries: [], from: null, next: null, head: null, first: 1 });
    const turn = ++this.turn;
    setText(byId("browse-stream"), shown(name));
    byId("browse-where").value = byId("browse-offset").value = "";
    this.usable(false);
    this.say("");
    if (!durable) { this.empty("Rows of this stream are not logged: there is no history."); return; }
    if (name === "") { this.empty("A stream without a name has no address in the batch API."); return; }
    const lacking = session.lacks("data.read", name);
    if (lacking) { this.empty(`Browsing ${lacking}.`); return; }
    const answer = await session.ask("GET", batchesPath(name));
    if (turn !== this.turn) return;
    if (answer.status !== 200) { this.refused(answer); return; }
    this.columns = answer.body.schema?.properties ?? null;
    const names = Object.keys(this.columns ?? {});
    this.fields = names.length && names.length <= MAX_COLUMNS ? names : null;
    this.usable(true);
    this.last();
  }

  again() {
    const name = this.name;
    this.name = null;
    if (name !== null) this.show(name, this.endOffsetOf(name) !== null);
  }

  usable(usable) {
    for (const id of ["browse-offset", "browse-where", "browse-go", "browse-first", "browse-last", "browse-limit"]) byId(id).disabled = !usable;
    if (!usable) byId("browse-next").disabled = byId("browse-previous").disabled = true;
  }

  /** The form: an offset to begin at, and a filter. */
  go() {
    const field = byId("browse-where");
    field.removeAttribute("aria-invalid");
    try { this.where = filterText(field.value, this.columns); } catch (error) {
      field.setAttribute("aria-invalid", "true");
      this.say(`Filter: ${error.message}`, "bad");
      return;
    }
    const offset = byId("browse-offset").value.replace(/[\s,_']/g, "");
    if (offset && !/^\d{1,15}$/.test(offset)) { this.say("An offset is a whole number.", "bad"); byId("browse-offset").focus(); return; }
    if (offset) this.load({ offset: Number(offset) });
    else this.last();
  }

  last() {
    const end = this.endOffsetOf(this.name) ?? 1;
    if (this.where !== null) this.back(end);
    else this.load({ offset: Math.max(0, end - this.limit) });
  }

  previous() {
    if (this.where !== null) this.back(this.from);
    else this.load({ offset: Math.max(0, this.from - this.limit), before: this.from });
  }

  fetchPage(start, limit) {
    const query = new URLSearchParams({ limit });
    if (start.after) query.set("after", start.after);
    else if (start.offset > 0) query.set("offset", start.offset);
    if (this.where !== null) query.set("where", this.where);
    return session.ask("GET", `${batchesPath(this.name)}/entries?${query}`, { exact: true });
  }

  async load(start) {
    const turn = this.began();
    let answer = await this.fetchPage(start, this.limit);
    // A page before the first row that is kept begins with that.
    const earliest = answer.body?.error?.details?.earliestOffset;
    if (start.before && answer.status === 410 && earliest < start.before) answer = await this.fetchPage({ offset: earliest }, this.limit);
    if (turn !== this.turn) return;
    if (answer.status !== 200) { this.refused(answer); return; }
    let { entries } = answer.body;
    if (start.before) entries = entries.filter((entry) => entry.offset < start.before);
    if (start.offset === 0 && this.where === null && answer.body.entries.length) this.first = answer.body.entries[0].offset;
    if (start.before && !entries.length) { this.took(this.entries, this.from, this.next, answer.body.head); return; }
    const begins = start.offset > 0 ? start.offset : entries[0]?.offset ?? this.from ?? 0;
    const whole = start.before && entries.length < answer.body.entries.length;
    this.took(entries, start.after ? entries[0]?.offset ?? this.from : begins, whole ? entries.at(-1)?.cursor ?? answer.body.cursor : answer.body.cursor, answer.body.head);
  }

  /** A filtered page that ends before `end`: looked for in steps, each further back. */
  async back(end) {
    const turn = this.began();
    let found = [], until = end, head = null, next = null;
    for (let look = 0; look < MOST_LOOKS && until > 1 && found.length < this.limit; look += 1) {
      const from = Math.max(0, until - LOOK_BACK_ROWS);
      const piece = [];
      for (let start = { offset: from }; start; ) {
        const answer = await this.fetchPage(start, LOOK_BACK_ROWS);
        if (turn !== this.turn) return;
        const earliest = answer.body?.error?.details?.earliestOffset;
        if (answer.status === 410 && start.offset !== undefined && earliest < until) { start = { offset: earliest }; continue; }
        if (answer.status === 410) { until = 0; break; }
        if (answer.status !== 200) { this.refused(answer); return; }
        const { entries, cursor } = answer.body;
        head = answer.body.head;
        next ??= cursor;
        piece.push(...entries.filter((entry) => entry.offset < until));
        const over = cursor === head || (entries.at(-1)?.offset ?? 0) >= until || entries.length >= LOOK_BACK_ROWS;
        start = over ? null : { after: cursor };
      }
      found = [...piece, ...found];
      until = Math.min(until, from);
    }
    found = found.slice(-this.limit);
    this.took(found, found[0]?.offset ?? until, found.at(-1)?.cursor ?? next, head);
  }

  began() {
    this.say("Reading…");
    byId("browse-rows").setAttribute("aria-busy", "true");
    return ++this.turn;
  }

  took(entries, from, next, head) {
    Object.assign(this, { entries, from, next, head });
    byId("browse-rows").removeAttribute("aria-busy");
    this.end = next === head ? this.endOffsetOf(this.name) : null;
    byId("browse-next").disabled = next === null || next === head;
    byId("browse-previous").disabled = from <= this.first;
    const filter = this.where === null ? "" : ` where ${this.where}`;
    const last = next === head ? ", the newest" : "";
    this.say(entries.length
      ? `${counted(entries.length, "row")}, offsets ${count(entries[0].offset)} to ${count(entries.at(-1).offset)}${last}${filter}`
      : from === 0 && !filter ? "No row yet" : `No row from offset ${count(from)} on${filter}`, entries.length ? "good" : null);
    this.draw();
    byId("browse-rows").scrollTop = 0;
  }

  /** Whether rows have come behind the newest page. */
  look() {
    if (this.next !== null && this.next === this.head && this.end !== null && this.endOffsetOf(this.name) > this.end) byId("browse-next").disabled = false;
  }

  refused(answer) {
    byId("browse-rows").removeAttribute("aria-busy");
    const error = answer.body?.error;
    if (answer.status === 410 && error?.code === "cursor_expired") {
      const earliest = error.details.earliestOffset;
      this.entries = [];
      byId("browse-next").disabled = byId("browse-previous").disabled = true;
      this.say(`These rows are not kept any more; the first that is has offset ${count(earliest)}`, "warn");
      byId("browse-table").replaceChildren(el("tbody", {}, el("tr", {}, el("td", { class: "empty" },
        el("p", { text: "Retention has cut off what you asked for." }),
        el("button", { type: "button", text: `Go to offset ${count(earliest)}`, click: () => this.load({ offset: earliest }) })))));
      return;
    }
    if (answer.status === 400 && error?.code === "invalid_where") byId("browse-where").setAttribute("aria-invalid", "true");
    if (answer.status === 404 || (answer.status === 410 && error?.code === "stream_deleted")) this.usable(false);
    const text = batchRefusal(answer);
    this.say(text, "bad");
    if (!this.entries.length) this.empty(`${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
  }

  say(text, tone) {
    const status = byId("browse-status");
    setText(status, text);
    status.toggleAttribute("data-tone", false);
    if (tone) status.setAttribute("data-tone", tone);
  }

  empty(text) {
    byId("browse-table").replaceChildren(el("tbody", {}, el("tr", {}, el("td", { class: "empty", text }))));
  }

  draw() {
    const { fields, columns } = this;
    if (!this.entries.length) { this.empty(this.where === null ? "No row here." : "No row here passes the filter."); return; }
    const rows = [];
    let due = this.where === null ? this.entries[0].offset : null;
    const width = 2 + (fields?.length ?? 1);
    for (const { offset, ts, entry } of this.entries) {
      if (due !== null && offset > due) rows.push(el("tr", { class: "hole" }, el("td", { colspan: width, text: holeText(due, offset) })));
      if (due !== null) due = offset + 1;
      rows.push(el("tr", {}, ...rowCells([offset, ts, entry], fields, columns, true)));
    }
    byId("browse-table").replaceChildren(el("thead", {}, rowHead(fields, columns)), el("tbody", {}, ...rows));
  }

  /** In the table the arrow keys turn pages. */
  key(event) {
    const button = { ArrowRight: "browse-next", ArrowLeft: "browse-previous", Home: "browse-first", End: "browse-last" }[event.key];
    if (!button || event.target !== event.currentTarget || byId(button).disabled) return;
    event.preventDefault();
    byId(button).click();
  }
}
