"""Run every example of the README, the docs and the docstrings."""

from importlib.util import find_spec

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser


def missing(name: str) -> bool:
    """Return whether a library can't run here, for ``<!--- skip: start if(missing("cupy"), reason="...") -->``."""
    if find_spec(name) is None:
        return True
    if name != "cupy":
        return False
    import cupy

    return not cupy.cuda.is_available()


_markdown = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    setup=lambda namespace: namespace.update(missing=missing),
)
_docstrings = Sybil(parsers=[DocTestParser()], patterns=["src/rope_any/*.py", "src/rope_any/*/*.py"])

pytest_collect_file = (_markdown + _docstrings).pytest()
