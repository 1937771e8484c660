// Numbers, sizes and times as text, and elements from data. Text from the broker only ever becomes text nodes.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** [number, unit] of a value in steps of 1000. */
function scaled(value, units) {
  let size = Math.abs(value), index = 0;
  while (size >= 999.5 && index < units.length - 1) { size /= 1000; index += 1; }
  const digits = index === 0 ? (size < 10 && size % 1 ? 1 : 0) : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return [size.toFixed(digits), units[index]];
}

const short = (value) => scaled(value, ["", "k", "M", "G"]).join("");
const BYTES = ["B", "kB", "MB", "GB", "TB"];
const bytes = (value) => value === null || value === undefined ? "–" : scaled(value, BYTES).join(" ");

function micros(value) {
  if (value === null || value === undefined) return "–";
  return scaled(value, ["µs", "ms", "s"]).join(" ");
}

function age(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  if (seconds < 1.5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  return `${span(seconds)} ago`;
}

function span(seconds) {
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = Math.max(0, parts.findIndex(([, size]) => seconds >= size));
  const upper = Math.floor(seconds / parts[first][1]);
  const next = parts[first + 1];
  const lower = next ? Math.floor((seconds % parts[first][1]) / next[1]) : 0;
  return `${upper} ${parts[first][0]}` + (lower ? ` ${lower} ${next[0]}` : "");
}

function clock(milliseconds, fraction) {
  const date = new Date(milliseconds);
  const text = date.toLocaleTimeString("en-GB", { hour12: false });
  return fraction ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** The day of a moment, as year-month-day. */
function day(milliseconds) {
  const date = new Date(milliseconds);
  return [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
}

/** An element: attributes by name, `text` as its text, functions as listeners. */
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const byId = (id) => document.getElementById(id);

/** Sets text only where it differs, so that a selection is not lost every second. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const SVG = "http://www.w3.org/2000/svg";

/** A name as people read it: the unnamed stream has one, too. */
const shown = (name) => (name === "" ? "(unnamed)" : name);
