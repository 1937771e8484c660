// The live tail: one subscription, the newest rows on top, a filter, and what the broker says to it.

const TAIL_ROWS = 200, TAIL_DRAW_MS = 200, MAX_COLUMNS = 16;

/** Whether a column of a JSON Schema takes text and no numbers. */
function isText(column) {
  const types = [column?.type ?? []].flat();
  return types.includes("string") || (column?.anyOf ?? []).some(isText);
}

/** Whether a column of a JSON Schema takes numbers. */
function isNumber(column) {
  const types = [column?.type ?? []].flat();
  return types.includes("integer") || types.includes("number") || (column?.anyOf ?? []).some(isNumber);
}

/** One value of the short filter form, as the column wants it. */
function filterValue(text, column) {
  if (text.startsWith('"')) { try { return JSON.parse(text); } catch { return text; } }
  if (isText(column)) return text === "null" ? null : text;
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? text : value;
  } catch { return text; }
}

/**
 * The filter as JSON text, or null for none. Takes JSON as it is (so that large integers stay exact), and the short form
 * `column=value other=a|b`. Throws an Error that says what is wrong.
 */
function filterText(input, columns) {
  const text = input.trim();
  if (!text) return null;
  if (text.startsWith("{")) {
    try { JSON.parse(text); } catch (error) { throw new Error(`not JSON: ${error.message}`); }
    return text;
  }
  const where = {};
  const term = /\s*,?\s*([^\s=,{}"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,]+)/y;
  while (term.lastIndex < text.length) {
    const from = term.lastIndex;
    const found = term.exec(text);
    if (!found) throw new Error(`expected column=value at “${text.slice(from).trim()}”`);
    const [, column, raw] = found;
    const values = raw.startsWith('"') ? [raw] : raw.split("|");
    const parsed = values.map((value) => filterValue(value, columns?.[column]));
    where[column] = parsed.length === 1 ? parsed[0] : parsed;
  }
  return JSON.stringify(where);
}

/** Parses a row frame; integers that a double cannot hold keep their digits as text. */
function parseRow(text) {
  return JSON.parse(text, (key, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value);
}

/** The head of a table of rows: `fields` are the columns to show, or null for the row as it is. */
function rowHead(fields, columns) {
  const numeric = (title) => fields && columns && isNumber(columns[title]);
  return el("tr", {}, ...["offset", "committed", ...(fields ?? ["row"])].map((title) =>
    el("th", { scope: "col", class: numeric(title) ? "n" : null, text: title })));
}

/** The cells of a row [offset, stamp, values]; with `dated` the stamp has its day. */
function rowCells([offset, ts, row], fields, columns, dated = false) {
  const cells = [
    el("td", { class: "key", text: offset === null ? "–" : String(offset) }),
    el("td", { class: "key", text: typeof ts === "number" ? `${dated ? `${day(ts / 1000)} ` : ""}${clock(ts / 1000, true)}` : "–" }),
  ];
  const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  if (!fields) return [...cells, el("td", { text: JSON.stringify(row) })];
  return [...cells, ...fields.map((field) => {
    const value = row?.[field];
    const side = isNumber(columns?.[field]) ? "n" : "";
    return value === undefined || value === null
      ? el("td", { class: `key ${side}`, text: "null" }) : el("td", { class: side, text: written(value) });
  })];
}

class Tail {
  constructor(endOffsetOf, onRow) {
    Object.assign(this, { endOffsetOf, onRow, name: null, rows: [], seen: 0, paused: false, timer: 0, subscription: null, recent: [] });
    this.table = byId("tail-table");
    byId("tail-form").addEventListener("submit", (event) => { event.preventDefault(); this.restart(); });
    byId("tail-from").addEventListener("change", () => this.restart());
    byId("tail-pause").addEventListener("click", () => this.pause(!this.paused));
    setInterval(() => this.showRate(), 1000);
  }

  show(name) {
    if (name === this.name) return;
    this.name = name;
    this.columns = null;
    this.restart();
  }

  restart() {
    if (this.name === null) return;
    this.subscription?.close();
    this.subscription = null;
    Object.assign(this, { rows: [], seen: 0, next: null, note: "", recent: [] });
    this.pause(false);
    const input = byId("tail-where");
    let where = null;
    try { where = filterText(input.value, this.columns); } catch (error) {
      input.setAttribute("aria-invalid", "true");
      this.say(`Filter: ${error.message}`, "bad");
      this.idle = "Not subscribed.";
      this.draw();
      return;
    }
    input.removeAttribute("aria-invalid");
    this.where = where;
    this.from = byId("tail-from").value;
    this.subscribe();
    this.draw();
  }

  subscribe() {
    this.idle = "Waiting for rows…";
    this.say("Connecting…");
    this.subscription = new Subscription(this.name, () => this.query(), {
      greeting: (greeting) => this.greeted(greeting),
      frame: (text) => this.took(text),
      waiting: (reason, code) => this.say(`${code} ${reason} · connecting again…`, "warn"),
      refused: (reason, code) => this.refused(reason, code),
    });
  }

  query() {
    const end = this.endOffsetOf(this.name);
    const parts = [];
    if (this.next !== null) parts.push(`offset=${this.next}`);
    else if (end !== null && this.from === "earliest") parts.push("offset=0");
    else if (end !== null && this.from === "recent" && end > 1) parts.push(`offset=${Math.max(1, end - 100)}`);
    this.asked = parts.length > 0;
    if (this.where !== null) parts.push(`where=${encodeURIComponent(this.where)}`);
    return parts.length ? `?${parts.join("&")}` : "";
  }

  greeted(greeting) {
    this.columns = greeting.schema?.properties ?? null;
    const names = this.columns ? Object.keys(this.columns) : [];
    this.fields = names.length && names.length <= MAX_COLUMNS ? names : null;
    const filter = this.where === null ? "" : ` · where ${this.where}`;
    this.say(`Subscribed${this.note}${filter}`, "good");
    this.draw();
    this.onGreeting?.();
  }

  /** A replay that the broker cannot serve becomes a live subscription; anything else is final. */
  refused(reason, code) {
    if (code === 4416 && this.asked) {
      this.note = ` to new rows only (${reason})`;
      this.next = null;
      this.from = "live";
      this.subscribe();
      return;
    }
    if (code === 4400 && this.where !== null) byId("tail-where").setAttribute("aria-invalid", "true");
    this.say(`${code} ${reason}`, "bad");
    this.idle = "Not subscribed.";
    this.draw();
  }

  took(text) {
    this.seen += 1;
    this.rows.push(text);
    if (this.rows.length > 2 * TAIL_ROWS) this.rows.splice(0, this.rows.length - TAIL_ROWS);
    const offset = /^\[(\d+),/.exec(text);
    if (offset) this.next = Number(offset[1]) + 1;
    if (!this.paused && !this.timer) this.timer = setTimeout(() => { this.timer = 0; this.draw(); }, TAIL_DRAW_MS);
  }

  pause(paused) {
    this.paused = paused;
    const button = byId("tail-pause");
    button.setAttribute("aria-pressed", String(paused));
    setText(button, paused ? "Resume" : "Pause");
    if (!paused) this.draw();
  }

  say(text, tone) {
    const status = byId("tail-status");
    setText(status, text);
    status.toggleAttribute("data-tone", false);
    if (tone) status.setAttribute("data-tone", tone);
  }

  showRate() {
    this.recent = [...this.recent, this.seen].slice(-6);
    const rate = (this.recent.at(-1) - this.recent[0]) / Math.max(1, this.recent.length - 1);
    const held = this.paused ? `, ${count(this.seen - this.drawnSeen)} since the pause` : "";
    setText(byId("tail-rate"), this.name === null ? "" : `${count(this.seen)} rows, ${short(rate)}/s${held}`);
  }

  draw() {
    if (this.paused) return;
    if (this.name === null) {
      this.table.replaceChildren(el("tbody", {}, el("tr", {}, el("td", { class: "empty", text: "Choose a stream." }))));
      return;
    }
    const fields = this.fields ?? null;
    const newest = this.rows.slice(-TAIL_ROWS).reverse();
    const fresh = this.seen - (this.drawnSeen ?? 0);
    const body = newest.map((text, index) => this.drawRow(text, fields, index < fresh && fresh < 50));
    if (!body.length) body.push(el("tr", {}, el("td", { class: "empty", colspan: 2 + (fields?.length ?? 1), text: this.idle })));
    this.drawnSeen = this.seen;
    this.table.replaceChildren(el("thead", {}, rowHead(fields, this.columns)), el("tbody", {}, ...body));
    if (newest.length) this.onRow(this.name, newest[0]);
  }

  drawRow(text, fields, fresh) {
    let frame;
    try { frame = parseRow(text); } catch { frame = [null, null, text]; }
    return el("tr", { class: fresh ? "fresh" : null }, ...rowCells(frame, fields, this.columns));
  }
}
