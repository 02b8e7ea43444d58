"""The known testees: reads ``testees/<name>/testee.toml``, checks which testees can run here, builds outdated ones.

testees/README.md documents the file's format. A testee whose toolchain is missing is left out, with a sentence.
"""

from __future__ import annotations

import difflib
import importlib.util
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

from kfuzz import __version__
from kfuzz.conformance.protocol.building import BuildFailed, run_build, sources
from kfuzz.conformance.protocol.versions import TEXTS, WORDS, Recipe, build_version, recipe_for
from kfuzz.documents import TOML_BYTES_MAX, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import locked, read_bytes
from kfuzz.forms import BOOLEAN, TEXT, ListOf, Object, Wrong, choice, table_of
from kfuzz.kafka import RELEASES, major_of

# A testee of this repository may have to start a Java virtual machine on a busy computer. A silent --command is more
# likely a testee under development that prints no handshake at all.
START_TIMEOUT_MS: Final = 60_000
COMMAND_START_TIMEOUT_MS: Final = 10_000
# This version in testee.toml stands for one testee per Kafka release that kfuzz knows.
KAFKA_RELEASES: Final = "{kafka}"
# Which vectors a testee is asked in the usual run; CHOSEN are those of kfuzz.conformance.judge.choice.
ALL: Final = "all"
CHOSEN: Final = "chosen"
# A testee is a decoder by itself, or a whole client that reads and writes as its users make it. In reports, each kind
# has a heading.
DECODER: Final = "decoder"
CLIENT: Final = "client"
TESTEE_KINDS: Final = {DECODER: "decoders", CLIENT: "whole clients"}


@dataclass(frozen=True, slots=True)
class Reproducer:
    """A short program that decodes a file with a library, as a user of the library would.

    ``program`` is its source, and ``shared`` the sources that it shares with other programs. ``run`` starts it in
    ``folder``; ``command`` fills its placeholders.
    """

    program: Path
    shared: tuple[Path, ...]
    run: tuple[str, ...]
    build: tuple[str, ...]
    folder: Path

    def make_ready(self) -> None:
        """Build the program; raises ``BuildFailed``."""
        if self.build:
            with locked(self.folder.parent):
                run_build(self.build, self.folder)

    def command(self, values: Mapping[str, str]) -> list[str]:
        """The command that decodes a file; ``values`` has a text for each placeholder."""
        return [_replaced(word, {f"{{{name}}}": value for name, value in values.items()}) for word in self.run]


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """How the fuzzer gets the library of a testee in Python.

    ``distribution`` is pip's name for it. If it is ``compiled``, its modules are compiled again for the fuzzer.
    """

    distribution: Annotated[str, TEXT]
    compiled: Annotated[bool, BOOLEAN]


@dataclass(frozen=True, slots=True)
class Testee:
    """One version of one implementation, and how to start it."""

    # pytest must not collect this as a test class because of its name.
    __test__ = False

    name: str
    version: str
    argv: tuple[str, ...]
    folder: Path | None = None
    # Programs that must be on the PATH, and modules that this interpreter must have.
    requires: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    product: Path | None = None
    # A folder that testees of one language share; its sources are part of the build.
    kit: Path | None = None
    language: str = ""
    # ALL or CHOSEN.
    vectors: str = ALL
    # One of TESTEE_KINDS; the name of the library, whose other testees show the same causes; and sentences about the
    # steps that the testee does in the library's place, with the reason for each.
    kind: str = DECODER
    of: str = ""
    own: tuple[str, ...] = ()
    start_timeout_ms: int = START_TIMEOUT_MS
    # By the kind of vectors that they decode: "records" or "messages".
    reproducers: Mapping[str, Reproducer] = field(default_factory=dict, hash=False)
    # The library as its package manager knows it, if the testee can be built with a working copy of it.
    library: str = ""
    # For a testee with a working copy: the testee with the pinned version, and what must be done before the build.
    pinned: Testee | None = None
    # How `kfuzz fuzz --peer` gets the library; None if it cannot.
    fuzzed: Fuzzed | None = None
    prepare: Callable[[], None] | None = field(default=None, compare=False)
    # How it is built with other versions of its library, those for the oldest first.
    recipes: tuple[Recipe, ...] = ()
    # False for such a version: kfuzz has no expected outcomes of it.
    is_pinned: bool = True

    @property
    def label(self) -> str:
        """``name@version``, or just the name if only the testee itself knows its version."""
        return f"{self.name}@{self.version}" if self.version else self.name

    def missing(self) -> str | None:
        """A sentence that says why the testee cannot run here; None if it can."""
        absent = [program for program in self.requires if not shutil.which(program)]
        absent += [f"the Python module {name}" for name in self.modules if not importlib.util.find_spec(name)]
        return f"{self.label} is left out: it needs {' and '.join(absent)}" if absent else None

    def make_ready(self) -> None:
        """Build the testee if its sources are newer than its product; raises ``BuildFailed``.

        One build runs at a time under a root, because Maven's builds share a folder of downloads.
        """
        if self.prepare:
            self.prepare()
        if not self.build:
            return
        assert self.folder
        # Check under the lock: another process that builds may have written part of the product already.
        with locked(self.folder.parent):
            if not self._is_built():
                self._build()

    def _build(self) -> None:
        assert self.folder
        run_build(self.build, self.folder)
        if self.product:
            if not self.product.exists():
                raise BuildFailed(f"`{shlex.join(self.build)}` succeeded, but did not make {self.product}")
            # Build tools do not rewrite an up-to-date product. Its new time says that we checked.
            self.product.touch()

    def _is_built(self) -> bool:
        if not self.product or not self.product.exists():
            return False
        assert self.folder
        folders = [self.folder, *([self.kit] if self.kit else [])]
        return all(
            file.stat().st_mtime <= self.product.stat().st_mtime for folder in folders for file in sources(folder)
        )


