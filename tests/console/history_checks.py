"""Browsing history, files and tables, and how long rows are kept, with a broker of its own."""

import re

import checks
from broker import Broker
from playwright.sync_api import expect

# Rows stay in the journal until the broker stops, so that the figures are known.
CONFIG = """
[registry]

[lake]
flush_every_s = 0
"""
COLUMNS = {"type": "object", "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}}, "required": ["id", "kind"]}


class Samples:
    """What the broker tells a page of itself every second, held back while `held`."""

    held = False

    def watch(self, page):
        page.route_web_socket(re.compile("/_console"), self.connected)

    def connected(self, socket):
        socket.connect_to_server().on_message(lambda message: self.held or socket.send(message))


class History(checks.Page):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker(checks.BINARY, CONFIG)
        cls.broker.start()
        cls.addClassCleanup(cls.broker.folder.cleanup)
        cls.addClassCleanup(cls.broker.kill)
        # A stream whose first rows are in its table alone, which replays do not read.
        cls.broker.call("POST", "/v1/streams", {"name": "trimmed", "schema": COLUMNS})
        cls.broker.insert("trimmed", [{"id": number, "kind": "old"} for number in range(1, 41)])
        cls.broker.stop()
        cls.broker.command("flush", "trimmed", "--evict", "--root", str(cls.broker.path("root")))
        cls.broker.start()
        cls.broker.insert("trimmed", [{"id": number, "kind": "new"} for number in range(41, 51)])
        cls.broker.call("POST", "/v1/streams", {"name": "orders", "schema": COLUMNS})
        for batch in range(4):
            cls.broker.insert("orders", [{"id": 100 * batch + number, "kind": "ab"[number % 2]} for number in range(100)])
        cls.broker.call("POST", "/v1/streams", {"name": "events"})
        made = cls.broker.insert("events", [{"user": number, "exact": 9007199254740993} for number in range(10)])
        gone = [made["entries"][number]["id"] for number in (3, 4, 7)]
        cls.broker.call("POST", "/v1/streams/events/erasures", {"entryIds": gone})
        cls.address = cls.broker.address
        cls.open_browser()

    def choose(self, page, name):
        page.locator("#streams-table").get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#browse-stream")).to_have_text(name)

    def offsets(self, page):
        cells = page.locator("#browse-table tbody tr:not(.hole) td:first-child")
        return [int(text) for text in cells.all_text_contents()]

    def status(self, page, text):
        expect(page.locator("#browse-status")).to_have_text(re.compile(text))

    def test_pages_forward_and_backward_and_by_offset(self):
        with self.page() as page:
            self.choose(page, "orders")
            self.status(page, "^100 rows, offsets 301 to 400, the newest$")
            expect(page.locator("#browse-next")).to_be_disabled()
            page.locator("#browse-previous").click()
            self.status(page, "offsets 201 to 300$")
            page.locator("#browse-limit").select_option("50")
            self.status(page, "offsets 201 to 250$")
            page.locator("#browse-previous").click()
            self.status(page, "offsets 151 to 200$")
            page.locator("#browse-first").click()
            self.status(page, "offsets 1 to 50$")
            expect(page.locator("#browse-previous")).to_be_disabled()
            page.locator("#browse-next").click()
            self.status(page, "offsets 51 to 100$")
            page.locator("#browse-offset").fill("330")
            page.locator("#browse-offset").press("Enter")
            self.status(page, "offsets 330 to 379$")
            self.assertEqual(self.offsets(page), list(range(330, 380)))
            page.locator("#browse-next").click()
            self.status(page, "^21 rows, offsets 380 to 400, the newest$")
            page.locator("#browse-previous").click()
            self.status(page, "offsets 330 to 379$")
            # The arrow keys turn pages in the table.
            page.locator("#browse-rows").focus()
            page.keyboard.press("ArrowLeft")
            self.status(page, "offsets 280 to 329$")
            page.keyboard.press("ArrowRight")
            self.status(page, "offsets 330 to 379$")

    def test_rows_that_come_later_are_the_next_page(self):
        self.broker.call("POST", "/v1/streams", {"name": "growing"})
        self.broker.insert("growing", [{"n": 1}])
        with self.page() as page:
            self.choose(page, "growing")
            self.status(page, "^1 row, offsets 1 to 1, the newest$")
            expect(page.locator("#browse-next")).to_be_disabled()
            self.broker.insert("growing", [{"n": 2}, {"n": 3}])
            expect(page.locator("#browse-next")).to_be_enabled()
            page.locator("#browse-next").click()
            self.status(page, "^2 rows, offsets 2 to 3, the newest$")

    def test_streams_that_are_left_at_once_are_left_silently(self):
        with self.page() as page:
            page.evaluate("""async () => {
                for (let turn = 0; turn < 10; turn += 1) {
                    for (const button of document.querySelectorAll("#streams-table button.name")) {
                        button.click();
                        await new Promise((done) => setTimeout(done));
                    }
                }
            }""")
            self.choose(page, "orders")
            expect(page.locator("#tail-table tbody tr")).to_have_count(100)

    def test_a_filter_holds_in_both_directions(self):
        with self.page() as page:
            self.choose(page, "orders")
            self.status(page, "the newest")
            page.locator("#browse-limit").select_option("50")
            page.locator("#browse-where").fill("kind=a")
            page.locator("#browse-where").press("Enter")
            self.status(page, r'^50 rows, offsets 301 to 399.*where \{"kind":"a"\}$')
            self.assertEqual(self.offsets(page), list(range(301, 400, 2)))
            page.locator("#browse-previous").click()
            self.status(page, "offsets 201 to 299")
            page.locator("#browse-next").click()
            self.status(page, "offsets 301 to 399")
            page.locator("#browse-where").fill("kind=c")
            page.locator("#browse-where").press("Enter")
            self.status(page, "^No row")
            expect(page.locator("#browse-table")).to_contain_text("No row here passes the filter")

    def test_filters_that_make_no_sense_are_explained(self):
        with self.page(calm=False) as page:
            self.choose(page, "orders")
            self.status(page, "the newest")
            for text, says in [("kind", "expected column=value"), ("nowhere=1", "nowhere")]:
                page.locator("#browse-where").fill(text)
                page.locator("#browse-where").press("Enter")
                self.status(page, says)
                expect(page.locator("#browse-where")).to_have_attribute("aria-invalid", "true")
            page.locator("#browse-where").fill("")
            page.locator("#browse-offset").fill("-3")
            page.locator("#browse-go").click()
            self.status(page, "whole number")
            page.locator("#browse-offset").fill("1,000,000")
            page.locator("#browse-go").click()
            self.status(page, "beyond the head of the stream, 401")

    def test_erased_rows_are_shown_as_holes(self):
        with self.page() as page:
            self.choose(page, "events")
            expect(page.locator("#browse-table tbody tr")).to_have_count(9)
            self.assertEqual(self.offsets(page), [1, 2, 3, 6, 7, 9, 10])
            holes = page.locator("#browse-table tr.hole").all_text_contents()
            self.assertEqual([text.split(" no row")[0] for text in holes], ["offsets 4 to 5 hold", "offset 8 holds"])
            expect(page.locator("#browse-table")).to_contain_text('{"user":9,"exact":"9007199254740993"}')
            self.picture(page, "browse-light")

    def test_rows_that_are_not_kept_are_named_with_a_way_on(self):
        with self.page(calm=False) as page:
            self.choose(page, "trimmed")
            self.status(page, "offsets 41 to 50")
            expect(page.locator("#browse-previous")).to_be_disabled()
            page.locator("#browse-offset").fill("5")
            page.locator("#browse-go").click()
            self.status(page, "not kept any more; the first that is has offset 41")
            self.picture(page, "browse-expired")
            page.get_by_role("button", name="Go to offset 41").click()
            self.status(page, "^10 rows, offsets 41 to 50, the newest$")
            page.locator("#browse-first").click()
            self.status(page, "offsets 41 to 50")

    def test_a_deleted_stream_is_told(self):
        self.broker.call("POST", "/v1/streams", {"name": "shortlived"})
        samples = Samples()
        with self.page(calm=False, prepare=samples.watch) as page:
            self.choose(page, "shortlived")
            expect(page.locator("#browse-table")).to_contain_text("No row here")
            # Asked for before the page has heard that the stream is gone.
            samples.held = True
            self.broker.call("DELETE", "/v1/streams/shortlived")
            page.locator("#browse-last").click()
            self.status(page, "there is no stream")
            # When it has, it turns to another one.
            samples.held = False
            expect(page.locator("#browse-stream")).not_to_have_text("shortlived")

    def test_files_and_tables_tell_how_far_rows_are(self):
        with self.page() as page:
            row = page.locator("#lake-table tbody tr", has=page.get_by_role("button", name="trimmed", exact=True))
            cells = row.locator("td")
            expect(cells.nth(1)).to_have_text("51")
            expect(cells.nth(2)).to_have_text("41 (10 to go)")
            expect(cells.nth(3)).to_have_text("41 (10 to go)")
            expect(cells.nth(4)).to_have_text("41")
            expect(cells.nth(5)).to_have_text(re.compile(r"^\d+ (s|min)"))
            expect(cells.nth(6)).to_have_text("1")
            expect(cells.nth(8)).to_have_text("works")

    def test_how_long_rows_are_kept_is_shown_and_set(self):
        # Other tests count on the rows of other streams.
        self.broker.call("POST", "/v1/streams", {"name": "kept"})
        self.broker.insert("kept", [{"n": 1}])
        with self.page() as page:
            self.choose(page, "kept")
            facts, field, button = page.locator("#retain-facts"), page.locator("#retain-span"), page.locator("#retain-button")
            expect(facts).to_contain_text("for ever")
            expect(field).to_have_value("none")
            expect(button).to_be_disabled()
            for text in ("", "30", "d", "-1d", "30 weeks", "0d", "40000d"):
                field.fill(text)
                expect(field).to_have_attribute("aria-invalid", "true")
                expect(button).to_be_disabled()
            page.once("dialog", lambda dialog: dialog.dismiss())
            field.fill("36h")
            button.click()
            expect(facts).to_contain_text("for ever")
            page.on("dialog", lambda dialog: dialog.accept())
            field.press("Enter")
            expect(page.locator("#retain-status")).to_have_text("Rows are kept for 1 d 12 h.")
            self.assertEqual(self.broker.call("GET", "/v1/streams/kept/retention")["maxAgeS"], 129_600)
            # What is too old is cut off soon, and its files are to be deleted in an hour.
            field.fill("1s")
            button.click()
            expect(page.locator("#retain-status")).to_have_text("Rows are kept for 1 s.")
            field.fill("none")
            button.click()
            expect(page.locator("#retain-status")).to_have_text("Rows are kept for ever.")
            self.assertIsNone(self.broker.call("GET", "/v1/streams/kept/retention")["maxAgeS"])

    def test_it_can_be_read_and_scrolls_only_down(self):
        for width, scheme in ((375, "dark"), (1_440, "light")):
            with self.page(width=width, height=800, scheme=scheme, reduced_motion="reduce") as page:
                self.choose(page, "events")
                expect(page.locator("#browse-table tr.hole").first).to_be_visible()
                page.wait_for_timeout(1_500)
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                self.assertEqual([entry for entry in page.evaluate(checks.CONTRASTS) if entry[0] < 4.5], [])
                self.picture(page, f"history-{width}-{scheme}")
