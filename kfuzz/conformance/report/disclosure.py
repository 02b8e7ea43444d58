"""Hands faults over to the maintainers of an implementation: for each cause a folder with a report they can use."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz import __version__
from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import Case, request
from kfuzz.conformance.judge.harm import DIFFERS, harm_named
from kfuzz.conformance.judge.matrix import Run
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.conformance.protocol.lines import DECODE, DECODE_MESSAGE
from kfuzz.conformance.protocol.testees import Reproducer, Testee
from kfuzz.conformance.report.trial import Trial, tried
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.text import file_name, printable
from kfuzz.units import counted

if TYPE_CHECKING:
    import jinja2

INPUT_FILE: Final = "input.bin"
REQUEST_FILE: Final = "request.json"
DUMP_BYTES_MAX: Final = 512
DUMP_BYTES_PER_LINE: Final = 16
OTHERS_MAX: Final = 20
FENCE: Final = "```"
_BACKTICKS: Final = re.compile("`{3,}")
_LINK: Final = re.compile(r"https://[^\s)>]+|\bKAFKA-\d+\b")


class Disclosed:
    """The result of :func:`disclose`: the folders, and sentences about reproducers that could not be built."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.notes: list[str] = []


def require_private(directory: Path) -> None:
    """Raise ``UsageError`` if ``directory`` is in a Git work tree that would commit it."""
    here = next((one for one in (directory, *directory.parents) if one.is_dir()), None)
    if here is None or not shutil.which("git"):
        return
    inside = subprocess.run(["git", "rev-parse", "--is-inside-work-tree"], cwd=here, capture_output=True, text=True)
    if inside.stdout.strip() != "true":
        return
    ignored = subprocess.run(["git", "check-ignore", "-q", str(directory.absolute())], cwd=here, capture_output=True)
    if ignored.returncode != 0:
        raise UsageError(
            f"{directory} is in a Git repository that does not ignore it; these reports are not public, so name "
            "another folder, such as one outside"
        )


def disclose(
    run: Run,
    directory: Path,
    *,
    testees: Sequence[Testee],
    requirements: Mapping[str, Any],
    documents: Mapping[str, str],
    on_progress: Callable[[int], None] = lambda done: None,
) -> Disclosed:
    """Write a folder below ``directory`` for each cause of ``run``, the worst first, and try its reproducer.

    A folder holds ``report.md``, the bytes, and the reproducer of ``testees/<name>/testee.toml``; without one, the
    request of the testee protocol. ``requirements`` and ``documents`` are those of the suite. A cause that only differs
    where either is allowed is no fault, so it has no folder. Raises ``UsageError`` if a file cannot be written.
    """
    by_label = {testee.label: testee for testee in testees} | {testee.name: testee for testee in reversed(testees)}
    cases = {(case.vector.id, case.role): case for case in run.cases}
    languages = {judged.label: judged.language for judged in run.testees}
    folders = _folder_names(languages)
    done = Disclosed()
    builder = _Builder(done.notes)
    template = _template()
    numbers: Counter[str] = Counter()
    for cause in faults(run):
        label = cause.smallest.implementation
        name, _, version = label.partition("@")
        case = cases[cause.smallest.input, cause.smallest.role]
        numbers[label] += 1
        folder = directory / folders[label] / f"{numbers[label]:03}-{cause.harm}-{cause.id}"
        testee = by_label.get(label) or by_label.get(name)
        # Only a broker that `kfuzz probe` asked has no language; every testee has one.
        is_probed = not languages[label]
        shown = _shown(case, cause, testee, folder, builder, is_probed)
        text = template.render(
            testee={"name": printable(name), "version": printable(version)},
            title=harm_named(cause.harm).title,
            why=harm_named(cause.harm).why(case.role),
            what=printable(_sentence(cause.what)),
            at=printable(cause.at),
            links=_links(run, cause),
            happens=printable(cause.smallest.error),
            expected=_expected(case),
            # A suite of the user's own may cite what no table has.
            requirements=[
                _requirement(requirements.get(one, {"id": one, "text": one}), documents)
                for one in cause.smallest.requirements
            ],
            others=[f"{one.input}" for one in cause.deviations[1 : OTHERS_MAX + 1]],
            more=max(0, cause.count - 1 - OTHERS_MAX),
            kfuzz_version=__version__,
            **shown,
        )
        write_whole(folder / "report.md", text)
        done.folders.append(folder)
        on_progress(len(done.folders))
    return done


def _folder_names(labels: Iterable[str]) -> dict[str, str]:
    """A folder for each label. A label that is no name of a folder, or that others resemble, gets a digest in it."""
    names = {label: file_name(label) for label in labels}
    # Some file systems take capital letters for small ones.
    alike = Counter(name.casefold() for name in names.values())
    return {
        label: name
        if name == label and alike[name.casefold()] == 1
        else f"{name}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
        for label, name in names.items()
    }


def faults(run: Run) -> list[Cause]:
    """The causes that have a report."""
    return [cause for cause in run.causes if cause.harm != DIFFERS.name]


