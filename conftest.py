"""Run every example of the README, the docs and the docstrings."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from packaging.version import Version
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser


def missing(name: str, least: str | None = None) -> bool:
    """
    Return whether a library can't run here, or is older than `least`.

    It is for ``<!--- skip: start if(missing("cupy"), reason="...") -->``.
    """
    if find_spec(name) is None or (least is not None and Version(version(name)) < Version(least)):
        return True
    if name != "cupy":
        return False
    import cupy

    return not cupy.cuda.is_available()


_markdown = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    setup=lambda namespace: namespace.update(missing=missing, __name__="__main__"),
)


def _imported(namespace: dict[str, object]) -> None:
    """Import what the examples of docstrings begin with, as docs/api/index.md says."""
    import numpy as np

    import rope_any as ra

    namespace.update(np=np, ra=ra)


_docstrings = Sybil(parsers=[DocTestParser()], patterns=["src/rope_any/*.py", "src/rope_any/*/*.py"], setup=_imported)

pytest_collect_file = (_markdown + _docstrings).pytest()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the docstrings of modules that import a library which is not there."""
    needed = {"torch.py": ["torch"], "onnx.py": ["ndonnx"]}
    needed |= {name: ["torch", "transformers"] for name in ("transformers.py", "_transformers_caches.py")}
    for item in items:
        names = needed.get(item.path.name, ()) if "src" in item.path.parts else ()
        for name in filter(lambda name: missing(name, "5" if name == "transformers" else None), names):
            item.add_marker(pytest.mark.skip(reason=f"{name} is not installed, or is too old"))
