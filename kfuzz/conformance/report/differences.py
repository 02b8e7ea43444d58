"""The report of a differential on records, messages or streams: JSON, kept files, and sentences for people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.judge.causes import Cause, Deviation
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.report.document import cause_json
from kfuzz.files import write_whole
from kfuzz.text import printable, shell_word
from kfuzz.units import counted

HEX_SHOWN_CHARACTERS = 400


def to_json(found: Differential, *, seed: int, files: Sequence[Path] = ()) -> dict[str, Any]:
    """The run as one JSON document. An input of records is given as hex bytes; a message or stream as its request.

    ``files`` are those of the causes, as :func:`keep` returned them.
    """
    causes = [
        cause_json(cause) | {"kills": [field.to_json() for field in cause.smallest.kills]} for cause in found.causes
    ]
    for cause, file in zip(causes, files, strict=False):
        cause["file"] = str(file)
    return {
        "testee": found.testee,
        "of": found.of,
        "setting": found.setting,
        "seed": seed,
        "inputs": found.inputs,
        "agreed": found.agreed,
        "agreements": dict(sorted(found.agreements.items())),
        "unsupported": found.unsupported,
        "rules": dict(sorted(found.rules.items())),
        "restarts": found.restarts,
        "unconfirmed": found.unconfirmed,
        "causes": causes,
        "deviations": [
            {"index": one.number, "reason": one.reason, "answer": one.answer} | _input(found, one)
            for one in found.deviations
        ],
    }


def _input(found: Differential, one: Deviation) -> dict[str, Any]:
    return {"hex": one.data.hex()} if found.of == "input" else {"request": one.request}


def outcome_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """A summary of an answer: outcome and error, or outcome, consumed bytes and the hash of the contents."""
    if answer["outcome"] != "accepted":
        return {name: answer[name] for name in ("outcome", "error") if name in answer}
    contents = json.dumps(answer.get("batches", answer.get("records")), sort_keys=True)
    return {
        "outcome": "accepted",
        "consumed": answer.get("consumed"),
        "contents_sha256": hashlib.sha256(contents.encode()).hexdigest(),
    }


def keep(found: Differential, directory: Path, *, seed: int) -> list[Path]:
    """Write the smallest input of each cause to ``directory``; returns the files in the order of the causes.

    An input of records is kept as its bytes, with the testee's answer beside it in the form of
    corpus/regressions/differential/, and with the cause and the fields that kill. A message or stream is kept as the
    request that reproduces it.
    """
    return [_keep(found, cause, directory, seed) for cause in found.causes]


def _keep(found: Differential, cause: Cause, directory: Path, seed: int) -> Path:
    item = cause.smallest
    stem = directory / f"seed-{seed}-{found.of}-{item.number}"
    if found.of != "input":
        file = stem.with_suffix(".json")
        write_whole(file, _document({**item.request, "id": found.of}))
        return file
    file = stem.with_suffix(".bin")
    write_whole(file, item.data)
    if item.answer:
        role = {} if item.request["role"] == "consumer" else {"role": item.request["role"]}
        document = {"testee": found.testee, **role, **outcome_of(item.answer)}
        # The bytes are in the file, and the answer is above.
        smallest = replace(item, data=b"", request={}, answer={})
        document["cause"] = replace(cause, deviations=(smallest,), others=cause.count - 1).to_json()
        write_whole(stem.with_suffix(".json"), _document(document))
    return file


def _document(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def sentences(found: Differential, files: Sequence[Path], *, seed: int, shown: int) -> list[str]:
    """The report for people: the worst ``shown`` causes, each with its smallest input and its file; then the counts.

    Each is harmless for a terminal.
    """
    lines = []
    causes = list(zip(found.causes, files, strict=True))
    for cause, file in causes[:shown]:
        item = cause.smallest
        lines.append(f"{harm_named(cause.harm).title}: {printable(cause.what)} ({counted(cause.count, found.of)})")
        made = f", made simpler ({item.shrunk_from} to {len(item.data)} bytes)" if item.shrunk_from else ""
        shown_bytes = f"\n  {_hex(item)}" if found.of == "input" else ""
        reason = printable(item.reason)
        lines.append(f"  {item.input} of seed {seed}{made}: {reason}{shown_bytes} ({file})")
        if item.kills:
            lines.append(f"  the field that kills: {item.kills[0]}; `kfuzz show {shell_word(file)}` marks it")
    if len(causes) > shown:
        lines.append(f"… and {counted(len(causes) - shown, 'cause')} more; the inputs are in {files[0].parent}")
    # Print every rule, also one that excused nothing, so that a reader sees how much the agreement depends on rules.
    lines += [f"{found.rules[name]} under the rule: {name}" for name in found.rule_names]
    if found.unsupported:
        lines.append(f"{found.unsupported} unsupported by {found.testee}")
    if found.restarts:
        lines.append(
            f"{found.testee} was started again {counted(found.restarts, 'time')}; "
            f"no {found.of} alone explains {found.unconfirmed} of them"
        )
    kinds = ", ".join(f"{count} {what}" for what, count in sorted(found.agreements.items()))
    lines.append(
        f"{found.testee}{found.setting and ' ' + found.setting}, seed {seed}: {found.agreed} of {found.inputs} "
        f"{found.of}s agree{kinds and f' ({kinds})'}, {found.differing} differ"
    )
    return ["\n".join(map(printable, line.split("\n"))) for line in lines]


def _hex(one: Deviation) -> str:
    text = one.data.hex()
    return f"{text[:HEX_SHOWN_CHARACTERS]}{'…' if len(text) > HEX_SHOWN_CHARACTERS else ''} "
