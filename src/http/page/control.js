// Streams that are declared at run time: the list, their buttons, the form for a new one, and the operations under way.

const CONTROL = "/control/v1", OPERATION_POLL_MS = 250, LIST_POLL_MS = 2000, KEPT_OPERATIONS = 20;
const MANAGED_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

const WORDS = {
  management_disabled: "there is no [registry] in the configuration",
  precondition_required: "there is such a stream already",
  precondition_failed: "somebody else has changed it meanwhile",
  transition_pending: "an operation is under way, or has failed and waits for the same wish again",
  forbidden: "you may not do that",
  static_stream: "it is declared in the configuration file",
};

function freshKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** One call. Resolves to {status, body}; status 0 when the broker cannot be reached. */
async function callControl(method, path, body, match) {
  const headers = {};
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    headers["Idempotency-Key"] = freshKey();
    headers[match === null ? "If-None-Match" : "If-Match"] = match === null ? "*" : `"${match}"`;
  }
  return session.ask(method, CONTROL + path, { headers, body: body === undefined ? undefined : JSON.stringify(body) });
}

function refusalText({ status, body }) {
  const code = body?.error?.code;
  if (status === 0) return "the broker cannot be reached";
  return code ? `${status} ${code.replaceAll("_", " ")}${WORDS[code] ? ` (${WORDS[code]})` : ""}` : `HTTP ${status}`;
}

/** What is being done, newest first; each entry is asked after until it has ended. */
class Operations {
  constructor(list, ended) {
    Object.assign(this, { list, ended });
  }

  follow(what, answer) {
    const state = el("span", { class: "tag", text: "sent" });
    const line = el("li", {}, el("span", { text: what }), state);
    this.list.prepend(line);
    while (this.list.children.length > KEPT_OPERATIONS) this.list.lastChild.remove();
    const say = (text, tone) => {
      setText(state, text);
      line.setAttribute("data-tone", tone);
      setText(byId("said"), `${what}: ${text}`);
    };
    if (answer.status !== 200 && answer.status !== 202) { say(refusalText(answer), "bad"); return; }
    if (answer.status === 200) { say("is so already", "good"); return; }
    const ask = async () => {
      const { status, body } = await callControl("GET", `/operations/${answer.body.operation_id}`);
      if (status === 200 && body.status === "succeeded") { say("done", "good"); this.ended(); return; }
      if (status === 200 && body.status === "failed") { say("failed; the broker's log says why", "bad"); this.ended(); return; }
      say(status === 200 ? body.status : refusalText({ status, body }), "warn");
      setTimeout(ask, OPERATION_POLL_MS);
    };
    ask();
  }
}

class ControlPanel {
  constructor() {
    this.operations = new Operations(byId("operations"), () => this.refresh());
    this.grid = new Grid(byId("control-table"), [
      { title: "Stream", text: (view) => view.name },
      { title: "Is", fill: (cell, view) => {
        setText(cell, view.observed.error ? `${view.observed.state} (${view.observed.error.replaceAll("_", " ")})` : view.observed.state);
        cell.classList.toggle("hot", view.observed.state === "error");
      } },
      { title: "Shall be", text: (view) => view.desired },
      { title: "Columns", number: true, text: (view) => count(Object.keys(view.definition.schema.properties ?? {}).length) },
      { title: "Storage", text: (view) => view.definition.storage_profile },
      { title: "Revision", number: true, text: (view) => count(view.revision) },
      { title: "Change", make: (name) => el("span", { class: "buttons" }, ...[["Serve", "serving"], ["Stop", "stopped"], ["Retire", "retired"]]
        .map(([text, wish]) => el("button", { type: "button", "aria-label": `${text} ${name}`, text, click: () => this.wish(name, wish) }))),
        fill: (cell, view) => this.enable(cell, view) },
    ], "No stream is declared yet. The form below declares one.");
    this.views = new Map();
    byId("declare").addEventListener("submit", (event) => { event.preventDefault(); this.declare(); });
    for (const id of ["declare-name", "declare-schema"]) byId(id).addEventListener("input", () => this.validate());
    session.onChange(() => this.start());
  }

  async start() {
    clearInterval(this.polling);
    byId("control-body").hidden = true;
    const none = "Streams cannot be declared: there is no [registry] in the configuration.";
    if (byId("control").getAttribute("data-managed") !== "yes") { setText(byId("control-aside"), none); return; }
    const lacking = session.lacks("control.read", null);
    if (lacking) { setText(byId("control-aside"), `Seeing declared streams ${lacking}.`); return; }
    const { status, body } = await callControl("GET", "");
    if (status !== 200) {
      setText(byId("control-aside"), refusalText({ status, body }));
      if (status === 0 || status === 503) setTimeout(() => this.start(), LIST_POLL_MS);
      return;
    }
    const profiles = Object.keys(body.storage_profiles);
    byId("declare-profile").replaceChildren(...profiles.map((name) => el("option", { value: name, text: name })));
    byId("control-body").hidden = false;
    this.validate();
    await this.refresh();
    clearInterval(this.polling);
    this.polling = setInterval(() => document.hidden || session.closed || this.refresh(), LIST_POLL_MS);
  }

