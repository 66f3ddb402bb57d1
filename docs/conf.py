"""How the documentation is built: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import math
import os
import re
import shutil
import sys
from html import escape
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator
from sphinx_gallery.directives import imgsgnode

import rope_any

sys.path.insert(0, str(Path(__file__).parent))
import joints
import pictures

project = "rope_any"
author = "The rope_any authors"
release = version = rope_any.__version__
html_title = f"rope_any {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
copybutton_prompt_text = r">>> |\.\.\. ?|\$ "  # copied lines lose them; lines of output are not copied
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False
default_role = "py:obj"  # `cos_sin` in a docstring links to it
exclude_patterns = ["_build", "gallery_src", "*_table.md", "verify_peers.md"]  # of the gallery, parts of other pages
html_theme = "furo"
SHORT, LONG = 40, 160  # letters: a paragraph that tells too little of a page, a description that is shown whole
html_favicon = "_static/favicon.svg"  # without one, browsers ask for a file that isn't there
html_show_copyright = False  # LICENSE says it
html_math_renderer = "mathml"  # see setup
html_static_path = ["_static"]
html_css_files = ["column.css", "gallery.css", "math.css", "pictures.css", "tables.css"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery_src",
    "gallery_dirs": "gallery",  # made anew by each build, and gone after it
    "filename_pattern": r"\.py$",
    "within_subsection_order": "pictures.in_module",
    "capture_repr": (),  # the picture says it
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "notebook_extensions": set(),
    "min_reported_time": math.inf,
    "write_computation_times": False,
    "show_signature": False,
}

autodoc_mock_imports = [name for name in ("torch", "transformers") if not find_spec(name)]  # of the integrations
autodoc_typehints = "none"  # the docstrings say more than `Any`, which is what an array's type is
napoleon_google_docstring = False
napoleon_use_rtype = False


def mathml(tex: str, *, as_block: bool) -> str:
    """Return a formula as MathML, with the gap that TeX leaves between a function and what it is taken of."""
    gap = '<mo>&ApplyFunction;</mo><mspace width="0.17em"></mspace>'
    return re.sub(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()", gap, tex2mathml(tex, as_block=as_block))


def inline_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line, and on the same line what stands beside it without a space, such as a full stop."""
    before, after = node.get("beside", ("", ""))
    formula = mathml(node.astext(), as_block=False)
    self.body.append(f'<span class="math">{self.encode(before)}{formula}{self.encode(after)}</span>')
    raise nodes.SkipNode


def take_beside(app: Sphinx, doctree: nodes.document, _: str) -> None:
    """Give formulas in lines the signs that stand beside them: browsers would break the line between the two."""
    if app.builder.format != "html":
        return
    for formula in doctree.findall(nodes.math):
        paragraph, here = formula.parent, formula.parent.index(formula)
        signs = {}
        for there, pattern in ((here - 1, r"\S*$"), (here + 1, r"^\S*")):
            text = paragraph[there] if 0 <= there < len(paragraph) else None
            if isinstance(text, nodes.Text):
                signs[there] = re.search(pattern, text)[0]
                paragraph[there] = nodes.Text(re.sub(pattern, "", text, count=1))
        formula["beside"] = (signs.get(here - 1, ""), signs.get(here + 1, ""))


def block_math(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    self.body.append(f'<div class="math">{mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def keep_together(_: Sphinx, doctree: nodes.document) -> None:
    """Keep numbers in groups of digits, percentages and exponents such as 1.2e-7 from being broken over two lines."""
    for text in [*doctree.findall(nodes.Text)]:
        if not coded(text):
            held = re.sub(r"(?<=\d) (?=\d{3}(?!\d)|%)", "\N{NO-BREAK SPACE}", text)
            held = re.sub(r"(?<=\de-)(?=\d)", "\N{WORD JOINER}", held)
            if held != text:
                text.parent.replace(text, nodes.Text(held))


def coded(node: nodes.Node) -> bool:
    """Return whether a node stands within code or a formula, where every character counts."""
    exact = (nodes.literal, nodes.math, nodes.raw, nodes.FixedTextElement)
    return node.parent is not None and (isinstance(node.parent, exact) or coded(node.parent))


def box_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Put each picture, and a narrow drawing of it if there is one, into a box that ``pictures.css`` lets scroll."""
    for image in [*doctree.findall(lambda node: isinstance(node, nodes.image | imgsgnode))]:
        if Path(image["uri"]).parent.name == "thumb":
            continue  # on a card of the gallery
        whole = image.parent if isinstance(image.parent, nodes.paragraph) else image  # Markdown has it in a paragraph
        if (whole is not image and len(whole) > 1) or isinstance(whole.parent, nodes.TextElement):
            msg = f"{app.env.docname}: a picture must stand alone, in a paragraph of its own; got {image['uri']}"
            raise ExtensionError(msg)
        box = nodes.container("", classes=["picture"])
        whole.replace_self(box)
        box += image
        narrow = drawn(app.doctreedir) / f"{Path(image['uri']).stem}-narrow.svg"
        if narrow.exists():
            box["classes"].append("of-two")
            here = Path(app.env.doc2path(app.env.docname)).parent
            box += nodes.image(uri=os.path.relpath(narrow, here), alt=image.get("alt", ""), classes=["narrow"])


class Picture(Figure):
    """A figure that ``pictures.py`` has drawn: ``{picture} name``, with ``:alt:`` and a caption."""

    def run(self) -> list[nodes.Node]:
        """Return the figure, of the file that stands beside the parsed pages."""
        env = self.state.document.settings.env
        here = Path(env.doc2path(env.docname)).parent
        self.arguments[0] = os.path.relpath(drawn(env.doctreedir) / f"{self.arguments[0]}.svg", here)
        return super().run()


def drawn(doctrees: str | os.PathLike[str]) -> Path:
    """Return the folder of the pictures, which is none of the sources'."""
    return Path(doctrees) / "pictures"


def describe(_: Sphinx, __: str, ___: str, context: dict[str, str], doctree: nodes.document | None) -> None:
    """Give a page its first paragraph as its description, which search engines show."""
    paragraphs = [] if doctree is None else [p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > SHORT]
    if paragraphs:
        text = shorten(" ".join(paragraphs[0].astext().split()), LONG, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{escape(text)}" />\n'


def unlink_parameters(*event: object) -> None:
    """Keep parameters that are called as a module is from becoming links to it."""
    lines = event[-1]
    assert isinstance(lines, list)  # noqa: S101  # what Sphinx hands over last
    lines[:] = [re.sub(r"(?<!`)`(axes|config|positions)`(?!`)", r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> None:
    """Write formulas as MathML, which browsers show unaided: MathJax would be fetched from elsewhere. Draw pictures."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_directive("picture", Picture)
    app.connect("doctree-resolved", take_beside)
    app.add_node(joints.Jointed, html=(joints.visit, lambda *_: None))
    for change in (keep_together, joints.mark, box_pictures):
        app.connect("doctree-read", change, priority=400)  # before Sphinx collects titles and pictures
    app.connect("autodoc-process-docstring", unlink_parameters)
    app.connect("html-page-context", describe)
    app.connect("builder-inited", lambda app: pictures.draw(drawn(app.doctreedir)))
    cards = Path(app.srcdir, "gallery", "images", "thumb")
    app.connect(
        "builder-inited", lambda _: pictures.draw_cards(cards), priority=900
    )  # sphinx-gallery has drawn its own
    app.connect("build-finished", lambda app, _: shutil.rmtree(Path(app.srcdir, "gallery"), ignore_errors=True))
