"""What must be true of the page. One browser and one broker for all; a page of its own for each check."""

import json
import re
import time
import unittest
from contextlib import contextmanager

from demo import Demo
from playwright.sync_api import expect, sync_playwright

ADDRESS = SCREENSHOTS = BINARY = CHROMIUM = None
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]
WAIT_MS = 60_000

# Text and what is behind it, for every element with text of its own: [ratio, text, foreground, background].
CONTRASTS = """() => {
  const parse = (text) => {
    const n = text.match(/[\\d.]+/g).map(Number);
    if (text.startsWith("color(srgb")) n.splice(0, 3, ...n.slice(0, 3).map((v) => v * 255));
    return n.length < 4 ? [...n, 1] : n;
  };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const luminance = (rgb) => rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest(".fresh, .skip, .unseen, option, noscript")) continue;
    const behind = ground(node), front = over(parse(getComputedStyle(node).color), behind);
    const [high, low] = [luminance(front), luminance(behind)].sort((a, b) => b - a);
    found.push([(high + 0.05) / (low + 0.05), node.textContent.trim().slice(0, 30), front.join(), behind.join()]);
  }
  return found;
}"""

FOCUSED = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return "end";
  const section = node.closest("section, header.top");
  return node.id || node.getAttribute("aria-label") || node.getAttribute("aria-labelledby") || node.textContent.trim();
}"""


class Page(unittest.TestCase):
    """A browser, and the page of the broker at `address`."""

    @classmethod
    def open_browser(cls):
        driver = sync_playwright().start()
        cls.addClassCleanup(driver.stop)
        cls.browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        cls.addClassCleanup(cls.browser.close)

    @contextmanager
    def page(self, *, width=1440, height=900, scheme="light", calm=True, prepare=None, **context):
        """The page, live. With `calm`, anything it says to the console or asks elsewhere for fails the test.
        `prepare` is given the page before it asks for anything."""
        said, asked = [], []
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **context)
        try:
            page = context.new_page()
            page.set_default_timeout(WAIT_MS)
            page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: said.append(f"error: {error}"))
            page.on("request", lambda request: asked.append(request.url))
            if prepare:
                prepare(page)
            page.goto(f"http://{self.address}/")
            expect(page.locator("#link")).to_have_text("live", timeout=WAIT_MS)
            yield page
        finally:
            context.close()
        if calm:
            self.assertEqual(said, [])
            self.assertEqual([url for url in asked if not url.startswith((f"http://{self.address}/", "data:"))], [])

    def rows(self, page, least=1):
        """The tail's rows as {column: text}, newest first, once there are enough."""
        page.wait_for_function("least => document.querySelectorAll('#tail-table tbody tr td:nth-child(2)').length >= least", arg=least)
        return page.evaluate("""() => {
          const names = [...document.querySelectorAll("#tail-table th")].map((cell) => cell.textContent);
          return [...document.querySelectorAll("#tail-table tbody tr")].map((row) =>
            Object.fromEntries([...row.cells].map((cell, index) => [names[index], cell.textContent])));
        }""")

    def picture(self, page, name):
        if SCREENSHOTS:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.evaluate("scrollTo(0, 0)")
            page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def filter(self, page, text):
        page.locator("#tail-where").fill(text)
        page.locator("#tail-where").press("Enter")