class _Builder:
    """Builds each reproducer once. A failure becomes a note."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes
        self._ready: dict[Path, bool] = {}

    def is_ready(self, testee: Testee, reproducer: Reproducer) -> bool:
        if reproducer.program not in self._ready:
            self._ready[reproducer.program] = True
            try:
                testee.make_ready()
                reproducer.make_ready()
            except BuildFailed as error:
                self.notes.append(f"{testee.label}: {error}; its reports have a request instead of a program")
                self._ready[reproducer.program] = False
        return self._ready[reproducer.program]


def _shown(
    case: Case, cause: Cause, testee: Testee | None, folder: Path, builder: _Builder, is_probed: bool
) -> dict[str, Any]:
    """The part of the report that shows the fault: the bytes, and a program or a request. Writes their files."""
    vector = case.vector
    data = vector.data if case.operation in (DECODE, DECODE_MESSAGE) else b""
    message = vector.options.get("message", "")
    kind, key = _message(message)
    shown: dict[str, Any] = {
        "input_file": INPUT_FILE,
        "data": data,
        "sha256": hashlib.sha256(data).hexdigest(),
        "dump": _dump(data) if len(data) <= DUMP_BYTES_MAX else "",
        "summary": _sentence(vector.summary),
        "kind": vector.kind,
        "message": message,
        "version": vector.options.get("version", ""),
        "key": key,
        "program": "",
        "probe": "",
        "trial": None,
        "fence": FENCE,
        "request_file": REQUEST_FILE,
    }
    write_whole(folder / INPUT_FILE, data)
    if is_probed:
        return shown | {"probe": shlex.join(("kfuzz", "probe", "127.0.0.1:9092", vector.id))}
    reproducer = _reproducer(testee, case, kind)
    if testee is None or reproducer is None or testee.missing() or not builder.is_ready(testee, reproducer):
        write_whole(folder / REQUEST_FILE, json.dumps(request(case), sort_keys=True) + "\n")
        argv = (
            shlex.join(Path(word).name if word.startswith("/") else word for word in testee.argv)
            if testee
            else "testee"
        )
        return shown | {"command": f"{argv} < {REQUEST_FILE}"}
    values = {
        "file": str((folder / INPUT_FILE).absolute()),
        "kind": kind,
        "key": "" if key is None else str(key),
        "version": str(shown["version"]),
    }
    trial = tried(reproducer.command(values), reproducer.folder)
    program = reproducer.program.name
    for source in (reproducer.program, *reproducer.shared):
        write_whole(folder / source.name, source.read_text())
    command = shlex.join(reproducer.command(values | {"file": INPUT_FILE}))
    return shown | {
        "program": program,
        "command": _without_folder(command),
        "trial": _without_folders(trial, folder, reproducer),
        # The output of a program must not end the block that shows it.
        "fence": max([FENCE, *(f"{run}`" for run in _BACKTICKS.findall(trial.output))], key=len),
    }


def _reproducer(testee: Testee | None, case: Case, kind: str) -> Reproducer | None:
    if testee is None:
        return None
    if case.operation == DECODE and case.role == "consumer":
        return testee.reproducers.get("records")
    if case.operation == DECODE_MESSAGE and kind:
        return testee.reproducers.get("messages")
    return None


def _message(name: str) -> tuple[str, int | None]:
    """``request`` or ``response``, and the API key; an empty text for anything else, such as a header."""
    from kfuzz.messages.catalogues import catalogue

    definition = catalogue().messages.get(name) if name else None
    if definition is None or definition.api_key is None or definition.kind not in ("request", "response"):
        return "", None
    return definition.kind, definition.api_key


def _expected(case: Case) -> str:
    """The behaviour of a right implementation with the bytes."""
    expectation = case.expectation
    if expectation.get("verdict") == "invalid":
        at = f" at byte {expectation['at']}" if "at" in expectation else ""
        finding = expectation["finding"].replace("-", " ")
        return f"A reader refuses the bytes with an error that callers can handle: {finding}{at}."
    batches = expectation.get("batches")
    read = ""
    if batches is not None:
        records = sum(len(batch.get("records", ())) for batch in batches)
        words = f"{counted(len(batches), 'batch', 'batches')} with {counted(records, 'record')}"
        read = f" A reader that accepts them gets {words}."
    may = " A reader may refuse them." if expectation.get("verdict") == "acceptable" else ""
    return f"The bytes are {expectation.get('verdict', 'valid')}.{may}{read}"


def _requirement(one: Mapping[str, Any], documents: Mapping[str, str]) -> dict[str, Any]:
    sources = [f"{documents[spec['document']]}, {spec['place']}" for spec in one.get("spec", ())]
    return {"text": one["text"], "sources": sources or [one["id"]]}


def _links(run: Run, cause: Cause) -> list[str]:
    """The links in the reasons of the cause's expected outcomes."""
    standings = next(one.standings for one in run.testees if one.label == cause.smallest.implementation)
    keys = {(one.input, one.role) for one in cause.deviations}
    reasons = [standing.reason for key, standing in standings.items() if tuple(key) in keys]
    return list(dict.fromkeys(link for reason in reasons for link in _LINK.findall(reason)))


def _dump(data: bytes) -> str:
    """The bytes in hex, with the offset of each line."""
    starts = range(0, len(data), DUMP_BYTES_PER_LINE)
    return "\n".join(f"{start:06x}  {data[start : start + DUMP_BYTES_PER_LINE].hex(' ')}" for start in starts)


def _sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _without_folders(trial: Trial, folder: Path, reproducer: Reproducer) -> Trial:
    """The output, without the paths of this machine."""
    output = trial.output
    places = [folder.absolute(), reproducer.folder.absolute()]
    # In a container, a user may have no home directory.
    with contextlib.suppress(RuntimeError):
        places.append(Path.home())
    for place in places:
        output = output.replace(f"{place}/", "")
    return Trial(trial.end, output)


def _without_folder(command: str) -> str:
    """The command with its program's name only."""
    program, space, rest = command.partition(" ")
    return Path(program).name + space + rest


def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kfuzz.conformance.report", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # A text of a testee stays on its line, and does not reorder the text around it.
        finalize=lambda value: "\n".join(map(printable, value.split("\n"))) if type(value) is str else value,
    )
    return environment.get_template("disclosure.md.j2")
