"""Finds wrong changes of Cython and C code, and builds one copy that holds all of them, each with a switch.

A module takes minutes to compile, so all changes are compiled at once: an expression becomes ``(changed) if
kfuzz_changed(7) else (original)``. A file that the tests' processes map into memory says which change is on, and learns
which ones were reached.
"""

from __future__ import annotations

import io
import json
import re
import struct
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, NamedTuple

from tools.mutants.changes import Change
from tools.mutants.run import MAP_SECONDS, Copy, Result, Test, copies, in_order, spread, test_files

SUFFIXES: Final = (".pyx", ".h")
# The number of the change that is on, then a byte for each change that was reached.
ON: Final = struct.Struct("<q")
CHANGES_MAX: Final = 4096 - ON.size
VARIABLE: Final = "KFUZZ_CHANGES"
# A listed change counts as one that alters no answer if it alters none about so many inputs.
INPUTS: Final = 1_000_000
DIGEST_SECONDS: Final = 600.0
HEADER: Final = "kfuzz/wire/io/changed.h"
SWITCH: Final = f"""\
#ifndef KFUZZ_CHANGED_H
#define KFUZZ_CHANGED_H
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile unsigned char *kfuzz_changes_page(void)
{{
    static unsigned char none[4096];
    const char *name = getenv("{VARIABLE}");
    int file = name ? open(name, O_RDWR) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(none), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return page == MAP_FAILED ? none : page;
}}
static inline int kfuzz_changed(int number)
{{
    static volatile unsigned char *page;
    if (page == NULL)
        page = kfuzz_changes_page();
    page[{ON.size} + number] = 1;
    return *(const volatile long long *) page == number;
}}
#endif
"""
DECLARED: Final = f'cdef extern from "{Path(HEADER).name}" nogil:\n    bint kfuzz_changed(int number) noexcept\n'

OTHERS: Final = {
    **{"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)},
    **{"+": ("-",), "-": ("+",), "*": ("+",), "//": ("*",), "/": ("*",), "%": ("+",), "<<": (">>",), ">>": ("<<",)},
    **{"&": ("|",), "|": ("&",), "^": ("&",), "and": ("or",), "or": ("and",), "&&": ("||",), "||": ("&&",)},
}
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
WORDS: Final = ("and", "or", "&&", "||")
NO_OPERANDS: Final = ("and", "or", "not", "in", "is", "if", "else", "return")
# Texts whose types a switch cannot join, or that are no expressions.
LEFT_OUT: Final = re.compile(r"\b(lambda|yield|await|NULL|sizeof|for|cython)\b|[{}]|\bb?['\"]")
C_TOKEN: Final = re.compile(
    r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+\w*|\d[\w.]*|<<=?|>>=?|[<>=!+\-*/%&|^]=|&&|\|\||->|\+\+|--|[^\s\w]"
)
C_STATEMENT: Final = re.compile(
    r"[ ]+(?:\} else )?"
    r"(?:(?P<test>(?:if|while) \()|return |(?! *(?:static|enum|const struct|for) )[\w \*\[\].>-]+ [-+|&^<]*=+ )"
    r"(?P<value>.+)(?:\)(?: \{)?|;)$"
)


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def changes(path: str, source: str) -> list[Change]:
    """All possible changes of the file. One build can hold one change of each statement."""
    find = _of_cython if path.endswith(".pyx") else _of_c
    return [change for change in find(path, source) if not LEFT_OUT.search(source[change.start : change.end])]


def _of_cython(path: str, source: str) -> Iterator[Change]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    statement: list[tokenize.TokenInfo] = []
    where = _Where()
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT):
                continue
            if token.type != tokenize.NEWLINE:
                statement.append(token)
                continue
            tokens = [_Token(one.string, starts[one.start[0] - 1] + one.start[1], starts[one.end[0] - 1] + one.end[1])
                      for one in statement]  # fmt: skip
            if tokens:
                lines = statement[0].start[0], statement[-1].end[0]
                where.enter(statement[0].start[1], [one.text for one in tokens])
                if where.function:
                    yield from _of_statement(path, source, tokens, lines, where.name)
            statement = []
    except tokenize.TokenError:
        return


