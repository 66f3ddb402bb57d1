"""Architecture rules: imports have no cycles, few modules name libraries, public names are documented."""

import ast
import importlib
import os
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import modules
import pytest
import typical_calls
from numpydoc.validate import validate

import rope_any as ra

SOURCE = Path(ra.__file__).parent
PACKAGE = modules.package()


def is_array_module(name):
    """Whether a module is in the folder of libraries."""
    return name.split(".")[0] == "_arrays"


# --- imports ----------------------------------------------------------------------------------------------

CORE = {"_align", "_checks", "_frequencies", "_pairing", "_positions", "_rope", "_rotate", "_schedules", "_table"}
OUTER = {"__init__", "__main__", "cli", "config", "integrations", "onnx", "plot", "testing"}
HOST = {"_checks", "_frequencies", "axes", "scaling"}


def graph(package):
    """Return the imports of each module, deferred ones too, except that of config in `Rope.from_config`."""
    return {
        name: module.at_import
        | {other for other in module.deferred if (name, other.split(".")[0]) != ("_rope", "config")}
        for name, module in package.items()
    }


def cycle(package):
    """Return modules that import each other in a circle, or None."""
    try:
        TopologicalSorter(graph(package)).prepare()
    except CycleError as error:
        return error.args[1]


def reachable(package, names):
    """Return modules and all that they import, directly or not."""
    imports, found, new = graph(package), set(), {*names}
    while new:
        found |= new
        new = {other for name in new for other in imports[name]} - found
    return found


def core_in(package):
    """Return the core modules of a package."""
    return {name for name in package if name in CORE or is_array_module(name)}


def outer_in(names):
    """Return the names that are modules outside of the core."""
    return {name for name in names if name.split(".")[0] in OUTER}


def test_imports_have_no_cycle():
    assert cycle(PACKAGE) is None


def test_the_core_does_not_import_outer_modules():
    assert len(core_in(PACKAGE)) >= 8
    assert outer_in(reachable(PACKAGE, core_in(PACKAGE))) == set()


def imports_outside_host(package, name):
    """Return what a module of HOST imports besides mathematics and other modules of HOST."""
    names = {what for what, _ in modules.imports_of(package[name].tree)}
    allowed = {
        "collections",
        "dataclasses",
        "functools",
        "inspect",
        "math",
        "numbers",
        "rope_any",
        "statistics",
        "typing",
    }
    others = {what for what in names if what.split(".")[0] not in allowed}
    return others | (package[name].at_import | package[name].deferred) - HOST


@pytest.mark.parametrize("name", sorted(HOST))
def test_modules_of_host_numbers_import_only_mathematics(name):
    assert imports_outside_host(PACKAGE, name) == set()


def test_import_checks_detect_violations():
    base = {"_table": "import math", "config": "from rope_any._rope import Rope", "__init__": "", "axes": ""}
    rope = "from rope_any import _table\ndef from_config():\n    from rope_any.config import read"
    allowed = modules.modules_from(base | {"_rope": rope})
    assert allowed["_rope"] == (allowed["_rope"].tree, {"_table"}, {"config"})
    assert cycle(allowed) is None and outer_in(reachable(allowed, core_in(allowed))) == set()
    cyclic = modules.modules_from(base | {"_rope": rope, "_table": "def f():\n    from rope_any._rope import Rope"})
    assert {*cycle(cyclic)} == {"_table", "_rope"}
    early = modules.modules_from(base | {"_rope": "from rope_any.config import read"})
    assert {*cycle(early)} == {"_rope", "config"}
    assert outer_in(reachable(early, core_in(early))) == {"config"}
    package = modules.modules_from(base | {"axes": "import rope_any\nfrom rope_any import _table\nfrom os import path"})
    assert imports_outside_host(package, "axes") == {"__init__", "_table", "os.path"}


# --- the names of libraries -------------------------------------------------------------------------------

FILES = {name.removeprefix("_arrays.") for name in PACKAGE if re.fullmatch(r"_arrays\.[a-z]\w*", name)}
LIBRARIES = FILES - {"numpy"} | {"numba"}
# Modules that use NumPy on the host, for files, figures and checks.
NUMPY = {"_safetensors", "cli", "plot", "testing"}


def names_libraries(name):
    """Whether a module may name array libraries."""
    return is_array_module(name) or name.split(".")[0] in {"onnx", "integrations"}


def is_in(library, name):
    """Whether a module is named after a library."""
    return re.search(rf"(^|[._]){library}([._]|$)", name) is not None


