"""Break code in tables only between the parts of names and expressions; ``tables.css`` forbids other breaks."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

# After / . , ( = : and between the words of a name, but not before the last three letters.
BREAK = re.compile(r"""(?:(?<=[/.,(=:])(?=[^\W\d]|["'\[{])|(?<=[^\W_]_)(?=[^\W\d_]))(?!\w{1,3}$)""")


class BreakableCode(nodes.Text):
    """Code that may break between its parts: the search index has it as one text, the page in parts."""


def mark(_: Sphinx, doctree: nodes.document) -> None:
    """Replace the code in tables by breakable code."""
    for cell in doctree.findall(nodes.entry):
        for code in [*cell.findall(nodes.literal)]:
            for text in [*code.findall(nodes.Text)]:
                text.parent.replace(text, BreakableCode(text))


def visit(self: HTML5Translator, node: BreakableCode) -> None:
    """Write code in parts, with a possible break between them."""
    first, *rest = BREAK.split(node)
    self.visit_Text(nodes.Text(first))
    for part in rest:
        self.body.append("<wbr>")
        self.visit_Text(nodes.Text(part))
