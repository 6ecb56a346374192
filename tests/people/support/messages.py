"""What the program can say, read from its source. ``...`` stands for what is put in."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOLE = "..."
_SAYS: Mapping[str, int] = {"Gap": 1, "Problem": 1, "Situation": 0, "FinishDecision": 1}
"""Which argument is the message; a remedy follows it. A `Situation` without a remedy is progress, and no trouble."""
_NOTES = ("note", "_note", "note_news")


def trees(*places: str) -> list[ast.Module]:
    """Of files, or of all files below folders, in the program."""
    found = []
    for place in places:
        path = ROOT / "migrator" / place
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        found += [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    assert found
    return found


def troubles(tree: ast.Module) -> set[str]:
    """The messages that come with a remedy, as far as the file itself says their words."""
    found: set[str] = set()
    for call, named in _calls(tree):
        at = _SAYS.get(ast.unparse(call.func))
        arguments = [*call.args, *(word.value for word in call.keywords if word.arg in ("what", "remedy"))]
        if at is not None and len(arguments) > at + 1:
            what = next((word.value for word in call.keywords if word.arg == "what"), arguments[at])
            found.update(_texts(what, named))
    return found


def literals(tree: ast.Module) -> set[str]:
    """All texts of a file."""
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))
    return {text for node in strings for text in _texts(node, {})}


def assigned(tree: ast.Module, *targets: str) -> set[str]:
    """The texts that any of these names or attributes gets, without the empty one."""
    named = _assigned(tree)
    return {text for target in targets for value in named.get(target, ()) for text in _texts(value, named)} - {""}


def arguments(tree: ast.Module, function: str) -> set[str]:
    """The texts that a function is called with, first argument."""
    calls = (call for call, _ in _calls(tree) if ast.unparse(call.func) == function and call.args)
    return {text for call in calls for text in _texts(call.args[0], {})}


def refusals(tree: ast.Module) -> set[str]:
    """What guards say in a `GuardAnswer` with a remedy."""
    calls = ((call, named) for call, named in _calls(tree) if ast.unparse(call.func) == "GuardAnswer")
    return {text for call, named in calls if len(call.args) == 3 for text in _texts(call.args[1], named)}


def kinds(tree: ast.Module) -> set[str]:
    """Of what is put into the journal."""
    found = {
        str(call.args[0].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in _NOTES
        and call.args and isinstance(call.args[0], ast.Constant)
    }  # fmt: skip
    named = (values for name, values in _assigned(tree).items() if name.endswith("JOURNAL_KIND"))
    return found.union(*(_texts(value, {}) for values in named for value in values))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, Mapping[str, list[ast.expr]]]]:
    """Those in functions, with what names mean there: the constants of the file, and what the function assigns."""
    constants = {**_imported(tree), **_constants(tree)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            named = {**constants, **_assigned(function)}
            yield from ((node, named) for node in ast.walk(function) if isinstance(node, ast.Call))


def _constants(tree: ast.Module) -> Mapping[str, list[ast.expr]]:
    return _assigned(ast.Module([node for node in tree.body if isinstance(node, ast.Assign)], []))


def _imported(tree: ast.Module) -> Mapping[str, list[ast.expr]]:
    """The constants that a file takes from others of the program."""
    found: dict[str, list[ast.expr]] = {}
    for node in (each for each in tree.body if isinstance(each, ast.ImportFrom)):
        file = ROOT / f"{(node.module or '').replace('.', '/')}.py"
        if file.is_file() and any(alias.name.isupper() for alias in node.names):
            constants = _constants(ast.parse(file.read_text(encoding="utf-8")))
            found |= {alias.name: constants[alias.name] for alias in node.names if alias.name in constants}
    return found


def _assigned(tree: ast.AST) -> Mapping[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found.setdefault(ast.unparse(target), []).append(node.value)
    return found


def _texts(node: ast.expr, named: Mapping[str, list[ast.expr]]) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr():
            pieces = [_pieces(part, named) for part in node.values]
            yield from ("".join(each) for each in itertools.product(*pieces))
        case ast.IfExp():
            yield from _texts(node.body, named)
            yield from _texts(node.orelse, named)
        case ast.Name():
            for value in named.get(node.id, ()):
                yield from _texts(value, named)


def _pieces(part: ast.expr, named: Mapping[str, list[ast.expr]]) -> Sequence[str]:
    """Of a text with holes: a hole may be filled with words that the same file has."""
    if isinstance(part, ast.Constant):
        return [str(part.value)]
    inner = part.value if isinstance(part, ast.FormattedValue) else part
    return (isinstance(inner, ast.Name) and [*_texts(inner, named)]) or [HOLE]
