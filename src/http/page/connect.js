// How to connect to the chosen stream: lines to copy.

/** A word for a POSIX shell. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A row that the schema would take, where no row is known yet. */
function exampleRow(columns) {
  const value = (column) => {
    const type = [column?.type ?? "string"].flat().find((name) => name !== "null");
    return { integer: 1, number: 1.5, boolean: true, array: [], object: {} }[type] ?? "text";
  };
  return Object.fromEntries(Object.entries(columns ?? { column: {} }).map(([name, column]) => [name, value(column)]));
}

function connectLines(name, durable, row) {
  const address = streamAddress(name);
  const http = `${location.protocol}//${location.host}`;
  const replay = durable ? "?offset=0" : "";
  const resume = durable ? " --offset earliest" : "";
  const python = [
    "import asyncio", "from streamcast import connect", "", `uri = ${JSON.stringify(address)}`, "async def main():",
    `    async with connect(uri${durable ? ", offset=0" : ""}) as rows:`,
    "        async for offset, ts, row in rows:", "            print(offset, row)", "", "asyncio.run(main())",
  ].join("\n");
  return [
    ["Command line", `streamcast-uring subscribe ${quoted(address)}${resume}`],
    ["wscat (npm)", `wscat -c ${quoted(address + replay)}`],
    ["Python (pip install streamcast)", python],
    ["Publish a row", `echo ${quoted(JSON.stringify(row))} | streamcast-uring publish ${quoted(address)} -`],
    ["Statistics", `curl ${quoted(`${http}/stats`)}`],
    ["Metrics for Prometheus", `curl ${quoted(`${http}/metrics`)}`],
  ];
}

async function copyText(text, node) {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* needs a secure context and permission */ }
  const selection = getSelection();
  selection.selectAllChildren(node);
  return document.execCommand("copy");
}

class Connect {
  constructor() { this.lines = new Map(); }

  show(name, durable, row) {
    setText(byId("connect-stream"), shown(name));
    for (const [label, text] of connectLines(name, durable, row)) {
      let line = this.lines.get(label);
      if (!line) {
        line = this.make(label);
        this.lines.set(label, line);
      }
      setText(line.code, text);
    }
  }

  make(label) {
    const code = el("code");
    const button = el("button", { type: "button", text: "Copy", "aria-label": `Copy: ${label}` });
    button.addEventListener("click", async () => {
      const done = await copyText(code.textContent, code);
      setText(button, done ? "Copied" : "Select and copy");
      setText(byId("said"), done ? `${label} copied` : "Copying is not allowed here");
      setTimeout(() => setText(button, "Copy"), 1600);
    });
    byId("connect").append(el("div", { class: "line" },
      el("div", { class: "row" }, el("h3", { text: label }), button), el("pre", { tabindex: "0", "aria-label": label }, code)));
    return { code };
  }
}