  async refresh() {
    const views = [];
    for (let query = "?limit=200"; query; ) {
      const { status, body } = await callControl("GET", `/streams${query}`);
      if (status !== 200) return;
      views.push(...body.streams);
      query = body.next_cursor ? `?limit=200&cursor=${encodeURIComponent(body.next_cursor)}` : "";
    }
    this.views = new Map(views.map((view) => [view.name, view]));
    setText(byId("control-aside"), `${counted(views.length, "stream")} declared`);
    this.grid.update(views, (view) => view.name);
  }

  enable(cell, view) {
    const [serve, stop, retire] = cell.querySelectorAll("button");
    const lacking = session.lacks("control.mutate", view.name);
    [serve, stop, retire].forEach((button) => (lacking ? button.setAttribute("title", `It ${lacking}`) : button.removeAttribute("title")));
    if (lacking) { [serve, stop, retire].forEach((button) => { button.disabled = true; }); return; }
    const waits = view.pending !== null && view.observed.state !== "error";
    serve.disabled = waits || view.desired === "retired" || view.observed.state === "serving";
    stop.disabled = waits || view.desired === "retired" || view.observed.state === "stopped";
    retire.disabled = waits || view.stream_id === null || view.observed.state === "retired";
  }

  async wish(name, state) {
    if (state === "retired" && !confirm(`Retire ${name}? It takes no row any more, for ever.`)) return;
    const view = this.views.get(name);
    const verb = { serving: "Serve", stopped: "Stop", retired: "Retire" }[state];
    this.operations.follow(`${verb} ${name}`, await callControl("PUT", `/streams/${encodeURIComponent(name)}/desired`, { state }, view.revision));
    this.refresh();
  }

  /** Says what is wrong with the form, or which columns the stream would have; the schema if all is well. */
  validate() {
    const [name, editor] = [byId("declare-name"), byId("declare-schema")];
    const status = byId("declare-status");
    let schema = null, text = "", tone = "bad";
    const nameFits = MANAGED_NAME.test(name.value);
    try {
      schema = parseEditor(editor.value);
      const columns = columnsOf(schema);
      text = `${counted(columns.length, "column")}: ${columns.map(([column, kind]) => `${column} ${kind}`).join(", ")}`;
      tone = "good";
      editor.removeAttribute("aria-invalid");
    } catch (error) {
      text = error.message;
      schema = null;
      editor.setAttribute("aria-invalid", "true");
    }
    if (schema && !nameFits) {
      text = name.value ? "A name has letters, digits, “_”, “.”, “-”, and begins with a letter or digit" : "Give the stream a name";
      tone = name.value ? "bad" : "warn";
    }
    const lacking = nameFits ? session.lacks("control.mutate", name.value) : "";
    if (schema && lacking) { text = `Declaring it ${lacking}`; tone = "bad"; }
    name.toggleAttribute("aria-invalid", false);
    if (name.value && !nameFits) name.setAttribute("aria-invalid", "true");
    setText(status, text);
    status.setAttribute("data-tone", tone);
    byId("declare-button").disabled = !schema || !nameFits || lacking !== "";
    return nameFits && !lacking ? schema : null;
  }

  async declare() {
    const schema = this.validate();
    if (!schema) return;
    const name = byId("declare-name").value, path = `/streams/${encodeURIComponent(name)}`;
    const declaration = {
      schema, storage_profile: byId("declare-profile").value, initialization: "create_if_absent",
      exactly_once: byId("declare-once").checked,
    };
    const answer = await callControl("PUT", path, declaration, null);
    this.operations.follow(`Declare ${name}`, answer);
    if (answer.status === 202 && byId("declare-serve").checked) this.serveWhenDeclared(name, answer.body);
    this.refresh();
  }

  async serveWhenDeclared(name, receipt) {
    for (let tries = 0; tries < 100; tries += 1) {
      const { status, body } = await callControl("GET", `/operations/${receipt.operation_id}`);
      if (status === 200 && body.status === "failed") return;
      if (status === 200 && body.status === "succeeded") {
        const answer = await callControl("PUT", `/streams/${encodeURIComponent(name)}/desired`, { state: "serving" }, receipt.revision);
        this.operations.follow(`Serve ${name}`, answer);
        return;
      }
      await new Promise((done) => setTimeout(done, OPERATION_POLL_MS));
    }
  }
}
