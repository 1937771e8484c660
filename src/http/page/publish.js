// Publishing a row by hand to the stream that is shown, and what the broker said to the last ones.

const KEPT_REPLIES = 20;

class PublishForm {
  constructor() {
    Object.assign(this, { name: null, columns: null, socket: null, opening: false, waiting: [], touched: false });
    byId("publish-form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    byId("publish-row").addEventListener("input", () => { this.touched = true; this.check(); });
  }

  show(name, row) {
    if (name !== this.name) {
      this.name = name;
      this.touched = false;
      this.leave();
      setText(byId("publish-stream"), shown(name));
    }
    const text = JSON.stringify(row);
    if (!this.touched && byId("publish-row").value !== text) byId("publish-row").value = text;
    this.check();
  }

  /** The text if it can be sent: one row, or a list of rows. */
  check() {
    const field = byId("publish-row"), text = field.value.trim();
    let wrong = null;
    try {
      const value = JSON.parse(text);
      const rows = Array.isArray(value) ? value : [value];
      if (!rows.length || !rows.every(isObject)) wrong = "a row is an object; several are a list of objects";
    } catch (error) { wrong = `not JSON: ${error.message}`; }
    if (wrong) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
    const status = byId("publish-status");
    setText(status, text && wrong ? wrong : "");
    status.setAttribute("data-tone", "bad");
    const lacking = this.name === null ? "" : session.lacks("data.publish", this.name);
    if (lacking) setText(status, `Publishing ${lacking}.`);
    byId("publish-button").disabled = wrong !== null || this.name === null || lacking !== "";
    return wrong || lacking ? null : text;
  }

  send() {
    const text = this.check();
    if (text === null) return;
    this.waiting.push(text);
    if (this.socket?.greeted) this.socket.send(text);
    else if (this.socket === null && !this.opening) this.open();
  }

  async open() {
    const name = this.name;
    this.opening = true;
    const query = await session.query("?publish");
    this.opening = false;
    if (name !== this.name) { if (this.waiting.length) this.open(); return; }
    if (query === null) { this.waiting.splice(0).forEach((text) => this.note(text, "the broker gives no ticket now; try again", "bad")); return; }
    const socket = new WebSocket(streamAddress(name) + query);
    socket.greeted = false;
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      if (!socket.greeted) {
        socket.greeted = true;
        this.waiting.forEach((text) => socket.send(text));
        return;
      }
      this.replied(data);
    };
    socket.onclose = (event) => {
      if (socket !== this.socket) return;
      this.socket = null;
      const lost = this.waiting.splice(0);
      lost.forEach((text) => this.note(text, `${event.code} ${closeReason(event)}`, "bad"));
    };
  }

  leave() {
    if (this.socket) leaveSocket(this.socket);
    this.socket = null;
    this.waiting = [];
  }

  replied(data) {
    const text = this.waiting.shift() ?? "";
    let reply = {};
    try { reply = JSON.parse(data); } catch { /* shown as it is */ }
    if (Array.isArray(reply.ok)) {
      this.note(text, reply.ok[0] === null ? "sent to those who are connected" : `stored at offset ${reply.ok.join(" to ")}`, "good");
    } else {
      this.note(text, [String(reply.error ?? data).replaceAll("_", " "), reply.detail].filter(Boolean).join(": "), "bad");
    }
  }

  note(text, outcome, tone) {
    const list = byId("publish-replies");
    list.prepend(el("li", { "data-tone": tone }, el("span", { text: outcome }), el("code", { text: text.length > 200 ? `${text.slice(0, 200)}…` : text })));
    while (list.children.length > KEPT_REPLIES) list.lastChild.remove();
    setText(byId("said"), outcome);
  }
}
