// Who may do what: the caller, and for those who may see it the principals and keys of the policy. Never a secret.

const PAGE_OF_KEYS = 1000, MOST_PAGES = 10;

/** Grants as one line: the action, and the streams if it is not for all. */
function grantsText(grants) {
  const entries = Object.entries(grants);
  const streams = (patterns) => (patterns.includes("*") ? "" : ` on ${patterns.map((pattern) => (pattern === "/" ? "listings" : pattern)).join(", ")}`);
  return entries.length ? entries.map(([action, patterns]) => `${action}${streams(patterns)}`).join("; ") : "nothing";
}

class AccessPanel {
  constructor() {
    const grants = { title: "May", fill: (cell, item) => { setText(cell, grantsText(item.grants)); cell.classList.add("wrap"); } };
    this.principals = new Grid(byId("principals-table"), [
      { title: "Principal", text: (item) => item.name },
      { title: "Passwords", number: true, text: (item) => count(item.passwords) },
      { title: "Keys", number: true, text: (item) => count(item.keys) },
      grants,
    ], "The policy file names no principal.");
    this.keys = new Grid(byId("keys-table"), [
      { title: "Key", text: (item) => item.id },
      { title: "Principal", text: (item) => item.name },
      { title: "Created", text: (item) => day(item.created * 1000) },
      { title: "Expires", fill: (cell, item) => {
        setText(cell, item.expires === null ? "never" : `${day(item.expires * 1000)}${item.expired ? ", expired" : ""}`);
        cell.classList.toggle("hot", item.expired);
      } },
      { title: "Grants", text: (item) => (item.own_grants ? "its own" : "the principal's") },
      grants,
    ], "There is no key. “streamcast-uring keys add NAME” makes one.");
    session.onChange(() => this.show());
  }

  show() {
    const { policy, principal, anonymous, expires, grants } = session.access;
    byId("access-lists").hidden = true;
    const own = [];
    if (!policy) own.push(["Policy", "none: whoever reaches this broker may read, publish and see statistics"]);
    own.push(["You are", anonymous ? "nobody who has signed in" : principal ?? "–"], ["You may", grantsText(grants)]);
    if (expires) own.push(["Until", `${day(expires * 1000)} ${clock(expires * 1000)}`]);
    byId("access-own").replaceChildren(...own.map(([term, text]) => el("div", {}, el("dt", { text: term }), el("dd", { text }))));
    if (!policy) { setText(byId("access-aside"), "nobody is asked"); return; }
    setText(byId("access-aside"), "");
    if (!session.mayAll("control.read")) {
      setText(byId("access-aside"), `Seeing others needs control.read on *, which ${session.signedIn ? "you do" : "everybody does"} not have.`);
      return;
    }
    this.load();
  }

  async load() {
    const [principals, keys] = [await this.all("principals"), await this.all("keys")];
    if (!principals || !keys) return;
    byId("access-lists").hidden = false;
    this.principals.update(principals.items, (item) => item.name);
    this.keys.update(keys.items, (item) => item.id);
    const issuers = principals.first.issuers.map((issuer) => issuer.issuer);
    setText(byId("access-aside"), `${counted(principals.items.length, "principal")}, ${counted(keys.items.length, "key")}`
      + `${issuers.length ? `, tokens of ${issuers.join(", ")}` : ""}${principals.more || keys.more ? " and more" : ""}`);
  }

  /** All pages of a list; null if there is no answer. */
  async all(what) {
    const items = [];
    let first = null, next = null;
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const query = new URLSearchParams({ limit: PAGE_OF_KEYS, ...(next === null ? {} : { after: next }) });
      const { status, body } = await session.ask("GET", `${CONTROL}/${what}?${query}`);
      if (status !== 200) { setText(byId("access-aside"), refusalText({ status, body })); return null; }
      first ??= body;
      items.push(...body[what]);
      next = body.next;
      if (next === null) break;
    }
    return { first, items, more: next !== null };
  }
}