class _Where:
    """The class and the function around a statement, by indentation."""

    def __init__(self) -> None:
        self._around: list[tuple[int, str, bool]] = []

    def enter(self, indent: int, words: Sequence[str]) -> None:
        while self._around and self._around[-1][0] >= indent:
            self._around.pop()
        if words[-1] != ":" or words[0] not in ("def", "cdef", "cpdef", "class"):
            return
        if "class" in words[:2]:
            self._around.append((indent, words[words.index("class") + 1], False))
        elif "(" in words:
            self._around.append((indent, words[words.index("(") - 1], True))

    @property
    def function(self) -> bool:
        return bool(self._around) and self._around[-1][2]

    @property
    def name(self) -> str:
        return ".".join(name for _, name, _ in self._around)


def _of_statement(
    path: str, source: str, tokens: Sequence[_Token], lines: tuple[int, int], where: str
) -> Iterator[Change]:
    first = tokens[0].text
    depth, colon, equals, comma = 0, None, None, False
    for i, token in enumerate(tokens):
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth == 0 and token.text == ":" and colon is None:
            colon = i
        if depth == 0 and equals is None and re.fullmatch(r"(?:[-+*/%&|^]|//|<<|>>)?=", token.text):
            equals = i
        comma = comma or (depth == 0 and token.text == ",")

    def made(kind: str, inside: Sequence[_Token], text: str) -> Change:
        return Change(path, source, kind, inside[0].start, inside[-1].end, text, lines, where)

    if first in ("if", "elif", "while") and colon:
        inside = tokens[1:colon]
        yield from (made(kind, inside, text) for kind, text in _variants(source, inside))
        if not any(one.text == ":=" for one in inside):
            yield made("condition", inside, "False")
            if first != "while":
                yield made("condition", inside, "True")
    elif first == "return" and len(tokens) > 1 and not comma:
        yield from (made(kind, tokens[1:], text) for kind, text in _variants(source, tokens[1:]))
    elif equals and not comma and colon is None and first not in ("def", "cpdef", "from", "import", "ctypedef"):
        inside = tokens[equals + 1 :]
        yield from (made(kind, inside, text) for kind, text in _variants(source, inside))
        if first != "cdef" and lines[0] == lines[1]:
            yield made("statement", tokens, "pass")


def _of_c(path: str, source: str) -> Iterator[Change]:
    at, where = 0, ""
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        text = line.rstrip("\n")
        if found := re.match(r"\w.*?(\w+)\(", text):
            where = found[1]
        match = C_STATEMENT.match(text)
        if match and where and not text.endswith("\\") and "//" not in text and "/*" not in text:
            begin = at + match.start("value")
            tokens = [
                _Token(one[0], begin + one.start(), begin + one.end()) for one in C_TOKEN.finditer(match["value"])
            ]
            if _is_whole(tokens):
                span = begin, at + match.end("value")
                for kind, text_of in _variants(source, tokens):
                    yield Change(path, source, kind, *span, text_of, (number, number), where)
                if match["test"]:
                    yield Change(path, source, "condition", *span, "0", (number, number), where)
        at += len(line)


def _is_whole(tokens: Sequence[_Token]) -> bool:
    depth = 0
    for token in tokens:
        depth += (token.text in "([") - (token.text in ")]")
        if (
            depth < 0
            or (depth == 0 and token.text in ",;?:")
            or re.fullmatch(r"[-+*/%&|^]=|=|<<=|>>=|\+\+|--", token.text)
        ):
            return False
    return bool(tokens) and depth == 0