# --- the known testees ----------------------------------------------------------------------------------------------


def own() -> Testee:
    """kfuzz's own decoder, judged like any other."""
    # With -P, a file `kfuzz.py` in the current folder is not run in its place.
    return Testee("kfuzz", __version__, (sys.executable, "-P", "-m", "kfuzz.cli.main", "testee"))


def from_command(command: str, option: str = "--command") -> Testee:
    """The testee that a command line starts; ``UsageError`` if the command is empty, badly quoted or no program."""
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"{option} {command!r}: {error}; correct the quotes") from None
    if not argv:
        raise UsageError(f"{option} is empty; give the command that starts the testee")
    if not shutil.which(argv[0]):
        raise UsageError(f"{option}: {argv[0]!r} is not a program on this machine; check the path")
    return Testee(Path(argv[0]).name, "", argv, start_timeout_ms=COMMAND_START_TIMEOUT_MS)


def default_root() -> Path:
    """``testees/`` of the repository. An installed wheel does not have this folder."""
    return Path(__file__).resolve().parents[3] / "testees"


def all_testees(root: Path | None = None) -> tuple[Testee, ...]:
    """kfuzz itself, then every version of every testee under ``root``, in the order of their names and files."""
    root = default_root() if root is None else root
    found = [own()]
    for file in sorted(root.glob("*/testee.toml")):
        found += _load(file)
    return tuple(found)


def build_all() -> None:
    """Build each testee whose toolchain is installed; print a sentence on standard error for each build that fails.

    ``make build`` calls this before anything is installed, so it needs only the standard library.
    """
    for testee in all_testees():
        if not testee.missing():
            try:
                testee.make_ready()
            except BuildFailed as error:
                print(f"{testee.label}: {error}", file=sys.stderr)


