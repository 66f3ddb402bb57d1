"""Code in tables breaks at its joints, where a name or an expression has one; ``tables.css`` lets it nowhere else."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# Behind / . , ( = : and between the words of a name, but not before the last three letters.
JOINT = re.compile(r"""(?:(?<=[/.,(=:])(?=[^\W\d]|["'\[{])|(?<=[^\W_]_)(?=[^\W\d_]))(?!\w{1,3}$)""")


class Jointed(nodes.Text):
    """Code that may break at its joints: one text for the search, in parts on the page."""


def mark(_: Sphinx, doctree: nodes.document) -> None:
    """Find the code in tables."""
    for cell in doctree.findall(nodes.entry):
        for code in [*cell.findall(nodes.literal)]:
            for text in [*code.findall(nodes.Text)]:
                text.parent.replace(text, Jointed(text))


def visit(self: HTML5Translator, node: Jointed) -> None:
    """Write code in parts."""
    first, *rest = JOINT.split(node)
    self.visit_Text(nodes.Text(first))
    for part in rest:
        self.body.append("<wbr>")
        self.visit_Text(nodes.Text(part))
