"""Write the public names and signatures of the installed CuPy, which needs no GPU, for the stand-in of the tests.

``python tools/cupy_names.py tests/cupy_names.json`` in an environment with CuPy, such as the package cupy-cuda12x.
"""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import cupy
import numpy as np

CLASSES = {"ndarray": cupy.ndarray, "Device": cupy.cuda.Device, "Stream": cupy.cuda.Stream}


def signature(function: Any) -> str | None:
    """Return the parameters of a function with their defaults, without types; None if it does not tell them."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):  # of Cython, which writes them into the first line of the docstring
        line = re.match(r"[\w.]+(\(.*\))", inspect.getdoc(function) or "")
        return re.sub(r"\w+ (?=\w)", "", line[1]) if line else None
    parameters = [p.replace(annotation=p.empty) for p in found.parameters.values()]
    return re.sub(r"<.*?>", "...", str(inspect.Signature(parameters)))


def members(owner: Any) -> dict[str, str | None]:
    """Return the signatures of what is public in a class, or None."""
    special = {name for name in dir(owner) if name.startswith("__")} - {*dir(object), "__pyx_vtable__"}
    names = special | {name for name in dir(owner) if not name.startswith("_")}
    return {name: signature(getattr(owner, name)) for name in sorted(names)}


def names() -> dict[str, Any]:
    """Return all that the stand-in is made from."""
    public = {name: value for name, value in vars(cupy).items() if not name.startswith("_")}
    from_numpy = {name for name, value in public.items() if value is getattr(np, name, ...)}
    others = {name: value for name, value in sorted(public.items()) if name not in from_numpy}
    ufuncs = {name: [f.nin, f.nout] for name, f in others.items() if isinstance(f, cupy.ufunc)}
    functions = {name: signature(f) for name, f in others.items() if name not in ufuncs and callable(f)}
    found: dict[str, Any] = {"version": cupy.__version__, "from NumPy": sorted(from_numpy), "ufuncs": ufuncs}
    found |= {"functions": functions} | {name: members(owner) for name, owner in CLASSES.items()}
    runtime = [name for name, value in vars(cupy.cuda.runtime).items() if inspect.isroutine(value)]
    return found | {"cuda": [name for name in dir(cupy.cuda) if name[0] != "_"], "runtime": runtime}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(names(), separators=(",", ":")) + "\n", encoding="utf-8")