def select(testees: Sequence[Testee], names: Sequence[str]) -> tuple[Testee, ...]:
    """The testees with these names (``name`` means all its versions, or ``name@version``).

    ``UsageError`` for an unknown name, or if a testee's toolchain is missing.
    """
    chosen = []
    for name in names:
        fitting = [testee for testee in testees if name in (testee.name, testee.label)] or _built_anew(testees, name)
        if not fitting:
            words = [word for testee in testees for word in dict.fromkeys((testee.label, testee.name))]
            near = difflib.get_close_matches(name, words, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(testee.label for testee in testees)
            raise UsageError(f"no testee {name!r}; {hint}known are {known}")
        for testee in fitting:
            if reason := testee.missing():
                raise UsageError(f"{reason}; install that, or leave out --testee {name}")
            if testee not in chosen:
                chosen.append(testee)
    return tuple(chosen)


def _built_anew(testees: Sequence[Testee], name: str) -> list[Testee]:
    """The testee ``name@version`` of another version than the pinned ones, if it can be built."""
    library, _, version = name.partition("@")
    known = [testee for testee in testees if testee.name == library and testee.recipes]
    if not known or not version:
        return []
    return [_with_version(known[0], version)]


def _with_version(testee: Testee, version: str) -> Testee:
    """The testee with another version of its library, built when :meth:`Testee.make_ready` is called."""
    assert testee.folder
    recipe = recipe_for(testee.recipes, testee.name, version)
    place = testee.folder / "target" / "versions" / version
    folder = place / "testee"

    def words(given: Iterable[str]) -> tuple[str, ...]:
        return tuple(_filled(word, folder, version).replace("{place}", str(place)) for word in given)

    return replace(
        testee,
        version=version,
        argv=words(recipe.run),
        folder=folder,
        requires=(*testee.requires, *recipe.requires),
        modules=(),
        build=(),
        product=None,
        prepare=partial(
            build_version, recipe, place, testee.folder, testee.kit, [words(command) for command in recipe.build]
        ),
        reproducers={},
        library="",
        is_pinned=False,
    )


def chosen(names: Sequence[str], commands: Sequence[str], *, start_timeout_ms: int | None = None) -> tuple[Testee, ...]:
    """The testees with these names and those that these commands start; all known testees if both are empty.

    Each has ``start_timeout_ms`` milliseconds for its handshake; None keeps the testee's own default.
    """
    known = all_testees()
    testees = known
    if names or commands:
        testees = select(known, names) + tuple(from_command(text) for text in commands)
    if start_timeout_ms is None:
        return testees
    return tuple(replace(testee, start_timeout_ms=start_timeout_ms) for testee in testees)


def only(names: Sequence[str], commands: Sequence[str], *, default: str, start_timeout_ms: int | None = None) -> Testee:
    """The one testee that ``names`` and ``commands`` choose, or ``default``; ``UsageError`` if they choose several."""
    testees = chosen(names or (() if commands else (default,)), commands, start_timeout_ms=start_timeout_ms)
    if len(testees) != 1:
        labels = ", ".join(testee.label for testee in testees)
        raise UsageError(f"a differential needs one testee, but these are {labels}; name one with its version")
    return testees[0]


_PROGRAM: Final = Object({"program": TEXT, "shared": TEXTS, "build": TEXTS, "run": TEXTS}, ("program", "run"))
_VERSION: Final = Object({"version": TEXT, "build": WORDS, "product": TEXT, "run": WORDS}, ("run",))
# The form of testee.toml.
_FORM: Final = Object(
    {
        "name": TEXT,
        "language": TEXT,
        "requires": TEXTS,
        "modules": TEXTS,
        "kit": TEXT,
        "library": TEXT,
        "vectors": choice(ALL, CHOSEN),
        "kind": choice(*TESTEE_KINDS),
        "of": TEXT,
        "own": ListOf(TEXT, "give a list of sentences"),
        "versions": ListOf(_VERSION),
        "reproduce": Object({"records": _PROGRAM, "messages": _PROGRAM}),
        "fuzz": table_of(Fuzzed),
        "any": ListOf(table_of(Recipe)),
    },
    ("name", "versions"),
)


def _load(file: Path) -> Iterator[Testee]:
    document = load_toml(read_bytes(file, bytes_max=TOML_BYTES_MAX), str(file), remedy="correct it")
    try:
        _FORM.check(document)
    except Wrong as wrong:
        raise UsageError(f"{wrong.sentence(str(file))}; see testees/README.md") from None
    made = _FORM.make(document)
    for entry in made["versions"]:
        version = entry.get("version", "")
        for release in reversed(RELEASES) if version == KAFKA_RELEASES else (version,):
            yield _version(file.parent, made, entry, release)


def _version(folder: Path, made: Mapping[str, Any], entry: Mapping[str, Any], version: str) -> Testee:
    def filled(words: Iterable[str]) -> tuple[str, ...]:
        return tuple(_filled(word, folder, version) for word in words)

    product = entry.get("product")
    same = ("language", "requires", "modules", "library", "vectors", "kind", "own")
    return Testee(
        name=made["name"],
        version=version,
        argv=filled(entry["run"]),
        folder=folder,
        build=filled(entry.get("build", ())),
        product=folder / _filled(product, folder, version) if product else None,
        kit=folder / made["kit"] if "kit" in made else None,
        reproducers={kind: _reproducer(one, folder, version) for kind, one in made.get("reproduce", {}).items()},
        of=made.get("of", made["name"]),
        fuzzed=made.get("fuzz"),
        recipes=made.get("any", ()),
        **{name: made[name] for name in same if name in made},
    )


def _reproducer(made: Mapping[str, Any], folder: Path, release: str) -> Reproducer:
    # Here {version} is a message's version, so the testee's own version is {release}.
    values = {"{release}": release, "{python}": sys.executable, "{folder}": str(folder)}
    run, build = (tuple(_replaced(word, values) for word in made.get(name, ())) for name in ("run", "build"))
    return Reproducer(
        folder / made["program"], tuple(folder / one for one in made.get("shared", ())), run, build, folder
    )


def _filled(word: str, folder: Path, version: str) -> str:
    """The word with a value for each placeholder that a testee's commands may have."""
    values = {"{version}": version, "{major}": major_of(version), "{python}": sys.executable, "{folder}": str(folder)}
    return _replaced(word, values)


def _replaced(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
