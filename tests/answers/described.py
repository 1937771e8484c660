"""What a broker says that it may answer, and what it has answered."""

import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

#: Answers that no request can bring about for sure, and the unit test that shows them. Some of them take more requests at
#: once than a fast broker lets wait.
SHOWN_ELSEWHERE = {
    (429, "control_unavailable"): ("src/registry/tests/calls.rs", "no_more_calls_are_judged_at_once_than_operations_may_wait"),
    (503, "broker_unavailable"): ("src/http/control/tests.rs", "a_broker_that_ends_takes_no_calls"),
    (503, "broker_stopping"): ("src/registry/tests/judged.rs", "a_broker_that_stops_between_two_checks_says_so"),
}

#: Statuses and codes of the two contracts: wire.md section 11 and docs/batches.md, "Errors". The description has to have all.
CONTRACTS = {
    "/control/v1": {
        (401, "authentication_required"), (403, "forbidden"), (503, "broker_unavailable"), (428, "idempotency_key_required"),
        (400, "invalid_idempotency_key"), (415, "json_required"), (415, "identity_encoding_required"), (413, "body_too_large"), (400, "invalid_json"),
        (429, "control_unavailable"), (503, "control_unavailable"), (409, "static_stream"), (403, "management_disabled"),
        (409, "idempotency_mismatch"), (503, "broker_stopping"), (422, "invalid_name"), (404, "unknown_stream"),
        (428, "precondition_required"), (412, "precondition_failed"), (422, "invalid_declaration"), (403, "history_prefix_protected"),
        (409, "transition_pending"), (409, "must_be_stopped"), (409, "migration_required"), (409, "immutable_storage"),
        (422, "invalid_desired"), (409, "retired_stream"), (409, "unbound_stream"), (422, "invalid_migration"),
        (409, "identity_mismatch"), (429, "operation_queue_full"), (500, "internal_error"), (400, "invalid_pagination"),
        (409, "collection_changed"), (409, "profile_revision_changed"), (404, "unknown_operation"), (200, None), (202, None),
    },
    "/v1/streams": {
        (400, "invalid_request"), (400, "invalid_json"), (400, "invalid_cursor"), (400, "invalid_where"), (400, "invalid_entry_id"),
        (400, "invalid_name"), (400, "invalid_validator"), (401, "authentication_required"), (403, "forbidden"),
        (404, "stream_not_found"), (409, "idempotency_key_reused"), (409, "stream_exists"), (409, "stream_is_configured"),
        (409, "stream_is_declared"), (409, "history_is_guarded"), (409, "stream_not_durable"), (409, "stream_retired"),
        (410, "stream_deleted"), (410, "cursor_expired"),
        (413, "request_too_large"), (415, "identity_encoding_required"), (422, "validation_failed"), (422, "invalid_schema"), (429, "too_many_requests"),
        (429, "too_many_failures"), (503, "unavailable"), (200, None), (201, None), (202, None),
    },
}


class Ledger:
    """Answers by operation, against the description at /openapi.json."""

    def __init__(self, document: dict):
        self.named: dict[tuple[str, str], set] = {}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if "responses" in operation:
                    self.named[method.upper(), path] = set(described(operation["responses"]))
        self.had: dict[tuple[str, str], set] = {operation: set() for operation in self.named}

    def operations(self) -> list[tuple[str, str]]:
        return list(self.named)

    def operation(self, method: str, target: str) -> tuple[str, str]:
        """The operation that a request is one of."""
        parts = target.split("?")[0].split("/")
        for known, path in self.named:
            pattern = path.split("/")
            if known == method and len(pattern) == len(parts) and all(a == b or a.startswith("{") for a, b in zip(pattern, parts)):
                return known, path
        raise AssertionError(f"{method} {target} is not described")

    def take(self, method: str, target: str, status: int, code: str | None) -> None:
        """Notes an answer, which has to be one that is described."""
        operation = self.operation(method, target)
        assert (status, code) in self.named[operation], f"{method} {target}: {status} {code} is not described"
        self.had[operation].add((status, code))

    def missing(self) -> list[str]:
        """What is described and was never had."""
        lines = []
        for (method, path), named in self.named.items():
            for status, code in sorted(named - self.had[method, path], key=str):
                if (status, code) not in SHOWN_ELSEWHERE:
                    lines.append(f"{method} {path}: {status} {code or ''}")
        for file, name in SHOWN_ELSEWHERE.values():
            if f"fn {name}()" not in (REPOSITORY / file).read_text():
                lines.append(f"{file}: there is no test {name}")
        return lines

    def undescribed(self) -> list[str]:
        """What the contracts have and the description has not."""
        lines = []
        for prefix, wanted in CONTRACTS.items():
            named = set().union(*(codes for (_, path), codes in self.named.items() if path.startswith(prefix)))
            lines += [f"{prefix}: {status} {code or ''}" for status, code in sorted(wanted - named, key=str)]
        return lines


def described(responses: dict):
    for status, response in responses.items():
        codes = re.findall(r"`(\w+)`", response["description"]) if int(status) >= 400 else [None]
        assert codes, f"{status} has no code: {response['description']}"
        yield from ((int(status), code) for code in codes)


class Answer:
    def __init__(self, status: int, headers: dict, body: str):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        return self.json["error"]["code"] if self.status >= 400 else None
