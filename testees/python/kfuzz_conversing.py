"""Holds a conversation for kfuzz_serving: what an application does with a client, while a proxy makes trouble.

The client's broker is one of kfuzz's own, or the one at KFUZZ_BOOTSTRAP. The answer has what each act of the
application gave, and the frames of all connections as the client sent and got them.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kfuzz.client.address import Address
from kfuzz.relay.local import LocalCluster, LocalProxy, cluster, proxy
from kfuzz.relay.recording import Recording
from kfuzz.replay import Settings, give

TOPIC = "kfuzz-conversation"
# As an application polls. A library may do what a poll begins, such as joining a group, only within that poll.
POLL_MS = 250
# Nothing comes for so long, and for so many looks: the client has stalled.
SILENCE_S_MAX = 6
LOOKS_MIN = 10
# After an error that a library documents, an application polls again: a retry may come within this time.
AFTER_ERROR_S_MAX = 2
# A consumer that cannot be opened is opened again so often.
OPENS_MAX = 5
PAUSE_S = 0.05
# So many fetches at the end of a log show that the client is there.
AT_END = 3
# After the last record, more would come within this time.
MORE_MS = 60
# At a real broker, a client that waits says less, and a fetch of so few bytes gets one batch.
REAL = {"fetch_wait_ms": 30, "fetch_bytes": 80, "session_timeout_ms": 1500}
FRAMES_MAX = 4000
FRAME_BYTES_MAX = 64 << 10
# The rest of a record that is sent.
PLAIN = {"timestamp": "1700000000000", "key": None, "headers": []}
ENDED = {"outcome": "stalled", "error": "hands out nothing more"}

SENT = ("accepted", "rejected")

Json = dict[str, Any]
# Asks a driver, by its number; the first one may be asked before the others are started.
Ask = Callable[..., Json]


class Scene:
    """Brokers, and a proxy in front of them, for one conversation."""

    def __init__(self, request: Json, folder: Path, stack: contextlib.ExitStack) -> None:
        self.own: LocalCluster | None = None
        self.topic, self.suffix = TOPIC, ""
        if real := os.environ.get("KFUZZ_BOOTSTRAP"):
            self.suffix = f"-{time.time_ns()}"
            self.topic = f"{TOPIC}{self.suffix}"
            batches = [bytes.fromhex(one) for one in request.get("given", [])]
            give(Settings(bootstrap=Address.parse(real)), self.topic, batches)
            address = real
            self.end = 0
        else:
            self.own = stack.enter_context(cluster(request.get("brokers", 1)))
            self.own.line(broker={"fetch_sessions": True, **request.get("broker", {})})
            given = request.get("given")
            made = self.own.line(topic=self.topic, **({"steps": given} if given else {"produce": True}))
            self.end = int(made["next_offset"])
            address = self.own.bootstrap
        rules = request.get("rules", [])
        self.proxy: LocalProxy = stack.enter_context(
            proxy(address, rules=rules, record=folder, tell=lambda sentence: None)
        )

    def is_at_end(self) -> bool:
        """Whether a client has asked again and again for the offset after the last record."""
        if self.own is None:
            return False
        asked = self.own.line(topic=self.topic)
        return int(asked["fetch_offset"]) >= self.end and asked["times"] >= AT_END


def converse(request: Json, ask: Ask) -> Json:
    """The answer to a question about a conversation, without its id. ``ask(by, **line)`` asks a driver."""
    if "KFUZZ_BOOTSTRAP" not in os.environ and any(map(needs_real_broker, request["application"])):
        return {"outcome": "unsupported", "error": "kfuzz serve has neither share groups nor what an admin client asks"}
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        folder = Path(place) / "record"
        scene = Scene(request, folder, stack)
        acts: list[Json] = []
        unopened: dict[int, Json] = {}
        for act in request["application"]:
            by = act.get("by", 1)
            if act["do"] == "open":
                unopened.pop(by, None)
            result = unopened.get(by) if act["do"] in ("read", "commit", "close") else None
            result = result or done(scene, act, ask)
            if act["do"] == "open" and result["outcome"] == "rejected":
                unopened[by] = result
            if result.get("outcome") == "unsupported":
                return result
            acts.append(result)
            if result["outcome"] in ("stalled", "panic"):
                break
        answer: Json = {"outcome": "accepted", "acts": acts}
        if scene.own is not None and not request.get("given"):
            answer["produced"] = scene.own.line(topic=scene.topic)["produced"]
        troubles = [[one.after.connection, one.after.number] for one in scene.proxy.applied()]
        stack.close()
        return answer | {"troubles": troubles, "frames": frames_of(folder)}


def needs_real_broker(act: Json) -> bool:
    """Whether kfuzz's own brokers cannot do it."""
    return act["do"] == "call" or act.get("protocol") == "share"


