"""Table-driven checks used by several case files."""

import json


async def store(t, local: str, values: list, column: str = "v") -> None:
    """Publish {column: value} once per JSON text in `values`; log the live and the replayed form.

    The live frame may equal the reference's (the sender's form) or the replayed bytes, which
    section 3.5 recommends; where they are equal only one line is logged.
    """
    sub = await t.sub(local)
    pub = await t.pub(local)
    accepted = []
    for text in values:
        pub.send(f'{{"{column}":{text}}}', log=False)
        reply = await pub.reply()
        if "ok" in reply:
            accepted.append(text)
        else:
            t.log(f"{text if len(text) < 200 else f'<{len(text)} chars>'} -> {reply['error']}")
    if not accepted:
        return
    live = await sub.rows(len(accepted))
    again = await t.sub(local, "?offset=1")
    replayed = await again.rows(len(accepted))
    for text, first, second in zip(accepted, live, replayed):
        shown = text if len(text) < 200 else f"<{len(text)} chars>"
        t.log(f"{shown} -> {t.row(second)}")
        if first != second:
            t.either([f"{shown} live {t.row(first)}"], [f"{shown} live {t.row(second)}"], "3.5: live = replay")
        t.eq(json.loads(first)[1], json.loads(second)[1], "ts of live and replay")


async def store_rows(t, local: str, frames: list[str]) -> None:
    pub = await t.pub(local)
    sub = await t.sub(local)
    for text in frames:
        pub.send(text, log=False)
        reply = await pub.reply()
        t.log(f"{text} -> {reply.get('error') or reply['ok']}")
        if "ok" in reply:
            live = await sub.rows(len(reply["ok"]))
            again = await t.sub(local, f"?offset={reply['ok'][0]}")
            stored = await again.rows(len(reply["ok"]))
            await again.close()
            for first, second in zip(live, stored):
                t.log(f"  stored {t.row(second)}")
                if first != second:
                    t.either([f"  live {t.row(first)}"], [f"  live {t.row(second)}"], "3.5: live = replay")
