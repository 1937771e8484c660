"""Clients that go away before they are answered: what was begun ends as if they had stayed."""

import json
import socket
import time

from api import until
from api_case import ApiCase
from broker import PATIENCE_S

# Moments after the request at which the client leaves, from before it is read to after it is answered.
LEAVES_S = [step * 0.0004 for step in range(25)]


def ask_and_leave(port: int, method: str, path: str, body=None, after_s: float = 0) -> None:
    """Sends a request and closes the connection without reading an answer."""
    body = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(head + body)
        time.sleep(after_s)


class Gone(ApiCase):
    async def test_a_validator_that_was_recorded_is_the_one_that_is_used(self):
        self.api.create("v")
        for number, after_s in enumerate(LEAVES_S):
            ask_and_leave(self.broker.port, "PATCH", "/v1/streams/v", {"validator": f"entry.n > {number}"}, after_s)
            # Either validator is right; none of them is lost between the journal and the requests.
            self.assertEqual(self.api.insert("v", [{"n": 1000}]).status, 200, (number, after_s))
        self.assertEqual(self.api.call("PATCH", "/v1/streams/v", {"validator": "entry.n > 5"}).status, 200)
        known = self.api.get("/v1/streams/v").json["validatorVersion"]
        self.assertEqual(self.api.insert("v", [{"n": 5}]).code, (422, "validation_failed"))
        await self.broker.restart()
        self.api.close()
        self.assertEqual(self.api.get("/v1/streams/v").json["validatorVersion"], known)

    async def test_what_was_erased_is_counted(self):
        self.api.create("e")
        ids = [one["id"] for one in self.api.insert("e", [{"n": n} for n in range(len(LEAVES_S))]).json["entries"]]
        for entry, after_s in zip(ids, LEAVES_S):
            ask_and_leave(self.broker.port, "POST", "/v1/streams/e/erasures", {"entryIds": [entry]}, after_s)

        # What came after the client had gone may not have been read at all, or be read only now.
        time.sleep(0.5)
        until(lambda: self.recorded() > 0)
        until(lambda: len({len(ids) - self.recorded(), self.api.get("/v1/streams/e").json["entryCount"], len(self.api.everything("e"))}) == 1)

    def recorded(self) -> int:
        return sum(one["erased"] for one in self.api.get("/v1/streams/e/erasures").json["erasures"])

    async def test_a_stream_that_was_deleted_is_cleared_away(self):
        deleted = 0
        for number, after_s in enumerate(LEAVES_S[::3]):
            made = self.api.create(f"d{number}").json
            ask_and_leave(self.broker.port, "DELETE", f"/v1/streams/d{number}", None, after_s)
            time.sleep(0.03)
            answer = until(lambda: self.settled(made))
            deleted += answer == "deleted"
        # On a machine that is slow it takes longer until what was asked is read.
        after_s = LEAVES_S[-1]
        while not deleted:
            after_s *= 2
            self.assertLess(after_s, PATIENCE_S, "nothing was ever deleted")
            made = self.api.create("later").json
            ask_and_leave(self.broker.port, "DELETE", f"/v1/streams/{made['id']}", None, after_s)
            deleted += until(lambda: self.settled(made)) == "deleted"
            self.api.call("DELETE", f"/v1/streams/{made['id']}")

    def settled(self, made: dict):
        """What a stream is in the end: "active" if nothing was begun, "deleted" if all of it was done."""
        answer = self.api.get(f"/v1/streams/{made['id']}")
        match answer.status:
            case 200:
                return "active"
            case 410 if answer.json["error"]["details"]["state"] == "deleted":
                return "deleted"
