"""Finds small wrong changes for a Python file, and makes them. Imports nothing from kfuzz."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

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
    "kfuzz/fuzz/canary.pyx": "it has a fault on purpose, which only a campaign finds",
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
# Calls whose arguments are types or names.
_OF_TYPES: Final = ("cast", "TypeVar", "get_args", "NewType", "field")
# Expressions that need no brackets in the place of another one.
_SIMPLE: Final = (ast.Name, ast.Constant, ast.Call, ast.Attribute)


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
        first, last = self.lines[0] - 1, self.lines[1]
        return _joined(one[first:last]), _joined(other[first : last + len(other) - len(one)])

    def diff(self) -> str:
        """The changed lines, as a diff shows them."""
        before, after = self.before_and_after()
        return f"{self.path}:{self.lines[0]}\n-{before}\n+{after}"


def _joined(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines)


def sample(
    root: Path,
    count: int,
    seed: int,
    patterns: Sequence[str] = ("*",),
    *,
    suffixes: Sequence[str] = (".py",),
    find: Callable[[str, str], list[Change]] | None = None,
) -> list[Change]:
    """``count`` changes of files of kfuzz, selected by ``seed``, sorted by file and line, with at most one per line.

    ``find`` gives the possible changes of a file whose name ends with one of ``suffixes``; it is :func:`changes`.

    The selection depends on the text of a change, not on its place. So edits of other code and moved files leave most
    of the sample unchanged.
    """
    drawn: list[tuple[float, Change]] = []
    for file in sorted(file for file in (root / "kfuzz").rglob("*") if file.suffix in suffixes):
        path = file.relative_to(root).as_posix()
        if _is(path, EXCLUDED) or not _is(path, patterns):
            continue
        seen: Counter[str] = Counter()
        for change in (find or changes)(path, file.read_text()):
            text = f"{change.where} {change.kind} {change.source[change.start : change.end]} {change.text}"
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
        if place not in chosen and (find or _compiles(change.made())):
            chosen[place] = change
    return sorted(chosen.values(), key=lambda change: (change.path, change.start))


def _is(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def _compiles(source: str) -> bool:
    try:
        compile(source, "changed", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def changes(path: str, source: str) -> list[Change]:
    """All possible changes of the file. A few of them are not valid Python."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = [*source.splitlines(), ""]

    def at(line: int, column_bytes: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column_bytes].decode())

    found = []
    for where, (kind, node, text) in _walk(ast.parse(source), _Where()):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
        if source[start:end] != text:
            span = node.lineno, node.end_lineno
            found.append(Change(path, source, kind, start, end, text, span, ".".join(where.path), where.names))
    return found


class _Where(NamedTuple):
    """The functions and classes around a node, and the names that it gives a value to outside of functions."""

    path: tuple[str, ...] = ()
    in_function: bool = False
    names: tuple[str, ...] = ()


# A kind, the node that is replaced, and its new text.
_Variant = tuple[str, ast.expr | ast.stmt, str]