def _variants(source: str, tokens: Sequence[_Token]) -> Iterator[tuple[str, str]]:
    """The kind and the text of each change of an expression."""
    begin, end = tokens[0].start, tokens[-1].end
    is_cast, follows_operand = False, False
    for token in tokens:
        text, others, kind = token.text, tuple[str, ...](), ""
        if is_cast:
            is_cast = text != ">"
        elif text == "<" and not follows_operand:
            is_cast = True
        elif follows_operand and text in OTHERS:
            others = OTHERS[text]
            kind = "comparison" if text in COMPARISONS else "and-or" if text in WORDS else "arithmetic"
        elif text in ("not", "!"):
            others, kind = ("",), "not"
        elif re.fullmatch(r"\d+", text):
            others, kind = (str(int(text) + 1), str(int(text) - 1) if int(text) else "(-1)"), "number"
        for other in others:
            yield kind, source[begin : token.start] + other + source[token.end : end]
        is_operand = bool(re.fullmatch(r"[\w.]+|[)\]]", text)) and text not in NO_OPERANDS
        follows_operand = is_operand and not is_cast


def switched(source: str, changes: Sequence[tuple[int, Change]], *, is_c: bool) -> str:
    """The file with these changes, each after its number, and a switch for each of them."""
    made, at = [], 0
    for number, change in sorted(changes, key=lambda one: one[1].start):
        before = source[change.start : change.end]
        made.append(source[at : change.start])
        if change.kind == "statement":
            made.append(f"if not kfuzz_changed({number}): {before}")
        elif is_c:
            made.append(f"(kfuzz_changed({number}) ? ({change.text}) : ({before}))")
        else:
            made.append(f"(({change.text}) if kfuzz_changed({number}) else ({before}))")
        at = change.end
    text = "".join([*made, source[at:]])
    if is_c:
        return f'#include "{Path(HEADER).name}"\n{text}'
    # After the module's docstring.
    head = re.match(r'(?:#.*\n|\n)*(?:"""(?:.|\n)*?"""\n)?', text)
    assert head is not None
    return text[: head.end()] + DECLARED + text[head.end() :]


