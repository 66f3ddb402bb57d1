"""The modules of the package and what they import; `test_house.py` checks the imports by the rules of `design.md`."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent / "src" / "rope_any"


class Module(NamedTuple):
    """The syntax tree of a module of the package, and the modules of the package that it imports."""

    tree: ast.Module
    at_import: set[str]
    """Modules that are imported when it is imported."""
    deferred: set[str]
    """Modules that its functions import when they are called, or that only type checkers import."""


def imports_of(node: ast.AST, *, deferred: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (full name, whether a function or only a type checker imports it) for all imports of code."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, deferred) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((f"{'.' * node.level}{node.module}.{alias.name}", deferred) for alias in node.names)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for inner in node.body:
            yield from imports_of(inner, deferred=True)
        for inner in node.orelse:
            yield from imports_of(inner, deferred=deferred)
    else:
        for inner in ast.iter_child_nodes(node):
            yield from imports_of(inner, deferred=deferred or isinstance(node, ast.FunctionDef))


def module_of(name: str, known: set[str]) -> str | None:
    """Return the module of the package that contains an imported name, or None for a name of another package."""
    root, *parts = name.split(".")
    if root != ROOT.name:
        return None
    ends = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((module for module in ends if module in known), "__init__")


def modules_from(sources: dict[str, str]) -> dict[str, Module]:
    """Return the modules of a package by name, from their sources."""
    found = {}
    for name, source in sources.items():
        tree = ast.parse(source)
        modules: dict[bool, set[str]] = {False: set(), True: set()}
        for what, deferred in imports_of(tree):
            module = module_of(what, {*sources})
            if module not in {None, name}:
                modules[deferred].add(str(module))
        found[name] = Module(tree, modules[False], modules[True] - modules[False])
    return found


def name_of(path: Path) -> str:
    """Return the name of a module in the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def package() -> dict[str, Module]:
    """Return all modules of the package, by their names in it."""
    return modules_from({name: path.read_text(encoding="utf-8") for name, path in FILES.items()})