class Console(Page):
    @classmethod
    def setUpClass(cls):
        cls.demo = None
        cls.address = ADDRESS
        if not cls.address:
            cls.demo = Demo(BINARY)
            cls.demo.start()
            cls.addClassCleanup(cls.demo.folder.cleanup)
            cls.addClassCleanup(cls.demo.kill)
            cls.address = cls.demo.address
        cls.open_browser()

    # -- what it shows ----------------------------------------------------------------------------------------------

    def test_streams_are_listed_with_their_rates(self):
        with self.page() as page:
            table = page.locator("#streams-table tbody tr")
            expect(table).to_have_count(2)
            names = table.locator("button.name").all_text_contents()
            self.assertEqual(names, ["trades", "host"])
            page.wait_for_function("() => Number(document.querySelector('#streams-table tbody tr td:nth-child(3)').textContent) > 0")
            first = table.nth(0).locator("td").all_text_contents()
            self.assertGreater(int(first[5].replace(",", "")), 1, "end offset")
            self.assertGreaterEqual(int(first[7]), 1, "publishers")
            self.assertNotIn("_console", page.locator("main").inner_text())
            expect(page.locator("#shards-table tbody tr").first).to_be_visible()
            expect(page.locator("#drops-table")).to_contain_text("too slow (4429)")

    def test_figures_move(self):
        with self.page() as page:
            value = page.locator("[data-tile=rows] .value")
            expect(value).to_have_text(re.compile("^[1-9]"))
            expect(value).not_to_have_text(value.text_content())
            expect(page.locator("[data-tile=commit] .value")).to_have_text(re.compile(r"^[\d.]+ ?(µs|ms)$"))
            expect(page).to_have_title(re.compile("rows/s"))

    def test_charts_move_and_can_be_read_by_keyboard(self):
        with self.page() as page:
            charts = page.locator(".chart canvas")
            expect(charts).to_have_count(4)
            page.wait_for_function("() => document.querySelector('.chart .legend').textContent.includes('trades')")
            before = [chart.evaluate("node => node.toDataURL()") for chart in charts.all()]
            page.wait_for_function(
                "before => [...document.querySelectorAll('.chart canvas')].every((node, at) => node.toDataURL() !== before[at])",
                arg=before, polling=500,
            )
            inked = charts.first.evaluate("""node => {
              const data = node.getContext("2d").getImageData(0, 0, node.width, node.height).data;
              const colors = new Set();
              for (let at = 0; at < data.length; at += 4) if (data[at + 3]) colors.add(data.slice(at, at + 3).join());
              return colors.size;
            }""")
            self.assertGreater(inked, 10, "colours in the first chart")
            charts.first.focus()
            page.keyboard.press("ArrowLeft")
            page.keyboard.press("ArrowLeft")
            expect(page.locator(".chart .legend .time").first).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
            expect(page.locator("#said")).to_have_text(re.compile(r"^Rows.*trades \d"))
            page.keyboard.press("Escape")
            expect(page.locator(".chart .legend .time")).to_have_count(0)
            expect(charts.nth(2)).to_have_attribute("aria-label", re.compile(r"Commit latency.*p99 [\d.]+ (µs|ms)"))

    def test_a_page_that_opens_knows_the_minutes_before(self):
        with self.page() as page:
            page.wait_for_function("() => document.querySelector('.chart .legend').textContent.includes('trades')")
            answer = page.request.get(f"http://{self.address}/console/history")
            samples = answer.json()
            self.assertGreater(len(samples), 1)
            self.assertEqual([s["at"] for s in samples], sorted(s["at"] for s in samples))

    # -- the tail ---------------------------------------------------------------------------------------------------

    def test_the_tail_shows_rows_newest_first(self):
        with self.page() as page:
            found = self.rows(page, 60)
            self.assertEqual(list(found[0]), ["offset", "committed", "event_ts", "symbol", "venue", "price", "amount", "side"])
            offsets = [int(row["offset"]) for row in found]
            self.assertEqual(offsets, list(range(offsets[0], offsets[0] - len(offsets), -1)), "a gap, or another order")
            page.wait_for_function("last => Number(document.querySelector('#tail-table tbody td').textContent) > last", arg=offsets[0])
            expect(page.locator("#tail-status")).to_have_text("Subscribed")

    def test_another_stream_can_be_chosen(self):
        with self.page() as page:
            page.locator("#streams-table").get_by_role("button", name="host").click()
            found = self.rows(page)
            self.assertIn("busy_per_core", found[0])
            self.assertIsInstance(json.loads(found[0]["busy_per_core"]), list)
            expect(page.locator("#connect")).to_contain_text("/host")
            self.assertTrue(page.url.endswith("#host"))
            page.locator("#tail-stream").select_option("trades")
            page.wait_for_function("() => [...document.querySelectorAll('#tail-table th')].some((cell) => cell.textContent === 'symbol')")

    def test_filters_filter(self):
        with self.page() as page:
            self.rows(page, 20)
            for text, expected in [
                ("symbol=BTC-USD", {"BTC-USD"}),
                ('{"symbol":["ETH-USD","SOL-USD"],"side":1}', {"ETH-USD", "SOL-USD"}),
                ("symbol=EUR-USD|USD-JPY side=-1", {"EUR-USD", "USD-JPY"}),
            ]:
                self.filter(page, text)
                expect(page.locator("#tail-status")).to_contain_text("where {")
                found = self.rows(page, 3)
                self.assertLessEqual({row["symbol"] for row in found}, expected)
                if "side" in text:
                    self.assertEqual({row["side"] for row in found}, {"-1"} if "-1" in text else {"1"})

    def test_filters_that_make_no_sense_are_explained(self):
        with self.page() as page:
            self.rows(page, 5)
            status, field = page.locator("#tail-status"), page.locator("#tail-where")
            for text, says in [
                ('{"symbol":', "not JSON"),
                ("symbol", "expected column=value"),
                ("nowhere=1", "4400"),
                ('{"symbol":{"a":1}}', "4400"),
            ]:
                self.filter(page, text)
                expect(status).to_contain_text(says)
                expect(status).to_have_attribute("data-tone", "bad")
                expect(field).to_have_attribute("aria-invalid", "true")
            self.filter(page, "")
            expect(status).to_have_text("Subscribed")
            expect(field).not_to_have_attribute("aria-invalid", "true")
            self.rows(page, 5)

    def test_pause_holds_the_rows_and_resume_brings_those_since(self):
        with self.page() as page:
            self.rows(page, 20)
            page.locator("#tail-pause").click()
            held = self.rows(page)
            page.wait_for_timeout(1_500)
            self.assertEqual(self.rows(page), held)
            expect(page.locator("#tail-rate")).to_contain_text("since the pause")
            page.locator("#tail-pause").click()
            page.wait_for_function("last => Number(document.querySelector('#tail-table tbody td').textContent) > last", arg=int(held[0]["offset"]))

    def test_from_the_beginning(self):
        with self.page() as page:
            page.locator("#streams-table").get_by_role("button", name="host").click()
            self.rows(page)
            page.locator("#tail-pause").click()
            page.locator("#tail-from").select_option("earliest")
            page.wait_for_function("""() => {
              const cells = document.querySelectorAll("#tail-table tbody tr td:first-child");
              return cells.length && (cells.length >= 200 || cells[cells.length - 1].textContent === "1");
            }""")

    # -- people -----------------------------------------------------------------------------------------------------

    def test_lines_are_copied(self):
        with self.page(permissions=["clipboard-read", "clipboard-write"]) as page:
            self.rows(page)
            for label, expected in [
                ("wscat", f"wscat -c 'ws://{self.address}/trades?offset=0'"),
                ("Command line", f"streamcast-uring subscribe 'ws://{self.address}/trades' --offset earliest"),
                ("Python", f'uri = "ws://{self.address}/trades"'),
                ("Statistics", f"curl 'http://{self.address}/stats'"),
                ("Publish a row", "streamcast-uring publish"),
            ]:
                button = page.get_by_role("button", name=f"Copy: {label}")
                # It is said for a moment only.
                button.evaluate("""node => {
                  window.told = [];
                  new MutationObserver(() => window.told.push(node.textContent)).observe(node, { childList: true, characterData: true, subtree: true });
                }""")
                button.click()
                page.wait_for_function("() => window.told.includes('Copied')")
                self.assertIn(expected, page.evaluate("navigator.clipboard.readText()"))

    def test_the_keyboard_reaches_everything_in_order(self):
        with self.page() as page:
            self.rows(page, 5)
            order = []
            for _ in range(60):
                page.keyboard.press("Tab")
                order.append(page.evaluate(FOCUSED))
                if len(order) > 3 and order[-1] in ("end", order[0]):
                    break
            wanted = ["Skip to the streams", "Rows, the last", "Deliveries, the last", "Commit latency, the last", "Network, the last",
                      "streams-title", "trades", "host", "shards-title", "tail-stream", "tail-from", "tail-where", "Apply", "tail-pause",
                      "tail-rows", "Copy: Command line", "Copy: wscat", "Copy: Python", "Copy: Publish", "Copy: Statistics"]
            at = 0
            for step in wanted:
                ahead = [index for index in range(at, len(order)) if order[index].startswith(step)]
                self.assertTrue(ahead, f"{step} is not reached after {order[:at]} in {order}")
                at = ahead[0] + 1
            page.reload()
            # A browser may drop keys until it has drawn a page for the first time.
            deadline = time.monotonic() + WAIT_MS / 1_000
            while page.evaluate(FOCUSED) == "end" and time.monotonic() < deadline:
                page.keyboard.press("Tab")
                page.wait_for_timeout(100)
            self.assertEqual(page.evaluate(FOCUSED), wanted[0])
            page.keyboard.press("Enter")
            # The browser follows the link a moment after the key.
            page.wait_for_function("() => document.activeElement.id === 'streams'")

    def test_text_can_be_read_on_light_and_dark(self):
        grounds = set()
        for scheme in ("light", "dark"):
            # What fades is not measured in the middle of it.
            with self.page(scheme=scheme, reduced_motion="reduce") as page:
                self.rows(page, 20)
                page.wait_for_timeout(1_500)
                poor = [entry for entry in page.evaluate(CONTRASTS) if entry[0] < 4.5]
                self.assertEqual(poor, [], scheme)
                grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                self.picture(page, scheme)
        self.assertEqual(len(grounds), 2)

    def test_a_narrow_window_scrolls_only_down(self):
        for width in (360, 600, 1_000, 2_000):
            with self.page(width=width, height=800) as page:
                self.rows(page, 5)
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                self.picture(page, f"width-{width}")

    # -- trouble ----------------------------------------------------------------------------------------------------

    def test_many_rows_do_not_stop_the_page(self):
        with self.page() as page:
            longest = self.longest_pause(page)
            if longest >= 5_000:
                longest = self.longest_pause(page)
            self.assertLess(longest, 5_000, "ms between two pictures")
            self.rows(page, 100)

    def longest_pause(self, page):
        """Between two pictures while all rows come, in ms. Asked twice before it counts: the machine may have stood still."""
        page.reload()
        expect(page.locator("#link")).to_have_text("live")
        page.locator("#tail-from").select_option("earliest")
        return page.evaluate("""() => new Promise((done) => {
              let last = performance.now(), longest = 0;
              const step = (now) => { longest = Math.max(longest, now - last); last = now; left -= 1; left ? requestAnimationFrame(step) : done(longest); };
              let left = 90;
              requestAnimationFrame(step);
            })""")

    def test_a_broker_that_comes_back_is_followed_without_a_gap(self):
        if not self.demo:
            self.skipTest("the broker is not ours to stop")
        with self.page(calm=False) as page:
            before = int(self.rows(page, 50)[0]["offset"])
            self.demo.kill()
            expect(page.locator("#link")).to_have_attribute("data-state", "lost")
            expect(page.locator("#tail-status")).to_contain_text("connecting again")
            time.sleep(0.5)
            self.demo.start()
            expect(page.locator("#link")).to_have_text("live", timeout=60_000)
            page.wait_for_function("last => Number(document.querySelector('#tail-table tbody td').textContent) > last + 50", arg=before, timeout=60_000)
            offsets = [int(row["offset"]) for row in self.rows(page, 50)]
            self.assertEqual(offsets, list(range(offsets[0], offsets[0] - len(offsets), -1)))


class Demonstration(unittest.TestCase):
    def test_it_ends_in_order_when_asked(self):
        if ADDRESS:
            self.skipTest("the broker is not ours to stop")
        demo = Demo(BINARY, rate=50)
        demo.start()
        self.assertEqual(demo.stop(), 0)
        demo.folder.cleanup()
