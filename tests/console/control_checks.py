"""Declaring, serving, publishing and following operations on the page, with a broker of its own."""

import json

import checks
from broker import Broker
from playwright.sync_api import expect

# A stream that stops brings its rows into its table first, which takes its time on a busy machine.
expect.set_options(timeout=checks.WAIT_MS)

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": ["string", "null"]}}, "required": ["id"]}


class Control(checks.Page):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker(checks.BINARY)
        cls.broker.start()
        cls.addClassCleanup(cls.broker.folder.cleanup)
        cls.addClassCleanup(cls.broker.kill)
        cls.address = cls.broker.address
        cls.open_browser()

    def declare(self, page, name, schema=None):
        page.locator("#declare-name").fill(name)
        page.locator("#declare-schema").fill(json.dumps(schema or SCHEMA))
        page.locator("#declare-button").click()

    def row_of(self, page, name):
        return page.locator("#control-table tbody tr", has=page.get_by_role("cell", name=name, exact=True))

    def test_a_stream_is_declared_served_written_to_and_stopped(self):
        with self.page() as page:
            expect(page.locator("#control-body")).to_be_visible()
            self.declare(page, "orders")
            expect(page.locator("#operations")).to_contain_text("Declare orders")
            expect(page.locator("#operations li", has_text="Serve orders").locator(".tag")).to_have_text("done")
            row = self.row_of(page, "orders")
            expect(row.locator("td").nth(1)).to_have_text("serving")
            # It is a stream like any other: tailed, and published to.
            page.locator("#streams-table").get_by_role("button", name="orders", exact=True).click()
            expect(page.locator("#publish-stream")).to_have_text("orders")
            page.locator("#publish-row").fill('{"id": 7, "note": "by hand"}')
            page.locator("#publish-button").click()
            expect(page.locator("#publish-replies")).to_contain_text("stored at offset 1")
            found = self.rows(page)
            self.assertEqual((found[0]["id"], found[0]["note"]), ("7", "by hand"))
            self.picture(page, "control-light")
            page.get_by_role("button", name="Stop orders").click()
            expect(row.locator("td").nth(1)).to_have_text("stopped")
            expect(page.get_by_role("button", name="Stop orders")).to_be_disabled()
            page.get_by_role("button", name="Serve orders").click()
            expect(row.locator("td").nth(1)).to_have_text("serving")

    def test_a_refused_row_says_why(self):
        with self.page() as page:
            page.locator("#streams-table").get_by_role("button", name="fixed", exact=True).click()
            page.locator("#publish-row").fill('{"id": "x"}')
            page.locator("#publish-button").click()
            reply = page.locator("#publish-replies li").first
            expect(reply).to_contain_text("rejected")
            expect(reply).to_have_attribute("data-tone", "bad")
            page.locator("#publish-row").fill('{"id": ')
            expect(page.locator("#publish-status")).to_contain_text("not JSON")
            expect(page.locator("#publish-button")).to_be_disabled()

    def test_schemas_are_judged_while_they_are_written(self):
        with self.page() as page:
            status, editor, button = page.locator("#declare-status"), page.locator("#declare-schema"), page.locator("#declare-button")
            page.locator("#declare-name").fill("judged")
            for text, says in [
                ('{"type": "object",\n "properties": ', "not JSON"),
                ('{"type": "object"}', "at least one column"),
                ('{"properties": {"a": {"type": "integer"}}}', "must be in “required”"),
                ('{"properties": {"a": {"type": "uuid"}}, "required": ["a"]}', "no type “uuid”"),
                ('{"properties": {"a": {"type": "string", "format": "uuid"}}, "required": ["a"]}', "takes no format"),
                ('{"properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]}', "would have no effect"),
                ('{"properties": {"litelink_offset": {"type": "integer"}}, "required": ["litelink_offset"]}', "the log's own"),
                ('{"properties": {"a": {"type": "array"}}, "required": ["a"]}', "needs “items”"),
            ]:
                editor.fill(text)
                expect(status).to_contain_text(says)
                expect(editor).to_have_attribute("aria-invalid", "true")
                expect(button).to_be_disabled()
            editor.fill(json.dumps({
                "properties": {
                    "a": {"type": "integer"}, "b": {"type": ["string", "null"], "contentEncoding": "base16"},
                    "c": {"type": "object", "properties": {"d": {"type": "number"}}, "required": ["d"]},
                    "e": {"type": "array", "items": {"type": "boolean"}},
                },
                "required": ["a", "c", "e"],
            }))
            expect(status).to_have_text("4 columns: a int64, b bytes?, c struct {d: double}, e list of boolean")
            expect(button).to_be_enabled()
            page.locator("#declare-name").fill("bad name")
            expect(status).to_contain_text("A name has letters")
            expect(button).to_be_disabled()

    def test_what_the_broker_refuses_is_explained(self):
        with self.page(calm=False) as page:
            expect(page.locator("#control-body")).to_be_visible()
            self.declare(page, "fixed")
            expect(page.locator("#operations li").first).to_contain_text("declared in the configuration file")

    def test_it_works_by_keyboard_in_the_dark(self):
        with self.page(scheme="dark", reduced_motion="reduce") as page:
            expect(page.locator("#control-body")).to_be_visible()
            page.locator("#declare-name").focus()
            page.keyboard.type("by-keyboard")
            for wanted in ["declare-profile", "declare-schema", "declare-once", "declare-serve", "declare-button"]:
                page.keyboard.press("Tab")
                self.assertEqual(page.evaluate("document.activeElement.id"), wanted)
            page.keyboard.press("Enter")
            expect(page.locator("#operations li", has_text="Serve by-keyboard").locator(".tag")).to_have_text("done")
            page.wait_for_timeout(1_500)
            poor = [entry for entry in page.evaluate(checks.CONTRASTS) if entry[0] < 4.5]
            self.assertEqual(poor, [])
            self.picture(page, "control-dark")

    def test_a_narrow_window_scrolls_only_down(self):
        for width in (360, 1_000):
            with self.page(width=width, height=800) as page:
                expect(page.locator("#control-body")).to_be_visible()
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
