"""Finds small wrong changes for a Python file, and makes them. Imports nothing from kfuzz."""

from __future__ import annotations

import ast
import copy
import difflib
import fnmatch
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# Kinds with a higher weight are drawn more often. Mistakes in decisions are more common than in numbers or statements.
WEIGHTS: Final = {
    "comparison": 4,
    "condition": 3,
    "and-or": 4,
    "not": 4,
    "arithmetic": 3,
    "number": 2,
    "flag": 2,
    "statement": 2,
    "return": 1,
    "arguments": 1,
    "choice": 2,
    "bound": 3,
}

# Data files that are left out, each with the check that notices a change in it.
EXCLUDED: Final = {
    "kfuzz/vectors/recipes/themes/*": "every byte that a theme makes is compared with the committed vectors",
}

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Change:
    """One wrong change: in ``path``, which holds ``source``, characters ``start`` to ``end`` become ``text``.

    ``lines`` are the first and the last changed line. ``where`` is the function or class around it, or "" for the
    module. For a change outside of functions, ``names`` are the constants or fields whose value changes.
    """

    path: str
    source: str = field(repr=False)
    kind: str
    start: int
    end: int
    text: str
    lines: tuple[int, int]
    where: str
    names: tuple[str, ...] = ()

    def made(self) -> str:
        """The text of the whole file after the change."""
        return self.source[: self.start] + self.text + self.source[self.end :]

    def before_and_after(self) -> tuple[str, str]:
        """The changed lines before and after, without indentation."""
        one, other = self.source.splitlines(), self.made().splitlines()
        changed = [
            block for block in difflib.SequenceMatcher(None, one, other, False).get_opcodes() if block[0] != "equal"
        ]
        first, last = changed[0], changed[-1]
        return _joined(one[first[1] : last[2]]), _joined(other[first[3] : last[4]])

    def diff(self) -> str:
        """A unified diff with one line of context."""
        lines = difflib.unified_diff(
            self.source.splitlines(), self.made().splitlines(), self.path, self.path, n=1, lineterm=""
        )
        return "\n".join(lines)


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)


def modules(root: Path) -> list[str]:
    """The Python files of kfuzz that may be changed, as paths from ``root``."""
    found = sorted(file.relative_to(root).as_posix() for file in (root / "kfuzz").rglob("*.py"))
    return [path for path in found if not _is(path, EXCLUDED)]


