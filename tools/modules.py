"""
Print the purpose and the imports of each module of the package as a table: `modules_table.md`.

    python tools/modules.py                                # prints the table
    python tools/modules.py --write                        # and writes modules_table.md

The purpose is the first line of the docstring. `tests/test_house.py` checks the imports by the rules of `design.md`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import making

ROOT = Path(__file__).parent.parent / "src" / "rope_any"
WRITTEN = making.DOCS / "modules_table.md"


class Module(NamedTuple):
    """A module of the package, and the modules of the package that it imports."""

    tree: ast.Module
    now: set[str]
    """Modules that are imported with it."""
    later: set[str]
    """Modules that its functions import when called, or that only type checkers import."""


def imported(node: ast.AST, *, later: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (full name, whether it is imported later than the code itself) for all imports of code."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, later) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((f"{'.' * node.level}{node.module}.{alias.name}", later) for alias in node.names)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for inner in node.body:
            yield from imported(inner, later=True)
        for inner in node.orelse:
            yield from imported(inner, later=later)
    else:
        for inner in ast.iter_child_nodes(node):
            yield from imported(inner, later=later or isinstance(node, ast.FunctionDef))


def inside(name: str, known: set[str]) -> str | None:
    """Return the module of the package that an imported name is in, or None for a name of another package."""
    root, *parts = name.split(".")
    if root != ROOT.name:
        return None
    ends = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((module for module in ends if module in known), "__init__")


def read(sources: dict[str, str]) -> dict[str, Module]:
    """Return modules by their names in the package, from their sources."""
    found = {}
    for name, source in sources.items():
        tree = ast.parse(source)
        modules: dict[bool, set[str]] = {False: set(), True: set()}
        for what, later in imported(tree):
            module = inside(what, {*sources})
            if module not in {None, name}:
                modules[later].add(str(module))
        found[name] = Module(tree, modules[False], modules[True] - modules[False])
    return found


def name_of(path: Path) -> str:
    """Return the name of a module in the package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


FILES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def package() -> dict[str, Module]:
    """Return all modules of the package, by their names in it."""
    return read({name: path.read_text(encoding="utf-8") for name, path in FILES.items()})


def purpose(module: Module) -> str:
    """Return the first line of the docstring of a module."""
    return (ast.get_docstring(module.tree) or "").partition("\n")[0]


def table() -> str:
    """Return the table."""
    rows = [
        "<!-- written by tools/modules.py; run it again rather than edit this file -->",
        "",
        f"| file of `src/{ROOT.name}/` | what it is for | imports from the package | and when it needs them |",
        "| --- | --- | --- | --- |",
    ]
    for name, module in package().items():
        imports = (", ".join(f"`{other.replace('.', '/')}`" for other in sorted(o)) for o in (module.now, module.later))
        file = FILES[name].relative_to(ROOT).as_posix()
        rows.append(f"| `{file}` | {purpose(module).replace('``', '`')} | {' | '.join(imports)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    given = making.parser(__doc__, WRITTEN).parse_args()
    making.show(table(), WRITTEN, write=given.write)