def frames_of(folder: Path) -> list[Json]:
    """The whole frames of a recording, as the client saw them."""
    recording = Recording(folder)
    places = {one.connection: one.place for one in recording.events if one.event == "open"}
    events = [one for one in recording.events if one.event in ("request", "response")]
    frames = [(one, bytes(recording.frame(one))) for one in events]
    return [
        {
            "from": "client" if one.event == "request" else "broker",
            "connection": one.connection,
            "place": places[one.connection],
            "ms": round(one.ms),
            "hex": data.hex(),
        }
        for one, data in frames
        if data and len(data) <= FRAME_BYTES_MAX
    ][:FRAMES_MAX]


def done(scene: Scene, act: Json, ask: Ask) -> Json:
    """The result of an act."""
    do, by = act["do"], act.get("by", 1)
    how = {name: value for name, value in act.items() if name not in ("do", "by", "count", "records")}
    # A real broker remembers these from earlier conversations.
    how |= {name: f"{how[name]}{scene.suffix}" for name in ("group", "transactional_id") if name in how}
    if do == "read":
        return read(
            lambda **line: ask(by, **line),
            act["count"],
            until_error=act.get("until") == "error",
            is_at_end=scene.is_at_end if act.get("at_end") else lambda: False,
        )
    if do == "move":
        return moved(scene, act)
    if do == "trouble":
        for one in act["rules"]:
            scene.proxy.rule(one["api"], **{name: value for name, value in one.items() if name != "api"})
        return {"outcome": "accepted"}
    if do == "wait":
        time.sleep(act["ms"] / 1000)
        return {"outcome": "accepted"}
    line: Json = {"do": do, **how}
    if do in ("open", "produce", "call"):
        line |= {"address": scene.proxy.bootstrap, "topic": scene.topic}
    if do == "open":
        line = {"isolation": "read_uncommitted", "offset": "0", "continues": "group" not in act} | line
        if scene.own is None:
            line |= REAL
    elif do == "produce":
        sent = [PLAIN | {"value": value.encode().hex()} for value in act["records"]]
        line = {"compression": "none", "idempotent": False, "transactional_id": None} | line | {"records": sent}
    said = ask(by, **line)
    for _ in range(OPENS_MAX - 1):
        if do == "open" and said.get("outcome") == "rejected":
            time.sleep(PAUSE_S)
            said = ask(by, **line)
    said = {"outcome": "accepted"} | said
    if "error" in said:
        said["error"] = said["error"].replace(scene.topic, "the topic").replace(scene.proxy.bootstrap, "the broker")
    if "sends" in said:
        outcomes = [one.get("outcome", "accepted") for one in said["sends"]]
        # A send that ends in any other way is that of the act.
        said |= next((one for one in said["sends"] if one.get("outcome", "accepted") not in SENT), {})
        said["sends"] = ["accepted" if one == "accepted" else "rejected" for one in outcomes]
    return {name: said[name] for name in ("outcome", "error", "sends", "offsets", "at") if name in said}


def moved(scene: Scene, act: Json) -> Json:
    """Another broker leads or coordinates."""
    if scene.own is None:
        return {"outcome": "unsupported", "error": "a real broker cannot be moved"}
    if "key" in act:
        scene.own.line(coordinator=act["key"], to=act["to"])
    else:
        scene.own.line(move=scene.topic, partition=0, to=act["to"])
    return {"outcome": "accepted"}


def read(
    ask: Callable[..., Json], count: int, *, until_error: bool = False, is_at_end: Callable[[], bool] = lambda: False
) -> Json:
    """Let a consumer hand out ``count`` records, and what comes with them; or those up to the end of the log.

    With ``until_error``, the first error ends it. Otherwise it is the result only if nothing comes after it.
    """
    found: list[Json] = []
    failed: Json | None = None
    since_s, looks, patience_s = time.monotonic(), 0, SILENCE_S_MAX
    while True:
        is_more = len(found) >= count or is_at_end()
        said = ask(do="poll", timeout_ms=MORE_MS if is_more else POLL_MS)
        if "outcome" in said:
            ended = {name: said[name] for name in ("outcome", "error", "at") if name in said}
            if until_error or said["outcome"] != "rejected":
                return ended | {"records": found}
            time.sleep(PAUSE_S)
            if failed is None:
                failed, patience_s = ended, time.monotonic() - since_s + AFTER_ERROR_S_MAX
        # A driver for campaigns hands out less of a record.
        new = [{"timestamp": None, "headers": []} | one for one in said.get("records", [])]
        found += new
        if (is_more and not new) or len(found) > 10 * count + 100:
            return {"outcome": "accepted", "records": found}
        if new:
            failed, since_s, looks, patience_s = None, time.monotonic(), 0, SILENCE_S_MAX
        looks += 1
        if time.monotonic() - since_s > patience_s and looks > LOOKS_MIN:
            return (failed or ENDED) | {"records": found}
