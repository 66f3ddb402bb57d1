"""The built site: every page is opened in a browser, at the widths of phones and desktops."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

import numpy as np
import pytest
import words
from numpy.testing import assert_allclose

import rope_any as ra
from rope_any import scaling
from rope_any.testing._exact import exact

pytestmark = [
    pytest.mark.long,
    pytest.mark.thread_unsafe(reason="a browser can be used only in the thread that started it"),
]

for needed in ("furo", "matplotlib", "myst_parser", "sphinx_gallery"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

ROOT = Path(__file__).parent.parent
# Sources of the pages besides the README and similar files; of the tests, only the configs are used.
SOURCES = ["docs", "examples", "src", "tests"]
WIDTHS = {"phone": (390, 844), "laptop": (1300, 850), "desktop": (1440, 900)}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Return the faults of a page, its anchors, and the targets of its links.
INSPECT = r"""async () => {
  const images = [...document.images];
  images.forEach(image => { image.loading = "eager"; });
  await Promise.allSettled(images.map(image => image.decode()));
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  // Elements that extend beyond the window, unless an ancestor clips or scrolls them.
  const cut = e => e.localName !== "article" && (getComputedStyle(e).overflowX !== "visible" || cut(e.parentElement));
  const wide = [...document.querySelectorAll("article *")].filter(e => {
    const { left, right } = e.getBoundingClientRect();
    const out = left < 0 || right > innerWidth;
    return out && e.checkVisibility({ visibilityProperty: true }) && !cut(e.parentElement);
  });
  // A formula and text next to it without a space, such as a full stop, must be on one line.
  const box = text => {
    const range = document.createRange();
    range.setStart(text, 0);
    range.setEnd(text, text.length);
    return range.getClientRects();
  };
  const separated = [...document.querySelectorAll("article math")].filter(math => {
    const { top, bottom } = math.getBoundingClientRect();
    const off = rect => rect && (rect.bottom < top || rect.top > bottom);
    const text = e => e?.nodeType === Node.TEXT_NODE ? e : null;
    const [before, after] = [text(math.previousSibling), text(math.nextSibling)];
    return (before && /\S$/.test(before.data) && off([...box(before)].at(-1)))
      || (after && /^\S/.test(after.data) && off(box(after)[0]));
  });
  // Pieces of text in several lines; words of code in tables and numbers with groups of digits must be in one.
  const broken = (root, skip, pattern) => {
    const found = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (skip && text.parentElement.closest(skip)) continue;
      for (const match of text.data.matchAll(pattern)) {
        const range = document.createRange();
        range.setStart(text, match.index);
        range.setEnd(text, match.index + match[0].length);
        const drawn = [...range.getClientRects()].filter(rect => rect.width);
        if (new Set(drawn.map(rect => Math.round(rect.top))).size > 1) found.push(match[0]);
      }
    }
    return found;
  };
  const words = [...document.querySelectorAll(":is(td, th) code")].flatMap(e => broken(e, null, /[\p{L}\p{N}]+/gu));
  const numbers = broken(document.body, "code, pre", /(?<!\d)\d{1,3}(\s\d{3})+(?!\d)|\d+\s%|\de-\u2060?\d+/g);
  // Phones scroll code, and so do the sources of modules, whose lines are longer than those of pages.
  const scrolls = innerWidth < 1000 || location.pathname.includes("/_modules/");
  const code = scrolls ? [] : [...document.querySelectorAll("article pre")];
  return {
    faults: [
      ...images.filter(image => !image.naturalWidth).map(image => `broken image ${image.src}`),
      ...ids.filter((id, i) => ids.indexOf(id) !== i).map(id => `two elements with the id ${id}`),
      ...wide.filter(e => !wide.some(other => other.parentElement === e))
        .map(e => `out of the window: ${e.outerHTML.slice(0, 80)}`),
      ...separated.map(math => `formula separated from the text next to it: ${math.parentElement.innerText}`),
      ...words.map(word => `word of code in two lines: ${word}`),
      ...numbers.map(number => `number in two lines: ${number}`),
      ...code.filter(e => e.scrollWidth > e.clientWidth)
        .map(e => `code wider than its box by ${e.scrollWidth - e.clientWidth}: ${e.innerText.slice(0, 80)}`),
    ],
    anchors: ids,
    links: [...document.querySelectorAll("a[href]")].map(link => link.href),
  };
}"""


class Visit(NamedTuple):
    """What a browser found on one page."""

    faults: list[str]
    anchors: set[str]
    links: set[str]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site from a copy, because the build may write next to its sources."""
    folder = tmp_path_factory.mktemp("site")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    for page in ROOT.glob("*.md"):
        shutil.copy(page, folder)
    command = [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-b", "html", "-d", "doctrees", "docs", "html"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def browser():
    """Yield a headless Chromium; skip if it or playwright is missing."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as run:
        chromium = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def shared_page(browser):
    """Open one page for all tests, because opening one takes longer than most tests."""
    with browser.new_context() as context:
        page = context.new_page()
        yield page, collect_faults(page)


@pytest.fixture
def tab(shared_page, request):
    """Return an empty page of some width, and the list of its faults."""
    page, faults = shared_page
    page.goto("about:blank")
    page.set_viewport_size(viewport(getattr(request, "param", "desktop")))
    faults.clear()
    return page, faults


def viewport(name):
    """Return the viewport of a named width."""
    return dict(zip(("width", "height"), WIDTHS[name], strict=True))


def collect_faults(page):
    """Return a list to which a page appends its errors and its requests to other hosts."""
    faults = []

    def requested(request):
        """Record a request to another host."""
        address = urlsplit(request.url)
        if address.scheme not in {"file", "data", "blob"} and address.hostname != "127.0.0.1":
            faults.append(f"requested {request.url}")

    def failed(request):
        """Record a request that failed."""
        if request.failure != "net::ERR_ABORTED":  # as if another page is opened meanwhile
            faults.append(f"failed: {request.url}")

    page.on("console", lambda log: log.type in {"error", "warning"} and faults.append(f"{log.type}: {log.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("requestfailed", failed)
    page.on("response", lambda answer: answer.status >= 400 and faults.append(f"{answer.status}: {answer.url}"))
    page.on("request", requested)
    return faults


def visit(page, faults, file, *sizes):
    """Open a file and return what INSPECT finds, at the current size of the page or at several sizes."""
    faults.clear()
    sizes = sizes or [page.viewport_size]
    page.set_viewport_size(sizes[0])
    page.goto(file.as_uri())
    seen = []
    for size in sizes:
        page.set_viewport_size(size)
        seen.append(page.evaluate(INSPECT))
    return Visit(
        [*faults, *(fault for one in seen for fault in one["faults"])],
        {anchor for one in seen for anchor in one["anchors"]},
        {link for one in seen for link in one["links"]},
    )


def visit_all(page, faults, folder, *sizes):
    """Open every page of a folder."""
    return {file: visit(page, faults, file, *sizes) for file in sorted(folder.rglob("*.html"))}


def broken_links(visits, folder):
    """Yield the links to missing files, missing anchors and malformed addresses."""
    for file, seen in visits.items():
        for link in seen.links:
            address, anchor = urldefrag(link)
            scheme, host, path, *_ = urlsplit(address)
            if scheme == "file":
                target = Path(unquote(path))
                known = visits[target].anchors if target in visits else {""}
                valid = target.is_file() and target.is_relative_to(folder) and unquote(anchor) in known | {"", "top"}
            else:
                valid = scheme == "mailto" or (scheme in {"http", "https"} and re.fullmatch(r"[\w-]+(\.[\w-]+)+", host))
            if not valid:
                yield f"{file.name}: {link}"


def test_the_site_is_built(site):
    assert "rotary position embedding" in (site / "index.html").read_text(encoding="utf-8")


def test_every_page_opens_without_faults(site, tab):
    visits = visit_all(*tab, site, *map(viewport, WIDTHS))  # opened at the width of a phone, then resized
    assert {file.name: seen.faults for file, seen in visits.items() if seen.faults} == {}
    assert sorted(broken_links(visits, site)) == []


@pytest.mark.parametrize("tab", ["phone"], indirect=True)
def test_pictures_are_legible_on_a_phone(site, tab):
    """Text keeps a legible size; if a picture is then too wide, shadows mark the hidden sides."""
    page, _ = tab
    scrolled = set()
    for file in sorted(site.rglob("*.html")):
        if 'class="picture ' not in file.read_text(encoding="utf-8"):
            continue
        page.goto(file.as_uri())
        for box in page.locator("article .picture").all():
            image = box.locator("img:visible")
            assert image.evaluate("async e => { await e.decode(); return e.width / e.naturalWidth }") > 0.75, file.name
            wide = box.evaluate("e => e.scrollWidth > e.clientWidth")
            assert shaded(box) == (False, wide), file.name
            if wide:
                scrolled.add(file)
                box.evaluate("e => e.scrollLeft = e.scrollWidth")
                assert shaded(box) == (True, False), file.name
    assert scrolled
    whole = {"index.html", *(f"gallery/{name}.html" for name in ("wavelengths", "decay", "table", "errors"))}
    assert not scrolled & {site / name for name in whole}


def shaded(box):
    """Return whether the left and the right edge of an element are darker than its white background."""
    from matplotlib.image import imread

    light = np.median(imread(BytesIO(box.screenshot()))[..., :3].min(axis=-1), axis=0)
    return bool(light[1] < 0.9), bool(light[-2] < 0.9)


def test_gallery_cards_have_the_same_size(site, tab):
    page, _ = tab
    page.goto((site / "gallery" / "index.html").as_uri())
    indents = page.locator(".sphx-glr-thumbnail-title").evaluate_all("""all => all.map(title => {
      const range = document.createRange();
      range.selectNodeContents(title);
      return range.getClientRects()[0].left - title.parentElement.getBoundingClientRect().left;
    })""")
    assert len(indents) > 4
    assert np.ptp(indents) < 1


SHARED = ("description", "og:title", "og:description", "og:image", "twitter:card")


def test_every_page_says_what_search_engines_and_shared_links_show(site):
    for file in sorted(site.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        found = dict(re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', text))
        assert all(found.get(name) for name in SHARED), (file.name, found)
        picture = (file.parent / found["og:image"]).read_bytes()
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        size = [int.from_bytes(picture[at : at + 4], "big") for at in (16, 20)]
        assert size == [int(found["og:image:width"]), int(found["og:image:height"])] == [1200, 630]


@pytest.mark.parametrize(
    "name",
    ["rope_any.Rope", "rope_any.rotate", "rope_any.cos_sin", "rope_any.Table", "positions.packed", "config.parts"],
)
def test_the_reference_links_to_the_source_of_a_name(site, name):
    """Also of names that the package takes from private modules."""
    module, _, what = name.rpartition(".")
    page = (site / "api" / f"{module}.html").read_text(encoding="utf-8")
    target = f"rope_any.{what}" if module == "rope_any" else f"rope_any.{name}"
    heading = re.search(rf'<dt class="[^"]*" id="{re.escape(target)}">.*?</dt>', page, re.DOTALL)[0]
    address, anchor = re.search(
        r'<a class="reference internal" href="([^"#]+)#([^"]+)"><span class="viewcode', heading
    ).groups()
    source = (site / "api" / address).read_text(encoding="utf-8")
    assert f'id="{anchor}"' in source and anchor == what


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "examples").glob("*.py")))
def test_each_example_program_has_a_page_with_its_source(site, name):
    page = re.sub("<[^>]*>", "", (site / "examples" / f"{name}.html").read_text(encoding="utf-8"))
    assert f"$ python examples/{name}.py" in page and "__main__" in page
    assert f'href="{name}.html"' in (site / "examples" / "index.html").read_text(encoding="utf-8")


def test_the_pages_together_are_short_enough_to_read(site):
    counts = words.pages(site.parent / "docs")
    assert counts["index"] and counts["examples/generate_torch"] < 150  # without its source
    assert sum(counts.values()) <= 55_000, sorted(counts.items(), key=lambda row: -row[1])[:10]


def test_the_build_leaves_no_generated_pages(site):
    assert [file.name for file in (site.parent / "docs" / "examples").iterdir()] == ["index.md"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_home_page_has_contrast(site, browser, theme):
    """The smallest contrast of text that WCAG asks for is 4.5."""
    with browser.new_context(color_scheme=theme) as context:
        page = context.new_page()
        page.goto((site / "index.html").as_uri())
        pairs = page.evaluate("""() => {
          const back = e => {
            const color = e ? getComputedStyle(e).backgroundColor : "rgb(255, 255, 255)";
            return color.startsWith("rgba(") && color.endsWith(" 0)") ? back(e.parentElement) : color;
          };
          const texts = "article :is(p, a, h1, h2, code, span), .sidebar-tree :is(a, p)";
          return [...document.querySelectorAll(texts)]
            .filter(e => e.innerText.trim() && e.checkVisibility({ visibilityProperty: true }))
            .map(e => [e.innerText.slice(0, 30), getComputedStyle(e).color, back(e)]);
        }""")
    assert len(pairs) > 80
    faint = {(text, color, under) for text, color, under in pairs if contrast(color, under) < 4.5}
    assert faint == set()


def contrast(*colors):
    """Return the contrast of two colours of CSS as WCAG defines it."""
    light, dark = sorted(map(luminance, colors), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color):
    """Return the relative luminance of a colour such as ``rgb(0, 90, 142)``."""
    parts = np.asarray([float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]])
    return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(("white", "expected"), [("rgb(255, 255, 255)", 21.0), ("rgb(0, 0, 0)", 1.0)])
def test_contrast_is_that_of_the_definition(white, expected):
    assert contrast("rgb(0, 0, 0)", white) == pytest.approx(expected)


def test_integrations_can_be_imported_for_the_reference_without_their_libraries():
    """Sphinx imports them with mocks of torch and transformers."""
    program = """if True:
        from sphinx.ext.autodoc.mock import mock
        with mock(["torch", "transformers"]):
            from rope_any.integrations import torch, transformers
        print(torch.audit.__doc__[:20], transformers.replace.__doc__[:20])
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *_):
        """Print nothing."""


