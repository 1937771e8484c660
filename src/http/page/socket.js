// WebSockets of the broker: one stream each, reopened with growing pauses.

const RETRY_FIRST_MS = 500, RETRY_LAST_MS = 8000;
const CREDENTIALS_EXPIRED = 4401;
/** Refusals that asking again does not change. */
const FINAL = new Set([4400, 4404, 4410, 4412, 4416]);

function streamPath(name) {
  return "/" + encodeURIComponent(name).replace(/'/g, "%27");
}

function streamAddress(name) {
  return (location.protocol === "https:" ? "wss://" : "ws://") + location.host + streamPath(name);
}

/** What a close frame says, in words and with its parts. */
function closeReason(event) {
  let reason = null;
  try { reason = JSON.parse(event.reason); } catch { /* not every reason is JSON */ }
  if (reason === null || typeof reason !== "object") return event.reason || (event.code === 1006 ? "connection lost" : "closed");
  const { error, detail, ...rest } = reason;
  const facts = Object.entries(rest).map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(", ") : value}`);
  return [String(error ?? "closed").replaceAll("_", " "), detail, facts.join(", ")].filter(Boolean).join(": ");
}

/** Closes a socket. One that is still connecting is closed when it is open: browsers warn of what is closed before. */
function leaveSocket(socket) {
  if (socket.readyState === WebSocket.CONNECTING) socket.addEventListener("open", () => socket.close());
  else socket.close();
}

/**
 * A subscription. `query` is asked before each attempt, so that a resumed one can begin where the last ended.
 * Callbacks: greeting(object), frame(text), waiting(reason, code), refused(reason, code, event).
 */
class Subscription {
  constructor(name, query, callbacks) {
    Object.assign(this, { name, query, callbacks, pause: RETRY_FIRST_MS, ended: false, timer: 0 });
    this.open();
  }

  async open() {
    const query = await session.query(this.query());
    if (this.ended) return;
    const lacking = session.lacks("data.read", this.name);
    if (lacking && session.access.policy) { this.ended = true; this.callbacks.refused(`reading ${lacking}`, 403, null); return; }
    if (query === null) { this.later(); return; }
    let greeted = false;
    const socket = new WebSocket(streamAddress(this.name) + query);
    this.socket = socket;
    socket.onmessage = ({ data }) => {
      if (this.ended || typeof data !== "string") return;
      if (greeted) { this.callbacks.frame(data); return; }
      greeted = true;
      this.pause = RETRY_FIRST_MS;
      let greeting = {};
      try { greeting = JSON.parse(data); } catch { /* shown as a stream that tells nothing of itself */ }
      this.callbacks.greeting(greeting);
    };
    socket.onclose = (event) => {
      if (this.ended) return;
      const reason = closeReason(event);
      if (FINAL.has(event.code)) { this.ended = true; this.callbacks.refused(reason, event.code, event); return; }
      this.callbacks.waiting(reason, event.code);
      if (event.code === CREDENTIALS_EXPIRED) session.ended("What you signed in with is good no longer.");
      else if (event.code === 1006 && session.signedIn) session.refresh();
      this.later();
    };
  }

  later() {
    this.timer = setTimeout(() => this.open(), this.pause * (0.75 + Math.random() / 2));
    this.pause = Math.min(this.pause * 2, RETRY_LAST_MS);
  }

  close() {
    this.ended = true;
    clearTimeout(this.timer);
    if (this.socket) leaveSocket(this.socket);
  }
}