def build(root: Path, changes: Sequence[Change], tell: Callable[[str], None]) -> dict[int, Change]:
    """Compile the copy at ``root`` with a switch for each change; those that it was compiled with, by number.

    It drops a change that does not compile, because nobody would commit that.
    """
    kept = dict(enumerate(changes, 1))
    setup = root / "setup.py"
    # A changed expression may be worth a warning.
    setup.write_text(setup.read_text().replace('    "-Werror",\n', ""))
    (root / HEADER).write_text(SWITCH)
    while True:
        by_path: dict[str, list[tuple[int, Change]]] = defaultdict(list)
        for number, change in kept.items():
            by_path[change.path].append((number, change))
        for path in {change.path for change in changes}:
            source = next(change.source for change in changes if change.path == path)
            here = by_path[path]
            (root / path).write_text(switched(source, here, is_c=path.endswith(".h")) if here else source)
        done = subprocess.run(
            [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode == 0:
            return kept
        refused = {
            number
            for path, line in re.findall(r"(kfuzz/[\w/]+\.(?:pyx|h)):(\d+):\d+: (?!.*(?:warning|note))", done.stdout)
            for number, change in by_path.get(path, ())
            if f"kfuzz_changed({number})" in (root / path).read_text().splitlines()[int(line) - 1]
        }
        if not refused:
            raise SystemExit(f"the changed copy does not compile:\n{done.stdout[-4000:]}")
        for number in sorted(refused):
            tell(f"left out, because it does not compile: {kept.pop(number).diff()}")


class Page:
    """The file that tells the processes of a copy which change is on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(4096))

    def turn_on(self, number: int) -> None:
        with self.path.open("r+b") as file:
            file.write(ON.pack(number))

    def reached(self) -> list[int]:
        """The numbers of the changes that were reached since the last call."""
        with self.path.open("r+b") as file:
            found = file.read()[ON.size :]
            file.seek(ON.size)
            file.write(bytes(CHANGES_MAX))
        return [number for number, byte in enumerate(found) if byte]


@contextmanager
def built(
    checkout: Path,
    count: int,
    marks: str,
    changes: Sequence[Change],
    is_listed: Callable[[Change], bool],
    tell: Callable[[str], None],
) -> Iterator[Judge]:
    """``count`` copies, in which all changes are compiled. A change ``is_listed`` if it is said to alter no answer."""
    with copies(checkout, 1, marks) as made:
        first = made.get()
        tell(f"compiling {len(changes)} changes at once (some minutes)")
        kept = build(first.root, changes, tell)
        with copies(first.root, count, marks) as free:
            for _ in range(count):
                copy = free.get()
                page = Page(copy.root / "changes")
                copy.variables = {VARIABLE: str(page.path)}
                free.put(copy)
            listed = {number for number, change in kept.items() if is_listed(change)}
            yield Judge(free, kept, listed, list(_reached(free, checkout, tell)))


def _reached(free: SimpleQueue[Copy], checkout: Path, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    files = test_files(checkout)

    def note(copy: Copy, file: str) -> dict[str, Any]:
        notes = copy.root / "reached.json"
        notes.unlink(missing_ok=True)
        usual = copy.variables
        copy.variables = {**usual, "MUTANTS_REACHED": str(notes)}
        copy.run([file], MAP_SECONDS)
        copy.variables = usual
        document: dict[str, Any] = json.loads(notes.read_text()) if notes.exists() else {"tests": [], "failed": [file]}
        return document

    for i, (file, document) in enumerate(zip(files, spread(free, files, note), strict=True), 1):
        tell(f"recording which changes tests reach: {i} of {len(files)}: {file}")
        yield document


class Judge:
    """Turns changes on, one at a time, and runs the tests that reach them."""

    def __init__(
        self,
        free: SimpleQueue[Copy],
        kept: dict[int, Change],
        listed: set[int],
        documents: Sequence[dict[str, Any]],
    ) -> None:
        self.free, self.kept, self.listed = free, kept, listed
        self._mutex = Lock()
        self._usual: str | None = None
        self.failed = [name for document in documents for name in document["failed"]]
        self._near: dict[int, list[Test]] = defaultdict(list)
        self._module: dict[str, dict[str, float]] = defaultdict(dict)
        for document in documents:
            for name, seconds, numbers in document["tests"]:
                for number in numbers:
                    if number in kept:
                        self._near[number].append((name, seconds))
                        self._module[kept[number].path][name] = seconds

    def results(self) -> Iterator[tuple[Change, Result]]:
        """Each change that was compiled, with its result."""
        for number, result in zip(self.kept, spread(self.free, list(self.kept), self._judge), strict=True):
            yield self.kept[number], result

    def _judge(self, copy: Copy, number: int) -> Result:
        near = self._near[number]
        others = self._module[self.kept[number].path].items() - set(near) if near else set()
        page = Page(Path(copy.variables[VARIABLE]))
        page.turn_on(number)
        try:
            result = copy.ask(in_order(near, others))
            if result.outcome != "survived" or number not in self.listed:
                return result
            changed = _digest(copy)
        finally:
            page.turn_on(0)
        if changed and changed == self._usual_digest(copy):
            return Result("equivalent", f"{INPUTS:,} inputs")
        return Result("survived", f"an answer about {INPUTS:,} inputs")

    def _usual_digest(self, copy: Copy) -> str:
        """The digest without any change, which must be off in this copy. All copies have the same."""
        with self._mutex:
            if self._usual is None:
                self._usual = _digest(copy)
            return self._usual


def _digest(copy: Copy) -> str:
    """The digest of the answers about so many inputs; empty if it does not end well."""
    code, output = copy.python(["-m", "tools.mutants.agreeing", str(INPUTS)], DIGEST_SECONDS)
    return output if code == 0 else ""
