"""How the documentation is built: ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import math
import os
import re
import shutil
import sys
from html import escape, unescape
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.directives.patches import Figure
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator
from sphinx.writers.text import TextTranslator
from sphinx_gallery.directives import imgsgnode

import rope_any

sys.path.insert(0, str(Path(__file__).parent))
import code_breaks
import example_pages
import pictures

project = "rope_any"
author = "The rope_any authors"
release = version = rope_any.__version__
html_title = f"rope_any {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
copybutton_prompt_text = r">>> |\.\.\. ?|\$ "  # copied lines lose them; lines of output are not copied
copybutton_prompt_is_regexp = True
copybutton_copy_empty_lines = False
default_role = "py:obj"  # `cos_sin` in a docstring links to it
exclude_patterns = ["_build", "gallery_src", "*_table.md"]  # of the gallery, parts of other pages
html_theme = "furo"
# The address of the published site. Cards of links need it: without it their pictures have relative addresses, which
# browsers follow but most services that show cards do not.
html_baseurl = os.environ.get("DOCS_URL", os.environ.get("READTHEDOCS_CANONICAL_URL", ""))
html_logo = "_static/mark.svg"
# The blue and orange of the mark and of the pictures, as text: a contrast of at least 4.5 with each background.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#005a8e",
        "color-brand-content": "#005f96",
        "color-brand-visited": "#7d3f7c",
        "color-background-secondary": "#f4f7fa",
        "color-problematic": "#a8380c",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cb8ea",
        "color-brand-content": "#6cb8ea",
        "color-brand-visited": "#cf9bce",
        "color-background-primary": "#12161b",
        "color-background-secondary": "#181e25",
        "color-problematic": "#f0915c",
    },
}
CARD = "card.png"  # the picture that a link to a page shows
GENERATED = {
    "genindex": "All public names of rope_any, in alphabetical order.",
    "py-modindex": "All public modules of rope_any.",
    "search": "Search the documentation of rope_any.",
}
SHORT, LONG = 40, 160  # characters: a description has more than 40, and is cut after 160
html_favicon = "_static/favicon.svg"  # without one, browsers ask for a file that isn't there
html_show_copyright = False  # it is in LICENSE
html_math_renderer = "mathml"  # see setup
html_static_path = ["_static"]
html_css_files = ["column.css", "gallery.css", "home.css", "math.css", "pictures.css", "tables.css"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery_src",
    "gallery_dirs": "gallery",  # made anew by each build, and gone after it
    "filename_pattern": r"\.py$",
    "within_subsection_order": "pictures.line_in_module",
    "capture_repr": (),  # pages show the picture, not the repr
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
napoleon_use_param = False  # parameters that share a description stay together
napoleon_use_rtype = False


def mathml(tex: str, *, as_block: bool) -> str:
    """Return a formula as MathML, with the gap that TeX puts between a function and its argument."""
    gap = '<mo>&ApplyFunction;</mo><mspace width="0.17em"></mspace>'
    return re.sub(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()", gap, tex2mathml(tex, as_block=as_block))


def inline_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula with the text that `attach_punctuation` has attached, so that no line breaks between."""
    before, after = node.get("adjacent", ("", ""))
    formula = mathml(node.astext(), as_block=False)
    self.body.append(f'<span class="math">{self.encode(before)}{formula}{self.encode(after)}</span>')
    raise nodes.SkipNode


def attach_punctuation(app: Sphinx, doctree: nodes.document, _: str) -> None:
    """Attach adjacent punctuation to inline formulas, so that browsers break no line between them."""
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
        formula["adjacent"] = (signs.get(here - 1, ""), signs.get(here + 1, ""))


