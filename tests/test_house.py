"""Architecture rules: imports have no cycles, few modules import libraries, public names are documented."""

import ast
import pkgutil
import subprocess
import sys
from enum import EnumType
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import typical_calls
from numpydoc.validate import validate

import rope_any as ra

SOURCE = Path(ra.__file__).parent
FILES = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
FILES = {name.removesuffix(".__init__"): path for name, path in FILES.items()}

# --- imports ----------------------------------------------------------------------------------------------------------

CORE = {"_align", "_call_tables", "_checks", "_exact", "_frequencies", "_fused_rotation", "_host_rotation"}
CORE |= {"_host_table", "_pairing", "_positions", "_rope", "_rotate", "_rotation", "_schedules", "_table"}
OUTER = {"__init__", "__main__", "cli", "config", "integrations", "onnx", "plot", "testing"}
LIBRARIES = {"torch", "jax", "dask", "mlx", "cupy", "ndonnx", "array_api_strict", "array_api_compat", "numba"}
# Modules that use NumPy on the host, for files, figures and checks.
NUMPY = {"_host_rotation", "_host_table", "_safetensors", "cli", "plot", "testing"}


def top(name):
    """Return the first part of a dotted name."""
    return name.split(".")[0]


def imported_names(path):
    """Yield the full names that a file imports, in functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            package = f"{'.' * node.level}{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from (package + alias.name for alias in node.names)


NAMES = {name: {*imported_names(path)} for name, path in FILES.items()}


def module_of(name):
    """Return the module of the package that has an imported name."""
    return max((one for one in FILES if f"{name}.".startswith(f"rope_any.{one}.")), key=len, default="__init__")


def imports(name):
    """Return the modules of the package that one imports, except config in `Rope.from_config`."""
    found = {module_of(what) for what in NAMES[name] if top(what) == "rope_any"} - {name}
    return {other for other in found if (name, top(other)) != ("_rope", "config")}


def libraries_of(name):
    """Return the first parts of the names that a module imports."""
    return {*map(top, NAMES[name])}


def test_imports_have_no_cycle():
    order = TopologicalSorter({name: imports(name) for name in FILES}).static_order()
    assert {*order} == {*FILES}  # a cycle raises CycleError


def test_the_core_does_not_import_outer_modules():
    found, new = set(), {name for name in FILES if name in CORE or top(name) == "_arrays"}
    assert len(new) >= 8
    while new:
        found |= new
        new = {other for name in new for other in imports(name)} - found
    assert {name for name in found if top(name) in OUTER} == set()


_DEVICES = "cli._libraries"  # by which the command line measures on each device


def test_only_array_modules_import_a_library():
    inner = [name for name in FILES if {top(name), name}.isdisjoint({"_arrays", "onnx", "integrations", _DEVICES})]
    assert {name for name in inner if libraries_of(name) & LIBRARIES} == set()
    assert {top(name) for name in inner if "numpy" in libraries_of(name)} <= NUMPY


# --- public names -----------------------------------------------------------------------------------------

MODULES = {"arrays", "axes", "bending", "config", "layouts", "onnx", "plot", "positions", "scaling", "testing"}
MODULES |= {"weights"}


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

def show():
    print(*sorted(name for name in dir(ra) if f"rope_any.{name}" in sys.modules))

q = np.ones((1, 2, 3, 8), dtype=np.float32)
ra.Rope(ra.frequencies(8), pairing="half")(q, q)
show()
from rope_any import weights
show()
ra.config
show()
"""


@pytest.mark.thread_unsafe(reason="starts a process")
def test_a_public_module_is_loaded_on_first_access():
    run = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["", "weights", "axes config scaling weights"]


def test_typical_calls_run():
    typical_calls.main()


# "See also" sections, extended summaries and examples are optional; fields of tuples have docstrings, not parameters.
UNCHECKED = {"SA01", "ES01", "EX01"}
METHODS = ["__call__", "apply", "from_config", "reposition", "table"]
DOCUMENTED = [f"{module}.{name}" for module in sorted(MODULES) for name in getattr(ra, module).__all__]
DOCUMENTED += ["frequencies", "cos_sin", "rotate", "Rope", "Table", "BentTable", *(f"Rope.{name}" for name in METHODS)]
DOCUMENTED += [f"integrations.{name}" for name in ("transformers.replace", "transformers.reposition")]
DOCUMENTED += ["integrations.torch.audit", "integrations.torch.refill"]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings_are_numpydoc(name):
    if name.startswith("integrations."):
        pytest.importorskip("torch", reason="torch is not installed")
    described = pkgutil.resolve_name(f"rope_any.{name}")
    unchecked = UNCHECKED | ({"PR01"} if hasattr(described, "_fields") or isinstance(described, EnumType) else set())
    assert [fault for fault in validate(f"rope_any.{name}")["errors"] if fault[0] not in unchecked] == []