@pytest.mark.parametrize(
    ("name", "copied"),
    [
        ("get-started.html", "import numpy as np\nimport rope_any as ra\nrope = ra.Rope("),
        ("command-line.html", "rope-any inspect published:llama-3.1-8b"),
    ],
)
def test_code_is_copied_without_prompts_and_output(site, browser, name, copied):
    serve = partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server, browser.new_context() as context:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/{name}")
        block = page.locator("div.highlight", has_text=copied.splitlines()[0]).first
        block.hover()
        block.locator("button.copybtn").click()
        page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
        text = page.evaluate("navigator.clipboard.readText()")
        server.shutdown()
    assert text.startswith(copied)
    assert ">>>" not in text and "$" not in text and "dtype('float32'))" not in text and "part  layers" not in text


def test_search_finds_a_page(site, tab):
    page, faults = tab
    serve = partial(Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator("input[name=q]").first.fill("pairing")
        page.keyboard.press("Enter")
        page.locator("#search-results a[href*='api/']").first.wait_for()
        page.goto(f"http://127.0.0.1:{server.server_port}/search.html?q=rotate_half")  # a word of a table
        page.locator("#search-results a[href*='config-keys.html']").first.wait_for()
        server.shutdown()
    assert faults == []


VALID = "<p id='here'>text</p><a href='#here'>here</a><a href='other.html#there'>there</a>"
BROKEN = {
    "<script>console.error('oh')</script>": "error: oh",
    "<script>console.warn('well')</script>": "warning: well",
    "<script>undefined.call()</script>": "error: Cannot read",
    "<script src='gone.js'></script>": "failed: ",
    "<img src='gone.png'>": "broken image",
    "<img src='data:image/png;base64,AAAA'>": "broken image",
    "<script src='https://elsewhere.invalid/x.js'></script>": "requested https://elsewhere.invalid/x.js",
    "<div style='width: 2000px'>wide</div>": "out of the window: <div",
    "<p style='width: 1px'>a <math><mi>x</mi></math>:</p>": "formula separated from the text next to it: ",
    f"<pre style='overflow: auto'>{'wide' * 99}</pre>": "code wider than its box by ",
    "<table style='width: 1px'><td><code style='overflow-wrap: anywhere'>word</code></table>": "word of code in two ",
    "<p style='width: 1px'>131 072</p>": "number in two lines: 131 072",
    "<p style='width: 1px'>86 %</p>": "number in two lines: 86 %",
    "<p id='here'>again</p>": "two elements with the id here",
    "<a href='gone.html'>link</a>": "page.html: file://",
    "<a href='../outside.html'>link</a>": "page.html: file://",
    "<a href='other.html#gone'>link</a>": "page.html: file://",
    "<a href='#gone'>link</a>": "page.html: file://",
    "<a href='https://nowhere/'>link</a>": "page.html: https://nowhere/",
}


@pytest.mark.parametrize("defect", ["", *BROKEN])
def test_broken_pages_are_detected(defect, tab, tmp_path):
    folder = tmp_path / "html"
    folder.mkdir()
    (tmp_path / "outside.html").write_text("not on the site", encoding="utf-8")
    text = f"<!doctype html><meta charset='utf-8'><article>{VALID}{defect}</article>"
    (folder / "page.html").write_text(text, encoding="utf-8")
    (folder / "other.html").write_text("<!doctype html><p id='there'>text</p>", encoding="utf-8")
    visits = visit_all(*tab, folder)
    found = [*visits[folder / "page.html"].faults, *broken_links(visits, folder)]
    assert any(fault.startswith(BROKEN[defect]) for fault in found) if defect else found == []


# --- the explorer ------------------------------------------------------------------------------------------------

SCHEMES = {
    "plain": lambda f, _: f,
    "linear": lambda f, s: scaling.linear(f, s["factor"]),
    "ntk": lambda f, s: scaling.ntk(f, s["factor"]),
    "dynamic_ntk": lambda f, s: scaling.dynamic_ntk(f, s["factor"], length=extended(s), trained_length=s["trained"]),
    "yarn": lambda f, s: scaling.yarn(
        f, s["factor"], original_length=s["trained"], **{name: s[name] for name in ("base", *RAMP)}
    ),
    "llama3": lambda f, s: scaling.llama3(
        f, s["factor"], original_length=s["trained"], **{name: s[name] for name in BAND}
    ),
    "longrope": lambda f, s: scaling.longrope(
        f,
        **{name: [float(x) for x in s[name].split(",")] for name in ("short_factor", "long_factor")},
        original_length=s["trained"],
        length=extended(s),
    ),
}
ATTENTION = {
    "yarn": lambda s: scaling.yarn_attention_factor(s["factor"]),
    "longrope": lambda s: scaling.longrope_attention_factor(s["factor"], original_length=s["trained"]),
}
RAMP, BAND = ("beta_fast", "beta_slow", "truncate"), ("low_freq_factor", "high_freq_factor")


def extended(setting):
    """Return the longest sequence of a setting."""
    return setting["context"] or setting["trained"] * setting["factor"]


def settings(rng):
    """Draw settings of the explorer, with round numbers and others."""
    for scheme in SCHEMES:
        for _ in range(60):
            base, factor = 10 ** rng.uniform(0.5, 10), 2 ** rng.uniform(0, 10)
            slow, low = 2 ** rng.uniform(-3, 4), 2.0 ** int(rng.integers(-2, 3))
            if rng.random() < 0.5:
                base, factor, slow = float(f"{base:.1g}"), float(round(factor)), 1.0
            trained, head_dim = int(2 ** rng.uniform(5, 20)), 2 * int(rng.integers(1, 257))
            drawn = {"scheme": scheme, "base": base, "factor": factor, "trained": trained, "head_dim": head_dim}
            drawn |= {"beta_slow": slow, "beta_fast": slow * 2 ** int(rng.integers(0, 6))}
            drawn |= {"low_freq_factor": low, "high_freq_factor": low * int(rng.integers(1, 5))}
            drawn |= {name: int(rng.integers(0, 10_000)) for name in ("position", "key")}
            drawn |= {"pair": int(rng.integers(0, head_dim // 2)), "truncate": bool(rng.random() < 0.5)}
            drawn |= {
                "pairing": ["half", "interleaved"][rng.integers(2)],
                "context": ["", 1000, 2**21][rng.integers(3)],
            }
            drawn |= {"attention_factor": ["", 1.25][rng.integers(2)]}
            for name in ("short_factor", "long_factor"):
                drawn[name] = ", ".join(map(str, rng.uniform(1, 64, head_dim // 2)))
            yield drawn


def expected(setting):
    """Return the frequencies and the attention factor of a setting, from the library."""
    f = SCHEMES[setting["scheme"]](ra.frequencies(setting["head_dim"], base=setting["base"]), setting)
    factor = ATTENTION.get(setting["scheme"], lambda _: 1.0)(setting)
    return f, (setting["attention_factor"] or factor) if setting["scheme"] in ATTENTION else factor


@pytest.fixture
def explorer(site, tab):
    """Open the explorer; check at the end that it had no faults."""
    page, faults = tab
    page.goto((site / "explorer.html").as_uri())
    yield page
    assert faults == []


def test_the_explorer_agrees_with_the_library(explorer, rng):
    drawn = list(settings(rng))
    found = explorer.evaluate(
        "all => all.map(s => [ropeExplorer.frequencies(s), ropeExplorer.attentionFactor(s), ropeExplorer.inPython(s)])",
        drawn,
    )
    for setting, (frequencies, attention_factor, text) in zip(drawn, found, strict=True):
        ours = expected(setting)
        assert_allclose(frequencies, ours[0], rtol=1e-12, atol=0, err_msg=str(setting))
        assert_allclose(attention_factor, ours[1], rtol=1e-12)
        names = {}
        exec(text, names)  # noqa: S102  # the Python that the page shows
        assert_allclose(names["rope"].frequencies, ours[0], rtol=1e-12, atol=0, err_msg=text)
        assert_allclose(names["rope"].attention_factor, ours[1], rtol=1e-12)
        assert names["rope"].pairing == setting["pairing"]
        angles = (setting["position"] - setting["key"]) * np.asarray(ours[0])
        assert_allclose(names["angle"], angles[setting["pair"]], rtol=1e-12)
        assert_allclose(names["score"], np.cos(angles).mean(), rtol=0, atol=1e-9)


def test_the_explorer_reads_the_list_of_longrope(explorer):
    """The list is hidden for other schemes; without it the numbers rise from 1 to the factor."""
    box = explorer.get_by_label("long_factor")
    assert not box.is_visible()
    explorer.goto(f"{explorer.url}#scheme=longrope&head_dim=8&factor=8&base=10000&trained=4096")
    f, names = ra.frequencies(8), {}
    for typed, divisors in (("", [1, 2, 4, 8]), ("[1.0, 1.5, 2, 3]", [1, 1.5, 2, 3])):
        box.fill(typed)
        exec(explorer.locator("#ex-python").inner_text(), names)  # noqa: S102  # the Python that the page shows
        assert_allclose(names["rope"].frequencies, np.divide(f, divisors), rtol=1e-12)
    explorer.wait_for_function("location.hash.includes('long_factor=')")


PRESETS = {
    "llama-3.1": ("meta-llama/Llama-3.1-8B", {}, None),
    "qwen2.5": (
        "Qwen/Qwen2.5-7B-Instruct",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}},
        None,
    ),
    "deepseek-v3": ("deepseek-ai/DeepSeek-V3", {}, None),
    "gpt-oss": ("openai/gpt-oss-20b", {}, None),
    "gemma-3-global": ("google/gemma-3-4b-it", {}, "full_attention"),
    "gemma-3-local": ("google/gemma-3-4b-it", {}, "sliding_attention"),
}


def test_presets_have_the_numbers_of_published_configs(explorer):
    found = explorer.evaluate("""Object.entries(ropeExplorer.PRESETS).map(([name, { setting }]) => {
      const { state, faults } = ropeExplorer.complete(setting);
      return [name, state, faults, ropeExplorer.inPython(state), ropeExplorer.extended(state)];
    })""")
    assert [name for name, *_ in found] == [*PRESETS]
    for name, state, faults, text, longest in found:
        model, changes, layer_type = PRESETS[name]
        config = ra.config.published()[model] | changes
        (exact,) = [one for one in ra.config.explain(config) if layer_type in {None, one.layer_type}]
        names = {}
        exec(text, names)  # noqa: S102  # the Python that the page shows
        assert_allclose(names["rope"].frequencies, exact.rope.frequencies, rtol=1e-12, atol=0, err_msg=name)
        assert_allclose(names["rope"].attention_factor, exact.rope.attention_factor, rtol=1e-12)
        assert names["rope"].pairing == exact.rope.pairing and faults == []
        stated = config.get("max_position_embeddings")
        assert not stated or "gemma" in name or longest == (131_072 if name == "qwen2.5" else stated)
        scaled = config.get("rope_scaling") or {}
        assert state["trained"] == scaled.get("original_max_position_embeddings", 32_768)


def test_a_preset_is_chosen_by_its_name(explorer):
    models = explorer.get_by_role("combobox", name="model")
    assert models.input_value() == ""
    models.select_option("gpt-oss 20B")
    assert not explorer.get_by_label("truncate").is_checked()
    explorer.wait_for_function("location.hash.includes('truncate=false')")
    explorer.reload()
    assert models.input_value() == "gpt-oss"
    explorer.get_by_role("slider", name="beta_fast").press("ArrowRight")
    assert models.input_value() == "" and "beta_fast=48" in explorer.locator("#ex-python").inner_text()


READ = """configs => configs.map(config => {
  try {
    return ropeConfig.readConfig(config).map(([layers, setting]) => {
      const { state, faults } = ropeExplorer.complete(setting);
      if (faults.length) return [layers, faults];
      const [f, m] = [ropeExplorer.frequencies(state), ropeExplorer.attentionFactor(state)];
      return [layers, null, f, m, state.pairing, ropeExplorer.extended(state)];
    });
  } catch (error) {
    return error.message;
  }
})"""


def assert_read_right(config, found):
    """Check what the explorer has read in a config; return whether it drew all kinds of layers."""
    if isinstance(found, str):  # it says why it can't read it
        assert found and "undefined" not in found and "NaN" not in found, config
        return False
    kinds = {one.layer_type or "": one for one in ra.config.explain(config)}
    assert {layers for layers, *_ in found} == {*kinds} or [layers for layers, *_ in found] == [""], config
    for layers, faults, *drawn in found:
        if faults:
            continue
        frequencies, attention_factor, pairing, longest = drawn
        chosen = [layers] if layers else [*kinds]
        for kind in chosen:  # if the explorer draws one rotation, all layers have it
            rope = ra.Rope.from_config(config, layer_type=kind or None, sequence_length=int(longest))
            assert_allclose(rope.frequencies, frequencies, rtol=1e-12, atol=0, err_msg=str(config))
            assert_allclose(rope.attention_factor, attention_factor, rtol=1e-12, err_msg=str(config))
            assert (rope.pairing, rope.start) == (pairing, 0), config
    return not any(faults for _, faults, *_ in found)


def test_the_explorer_reads_published_configs_right_or_not_at_all(explorer):
    configs = ra.config.published()
    found = explorer.evaluate(READ, [json.dumps(config) for config in configs.values()])
    read = {name for (name, config), one in zip(configs.items(), found, strict=True) if assert_read_right(config, one)}
    assert len(read) >= 35
    assert {"meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b", "google/gemma-3-4b-it"} <= read
    assert {"microsoft/Phi-3.5-mini-instruct", "Qwen/Qwen3-8B"} <= read
    assert not {"Qwen/Qwen2-VL-2B-Instruct", "google/gemma-4-E2B-it", "HuggingFaceTB/SmolLM3-3B"} & read


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, **dict.fromkeys(BAND, 1.0)}
LISTS = {"short_factor": [1.0, 1.5] * 16, "long_factor": [2.0, 3.0] * 16}
SCALINGS = [
    None,
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    YARN,
    YARN | {"beta_fast": 16, "beta_slow": 2, "truncate": False},
    YARN | {"attention_factor": 1.1},
    YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    YARN | {"mscale": 0.7},
    YARN | {"type": "yarn"},
    YARN | {"type": "linear"},
    YARN | {"rope_theta": 77_777.0},
    YARN | {"factor": None},
    YARN | {"extrapolation_factor": 1.0},
    LLAMA3,
    LLAMA3 | {"high_freq_factor": 4.0},
    {"rope_type": "longrope", **LISTS},
    {"rope_type": "longrope", "original_max_position_embeddings": 4096, **LISTS},
    {"rope_type": "longrope", "original_max_position_embeddings": 4096, "factor": 3.0, **LISTS},
    {"rope_type": "su", "original_max_position_embeddings": 4096, **LISTS},
    {"rope_type": "longrope", "original_max_position_embeddings": 4096, "short_factor": [1.0], "long_factor": [2.0]},
    {"rope_type": "default", "mrope_section": [8, 12, 12]},
    {"rope_type": "proportional", "partial_rotary_factor": 0.5},
    {"rope_type": "dynamic", "alpha": 1000.0},
    {"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}, "full_attention": YARN | {"rope_theta": 1e6}},
    {"sliding_attention": {"rope_type": "default"}, "full_attention": {"rope_type": "default"}},
    "yarn",
]
OTHERS = [
    {},
    {"rope_theta": 123_456.0},
    {"rope_theta": "10000"},
    {"head_dim": None},
    {"partial_rotary_factor": 0.5},
    {"partial_rotary_factor": 1.0},
    {"rope_interleave": True},
    {"rope_interleave": False},
    {"rotary_pct": 0.5},
    {"layer_types": ["sliding_attention", "full_attention"]},
    {"layer_types": ["linear_attention", "full_attention"]},
    {"no_rope_layers": [1, 0]},
    {"max_position_embeddings": None},
    {"original_max_position_embeddings": 2048},
    {"head_dim": 48, "hidden_size": 500},
    {"text_config": {"model_type": "llama"}},
]


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_the_explorer_reads_made_configs_right_or_not_at_all(explorer, key):
    """For each model type that it knows, with scalings and keys that fit it and that do not."""
    configs = []
    for name in explorer.evaluate("ropeConfig.types"):
        plain = {"model_type": name, "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2}
        plain |= {"max_position_embeddings": 32_768, "head_dim": 64}
        if name in {"deepseek_v2", "deepseek_v3", "kimi_k2"}:
            plain = {key: value for key, value in plain.items() if key != "head_dim"} | {"qk_rope_head_dim": 64}
        configs += [plain | {key: given} | other for given in SCALINGS for other in OTHERS]
    found = explorer.evaluate(READ, [json.dumps(config) for config in configs])
    drawn = [config["model_type"] for config, one in zip(configs, found, strict=True) if assert_read_right(config, one)]
    assert min(drawn.count(name) for name in {*drawn}) > 5 and len({*drawn}) == 27


def test_a_pasted_config_is_drawn(explorer):
    config = ra.config.published()["google/gemma-3-4b-it"]
    explorer.get_by_text("Paste a config.json").click()
    box = explorer.get_by_label("config.json", exact=True)
    box.fill(json.dumps(config))
    explorer.get_by_text("Drawn: its sliding_attention layers.").wait_for()
    explorer.get_by_role("combobox", name="layers").select_option("full_attention")
    names = {}
    exec(explorer.locator("#ex-python").inner_text(), names)  # noqa: S102  # the Python that the page shows
    exact = ra.Rope.from_config(config, layer_type="full_attention")
    assert_allclose(names["rope"].frequencies, exact.frequencies, rtol=1e-12)
    for text, reason in {
        json.dumps(ra.config.published()["Qwen/Qwen3-VL-4B-Instruct"]): "does not know the model type qwen3_vl_text.",
        json.dumps(ra.config.published()["meta-llama/Llama-3.1-8B"] | {"rope_scaling": {"rope_type": "new"}}): (
            'does not draw the rope type "new".'
        ),
        json.dumps({"model_type": "llama", "head_dim": 63}): "63 features would rotate, which is no even number.",
        "{": "it is not JSON: ",
        "[]": "it is not a JSON object.",
    }.items():
        box.fill(text)
        said = explorer.locator("#ex-read").inner_text()
        assert said.startswith("The explorer can't read this config: ") and reason in said
        assert said.endswith("Use rope-any inspect config.json, which reads more models.")
    assert not explorer.get_by_role("combobox", name="layers").is_visible()


def test_the_explorer_computes_scores(explorer):
    f, distances = ra.frequencies(64, base=500_000.0), [0, 1, 7, 100, 4096, 100_000]
    found = explorer.evaluate("([f, distances]) => distances.map(r => ropeExplorer.score(f, r))", [f, distances])
    cos, _ = ra.cos_sin(np.asarray(distances), f, dtype=np.float64)
    assert_allclose(found, np.mean(cos, axis=-1), rtol=0, atol=1e-9)


def test_values_are_read_under_the_pointer(explorer):
    waves, said = explorer.locator("#ex-wavelengths svg"), explorer.locator("#ex-wavelengths output")
    waves.scroll_into_view_if_needed()
    box = waves.bounding_box()
    explorer.mouse.move(box["x"] + box["width"] - 9, box["y"] + 100)
    plain, ours = (2 * np.pi / f[-1] for f in (ra.frequencies(128), expected(ra_setting())[0]))
    wrote = said.inner_text()
    assert wrote.startswith("pair 63: plain 54\u00a0410 tokens, YaRN ")
    assert int(wrote.split("YaRN ")[1].removesuffix(" tokens").replace("\u00a0", "")) == round(ours) and plain < ours
    explorer.mouse.move(0, 0)
    assert said.inner_text() == ""
    waves.focus()
    waves.press("Home")
    waves.press("Home")
    assert said.inner_text() == "pair 0: plain 6.283 tokens, YaRN 6.283 tokens"
    waves.press("ArrowRight")
    assert said.inner_text().startswith("pair 1: plain 7.256 tokens")
    score = explorer.locator("#ex-score svg")
    score.focus()
    assert said.inner_text() == ""
    score.press("End")
    score.press("End")
    assert explorer.locator("#ex-score output").inner_text().startswith("distance 32\u00a0768: plain ")
    assert explorer.locator("#ex-score circle.dot").count() == 2


def ra_setting():
    """Return the setting that the explorer begins with."""
    return {
        "scheme": "yarn",
        "base": 10_000,
        "head_dim": 128,
        "factor": 4,
        "trained": 4096,
        "context": "",
        "beta_fast": 32,
        "beta_slow": 1,
        "truncate": True,
        "attention_factor": "",
    }


def test_a_hand_of_the_clock_is_chosen_by_a_click(explorer):
    clock = explorer.locator("#ex-clock svg")
    clock.scroll_into_view_if_needed()
    hand = clock.locator("circle.scaled").first
    box = hand.bounding_box()
    explorer.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert explorer.locator("#ex-clock > output").inner_text().startswith("pair 0: ")
    assert explorer.locator("#ex-relation").inner_text().startswith("Pair 0: ")
    angle = "The angle between them is 10 × 1 = 10 rad, and its cosine -0.839."
    assert angle in explorer.locator("#ex-relation").inner_text()
    explorer.get_by_role("slider", name="key at").press("Home")
    assert "1\u00a0000 × 1 = 1000 rad" in explorer.locator("#ex-relation").inner_text()


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_explorer_plays(explorer, motion):
    """Query and key move together; with reduced motion, by one step a second."""
    explorer.emulate_media(reduced_motion=motion)
    button, at = explorer.locator("#ex-play"), explorer.locator("#ex-position + output")
    position = lambda: int(at.inner_text().replace("\u00a0", ""))  # noqa: E731
    assert position() == 1000
    button.click()
    assert button.inner_text() == "pause"
    explorer.wait_for_timeout(700)
    assert position() == 1000 if motion == "reduce" else position() > 1003
    explorer.wait_for_function("document.querySelector('#ex-position + output').value !== '1\u00a0000'")
    button.click()
    assert button.inner_text() == "play"
    still = position()
    assert int(explorer.locator("#ex-key + output").inner_text().replace("\u00a0", "")) == still - 10
    explorer.wait_for_timeout(1200 if motion == "reduce" else 300)
    assert position() == still
    explorer.emulate_media(reduced_motion="no-preference")


@pytest.mark.parametrize("tab", ["phone"], indirect=True)
def test_on_a_phone_the_picture_comes_first(explorer):
    clock = explorer.locator("#ex-clock svg").bounding_box()
    assert clock["y"] + clock["height"] < explorer.viewport_size["height"]
    assert not explorer.get_by_role("slider", name="base").is_visible()
    assert explorer.get_by_role("slider", name="query at").is_visible()
    explorer.locator("#ex-settings > summary").click()
    assert explorer.get_by_role("slider", name="base").is_visible()
    explorer.get_by_role("combobox", name="scheme").select_option("LongRoPE")
    assert explorer.evaluate("document.documentElement.scrollWidth <= innerWidth")
    waves = explorer.locator("#ex-wavelengths svg")
    waves.scroll_into_view_if_needed()
    waves.click()
    assert explorer.locator("#ex-wavelengths output").inner_text().startswith("pair ")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_explorer_never_scrolls_sideways(explorer, width):
    explorer.set_viewport_size({"width": width, "height": 900})
    explorer.reload()
    assert explorer.locator("#ex-settings").evaluate("e => e.open") == (width == 1280)
    explorer.evaluate("document.querySelectorAll('#rope-explorer details').forEach(e => { e.open = true; })")
    schemes = explorer.get_by_role("combobox", name="scheme")
    for name in schemes.locator("option").all_text_contents():
        schemes.select_option(name)
        assert explorer.evaluate("document.documentElement.scrollWidth") == width
        right = explorer.locator("#rope-explorer form :visible").evaluate_all(
            "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
        )
        assert right <= width


def test_values_in_the_wrong_order_are_refused(explorer):
    explorer.goto(f"{explorer.url}#scheme=llama3&low_freq_factor=4&high_freq_factor=4")
    low = explorer.get_by_role("slider", name="low_freq_factor")
    assert low.get_attribute("aria-valuetext") == "4 turns"
    low.press("ArrowRight")
    explorer.get_by_text("high_freq_factor must be at least low_freq_factor.", exact=True).wait_for()
    assert low.get_attribute("aria-valuetext") == "4 turns"
    low.press("ArrowLeft")
    assert low.get_attribute("aria-valuetext") == "2 turns"
    assert explorer.locator("[role=alert]").inner_text() == ""


def test_the_explorer_draws_its_settings(explorer):
    """By the keyboard, by the buttons, and by the address."""
    base = explorer.get_by_role("slider", name="base")
    base.press("End")
    explorer.get_by_role("combobox", name="scheme").select_option("Llama 3")
    explorer.get_by_role("slider", name="trained").press("ArrowRight")
    explorer.get_by_role("button", name="one token on").click()
    explorer.wait_for_function("location.hash.includes('position=1001')")
    setting = {
        "scheme": "llama3",
        "base": 100_000_000,
        "head_dim": 128,
        "pairing": "half",
        "trained": 8192,
        "factor": 4,
    }
    setting |= {"low_freq_factor": 1, "high_freq_factor": 4, "position": 1001, "key": 991, "pair": 21}
    assert parse_qs(explorer.url.split("#")[1]) == {key: [str(value)] for key, value in setting.items()}
    explorer.get_by_role("button", name="copy").click()
    assert explorer.evaluate("String(getSelection())") == explorer.locator("#ex-python").inner_text()
    explorer.reload()
    assert base.get_attribute("aria-valuetext") == "100\u00a0000\u00a0000"
    hands = explorer.locator("#ex-clock circle.scaled").evaluate_all(
        "all => all.map(e => [+e.getAttribute('cx'), +e.getAttribute('cy')])"
    )
    x, y = (np.asarray(hands) - _middle(explorer)).T
    frequencies, _ = expected(setting | {"context": ""})
    assert_allclose(np.exp(1j * np.arctan2(-y, x)), np.exp(1001j * np.asarray(frequencies)), atol=1e-9)
    status = explorer.get_by_role("status").filter(has_text="pairs")
    slow = [sum(2 * np.pi / f > 8192 for f in row) for row in (ra.frequencies(128, base=1e8), frequencies)]
    status.filter(has_text=f"{slow[0]} of 64 pairs don't complete a turn, with Llama 3 {slow[1]}.").wait_for()


def test_the_explorer_draws_lengths_to_scale(explorer):
    """With linear scaling all wavelengths rise by as much as the context is extended."""
    explorer.get_by_role("combobox", name="scheme").select_option("linear")
    lines = {name: _heights(explorer, f"#ex-wavelengths path.{name}") for name in ("plain", "scaled", "mark")}
    assert len(lines["plain"]) == 64
    assert_allclose(lines["plain"] - lines["scaled"], np.ptp(lines["mark"]), atol=0.21)  # lines are written in tenths
    assert np.ptp(lines["mark"]) > 20


@pytest.mark.parametrize("tab", ["phone", "laptop"], indirect=True)
@pytest.mark.parametrize("setting", ["factor=4", "factor=1", "factor=1.5", "trained=128&factor=128", "scheme=plain"])
def test_no_line_of_the_explorer_crosses_a_length_label(explorer, setting):
    explorer.goto(f"{explorer.url}#{setting}")
    explorer.wait_for_function("setting => location.hash.slice(1) === setting", arg=setting)
    crossed = explorer.evaluate(r"""() => ["wavelengths", "score"].flatMap(kind => {
      const all = selector => [...document.querySelectorAll(`#ex-${kind} ${selector}`)];
      const names = all("text").filter(text => /trained|extended/.test(text.textContent));
      const over = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
      const lines = all("path.mark").map(line => line.getBBox());
      const boxes = names.map(name => name.getBBox());
      return [
        ...(names.length === lines.length ? [] : ["a name is missing"]),
        ...names.filter((_, i) => lines.some(line => over(boxes[i], line))).map(name => name.textContent),
        ...names.filter((_, i) => boxes.some((box, j) => i < j && over(boxes[i], box))).map(name => name.textContent),
      ];
    })""")
    assert crossed == []


def _heights(page, selector):
    """Return the heights of the points of lines."""
    lines = page.locator(selector).evaluate_all("all => all.map(line => line.getAttribute('d'))")
    return np.asarray([float(point.split()[1]) for line in lines for point in line.strip("M").split("L")])


def _middle(page):
    """Return the centre of the clock."""
    face = page.locator("#ex-clock circle.axis")
    return [float(face.get_attribute(name)) for name in ("cx", "cy")]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("head_dim=7", "head_dim must be an even number from 2 to 1\u00a0024; got 7."),
        ("position=0.5", "position must be a whole number from 0 to 2\u00a0147\u00a0483\u00a0647; got 0.5."),
        ("factor=", "factor must be a number from 1 to 1\u00a0024; got ."),
        ("factor=1e6", "factor must be a number from 1 to 1\u00a0024; got 1e6."),
        ("trained=2147483648", "trained must be a whole number from 1 to 16\u00a0777\u00a0216; got 2147483648."),
        (
            "scheme=toString",
            "scheme must be one of plain, linear, ntk, dynamic_ntk, yarn, llama3, longrope; got toString.",
        ),
        (
            "scheme=longrope&head_dim=8&long_factor=1,2",
            "long_factor must be 4 positive numbers, one for each pair; got 2.",
        ),
        ("scheme=longrope&trained=1", "trained must be more than 1 token with LongRoPE."),
    ],
)
def test_the_explorer_reports_what_it_cannot_draw(explorer, address, message):
    explorer.goto(f"{explorer.url}#{address}")
    explorer.get_by_text(message, exact=True).wait_for()


@pytest.mark.parametrize("setting", ["trained=3&factor=1&head_dim=2", "trained=1&head_dim=2", "head_dim=1024"])
def test_the_explorer_has_ticks(explorer, setting):
    explorer.goto(f"{explorer.url}#{setting}")
    for kind in ("wavelengths", "score"):
        for anchor in ("middle", "end"):  # of the numbers below, with the label of that axis; of those at the left
            texts = explorer.locator(f"#ex-{kind} text[text-anchor={anchor}]").all_text_contents()
            assert sum(text.replace("\u00a0", "").replace(".", "").isdigit() for text in texts) >= 2, (kind, texts)
            assert anchor == "end" or not any("." in text for text in texts)  # pairs and tokens are integers


def test_the_explorer_is_exact_at_its_limits(explorer):
    """Its largest distance, with the fastest pair, is compared with 60 digits."""
    f, furthest = ra.frequencies(128), 2 * 2**24 * 1024 - 1
    found = explorer.evaluate("([f, r]) => ropeExplorer.score(f, r)", [f, furthest])
    assert_allclose(found, exact([furthest], f).cos.mean(), rtol=0, atol=1e-5)


def test_the_explorer_page_works_without_scripts(site, browser):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto((site / "explorer.html").as_uri())
        assert page.get_by_text("The explorer needs JavaScript").is_visible()
        assert not page.get_by_label("base").is_visible()


# --- the pages of asv -------------------------------------------------------------------------------------------------


@pytest.mark.thread_unsafe(reason="it starts processes")
def test_pages_of_asv_have_a_graph_for_each_benchmark(browser, tmp_path):
    pytest.importorskip("asv", reason="asv is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("the sources are not a git checkout")
    options = ["HEAD", "--bench", "timeraw_import$", "--quick", "--output", str(tmp_path / "html")]
    command = [sys.executable, str(ROOT / "asv_benchmarks" / "pages.py"), *options]
    env = os.environ | {"HOME": str(tmp_path)}  # asv writes there
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "html")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, page = f"http://127.0.0.1:{server.server_port}", browser.new_page()
        failed = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        page.goto(f"{url}/#bench_import.timeraw_import")
        about = page.request.get(f"{url}/index.json").json()
        assert "bench_import.timeraw_import" in about["benchmarks"]
        (graph,) = (tmp_path / "html" / "graphs").rglob("summary/bench_import.timeraw_import.json")
        ((revision, seconds),) = page.request.get(f"{url}/{graph.relative_to(tmp_path / 'html').as_posix()}").json()
        assert str(revision) in about["revision_to_hash"]
        assert 0 < seconds < 60
        if not [url for url in failed if "://127.0.0.1" not in url]:  # asv's pages take their scripts from the web
            page.wait_for_selector("#main-graph canvas")
        assert all(page.request.get(f"{url}/{name}").ok for name in ("index.html", "asv.js", "graphdisplay.js"))
        page.close()
        server.shutdown()