def _is(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def sample(root: Path, count: int, seed: int, patterns: Sequence[str] = ()) -> list[Change]:
    """``count`` changes selected by ``seed``, sorted by file and line, with at most one per line.

    The selection depends on the text of a change, not on its place. So edits of other code and moved files leave most
    of the sample unchanged.
    """
    drawn: list[tuple[float, Change]] = []
    for path in modules(root):
        if patterns and not _is(path, patterns):
            continue
        source = (root / path).read_text()
        seen: Counter[str] = Counter()
        for change in changes(path, source):
            text = f"{change.where} {change.kind} {source[change.start : change.end]} {change.text}"
            seen[text] += 1
            digest = hashlib.sha256(f"{seed} {text} {seen[text]}".encode()).digest()
            uniform = (int.from_bytes(digest[:6], "big") + 1) / 2**48
            # Taking the largest keys gives a weighted sample without repetition.
            drawn.append((uniform ** (1 / WEIGHTS[change.kind]), change))
    chosen: dict[tuple[str, int], Change] = {}
    for _, change in sorted(drawn, key=lambda one: (-one[0], one[1].path, one[1].start)):
        if len(chosen) == count:
            break
        place = change.path, change.lines[0]
        # Nobody would commit a change that Python itself refuses.
        if place not in chosen and _compiles(change.made()):
            chosen[place] = change
    return sorted(chosen.values(), key=lambda change: (change.path, change.start))


def changes(path: str, source: str) -> list[Change]:
    """All possible changes of the file. A few of them are not valid Python."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def _compiles(source: str) -> bool:
    try:
        compile(source, "changed", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.found: list[Change] = []
        self.where: list[str] = []
        self.in_function = 0
        self.names: tuple[str, ...] = ()
        self.source = source
        self.line_starts = [0]
        for line in source.splitlines(keepends=True):
            self.line_starts.append(self.line_starts[-1] + len(line))
        self.lines = source.splitlines()

    # -- places

    def at(self, line: int, column_bytes: int) -> int:
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        return self.line_starts[line - 1] + len(text.encode()[:column_bytes].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def add(self, kind: str, node: ast.expr | ast.stmt, text: str) -> None:
        start, end = self.span(node)
        if self.source[start:end] == text:
            return
        assert node.end_lineno is not None
        lines = (node.lineno, node.end_lineno)
        names = () if self.in_function else self.names
        self.found.append(Change(self.path, self.source, kind, start, end, text, lines, ".".join(self.where), names))

    def replace(self, kind: str, node: ast.expr, make: Callable[[ast.expr], ast.expr]) -> None:
        """Replace ``node`` by what ``make`` returns for a copy of it."""
        made = make(copy.deepcopy(node))
        text = ast.unparse(made)
        if type(made) is not type(node) and not isinstance(made, ast.Name | ast.Constant | ast.Call | ast.Attribute):
            text = f"({text})"
        self.add(kind, node, text)

    # -- code that is skipped

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list):
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.names = (node.name,)
                self.visit(default)
        self.where.append(node.name)
        self.in_function += 1
        self.body(node.body)
        self.in_function -= 1
        self.where.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return
        self.where.append(node.name)
        self.body(node.body)
        self.where.pop()

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assigned([node.target], node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self.in_function and any(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
            self.drop(node)
        self.assigned(node.targets, node.value)

    def assigned(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        names = [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
        if "__all__" in names or _is_type(value):
            return
        if not self.in_function:
            self.names = tuple(names)
        self.visit(value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: they are texts, and before Python 3.12 their inner positions are wrong."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions: removing one changes no behaviour."""

    # -- statements

    def drop(self, node: ast.stmt) -> None:
        self.add("statement", node, "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self.drop(node)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.drop(node)
        other = _OPERATORS.get(type(node.op))
        if other:
            made = copy.deepcopy(node)
            made.op = other()
            self.add("arithmetic", node, ast.unparse(made))
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.drop(node)
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self.drop(node)

    def visit_Break(self, node: ast.Break) -> None:
        self.drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.drop(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self.drop(node)
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.add("return", node, "return None")
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.condition(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        # Do not try True: most endless loops only waste time.
        if not isinstance(node.test, ast.Constant):
            self.add("condition", node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        def swapped(made: ast.expr) -> ast.expr:
            assert isinstance(made, ast.IfExp)
            made.body, made.orelse = made.orelse, made.body
            return made

        self.replace("choice", node, swapped)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for one in node.ifs:
            self.condition(one)
        self.generic_visit(node)

    def condition(self, test: ast.expr) -> None:
        # Skip conditions that assign a name with `:=`. The name would be missing, and any test would notice that.
        if not any(isinstance(one, ast.NamedExpr) for one in ast.walk(test)):
            for value in ("True", "False"):
                self.add("condition", test, value)

    # -- expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:

                def compared(made: ast.expr, i: int = i, other: type[ast.cmpop] = other) -> ast.expr:
                    assert isinstance(made, ast.Compare)
                    made.ops[i] = other()
                    return made

                self.replace("comparison", node, compared)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        def turned(made: ast.expr) -> ast.expr:
            assert isinstance(made, ast.BoolOp)
            made.op = ast.Or() if isinstance(made.op, ast.And) else ast.And()
            return made

        # Brackets are needed: `and` binds tighter than `or`, so the change could affect neighbouring operands.
        self.add("and-or", node, f"({ast.unparse(turned(copy.deepcopy(node)))})")
        for i in range(len(node.values)):
            kept = [copy.deepcopy(value) for j, value in enumerate(node.values) if j != i]
            made = kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
            self.add("and-or", node, f"({ast.unparse(made)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.replace("not", node, lambda made: made.operand if isinstance(made, ast.UnaryOp) else made)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _OPERATORS.get(type(node.op))
        is_text = isinstance(node.left, ast.JoinedStr) or (
            isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
        )
        if other and not is_text:
            made = copy.deepcopy(node)
            made.op = other()
            self.add("arithmetic", node, f"({ast.unparse(made)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add("flag", node, str(not value))
        elif isinstance(value, int):
            for step in (1, -1):
                text = str(value + step)
                self.add("number", node, f"({text})" if value + step < 0 else text)

    def visit_Slice(self, node: ast.Slice) -> None:
        for name in ("lower", "upper"):
            bound = getattr(node, name)
            if bound is not None:
                self.add("bound", bound, "")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("cast", "TypeVar", "get_args", "NewType", "field"):
            for keyword in node.keywords:
                self.visit(keyword.value)
            return
        if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
            self.add("arguments", node.func, _FUNCTIONS[node.func.id])
        if not any(isinstance(one, ast.Starred) for one in node.args):
            for i in range(len(node.args) - 1):
                if ast.dump(node.args[i]) == ast.dump(node.args[i + 1]):
                    continue

                def swapped(made: ast.expr, i: int = i) -> ast.expr:
                    assert isinstance(made, ast.Call)
                    made.args[i], made.args[i + 1] = made.args[i + 1], made.args[i]
                    return made

                self.replace("arguments", node, swapped)
        self.generic_visit(node)


def _is_type(value: ast.expr) -> bool:
    """Whether the assigned value is a type: Literal[…], dict[…] or a union of types."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.value, ast.Name | ast.Attribute) and _is_type_name(value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _is_type(value.left) or _is_type(value.right)
    return isinstance(value, ast.Name) and _is_type_name(value)


def _is_type_name(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return (name[:1].isupper() and not name.isupper()) or name in ("dict", "list", "tuple", "set", "type")