def _walk(node: ast.AST, where: _Where) -> Iterator[tuple[_Where, _Variant]]:
    """The variants of the node and of all nodes in it, except for types, f-strings, assertions and names."""
    inner: Iterable[ast.AST] = ast.iter_child_nodes(node)
    match node:
        # f-strings are texts, and before Python 3.12 their inner positions are wrong.
        case ast.JoinedStr() | ast.Assert() | ast.Expr(ast.Constant()) | ast.If(ast.Name("TYPE_CHECKING")):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list):
                return
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield from _walk(default, where._replace(names=(node.name,)))
            where, inner = _Where((*where.path, node.name), True), node.body
        case ast.ClassDef():
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                return
            where, inner = where._replace(path=(*where.path, node.name)), node.body
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = tuple(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
            inner = [] if value is None or "__all__" in names or _is_type(value) else [value]
            if not where.in_function:
                where = where._replace(names=names)
        case ast.AugAssign(value=value):
            inner = [value]
        case ast.Delete():
            inner = []
        case ast.Call(ast.Name(name)) if name in _OF_TYPES:
            for keyword in node.keywords:
                yield from _walk(keyword.value, where)
            return
    # Without its assignment a constant is only a name that is missing.
    if where.in_function or not isinstance(node, ast.Assign):
        yield from ((where, variant) for variant in _variants(node))
    for one in inner:
        yield from _walk(one, where)


def _variants(node: ast.AST) -> Iterator[_Variant]:
    """The variants of one node."""
    match node:
        case ast.Assign(targets) if any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets):
            yield "statement", node, "pass"
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Delete() | ast.Break() | ast.Continue() | ast.Return(None):
            yield "statement", node, "pass"
        case ast.Return(value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", node, "return None"
        case ast.AugAssign(target, op, value):
            yield "statement", node, "pass"
            if type(op) in _OPERATORS:
                yield "arithmetic", node, ast.unparse(ast.AugAssign(target, _OPERATORS[type(op)](), value))
        case ast.If(test):
            yield from _decided(test)
        case ast.While(test) if not isinstance(test, ast.Constant):
            # Do not try True: most endless loops only waste time.
            yield "condition", test, "False"
        case ast.comprehension(ifs=ifs):
            for test in ifs:
                yield from _decided(test)
        case ast.IfExp(test, body, orelse):
            yield "choice", node, ast.unparse(ast.IfExp(test, orelse, body))
        case ast.Compare(left, comparisons, others):
            for i, comparison in enumerate(comparisons):
                for turned in _COMPARISONS[type(comparison)]:
                    yield "comparison", node, ast.unparse(ast.Compare(left, _with(comparisons, i, turned()), others))
        case ast.BoolOp(op, values):
            # Brackets are needed: `and` binds tighter than `or`, so the change could affect neighbouring operands.
            other = ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            rests = ([*values[:i], *values[i + 1 :]] for i in range(len(values)))
            for made in (other, *(rest[0] if len(rest) == 1 else ast.BoolOp(op, rest) for rest in rests)):
                yield "and-or", node, f"({ast.unparse(made)})"
        case ast.UnaryOp(ast.Not(), operand):
            is_bare = isinstance(operand, (*_SIMPLE, ast.UnaryOp))
            yield "not", node, ast.unparse(operand) if is_bare else f"({ast.unparse(operand)})"
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS and not _is_text(left):
            yield "arithmetic", node, f"({ast.unparse(ast.BinOp(left, _OPERATORS[type(op)](), right))})"
        case ast.Constant(bool() as value):
            yield "flag", node, str(not value)
        case ast.Constant(int() as value):
            for number in (value + 1, value - 1):
                yield "number", node, f"({number})" if number < 0 else str(number)
        case ast.Slice(lower, upper):
            yield from (("bound", bound, "") for bound in (lower, upper) if bound is not None)
        case ast.Call(function, arguments, keywords):
            if isinstance(function, ast.Name) and function.id in _FUNCTIONS:
                yield "arguments", function, _FUNCTIONS[function.id]
            if not any(isinstance(one, ast.Starred) for one in arguments):
                for i, (one, two) in enumerate(itertools.pairwise(arguments)):
                    if ast.dump(one) != ast.dump(two):
                        swapped = _with(_with(arguments, i, two), i + 1, one)
                        yield "arguments", node, ast.unparse(ast.Call(function, swapped, keywords))


def _decided(test: ast.expr) -> Iterator[_Variant]:
    # Skip conditions that assign a name with `:=`. The name would be missing, and any test would notice that.
    if not any(isinstance(one, ast.NamedExpr) for one in ast.walk(test)):
        yield "condition", test, "True"
        yield "condition", test, "False"


def _with(items: Sequence[Any], at: int, item: Any) -> list[Any]:
    return [*items[:at], item, *items[at + 1 :]]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(value: ast.expr) -> bool:
    """Whether the assigned value is a type: Literal[…], dict[…] or a union of types."""
    match value:
        case ast.Subscript(inner):
            return isinstance(inner, ast.Name | ast.Attribute) and _is_type(inner)
        case ast.BinOp(left, ast.BitOr(), right):
            return _is_type(left) or _is_type(right)
        case ast.Name(name) | ast.Attribute(attr=name):
            return (name[:1].isupper() and not name.isupper()) or name in ("dict", "list", "tuple", "set", "type")
    return False
