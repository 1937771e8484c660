// The page: samples of the broker's own stream `_console` in, everything above drawn from them.

const SAMPLES = "_console", HISTORY = "/console/history";
const KEPT_SAMPLES = 300, QUIET_MS = 4000, NAMES_POLL_MS = 5000, MOST_STREAMS = 5;

const state = { samples: [], named: null, chosen: null, lastRow: null, heard: 0 };

const total = (items, key) => items.reduce((sum, item) => sum + (item[key] ?? 0), 0);
const latest = () => state.samples.at(-1);
const streamOf = (name) => (state.named ?? latest()?.streams)?.find((stream) => stream.name === name) ?? null;
const endOffsetOf = (name) => streamOf(name)?.end_offset ?? null;

/** Rates of a stream over the last minute, oldest first. */
function ratesOf(name) {
  return state.samples.slice(-60).map((sample) => sample.rates.get(name) ?? 0);
}

/** Rows a second of the busiest streams, the rest in one. */
function rowSeries(samples) {
  const sums = new Map();
  for (const sample of samples) for (const [name, rate] of sample.rates) sums.set(name, (sums.get(name) ?? 0) + rate);
  const names = [...sums.keys()];
  const busiest = names.slice().sort((one, other) => sums.get(other) - sums.get(one)).slice(0, MOST_STREAMS);
  const drawn = names.filter((name) => busiest.includes(name));
  const series = drawn.map((name, index) => ({
    name: shown(name), color: SERIES_COLORS[index], values: samples.map((sample) => sample.rates.get(name) ?? null),
  }));
  if (names.length > drawn.length) {
    const rest = (sample) => [...sample.rates].reduce((sum, [name, rate]) => sum + (busiest.includes(name) ? 0 : rate), 0);
    series.push({ name: "others", color: "s6", values: samples.map(rest) });
  }
  return series;
}

const shardSeries = (key) => (samples) => (samples.at(-1)?.shards ?? []).map((shard, index) => ({
  name: `shard ${index}`, color: SERIES_COLORS[index % SERIES_COLORS.length], values: samples.map((sample) => sample.shards[index]?.[key] ?? null),
}));

const line = (name, color, value) => (samples) => ({ name, color, values: samples.map(value) });

const charts = [
  { title: "Rows", unit: "a second, by stream", format: short, stacked: true, series: rowSeries, empty: "no rows in the last five minutes" },
  { title: "Deliveries", unit: "row frames a second, by shard", format: short, stacked: true, series: shardSeries("deliveries_per_s"),
    empty: "no subscriber took a row in the last five minutes" },
  { title: "Commit latency", unit: "begin to fsync", format: micros, logarithmic: true, least: 1000, empty: "no commit in the last five minutes",
    series: (samples) => [line("p99", "s3", (sample) => sample.writer.commit_p99_us)(samples), line("p50", "s1", (sample) => sample.writer.commit_p50_us)(samples)] },
  { title: "Network", unit: "bytes a second", format: bytes, least: 1000, empty: "no traffic in the last five minutes",
    series: (samples) => [line("out", "s2", (sample) => total(sample.shards, "sent_bytes_per_s"))(samples),
      line("in", "s4", (sample) => total(sample.shards, "received_bytes_per_s"))(samples)] },
].map((options) => new Chart(byId("charts"), options));

const tiles = new Tiles(byId("tiles"), [["rows", "Rows"], ["deliveries", "Deliveries"], ["out", "Sent"],
  ["connections", "Connections"], ["commit", "Commit p99"], ["drops", "Dropped as too slow"]]);
const streams = streamsGrid(choose, ratesOf), shards = shardsGrid(), drops = dropsGrid();
const tables = lakeGrid(choose), retention = new RetentionForm(), browse = new Browse(endOffsetOf);
const connect = new Connect(), publish = new PublishForm();
new ControlPanel();
new AccessPanel();
const tail = new Tail(endOffsetOf, (name, text) => {
  if (state.lastRow?.name === name) return;
  try { state.lastRow = { name, row: JSON.parse(text)[2] }; } catch { return; }
  showConnect();
});

