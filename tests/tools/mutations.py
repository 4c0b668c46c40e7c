"""Find and choose small changes ("mutations") of Python source, as text edits at exact positions."""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
}
EXTREMES = {"min": "max", "max": "min"}
BUILTIN_DEFAULTS = {
    "sorted": {"key", "reverse"},
    "sort": {"key", "reverse"},
    "min": {"key"},
    "max": {"key"},
    "dumps": {"sort_keys", "ensure_ascii"},
}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log", "warn"}
LEAST = 3  # mutations of a folder
ERASING = {"keyword", "delete call", "return", "break/continue"}  # operators that leave nothing of the line

Node = ast.expr | ast.stmt | ast.keyword


@dataclass(frozen=True)
class Mutation:
    """One edit of one file: the bytes from ``start`` to ``end`` become ``text``."""

    path: str
    function: str  # the qualified name, or the name of a module constant
    operator: str
    line: int
    statement: tuple[int, int]  # first and last line of the statement, without its body
    start: int
    end: int
    text: str
    old: str  # the source line before the edit
    new: str  # and after
    is_constant: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identify the mutation independently of line numbers."""
        line = self.old if self.operator in ERASING else self.new
        return (self.path, self.function, self.operator, line)

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def is_valid(self, source: bytes) -> bool:
        """Tell whether the mutated source compiles and is a different program."""
        try:
            tree = ast.parse(self.apply(source))
            compile(tree, "<mutant>", "exec")
        except SyntaxError:
            return False
        return ast.dump(tree) != ast.dump(ast.parse(source))


class Mutator(ast.NodeVisitor):
    """Collect the mutations of one module.

    Only function bodies and upper-case module constants are visited. Annotations, defaults of parameters,
    f-strings, raised errors, log calls, ``__repr__`` and lines marked ``pragma: no cover`` are skipped.
    """

    def __init__(self, path: str, source: bytes, defaults: Mapping[str, set[str]]) -> None:
        self.path = path
        self.source = source
        self.defaults = defaults
        self.found: list[Mutation] = []
        self._lines = source.splitlines(keepends=True)
        self._starts = [0, 0, *itertools.accumulate(map(len, self._lines))]  # of line n, counted from 1
        self._scope: list[str] = []
        self._statement: ast.stmt | None = None
        self._depth = 0  # of functions

    def run(self, tree: ast.Module) -> list[Mutation]:
        """Return the mutations in order of position. A few of them may not compile."""
        self.visit(tree)
        return sorted(
            self.found, key=lambda item: (item.line, item.start, item.end, item.operator, item.text)
        )

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
        elif not self._skips(node):
            outer, self._statement = self._statement, node
            super().visit(node)
            self._statement = outer

    def _skips(self, node: ast.stmt) -> bool:
        if b"pragma: no cover" in self._lines[node.lineno - 1]:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node.name == "__repr__"
        if self._depth == 0:
            return bool(self._scope) or not _is_constant(node)
        return isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal)

    def _visit_all(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self._visit_all(*node.body)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.append(node.name)
        self._depth += 1
        self._visit_all(*node.body)
        self._depth -= 1
        self._scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name that ast calls

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_all(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: most are messages, and Python 3.11 has no positions inside them."""

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip(
            [node.left, *node.comparators], node.ops, node.comparators, strict=False
        ):
            self._between("comparison", left, right, *COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in itertools.pairwise(node.values):
            self._between("and/or", left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        swap = ARITHMETIC.get(type(node.op))
        if swap and not _is_text(node.left) and not _is_text(node.right):
            self._between("arithmetic", node.left, node.right, *swap)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        swap = ARITHMETIC.get(type(node.op))
        if swap and not _is_text(node.value):
            self._between("arithmetic", node.target, node.value, f"{swap[0]}=", f"{swap[1]}=")
        self.visit(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start = self._offset(node.lineno, node.col_offset)
            self._add("not", start, start + len("not "), "(" * self.source[start:].startswith(b"not("))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("bool", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("integer", node, str(node.value + 1))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Keep 0, 1 and -1 as an index or a bound of a slice."""
        self.visit(node.value)
        part = node.slice
        for bound in [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]:
            inner = bound.operand if isinstance(bound, ast.UnaryOp) else bound
            if not (isinstance(inner, ast.Constant) and inner.value in {0, 1}):
                self._visit_all(inner)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value in {None, False}):
            self._replace("return", node.value, "None")
        self._visit_all(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._condition(node.test, "True", "False")
            self._visit_all(node.test, *node.body)
        self._visit_all(*node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test, "True", "False")
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test, "True")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("break/continue", node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("break/continue", node, "break")

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _is_log(call):
            self._replace("delete call", node, "pass", padding="\n")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_log(node):
            return
        name = _called(node)
        if isinstance(node.func, ast.Name) and name in EXTREMES:
            self._replace("min/max", node.func, EXTREMES[name])
        for keyword in node.keywords:
            if keyword.arg in self.defaults.get(name, ()):
                self._replace("keyword", keyword, "**{}")
        self._visit_all(node.func, *node.args[name == "cast" :], *node.keywords)

    def _condition(self, test: ast.expr, *texts: str) -> None:
        if not any(isinstance(node, ast.NamedExpr) for node in ast.walk(test)):  # it binds a name
            for text in texts:
                self._replace("condition", test, text)

    def _between(self, operator: str, left: ast.expr, right: ast.expr, pattern: str, new: str) -> None:
        """Replace an operator, which has no position of its own, between its operands."""
        start = self._offset(left.end_lineno or 0, left.end_col_offset or 0)
        end = self._offset(right.lineno, right.col_offset)
        if match := re.search(pattern.encode(), self.source[start:end]):
            self._add(operator, start + match.start(), start + match.end(), new)

    def _replace(self, operator: str, node: Node, text: str, padding: str = " \\\n") -> None:
        """Replace a node, and keep the number of lines."""
        last = node.end_lineno or node.lineno
        start = self._offset(node.lineno, node.col_offset)
        end = self._offset(last, node.end_col_offset or 0)
        self._add(operator, start, end, text + padding * (last - node.lineno))

    def _add(self, operator: str, start: int, end: int, text: str) -> None:
        statement = self._statement
        assert statement is not None
        line = self.source.count(b"\n", 0, start) + 1
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno or line
        rest = self.source[end:].partition(b"\n")[0]
        new = (self.source[self._starts[line] : start] + text.encode() + rest).partition(b"\n")[0]
        self.found.append(
            Mutation(
                path=self.path,
                function=".".join(self._scope) or _targets(statement)[0],
                operator=operator,
                line=line,
                statement=(min(statement.lineno, line), max(last, line)),
                start=start,
                end=end,
                text=text,
                old=self._lines[line - 1].decode().strip(),
                new=new.decode().strip().removesuffix(" \\"),
                is_constant=self._depth == 0,
            )
        )

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line] + column


def _targets(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id if isinstance(target, ast.Name) else "" for target in targets]


def _is_constant(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and all(name.isupper() for name in _targets(node))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _is_log(node: ast.Call) -> bool:
    owner = ast.unparse(node.func.value).lower() if isinstance(node.func, ast.Attribute) else ""
    return _called(node) in LOG_METHODS and ("log" in owner or "warn" in owner)


def keyword_defaults(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Map the name of each function and class to its parameters that have a default."""
    found = defaultdict(set, {name: set(keywords) for name, keywords in BUILTIN_DEFAULTS.items()})
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] |= _with_default(node.args)
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and item.value:
                    found[node.name] |= {*_targets(item)}
                elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    found[node.name] |= _with_default(item.args)
    return found


def _with_default(arguments: ast.arguments) -> set[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    optional = positional[len(positional) - len(arguments.defaults) :]
    return {item.arg for item in [*optional, *(item for item, default in keywords if default is not None)]}


def folder_of(path: str, packages: Collection[str]) -> str:
    """Return the row of the report for a file: a folder of the main package, or a whole package."""
    package = next(item for item in packages if path.startswith(f"{item}/"))
    folder, _, rest = path.removeprefix(f"{package}/").partition("/")
    return f"{package}/{folder}" if rest and "/" not in package else package


def choose(
    files: Mapping[str, bytes],
    packages: Collection[str],
    count: int,
    chance: random.Random,
    only: Collection[str] = (),
) -> list[Mutation]:
    """Choose mutations for each folder in proportion to its statements, on different lines.

    Args:
        files: Sources by path.
        packages: Folders of the packages.
        count: About how many mutations; each folder gets a few.
        chance: Source of randomness.
        only: Files or folders to choose from. Default: all.
    """
    trees = {path: ast.parse(source) for path, source in sorted(files.items())}
    defaults = keyword_defaults(trees.values())
    sizes: Counter[str] = Counter()
    lines: defaultdict[str, list[list[Mutation]]] = defaultdict(list)
    for path, tree in trees.items():
        if not only or any(f"{path}/".startswith(f"{item.rstrip('/')}/") for item in only):
            folder = folder_of(path, packages)
            sizes[folder] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
            found = Mutator(path, files[path], defaults).run(tree)
            lines[folder] += [
                list(group) for _, group in itertools.groupby(found, key=lambda item: item.line)
            ]
    chosen: list[Mutation] = []
    for folder, candidates in sorted(lines.items()):
        share = max(min(LEAST, count // len(lines)), round(count * sizes[folder] / sizes.total()))
        for line in chance.sample(candidates, len(candidates)):
            if share and (item := _first_valid(chance.sample(line, len(line)), files)):
                chosen.append(item)
                share -= 1
    chance.shuffle(chosen)
    return chosen


def _first_valid(mutations: list[Mutation], files: Mapping[str, bytes]) -> Mutation | None:
    return next((item for item in mutations if item.is_valid(files[item.path])), None)
