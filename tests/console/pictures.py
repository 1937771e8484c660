"""The pictures of docs/console.md: tests/console/run --pictures docs/images"""

import time
from contextlib import contextmanager

import access_checks
import history_checks
from broker import Broker
from demo import Demo
from playwright.sync_api import expect, sync_playwright

ORDERS = """{
  "type": "object",
  "properties": {
    "account": {"type": "string"},
    "symbol": {"type": "string"},
    "size": {"type": "integer"},
    "limit": {"type": ["number", "null"]}
  },
  "required": ["account", "symbol", "size"]
}"""


class Pictures:
    def __init__(self, binary, chromium, flags, folder):
        self.binary, self.folder = binary, folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.driver = sync_playwright().start()
        self.browser = self.driver.chromium.launch(executable_path=chromium, args=flags)

    def close(self):
        self.browser.close()
        self.driver.stop()

    @contextmanager
    def page(self, address, *, width=1440, height=900, scheme="light", scale=1):
        context = self.browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=scale)
        page = context.new_page()
        page.goto(f"http://{address}/")
        yield page
        context.close()

    def live(self, page):
        expect(page.locator("#link")).to_have_text("live", timeout=15_000)

    def shot(self, page, name, selector=None, clip=None, height=10_000):
        """The window, or a part of the page: not more of it than `height`."""
        page.evaluate("scrollTo(0, 0); document.activeElement?.blur()")
        path = self.folder / f"console-{name}.png"
        if selector:
            # In a window that has room for everything nothing is scrolled, and the header covers nothing.
            page.set_viewport_size({"width": 1440, "height": 4_000})
            page.wait_for_timeout(1_200)
            box = page.locator(selector).bounding_box()
            page.screenshot(path=path, clip=box | {"height": min(box["height"], height)})
        elif clip:
            page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, **clip})
        else:
            page.screenshot(path=path)
        print(path)

    def of_demo(self, seconds):
        demo = Demo(self.binary)
        demo.start()
        try:
            time.sleep(seconds)
            for scheme in ("light", "dark"):
                with self.page(demo.address, scheme=scheme) as page:
                    self.live(page)
                    page.wait_for_timeout(4_000)
                    self.shot(page, scheme, clip={"width": 1440, "height": 1000})
                    if scheme == "light":
                        self.shot(page, "follow", ".pair.wide", height=560)
                        self.shot(page, "tables", ".pair.lake")
        finally:
            demo.kill()
            demo.folder.cleanup()

    def of_registry(self):
        broker = Broker(self.binary)
        broker.start()
        try:
            for scheme, name in (("light", "orders"), ("dark", "quotes")):
                with self.page(broker.address, scheme=scheme) as page:
                    self.live(page)
                    page.locator("#declare-name").fill(name)
                    page.locator("#declare-schema").fill(ORDERS)
                    page.locator("#declare-button").click()
                    expect(page.locator("#operations li", has_text=f"Serve {name}").locator(".tag")).to_have_text("done", timeout=30_000)
                    page.locator("#declare-name").fill("fills")
                    page.wait_for_timeout(2_500)
                    self.shot(page, f"declare-{scheme}", "#control")
                    if scheme == "light":
                        page.locator("#streams-table").get_by_role("button", name=name, exact=True).click()
                        for row in ('{"account": "A-17", "symbol": "BTC-USD", "size": 3, "limit": 64250}', '{"account": "A-17", "symbol": "BTC-USD", "size": "three"}',
                                    '{"account": "B-02", "symbol": "ETH-USD", "size": 10}'):
                            page.locator("#publish-row").fill(row)
                            page.locator("#publish-button").click()
                            page.wait_for_timeout(500)
                        self.shot(page, "publish", ".pair.wide", height=400)
        finally:
            broker.kill()
            broker.folder.cleanup()

    def of_history(self):
        broker = Broker(self.binary, history_checks.CONFIG)
        broker.start()
        try:
            columns = {"type": "object", "properties": {"user": {"type": "string"}, "action": {"type": "string"}, "amount": {"type": "integer"}},
                       "required": ["user", "action", "amount"]}
            broker.call("POST", "/v1/streams", {"name": "payments", "schema": columns})
            for batch in range(5):
                made = broker.insert("payments", [{"user": f"u{number % 7}", "action": ("charge", "refund")[number % 5 == 0], "amount": 100 * number + batch} for number in range(40)])
            gone = [made["entries"][number]["id"] for number in (6, 7, 8)]
            broker.call("POST", "/v1/streams/payments/erasures", {"entryIds": gone})
            with self.page(broker.address) as page:
                self.live(page)
                page.locator("#browse-offset").fill("162")
                page.locator("#browse-go").click()
                expect(page.locator("#browse-table tr.hole")).to_have_count(1)
                self.shot(page, "browse", "#history")
        finally:
            broker.kill()
            broker.folder.cleanup()

    def of_policy(self):
        broker = Broker(self.binary, access_checks.CONFIG)
        try:
            hashed = broker.command("keys", "password", given=access_checks.PASSWORD)
            broker.path("policy.toml").write_text(access_checks.POLICY.format(hash=hashed))
            keys = str(broker.path("keys.json"))
            for name, *rest in (("etl", "--grant", "data.publish=trades", "--expires", "90d"), ("desk",), ("monitor", "--grant", "stats.read=*")):
                broker.command("keys", "add", name, *rest, "--file", keys)
            broker.start()
            with self.page(broker.address, height=620) as page:
                expect(page.locator("#signin")).to_be_visible()
                self.shot(page, "signin-light")
                page.locator("#signin-name").fill("ops")
                page.locator("#signin-secret").fill(access_checks.PASSWORD)
                page.locator("#signin-button").click()
                self.live(page)
                expect(page.locator("#keys-table tbody tr")).to_have_count(3)
                self.shot(page, "access", "#access")
            with self.page(broker.address, width=375, height=640, scheme="dark", scale=2) as page:
                page.locator("#signin-name").fill("ops")
                page.locator("#signin-secret").fill("wrong")
                page.locator("#signin-button").click()
                expect(page.locator("#signin-status")).to_have_text("That is wrong, unknown, expired or revoked.", timeout=30_000)
                self.shot(page, "signin-dark")
        finally:
            broker.kill()
            broker.folder.cleanup()


def take(binary, chromium, flags, folder):
    pictures = Pictures(binary, chromium, flags, folder)
    try:
        pictures.of_registry()
        pictures.of_history()
        pictures.of_policy()
        pictures.of_demo(25)
    finally:
        pictures.close()