tail.onGreeting = () => showConnect();

function showConnect() {
  const stream = streamOf(state.chosen);
  if (!stream) return;
  const row = state.lastRow?.name === stream.name ? state.lastRow.row : exampleRow(tail.columns);
  connect.show(stream.name, stream.durable, row);
  publish.show(stream.name, row);
}

/** Makes a stream the one that is tailed and connected to. */
function choose(name, byHand) {
  if (byHand) byId("tail-where").value = "";
  state.chosen = name;
  byId("tail-stream").value = name;
  if (byHand) history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  tail.show(name);
  browse.show(name, streamOf(name)?.durable ?? false);
  retention.show(name, streamOf(name)?.durable ?? false);
  showConnect();
  showTables(latest());
}

function keep(sample) {
  if (!Array.isArray(sample?.streams) || !Array.isArray(sample.shards) || !sample.writer) return;
  if (state.samples.some((kept) => kept.at === sample.at)) return;
  sample.rates = new Map(sample.streams.map((stream) => [stream.name, stream.rows_per_s]));
  state.samples.push(sample);
  state.samples.sort((one, other) => one.at - other.at);
  const newest = state.samples.at(-1).at;
  // The first sample of a broker has no rates.
  const told = (kept) => kept.at > newest - WINDOW_S - 5 && (kept.elapsed_s !== null || state.samples.length === 1);
  state.samples = state.samples.filter(told).slice(-KEPT_SAMPLES);
}

function showOptions(sample) {
  const select = byId("tail-stream");
  const names = sample.streams.map((stream) => stream.name);
  const listed = [...select.options].map((option) => option.value);
  if (names.length !== listed.length || names.some((name, index) => name !== listed[index])) {
    select.replaceChildren(...names.map((name) => el("option", { value: name, text: shown(name) })));
    if (names.includes(state.chosen)) select.value = state.chosen;
  }
  if (!names.includes(state.chosen) && names.length) {
    let wanted = "";
    try { wanted = decodeURIComponent(location.hash.slice(1)); } catch { /* not one of ours */ }
    choose(names.includes(wanted) ? wanted : names[0], false);
  }
}

function showTables(sample) {
  if (!sample) return;
  const label = `${count(sample.stream_count)} in service`;
  setText(byId("streams-aside"), sample.stream_count > sample.streams.length ? `the busiest ${sample.streams.length} of ${label}` : label);
  streams.update(sample.streams, (stream) => stream.name, (row, stream) => row.classList.toggle("chosen", stream.name === state.chosen));
  tables.update(sample.streams.filter((stream) => stream.durable), (stream) => stream.name,
    (row, stream) => row.classList.toggle("chosen", stream.name === state.chosen));
  setText(byId("lake-aside"), `journal ${bytes(sample.writer.journal_bytes)}, its log ${bytes(sample.writer.wal_bytes)}`);
  shards.update(sample.shards.map((shard, index) => ({ ...shard, index })), (shard) => shard.index);
  const first = state.samples[0].closed;
  const causes = Object.entries(sample.closed).map(([cause, all]) => ({ cause, total: all, recent: Math.max(0, all - (first[cause] ?? 0)) }));
  const most = Math.max(1, ...causes.map(({ total: all }) => all));
  const told = causes.filter(({ cause, total: all }) => all > 0 || ALWAYS_SHOWN.has(cause));
  drops.update(told.map((entry) => ({ ...entry, share: entry.total / most })), (entry) => entry.cause);
}

