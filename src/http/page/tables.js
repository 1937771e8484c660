// The tables of streams, shards and ended connections, and the figures above them. Rows are kept and refilled.

const SERIES_COLORS = ["s1", "s2", "s3", "s4", "s5", "s6"];

/** A table whose rows are made once for a key and filled for every sample. */
class Grid {
  /** `columns`: [{title, hint, number, make(key), fill(cell, item)}] */
  constructor(table, columns, empty) {
    Object.assign(this, { columns, rows: new Map(), body: el("tbody") });
    const head = el("tr", {}, ...columns.map(({ title, hint, number }) =>
      el("th", { scope: "col", class: number ? "n" : null, title: hint, text: title })));
    this.none = el("tr", {}, el("td", { class: "empty", colspan: columns.length, text: empty }));
    table.replaceChildren(el("thead", {}, head), this.body);
  }

  update(items, key, decorate) {
    const present = new Set(items.map(key));
    for (const [name, row] of this.rows) {
      if (!present.has(name)) { row.node.remove(); this.rows.delete(name); }
    }
    items.forEach((item, index) => {
      const name = key(item);
      let row = this.rows.get(name);
      if (!row) {
        const cells = this.columns.map(({ number, make }) => el("td", { class: number ? "n" : null }, make ? make(name, item) : null));
        row = { node: el("tr", {}, ...cells), cells };
        this.rows.set(name, row);
      }
      this.columns.forEach(({ fill, text }, column) => (fill ? fill(row.cells[column], item) : text && setText(row.cells[column], text(item))));
      if (decorate) decorate(row.node, item);
      if (this.body.children[index] !== row.node) this.body.insertBefore(row.node, this.body.children[index] ?? null);
    });
    if (items.length) this.none.remove();
    else this.body.append(this.none);
  }
}

/** A small line of the last minute. */
function sparkline(svg, values) {
  const highest = Math.max(1e-9, ...values);
  const points = values.map((value, index) => `${((index / Math.max(1, values.length - 1)) * 92).toFixed(1)},${(19 - (value / highest) * 17).toFixed(1)}`);
  svg.firstChild.setAttribute("points", points.join(" "));
}

function makeSparkline() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 92 20");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "polyline"));
  return svg;
}

function streamsGrid(choose, ratesOf) {
  const lag = (cell, { lag_frames: frames }) => {
    setText(cell, count(frames));
    cell.classList.toggle("hot", frames > 1000);
  };
  return new Grid(byId("streams-table"), [
    { title: "Stream", make: (name, item) => {
      const button = el("button", { type: "button", class: "name", title: `Show ${shown(name)} below`, text: shown(name), click: () => choose(name, true) });
      const tag = item.durable ? ["log", "rows are logged and can be replayed"] : ["live", "rows are not logged"];
      return el("span", {}, button, el("span", { class: "tag", title: tag[1], text: tag[0] }));
    } },
    { title: "Last minute", make: makeSparkline, fill: (cell, item) => sparkline(cell.firstChild, ratesOf(item.name)) },
    { title: "Rows/s", number: true, text: (item) => short(item.rows_per_s) },
    { title: "Bytes/s", hint: "Of row frames, as one subscriber without a filter gets them", number: true, text: (item) => bytes(item.bytes_per_s) },
    { title: "Rows", hint: "Since the broker started", number: true, text: (item) => count(item.rows) },
    { title: "End offset", hint: "The offset the next row gets", number: true, text: (item) => count(item.end_offset) },
    { title: "Subscribers", number: true, text: (item) => count(item.subscribers) },
    { title: "Publishers", number: true, text: (item) => count(item.publishers) },
    { title: "Lag", hint: "Frames the slowest subscriber was behind in the last second", number: true, fill: lag },
    { title: "Queued", hint: "Rows waiting to be committed", number: true, text: (item) => count(item.queued_rows) },
    { title: "Refused", hint: "Publish frames refused since the broker started", number: true, text: (item) => count(item.refused_frames) },
    { title: "Last row", number: true, text: (item) => age(item.last_send_age_s) },
  ], "No stream is served. Declare one in streamcast.toml, or start the demo: streamcast-uring demo");
}

function shardsGrid() {
  return new Grid(byId("shards-table"), [
    { title: "Shard", text: (item) => String(item.index) },
    { title: "Core", number: true, text: (item) => (item.core === null ? "–" : String(item.core)) },
    { title: "Connections", number: true, text: (item) => count(item.connections) },
    { title: "Deliveries/s", hint: "Row frames handed to sockets", number: true, text: (item) => short(item.deliveries_per_s) },
    { title: "Out", number: true, text: (item) => `${bytes(item.sent_bytes_per_s)}/s` },
    { title: "In", number: true, text: (item) => `${bytes(item.received_bytes_per_s)}/s` },
    { title: "Feeds", number: true, text: (item) => count(item.feeds) },
    { title: "Feed bytes", hint: "Held for subscribers that have not taken them", number: true, text: (item) => bytes(item.feed_bytes) },
    { title: "Lag", hint: "Frames the slowest subscriber is behind", number: true, text: (item) => count(item.lag_frames) },
    { title: "Stalls", hint: "Turns of the loop that took longer than 10 ms", number: true, text: (item) => count(item.stalls) },
    { title: "Longest turn", number: true, text: (item) => micros(item.longest_turn_us) },
  ], "No shard runs.");
}

/** Causes that are shown although they never happened. */
const ALWAYS_SHOWN = new Set(["peer", "too_slow", "keepalive"]);

const CAUSES = {
  peer: ["closed by the peer", "The peer closed, or its connection failed", ""],
  too_slow: ["too slow (4429)", "A subscriber fell behind further than max_backlog", "bad"],
  keepalive: ["no pong (1011)", "A peer answered no ping", "warn"],
  protocol: ["protocol error (1002, 1007, 1009)", "A peer broke the protocol or a size limit", "warn"],
  refused: ["refused (44xx)", "The request could not be served", "warn"],
  superseded: ["superseded (4409)", "A newer publisher took the id over", ""],
  stopping: ["stopping (1001)", "The stream or the broker stopped", ""],
};

function dropsGrid() {
  const make = () => el("span", { class: "bar" }, el("i"));
  return new Grid(byId("drops-table"), [
    { title: "Cause", make: (cause) => el("span", { title: CAUSES[cause]?.[1] ?? null, text: CAUSES[cause]?.[0] ?? cause }) },
    { title: "", make, fill: (cell, item) => {
      const bar = cell.firstChild.firstChild;
      bar.style.width = `${item.share * 100}%`;
      bar.className = CAUSES[item.cause]?.[2] ?? "";
    } },
    { title: "Last 5 min", number: true, text: (item) => count(item.recent) },
    { title: "Total", number: true, text: (item) => count(item.total) },
  ], "None yet.");
}

class Tiles {
  constructor(parent, names) {
    this.tiles = Object.fromEntries(names.map(([key, name]) => {
      const tile = { value: el("span"), unit: el("small"), more: el("p", { class: "more" }) };
      tile.node = el("div", { class: "panel tile", "data-tile": key }, el("p", { class: "name", text: name }),
        el("p", { class: "value" }, tile.value, tile.unit), tile.more);
      parent.append(tile.node);
      return [key, tile];
    }));
  }

  set(key, [value, unit], more, tone) {
    const tile = this.tiles[key];
    setText(tile.value, value);
    setText(tile.unit, unit ?? "");
    setText(tile.more, more);
    tile.node.toggleAttribute("data-tone", false);
    if (tone) tile.node.setAttribute("data-tone", tone);
  }
}
