// Who is signed in, on a broker with a policy. What was typed is kept in this page's memory and nowhere else: requests
// carry it in a header, WebSockets get a ticket for it.

const ACCESS = "/v1/access", TICKETS = "/v1/tickets", SIGN_IN_AGAIN_MS = 2000, LONGEST_TIMER_MS = 2 ** 31 - 1;

const REFUSED = {
  401: "That is wrong, unknown, expired or revoked.",
  429: "Too much that was wrong came from this address. Wait a while; even what is right has to wait.",
  503: "The broker is busy checking others. Try again.",
  0: "The broker cannot be reached.",
};

/** Text as Basic credentials want it. */
function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** Whether a pattern of a policy covers a stream; null stands for the calls that are about no single one. */
function covers(pattern, name) {
  if (pattern === "*") return true;
  if (name === null) return pattern === "/";
  return pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : pattern !== "/" && name === pattern;
}

class Session {
  constructor() {
    Object.assign(this, { authorization: null, access: null, listeners: [], expiry: 0 });
    this.wait();
    byId("signin-form").addEventListener("submit", (event) => { event.preventDefault(); this.signIn(); });
    byId("signin-without").addEventListener("click", () => this.open());
    byId("who-button").addEventListener("click", () => (this.authorization ? location.reload() : this.show("", true)));
  }

  /** Whether nobody can be asked anything before somebody has signed in: what asks by the clock leaves it then. */
  get closed() { return byId("content").hidden; }

  wait() { this.opened = new Promise((open) => { this.isOpen = open; }); }

  /** Asks the broker whether somebody has to sign in; tells `listeners` once it is known what may be done. */
  async start() {
    const { status, body } = await this.call("GET", ACCESS);
    if (status !== 200) { setTimeout(() => this.start(), SIGN_IN_AGAIN_MS); return; }
    this.access = body;
    if (body.policy && body.principal === null) this.show("");
    else this.open();
  }

  /** Something to do whenever another one has signed in. */
  onChange(listener) { this.listeners.push(listener); }

  get signedIn() { return this.authorization !== null; }

  show(why, mayGoBack = false) {
    byId("content").hidden = true;
    byId("signin").hidden = false;
    byId("signin-without").hidden = !mayGoBack;
    if (!mayGoBack) showLink("waiting", "not signed in");
    this.say(why);
    byId(byId("signin-name").value ? "signin-secret" : "signin-name").focus();
  }

  say(text) {
    setText(byId("signin-status"), text);
    byId("signin-status").setAttribute("data-tone", "bad");
  }

  async signIn() {
    const [name, secret] = [byId("signin-name").value, byId("signin-secret").value];
    if (!secret) { this.say("Give a password, a key or a token."); byId("signin-secret").focus(); return; }
    const shown = name ? `Basic ${base64(`${name}:${secret}`)}` : `Bearer ${secret}`;
    if (!/^[\x20-\x7e]+$/.test(shown)) { this.say("A key or token has no such signs in it; for a password give the name, too."); return; }
    byId("signin-button").disabled = true;
    this.say("");
    const { status, body } = await this.call("GET", ACCESS, { headers: { Authorization: shown } });
    byId("signin-button").disabled = false;
    if (status !== 200) { this.say(REFUSED[status] ?? `The broker says ${status}.`); byId("signin-secret").select(); return; }
    byId("signin-secret").value = "";
    Object.assign(this, { authorization: shown, access: body });
    this.open();
  }

  open() {
    byId("signin").hidden = true;
    byId("content").hidden = false;
    clearTimeout(this.expiry);
    const { policy, principal, anonymous, expires } = this.access;
    if (this.authorization && expires) {
      const left = expires * 1000 - Date.now();
      if (left < LONGEST_TIMER_MS) this.expiry = setTimeout(() => this.ended("Your token has expired. Sign in with a new one."), Math.max(0, left));
    }
    byId("who").hidden = !policy;
    setText(byId("who-name"), anonymous ? "not signed in" : principal ?? "");
    setText(byId("who-button"), this.authorization ? "Sign out" : "Sign in");
    this.isOpen();
    this.listeners.forEach((listener) => listener());
  }

  /** What was shown is good no longer. What goes on asking waits until somebody has signed in. */
  ended(why) {
    if (!this.authorization) return;
    clearTimeout(this.expiry);
    this.authorization = null;
    this.wait();
    this.show(why);
  }

  /** Asks again what may be done, after something was refused. */
  async refresh() {
    const { status, body } = await this.ask("GET", ACCESS);
    if (status === 200) this.access = body;
  }

  /** Whether the caller may do this to a stream, as far as the page knows. */
  may(action, name) {
    return (this.access?.grants[action] ?? []).some((pattern) => covers(pattern, name));
  }

  /** The same for every stream there is or will be. */
  mayAll(action) { return (this.access?.grants[action] ?? []).includes("*"); }

  /** Why something cannot be done; empty if it can. */
  lacks(action, name) {
    if (this.may(action, name)) return "";
    const on = name === null ? "" : ` on ${shown(name)}`;
    return this.access?.policy ? `needs ${action}${on}, which ${this.signedIn ? "you do" : "everybody does"} not have`
      : "needs [registry] in the configuration, or a policy";
  }

  /** One request as it is. Resolves to {status, body}; status 0 when there was no answer. `exact` keeps large integers. */
  async call(method, path, { headers = {}, body, exact = false } = {}) {
    try {
      const answer = await fetch(path, { method, headers, body, credentials: "omit", cache: "no-store" });
      const text = await answer.text();
      let parsed = null;
      try { parsed = exact ? parseRow(text) : JSON.parse(text); } catch { /* some answers have no body */ }
      return { status: answer.status, body: parsed };
    } catch {
      return { status: 0, body: null };
    }
  }

  /** One request on behalf of whoever is signed in. */
  async ask(method, path, options = {}) {
    await this.opened;
    const shown = this.authorization;
    const headers = { ...options.headers, ...(shown ? { Authorization: shown } : {}) };
    const answer = await this.call(method, path, { ...options, headers });
    if (answer.status === 401 && shown && shown === this.authorization) this.ended("What you signed in with is good no longer.");
    return answer;
  }

  /** The query of a WebSocket, with a ticket where one is needed. Null if there is none to be had now. */
  async query(query) {
    await this.opened;
    if (!this.authorization) return query;
    const { status, body } = await this.ask("POST", TICKETS);
    if (status !== 201) return null;
    return `${query}${query ? "&" : "?"}ticket=${encodeURIComponent(body.ticket)}`;
  }
}

const session = new Session();