def libraries(tree, known=LIBRARIES):
    """
    Return the libraries that code imports or tests for.

    A string with the name of a library counts as a test if it is compared, looked up or an argument, else as data.
    """
    found = {what.split(".")[0] for what, _ in modules.imports_of(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        is_type = isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"
        tested = [node] if isinstance(node, ast.Compare | ast.Subscript | ast.match_case) and not is_type else []
        tested += [*node.args, *(keyword.value for keyword in node.keywords)] if isinstance(node, ast.Call) else []
        texts = (text for part in tested for text in ast.walk(part) if isinstance(text, ast.Constant))
        found |= {text.value for text in texts if isinstance(text.value, str)}
    return {one for one in found if one == "__module__" or any(is_in(library, one) for library in known)}


@pytest.mark.parametrize("name", sorted(name for name in PACKAGE if not names_libraries(name)))
def test_only_array_modules_name_a_library(name):
    known = LIBRARIES if name.split(".")[0] in NUMPY else LIBRARIES | {"numpy"}
    assert libraries(PACKAGE[name].tree, known) == set()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import torch.nn", {"torch"}),
        ("def f():\n    from jax import numpy as jnp", {"jax"}),
        ("if is_torch(x): pass", {"is_torch"}),
        ("_array.is_jax_array(x)", {"is_jax_array"}),
        ("is_array_api_strict(x)", {"is_array_api_strict"}),
        ("type(x).__module__ in names", {"__module__"}),
        ("library(x) in {'mlx', 'torch'}", {"mlx", "torch"}),
        ("module.startswith('torch.distributed')", {"torch.distributed"}),
        ("sys.modules['cupy']", {"cupy"}),
        ("match name:\n    case 'dask': pass", {"dask"}),
        ("import numpy", set()),
        ("LAYOUTS = {'torch': 'bshd', 'jax': ('bhsd',)}", set()),
        ("Engine: TypeAlias = Literal['torch', 'mlx']", set()),
        ("'''Of torch.'''\nraise ValueError('an array of torch')", set()),
    ],
)
def test_each_test_for_a_library_is_detected(code, found):
    assert libraries(ast.parse(code)) == found


# --- docstrings and tables --------------------------------------------------------------------------------


def undocumented(tree):
    """Return the names of functions and classes, nested ones too, without docstring, except special methods."""
    defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))
    overloads = {"overload"}
    return [
        node.name
        for node in defined
        if not ast.get_docstring(node)
        and not re.fullmatch("__.*__", node.name)
        and not overloads & {getattr(decorator, "id", None) for decorator in node.decorator_list}
    ]


@pytest.mark.parametrize("name", sorted(PACKAGE))
def test_each_function_has_a_docstring(name):
    assert undocumented(PACKAGE[name].tree) == []


def test_a_missing_docstring_is_found():
    source = "class A:\n    def f(self):\n        'One.'\n        def g():\n            return 1"
    assert undocumented(ast.parse(source)) == ["A", "g"]


@pytest.mark.parametrize("name", PACKAGE)
def test_each_module_has_a_one_line_docstring(name):
    first, _, rest = (ast.get_docstring(PACKAGE[name].tree) or "").partition("\n")
    assert first.endswith(".") and not rest.partition("\n")[0]


# --- public names -----------------------------------------------------------------------------------------

MODULES = {"axes", "bending", "config", "layouts", "onnx", "plot", "positions", "scaling", "testing", "weights"}


def test_public_names_are_as_listed():
    assert ra.__all__ == sorted(
        {"ArgumentTypeError", "ArgumentValueError", "BentTable", "Rope", "Table", "__version__"}
        | {"clear_caches", "cos_sin", "cumulative_angles", "frequencies", "from_angles", "rotate"}
        | MODULES
    )
    assert dir(ra) == ra.__all__
    assert {name for name in MODULES if getattr(ra, name) is not sys.modules[f"rope_any.{name}"]} == set()
    with pytest.raises(AttributeError, match="module 'rope_any' has no attribute 'absent'"):
        _ = ra.absent


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
    [
        ("", []),
        ("ra.config", ["axes", "config", "positions", "scaling"]),
        ("from rope_any import weights", ["weights"]),
    ],
    ids=["none", "accessed", "imported"],
)
def test_a_public_module_is_loaded_on_first_access(more, loaded):
    run = subprocess.run([sys.executable, "-c", _PROBE.format(more)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == loaded


_USER = """
import rope_any as ra
from rope_any import positions

explanations: tuple[ra.config.Explanation, ...] = ra.config.explain({})
names: list[str] = positions.__all__
wrong: int = ra.config.explain({})
missing = ra.absent
"""


@pytest.mark.thread_unsafe(reason="starts a process")
def test_type_checkers_see_the_types_of_public_modules(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "user.py").write_text(_USER.lstrip())
    # without the packages of the environment, which take half a minute to read
    options = ["-m", "mypy", "--strict", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent"]
    run = subprocess.run(
        [sys.executable, *options, "--cache-dir", os.devnull, "user.py"],
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


def test_typical_calls_run():
    typical_calls.main()


# "See also" sections, extended summaries and examples are optional.
UNCHECKED = {"SA01", "ES01", "EX01"}
FUNCTIONS = [f"{module}.{name}" for module in sorted(MODULES) for name in getattr(ra, module).__all__]
DOCUMENTED = [
    *FUNCTIONS,
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
TUPLES = {
    "Table",
    "BentTable",
    "config.Advice",
    "config.Explanation",
    "config.Outlook",
    "config.Fact",
    "layouts.Layout",
}
TUPLES |= {"positions.DualChunk", "positions.Far"}
TUPLES |= {f"testing.{name}" for name in ("CacheReport", "Case", "Property", "Report")}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_are_numpydoc(name):
    unchecked = UNCHECKED | ({"PR01"} if name in TUPLES else set())  # their fields have docstrings
    faults = [fault for fault in validate(f"rope_any.{name}")["errors"] if fault[0] not in unchecked]
    assert faults == []


@pytest.mark.parametrize("name", ["transformers.replace", "transformers.reposition", "torch.audit", "torch.refill"])
def test_docstrings_of_integrations_are_numpydoc(name):
    pytest.importorskip("torch", reason="torch is not installed")
    faults = validate(f"rope_any.integrations.{name}")["errors"]
    assert [fault for fault in faults if fault[0] not in UNCHECKED] == []


def test_the_package_is_typed():
    assert (SOURCE / "py.typed").exists()
    assert importlib.metadata.version("rope-any") == ra.__version__
