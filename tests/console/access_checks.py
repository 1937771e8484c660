"""Signing in, and what is offered to whom, with a broker that has a policy."""

import re
import time
import urllib.error

import checks
from broker import Broker
from playwright.sync_api import expect

CONFIG = """
[registry]

[auth]
policy = "policy.toml"
keys = "keys.json"

[[stream]]
name = "trades"
schema = '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'

[[stream]]
name = "secret"
schema = '{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}'
"""
PASSWORD = "corréct horse"
POLICY = """
[[principal]]
name = "ops"
password = "{hash}"
grants = "*"

[[principal]]
name = "desk"
password = "{hash}"
[principal.grants]
"data.read" = ["trades"]
"""
REFUSED = "Failed to load resource: the server responded with a status of 401"


class Access(checks.Page):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker(checks.BINARY, CONFIG)
        cls.addClassCleanup(cls.broker.folder.cleanup)
        hashed = cls.broker.command("keys", "password", given=PASSWORD)
        cls.broker.path("policy.toml").write_text(POLICY.format(hash=hashed))
        cls.keys = str(cls.broker.path("keys.json"))
        cls.key = cls.new_key("reader", "--grant", "data.read=trades", "--grant", "data.read=_console", "--grant", "stats.read=*")
        cls.broker.start()
        cls.addClassCleanup(cls.broker.kill)
        cls.address = cls.broker.address
        cls.open_browser()

    @classmethod
    def new_key(cls, *words):
        said = cls.broker.command("keys", "add", *words, "--file", cls.keys)
        return re.search(r"sck_\S+", said)[0]

    def heard_of(self, key, within_s=60):
        """The keys are read again, and this one is let in."""
        self.broker.reload()
        deadline = time.monotonic() + within_s
        while True:
            try:
                return self.broker.call("GET", "/v1/access", headers={"Authorization": f"Bearer {key}"})
            except urllib.error.HTTPError:
                self.assertLess(time.monotonic(), deadline, "the keys are not read")
                time.sleep(0.5)

    def opened(self, **context):
        """A page that is not signed in; everything it says and asks is kept."""
        context = self.browser.new_context(viewport={"width": 1440, "height": 900}, **context)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(checks.WAIT_MS)
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(f"error: {error}"))
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("websocket", lambda socket: page.asked.append(socket.url))
        page.goto(f"http://{self.address}/")
        expect(page.locator("#signin")).to_be_visible()
        expect(page.locator("#signin-name")).to_be_focused()
        return page

    def sign_in(self, page, name, secret):
        page.locator("#signin-name").fill(name)
        page.locator("#signin-secret").fill(secret)
        page.locator("#signin-secret").press("Enter")

    def calm(self, page, but=()):
        self.assertEqual([text for text in page.said if not any(text.startswith(known) for known in but)], [])

    def test_nothing_is_shown_and_nothing_refused_before_somebody_signs_in(self):
        page = self.opened()
        page.wait_for_timeout(1_500)
        expect(page.locator("#content")).to_be_hidden()
        self.assertEqual({re.sub(r"^\w+://[^/]+", "", url) for url in page.asked} - {""}, {"/", "/v1/access"} | {url for url in page.asked if url.startswith("data:")})
        self.calm(page)
        self.picture(page, "signin-light")

    def test_a_password_opens_everything_and_stays_in_memory(self):
        page = self.opened()
        self.sign_in(page, "ops", PASSWORD)
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#who-name")).to_have_text("ops")
        expect(page.locator("#control-body")).to_be_visible()
        page.locator("#streams-table").get_by_role("button", name="trades", exact=True).click()
        page.locator("#publish-row").fill('{"id": 7}')
        page.locator("#publish-button").click()
        expect(page.locator("#publish-replies li").first).to_contain_text("stored at offset")
        self.rows(page)
        expect(page.locator("#principals-table tbody tr")).to_have_count(2)
        expect(page.locator("#keys-table tbody tr").first).to_contain_text("reader")
        text = page.locator("body").inner_text()
        for secret in (PASSWORD, self.key, "$argon2"):
            self.assertNotIn(secret, text)
        self.assertNotIn(PASSWORD, " ".join(page.asked))
        self.assertEqual(page.evaluate("[localStorage.length, sessionStorage.length, document.cookie, document.querySelector('#signin-secret').value]"), [0, 0, "", ""])
        self.assertTrue(all("ticket=" in url for url in page.asked if url.startswith("ws:")), page.asked)
        self.picture(page, "access-light")
        self.calm(page)
        page.locator("#who-button").click()
        expect(page.locator("#signin")).to_be_visible()
        expect(page.locator("#content")).to_be_hidden()

    def test_a_key_opens_what_it_may_and_the_rest_says_why_not(self):
        # What fades is not measured in the middle of it.
        page = self.opened(color_scheme="dark", reduced_motion="reduce")
        self.sign_in(page, "", self.key)
        expect(page.locator("#link")).to_have_text("live")
        page.locator("#streams-table").get_by_role("button", name="trades", exact=True).click()
        expect(page.locator("#tail-status")).to_contain_text("Subscribed")
        expect(page.locator("#publish-status")).to_have_text("Publishing needs data.publish on trades, which you do not have.")
        expect(page.locator("#publish-button")).to_be_disabled()
        expect(page.locator("#retain-status")).to_have_text("Setting it needs control.mutate on trades, which you do not have.")
        expect(page.locator("#retain-button")).to_be_disabled()
        expect(page.locator("#control-aside")).to_contain_text("needs control.read")
        expect(page.locator("#access-aside")).to_contain_text("needs control.read on *")
        page.locator("#streams-table").get_by_role("button", name="secret", exact=True).click()
        expect(page.locator("#tail-status")).to_contain_text("needs data.read on secret")
        expect(page.locator("#browse-table")).to_contain_text("needs data.read on secret")
        page.wait_for_timeout(1_000)
        self.assertEqual([entry for entry in page.evaluate(checks.CONTRASTS) if entry[0] < 4.5], [])
        self.picture(page, "access-dark")
        self.calm(page)

    def test_who_may_not_see_figures_sees_the_streams_that_may_be_read(self):
        page = self.opened()
        self.sign_in(page, "desk", PASSWORD)
        expect(page.locator("#no-figures")).to_be_visible()
        expect(page.locator("#charts")).to_be_hidden()
        expect(page.locator("#tail-stream option")).to_have_text(["trades"])
        expect(page.locator("#tail-status")).to_contain_text("Subscribed")
        expect(page.locator("#browse-stream")).to_have_text("trades")
        self.calm(page)

    def test_what_is_wrong_is_told(self):
        page = self.opened()
        page.locator("#signin-button").click()
        expect(page.locator("#signin-status")).to_contain_text("Give a password")
        for name, secret in (("ops", "wrong"), ("", "sck_000000000000_" + "a" * 43), ("nobody", PASSWORD)):
            with page.expect_response(lambda answer: answer.status == 401):
                self.sign_in(page, name, secret)
            expect(page.locator("#signin-status")).to_have_text("That is wrong, unknown, expired or revoked.")
            expect(page.locator("#content")).to_be_hidden()
        self.calm(page, but=[REFUSED])
        self.sign_in(page, "ops", PASSWORD)
        expect(page.locator("#link")).to_have_text("live")

    def test_an_expired_key_asks_again_and_goes_on_where_it_was(self):
        page = self.opened()
        late = []
        for life_s in (10, 30, 90):
            short = self.new_key(f"for-{life_s}-s", "--grant", "data.*=*", "--grant", "stats.read=*", "--expires", f"{life_s}s")
            try:
                self.heard_of(short, life_s)
                self.sign_in(page, "", short)
                expect(page.locator("#tail-status")).to_contain_text("Subscribed", timeout=1_000 * life_s)
                break
            except AssertionError:
                # It was over before it was of any use: the machine is busy.
                late.append(life_s)
                expect(page.locator("#signin")).to_be_visible()
        else:
            self.fail(f"no key that lives {late} s was let in")
        expect(page.locator("#signin")).to_be_visible(timeout=2_000 * life_s + 60_000)
        expect(page.locator("#signin-status")).to_contain_text(re.compile("expired|no longer"))
        expect(page.locator("#content")).to_be_hidden()
        self.sign_in(page, "ops", PASSWORD)
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#tail-status")).to_contain_text("Subscribed")
        self.calm(page, but=[REFUSED] if late else ())

    def test_a_revoked_key_is_noticed(self):
        key = self.new_key("leaver", "--grant", "data.*=*", "--grant", "stats.read=*")
        self.heard_of(key)
        page = self.opened()
        self.sign_in(page, "", key)
        expect(page.locator("#link")).to_have_text("live")
        self.broker.command("keys", "revoke", key.split("_")[1], "--file", self.keys)
        self.broker.reload()
        expect(page.locator("#signin")).to_be_visible(timeout=60_000)
        expect(page.locator("#signin-status")).to_contain_text("no longer")

    def test_it_works_by_keyboard_and_on_a_telephone(self):
        page = self.opened(color_scheme="dark", reduced_motion="reduce")
        page.set_viewport_size({"width": 375, "height": 720})
        page.keyboard.type("ops")
        page.keyboard.press("Tab")
        page.keyboard.type(PASSWORD)
        self.assertEqual([entry for entry in page.evaluate(checks.CONTRASTS) if entry[0] < 4.5], [])
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 375)
        self.picture(page, "signin-dark")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#link")).to_have_text("live")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 375)
