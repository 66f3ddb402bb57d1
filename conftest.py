"""Run every example of the README, the docs and the docstrings."""

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

_markdown = Sybil(parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"])
_docstrings = Sybil(parsers=[DocTestParser()], patterns=["src/rope_any/*.py", "src/rope_any/*/*.py"])

pytest_collect_file = (_markdown + _docstrings).pytest()