def block_math(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    self.body.append(f'<div class="math">{mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def keep_together(_: Sphinx, doctree: nodes.document) -> None:
    """Prevent line breaks within numbers such as 65 536, percentages, and exponents such as 1.2e-7."""
    for text in [*doctree.findall(nodes.Text)]:
        if not is_code(text):
            joined = re.sub(r"(?<=\d) (?=\d{3}(?!\d)|%)", "\N{NO-BREAK SPACE}", text)
            joined = re.sub(r"(?<=\de-)(?=\d)", "\N{WORD JOINER}", joined)
            if joined != text:
                text.parent.replace(text, nodes.Text(joined))


def is_code(node: nodes.Node) -> bool:
    """Whether a node is within code or a formula, which must not be changed."""
    exact = (nodes.literal, nodes.math, nodes.raw, nodes.FixedTextElement)
    return node.parent is not None and (isinstance(node.parent, exact) or is_code(node.parent))


def box_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Put each picture, and its narrow version if there is one, into a box, which ``pictures.css`` makes scrollable."""
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
        narrow = pictures_folder(app.doctreedir) / f"{Path(image['uri']).stem}-narrow.svg"
        if narrow.exists() and app.builder.format == "html":  # of which a page shows one or the other
            box["classes"].append("of-two")
            here = Path(app.env.doc2path(app.env.docname)).parent
            box += nodes.image(uri=os.path.relpath(narrow, here), alt=image.get("alt", ""), classes=["narrow"])


class Picture(Figure):
    """The directive ``{picture} name``, with ``:alt:`` and a caption, for a figure that ``pictures.py`` has drawn."""

    def run(self) -> list[nodes.Node]:
        """Return the figure, with its file in the folder of pictures."""
        env = self.state.document.settings.env
        here = Path(env.doc2path(env.docname)).parent
        self.arguments[0] = os.path.relpath(pictures_folder(env.doctreedir) / f"{self.arguments[0]}.svg", here)
        return super().run()


def pictures_folder(doctrees: str | os.PathLike[str]) -> Path:
    """Return the folder for drawn pictures: it is next to the parsed pages, not among the sources."""
    return Path(doctrees) / "pictures"


def description(page: str, doctree: nodes.document | None) -> str:
    """Return the first long paragraph of a page, cut; of pages that Sphinx makes, what they are."""
    if doctree is None:
        _, source, module = page.rpartition("_modules/")
        return f"The source of {module.replace('/', '.')}." if source else GENERATED.get(page, html_title)
    paragraphs = [p for p in doctree.findall(nodes.paragraph) if len(p.astext()) > SHORT and not is_note(p)]
    text = paragraphs[0].astext() if paragraphs else html_title
    return shorten(" ".join(text.split()), LONG, placeholder=" …")


def is_note(paragraph: nodes.paragraph) -> bool:
    """Whether a paragraph is the gallery's note on how to download a page."""
    return isinstance(paragraph.parent, nodes.note)


def describe(_: Sphinx, page: str, __: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Add what search engines show of a page, and what a link to it shows as a card."""
    text = description(page, doctree)
    title = re.sub("<[^>]*>", "", context.get("title") or "") or project
    picture = f"{html_baseurl.rstrip('/')}/_static/{CARD}" if html_baseurl else context["pathto"](f"_static/{CARD}", 1)
    tags = {
        **({"og:url": f"{html_baseurl.rstrip('/')}/{page}.html"} if html_baseurl else {}),
        "description": text,
        "og:title": unescape(title),
        "og:description": text,
        "og:type": "website",
        "og:site_name": project,
        "og:image": picture,
        "og:image:width": str(pictures.SHARED[0]),
        "og:image:height": str(pictures.SHARED[1]),
        "og:image:alt": "The mark of rope_any, its name, and two lines of code that rotate queries and keys",
        "twitter:card": "summary_large_image",
    }
    for name, content in tags.items():
        kind = "property" if name.startswith("og:") else "name"
        context["metatags"] = context.get("metatags", "") + f'<meta {kind}="{name}" content="{escape(content)}" />\n'


def draw_shared(app: Sphinx, error: Exception | None) -> None:
    """Draw the picture that links to the site show."""
    if error is None and app.builder.format == "html":
        pictures.draw_shared(Path(app.outdir, "_static", CARD))


def unlink_parameters(*event: object) -> None:
    """Prevent links from parameters to modules of the same name."""
    lines = event[-1]
    assert isinstance(lines, list)  # noqa: S101  # the last argument from Sphinx
    lines[:] = [re.sub(r"(?<!`)`(axes|config|positions)`(?!`)", r"``\1``", line) for line in lines]


def public_signature(_: Sphinx, what: str, *event: object) -> tuple[str, None] | None:
    """Return the signature of a class without private fields, and of a tuple without the one it inherits."""
    signature = event[-2]
    if what != "class" or not isinstance(signature, str):
        return None
    return re.sub(r", _\w+|\(iterable=\(\), /\)", "", signature), None


def setup(app: Sphinx) -> None:
    """Register the MathML renderer (MathJax would be loaded from another host), the directive, and changes of pages."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_directive("picture", Picture)
    app.connect("doctree-resolved", attach_punctuation)
    app.add_node(
        code_breaks.BreakableCode,
        html=(code_breaks.visit, lambda *_: None),
        text=(TextTranslator.visit_Text, lambda *_: None),
    )
    picture = TextTranslator.visit_image, lambda *_: None
    app.registry.add_translation_handlers(imgsgnode, text=picture)  # of the gallery, which has none for text
    for change in (keep_together, code_breaks.mark, box_pictures):
        app.connect("doctree-read", change, priority=400)  # before Sphinx collects titles and pictures
    app.connect("autodoc-process-docstring", unlink_parameters)
    app.connect("autodoc-process-signature", public_signature)
    app.connect("html-page-context", describe)
    programs, pages = Path(app.srcdir).parent / "examples", Path(app.srcdir, "examples")
    app.connect("builder-inited", lambda _: example_pages.write(programs, pages))
    app.connect("build-finished", lambda *_: example_pages.remove(pages))
    app.connect("builder-inited", lambda app: pictures.draw(pictures_folder(app.doctreedir)))
    cards = Path(app.srcdir, "gallery", "images", "thumb")
    app.connect(
        "builder-inited", lambda _: pictures.draw_cards(cards), priority=900
    )  # sphinx-gallery has drawn its own
    app.connect("build-finished", draw_shared)
    app.connect("build-finished", lambda app, _: shutil.rmtree(Path(app.srcdir, "gallery"), ignore_errors=True))
