"""The house: imports go down only, libraries are named in two rooms, the public face is documented."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numpydoc.validate import validate

import rope_any as ra

SOURCE = Path(ra.__file__).parent
# Each room may import those above it, no others.
ROOMS = [
    "_array",
    "_parts",
    "_memory",
    "_engines",
    "_compilers",
    "_gradients",
    "_checks",
    "_frequencies",
    "scaling",
    "axes",
    "_pairing",
    "_table",
    "bending",
    "positions",
    "_rotate",
    "_rope",
    "config._models",
    "config._schemes",
    "config._gguf",
    "config._parameters",
    "config._recipe",
    "config",
    "weights",
    "onnx",
    "_safetensors",
    "_files",
    "testing._exact",
    "testing._wrong",
    "testing.vectors",
    "testing._check",
    "testing",
    "plot.looks",
    "plot",
    "__init__",
    "cli._common",
    "cli._configs",
    "cli._inspect",
    "cli._export",
    "cli._plot",
    "cli._rotate",
    "cli._convert",
    "cli._check",
    "cli._verify",
    "cli",
    "__main__",
    "integrations",
    "integrations.transformers",
]
# What a room imports from below it, inside of a function that needs it.
LATER = {"_rope": {"config._parameters", "config._recipe"}}
MATH_ONLY = {"_checks", "_frequencies", "scaling", "axes"}
KNOW_LIBRARIES = {"_array", "_parts", "_memory", "_compilers", "_engines", "_gradients"} | {
    "onnx",
    "integrations.transformers",
}
LIBRARIES = {"torch", "cupy", "jax", "dask", "mlx", "array_api_strict", "ndonnx"}


def imports(tree):
    """Return the full names of the modules that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            if node.module.startswith("rope_any"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward(room, tree):
    """Return the rooms that `room` imports though they don't stand above it."""
    rooms = {name.removeprefix("rope_any.") for name in imports(tree) if name.startswith("rope_any.")}
    return {name for name in rooms & set(ROOMS) - {room} if ROOMS.index(name) > ROOMS.index(room)}


def libraries(tree):
    """Return the array libraries that code (not prose) speaks of."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None
    }
    names = {part for name in imports(tree) for part in name.split(".")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            names.add(node.value)
    return {library for library in LIBRARIES for name in names if library in name.split("_") or library == name}


def room_of(path):
    """Return the name of a room: that of its module, without the package's."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


FILES = {room_of(path): path for path in SOURCE.rglob("*.py")}


def parse(room):
    return ast.parse(FILES[room].read_text(encoding="utf-8"))


def test_every_room_is_known():
    assert set(FILES) == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_go_down_only(room):
    assert upward(room, parse(room)) == LATER.get(room, set())


@pytest.mark.parametrize("room", sorted(set(ROOMS) - KNOW_LIBRARIES))
def test_no_other_room_names_a_library(room):
    assert libraries(parse(room)) == set()


@pytest.mark.parametrize("room", sorted(MATH_ONLY))
def test_host_rooms_import_only_math(room):
    outside = {name for name in imports(parse(room)) if not name.startswith("rope_any")}
    assert outside <= {"math", "collections.abc", "numbers", "typing"}


def test_the_tests_above_can_fail():
    bad = ast.parse("from rope_any._rope import Rope\nimport torch\ndef f(x): return is_jax_array(x)")
    assert upward("_table", bad) == {"_rope"}
    assert libraries(bad) == {"torch", "jax"}


MODULES = {"axes", "bending", "config", "onnx", "plot", "positions", "scaling", "testing", "weights"}


def test_the_public_face():
    assert ra.__all__ == sorted(
        {"BentTable", "Rope", "Table", "__version__", "cos_sin", "frequencies", "rotate"} | MODULES
    )
    assert dir(ra) == ra.__all__
    assert {name for name in MODULES if getattr(ra, name) is not sys.modules[f"rope_any.{name}"]} == set()
    with pytest.raises(AttributeError, match="module 'rope_any' has no attribute 'nobody'"):
        _ = ra.nobody


_PROBE = """
import sys
import numpy as np
import rope_any as ra
q = np.ones((1, 2, 3, 8), dtype=np.float32)
ra.Rope(ra.frequencies(8), pairing="half")(q, q)
{}
print(*sorted(name for name in dir(ra) if f"rope_any.{{name}}" in sys.modules))
"""


@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.parametrize(
    ("more", "loaded"),
    [("", []), ("ra.config", ["axes", "config", "scaling"]), ("from rope_any import weights", ["weights"])],
    ids=["none", "asked for", "imported"],
)
def test_a_public_module_is_loaded_when_it_is_asked_for(more, loaded):
    run = subprocess.run([sys.executable, "-c", _PROBE.format(more)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == loaded


_USER = """
import rope_any as ra
from rope_any import positions

told: tuple[ra.config.Explanation, ...] = ra.config.explain({})
names: list[str] = positions.__all__
wrong: int = ra.config.explain({})
missing = ra.nobody
"""


@pytest.mark.thread_unsafe(reason="starts a process")
def test_a_user_has_the_types_of_public_modules(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "user.py").write_text(_USER.lstrip())
    # without the packages of the environment, which take half a minute to read
    words = ["-m", "mypy", "--strict", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent"]
    run = subprocess.run(
        [sys.executable, *words, "--cache-dir", os.devnull, "user.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r"^user.py:(\d+): error: .*\[(.*)\]$", run.stdout, re.MULTILINE) == [
        ("6", "assignment"),
        ("7", "attr-defined"),
    ]


# No "See also" in so small a house; extended summaries and examples where there is something to say.
UNCHECKED = {"SA01", "ES01", "EX01"}
SCHEMES = [f"{module}.{name}" for module in sorted(MODULES) for name in getattr(ra, module).__all__]
DOCUMENTED = [
    *SCHEMES,
    "frequencies",
    "cos_sin",
    "rotate",
    "Rope",
    "Rope.__call__",
    "Rope.apply",
    "Rope.from_config",
    "Rope.reposition",
    "Rope.table",
    "Table",
    "BentTable",
]
TUPLES = {"Table", "BentTable", "config.Explanation", "config.Fact", "positions.DualChunk", "positions.Far"} | {
    f"testing.{name}" for name in ("Case", "Property", "Report")
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_are_numpydoc(name):
    unchecked = UNCHECKED | ({"PR01"} if name in TUPLES else set())  # their fields say what they are
    faults = [fault for fault in validate(f"rope_any.{name}")["errors"] if fault[0] not in unchecked]
    assert faults == []


def test_the_docstrings_of_the_edges_are_numpydoc():
    pytest.importorskip("torch", reason="torch is not installed")
    faults = validate("rope_any.integrations.transformers.replace")["errors"]
    assert [fault for fault in faults if fault[0] not in UNCHECKED] == []


ALL_OF_THEM = {"__init__", "cli"}  # which import by name, or what they need when they need it


def test_the_design_has_each_room_and_what_it_imports():
    text = (Path(__file__).parent.parent / "docs" / "design.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| file of `src/rope_any/`.*\n\|[- |]*\n((?:\|.*\n)*)", text)
    cells = [[re.findall(r"`([\w/.]+)`", cell) for cell in row.split("|")] for row in table.splitlines()]
    said = {file[0].removesuffix(".py").replace("/", "."): others for _, file, _, others, _ in cells}
    said = {room.removesuffix(".__init__"): [other.replace("/", ".") for other in said[room]] for room in said}
    assert sorted(said) == sorted(ROOMS)
    for room in set(ROOMS) - ALL_OF_THEM:
        beside = FILES[room].parent.relative_to(SOURCE).as_posix().replace("/", ".")
        names = {name for name in imports(parse(room)) if name.startswith("rope_any.")}
        found = {name.removeprefix("rope_any.") for name in names} & set(ROOMS) - {room}
        assert {other if other in ROOMS else f"{beside}.{other}" for other in said[room]} == found, room


def test_every_module_says_what_it_is():
    for room in ROOMS:
        assert ast.get_docstring(parse(room)), room


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
    assert importlib.metadata.version("rope-any") == ra.__version__