function showTiles(sample) {
  const { writer, process } = sample;
  const rows = total(sample.streams, "rows_per_s"), deliveries = total(sample.shards, "deliveries_per_s");
  const subscribers = total(sample.streams, "subscribers"), publishers = total(sample.streams, "publishers");
  const perSecond = (value, units) => { const [number, unit] = scaled(value, units); return [number, `${unit}/s`]; };
  tiles.set("rows", perSecond(rows, ["", "k", "M", "G"]), `${short(writer.commits_per_s)} commits/s`);
  tiles.set("deliveries", perSecond(deliveries, ["", "k", "M", "G"]), rows > 0 ? `${short(deliveries / rows)} per row` : "row frames to subscribers");
  tiles.set("out", perSecond(total(sample.shards, "sent_bytes_per_s"), BYTES), `${bytes(total(sample.shards, "received_bytes_per_s"))}/s received`);
  tiles.set("connections", [count(total(sample.shards, "connections")), ""], `${counted(subscribers, "subscriber")}, ${counted(publishers, "publisher")}`);
  tiles.set("commit", writer.commit_p99_us === null ? ["–", ""] : scaled(writer.commit_p99_us, ["µs", "ms", "s"]),
    writer.failed_commits ? `${count(writer.failed_commits)} failed` : `p50 ${micros(writer.commit_p50_us)}`, writer.failed_commits ? "bad" : null);
  const slow = sample.closed.too_slow ?? 0;
  tiles.set("drops", [count(slow), ""], `${bytes(total(sample.shards, "feed_bytes"))} held in feeds`, slow ? "bad" : null);
  const vitals = [["Up", process.started ? span(sample.at - process.started) : "–"],
    ["CPU", process.cpu_cores === null ? "–" : `${process.cpu_cores.toFixed(2)} cores`], ["Memory", bytes(process.resident_bytes)],
    ["Log", bytes(writer.wal_bytes)], ["Descriptors", `${count(process.open_fds)} of ${process.max_fds === null ? "∞" : short(process.max_fds)}`]];
  byId("vitals").replaceChildren(...vitals.map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
  document.title = `${short(rows)} rows/s · streamcast-uring`;
}

function show() {
  const sample = latest();
  if (!sample) return;
  showOptions(sample);
  showTiles(sample);
  showTables(sample);
  browse.look();
  charts.forEach((chart) => chart.update(state.samples));
}

function showLink(link, text) {
  byId("link").setAttribute("data-state", link);
  setText(byId("link"), text);
}

async function loadHistory() {
  if (!session.mayAll("stats.read")) return;
  const { status, body } = await session.ask("GET", HISTORY);
  // Without them the charts fill from now on.
  if (status === 200) body.forEach(keep);
  show();
}

const samples = {
  greeting: loadHistory,
  frame: (text) => {
    state.heard = performance.now();
    showLink("live", "live");
    try { keep(JSON.parse(text)[2]); } catch { return; }
    if (!document.hidden) show();
  },
  waiting: (reason) => showLink("lost", `${reason}, retrying`),
  refused: (reason, code) => {
    showLink(code === 403 ? "waiting" : "lost", code === 403 ? "no live figures" : `${code} ${reason}`);
    if (code === 403) listByName();
  },
};

/** The streams by name alone, for those who may not see figures. */
async function listByName() {
  if (session.may("data.read", SAMPLES)) return;
  const { status, body } = await session.ask("GET", `${BATCHES}?limit=1000`);
  if (status === 200) {
    state.named = body.streams.map((stream) => ({ name: stream.name, durable: true, end_offset: stream.entryCount + 1 }));
    showOptions({ streams: state.named });
  }
  clearTimeout(state.listing);
  state.listing = setTimeout(listByName, NAMES_POLL_MS);
}

/** Everything anew for whoever has signed in. */
session.onChange(() => {
  state.subscription?.close();
  state.named = null;
  const figures = session.may("data.read", SAMPLES);
  for (const part of document.querySelectorAll("[data-figures]")) part.hidden = !figures;
  byId("no-figures").hidden = figures;
  state.subscription = new Subscription(SAMPLES, () => "", samples);
  if (state.chosen === null) return;
  tail.restart();
  publish.check();
  browse.again();
  retention.again();
});
session.start();
setInterval(() => {
  const quiet = performance.now() - state.heard > QUIET_MS;
  if (quiet && byId("link").getAttribute("data-state") === "live") showLink("waiting", "no sample for a while");
}, 1000);
document.addEventListener("visibilitychange", () => document.hidden || show());
byId("tail-stream").addEventListener("change", (event) => choose(event.target.value, true));
