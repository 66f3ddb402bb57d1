"""The site as its readers meet it: built whole, and every page of it opened in a browser, on a phone and on a desk."""

import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

pytest.importorskip("sphinx", reason="sphinx is not installed")

ROOT = Path(__file__).parent.parent
SOURCES = ["docs", "examples", "src", "tests"]  # what pages are made of: tests for the configs that they draw
WIDTHS = {"phone": (390, 844), "desktop": (1440, 900)}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# What is wrong with the page itself, and what it has for others: its anchors, and where its links lead.
LOOK = """async () => {
  const images = [...document.images];
  images.forEach(image => { image.loading = "eager"; });
  await Promise.allSettled(images.map(image => image.decode()));
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  // What stands out of the window; not the document's width, which a theme may hide, or let scroll.
  const held = e => e.localName !== "article" && (getComputedStyle(e).overflowX !== "visible" || held(e.parentElement));
  const wide = [...document.querySelectorAll("article *")].filter(e => {
    const { left, right } = e.getBoundingClientRect();
    return (left < 0 || right > innerWidth) && e.checkVisibility({ visibilityProperty: true }) && !held(e.parentElement);
  });
  return {
    faults: [
      ...images.filter(image => !image.naturalWidth).map(image => `broken image ${image.src}`),
      ...ids.filter((id, i) => ids.indexOf(id) !== i).map(id => `two elements with the id ${id}`),
      ...wide.filter(e => !wide.some(other => other.parentElement === e)).map(e => `out of the window: ${e.outerHTML.slice(0, 80)}`),
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
    """Build the site without a network, from a copy, since the build may write beside its sources."""
    folder = tmp_path_factory.mktemp("site")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
    command = [sys.executable, "-m", "sphinx", "-qW", "--keep-going", "-b", "html", "-d", "doctrees", "docs", "html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as run:
        yield run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def opened(browser, request):
    """Return a page of the browser, of a width, and the list that its faults go to."""
    width, height = WIDTHS[getattr(request, "param", "desktop")]
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        page = context.new_page()
        yield page, noted(page)


def noted(page):
    """Return a list to which a page adds what goes wrong in it, or leaves the machine."""
    faults = []

    def asked(request):
        address = urlsplit(request.url)
        if address.scheme not in {"file", "data", "blob"} and address.hostname != "127.0.0.1":
            faults.append(f"asked for {request.url}")

    page.on("console", lambda said: said.type in {"error", "warning"} and faults.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("requestfailed", lambda request: faults.append(f"failed: {request.url}"))
    page.on("response", lambda answer: answer.status >= 400 and faults.append(f"{answer.status}: {answer.url}"))
    page.on("request", asked)
    return faults


def visit(page, faults, file):
    """Open a file in a page, and return what is there to be seen."""
    faults.clear()
    page.goto(file.as_uri())
    seen = page.evaluate(LOOK)
    return Visit([*faults, *seen["faults"]], set(seen["anchors"]), set(seen["links"]))


def visited(page, faults, folder):
    """Open every page of a folder."""
    return {file: visit(page, faults, file) for file in sorted(folder.rglob("*.html"))}


def astray(visits):
    """Return the links that lead nowhere: to no file, no anchor, or no address that a browser could ask for."""
    for file, seen in visits.items():
        for link in seen.links:
            address, anchor = urldefrag(link)
            scheme, host, path, *_ = urlsplit(address)
            if scheme == "file":
                target = Path(unquote(path))
                known = visits[target].anchors if target in visits else {""}
                good = target.is_file() and unquote(anchor) in known | {"", "top"}
            else:
                good = scheme == "mailto" or (scheme in {"http", "https"} and re.fullmatch(r"[\w-]+(\.[\w-]+)+", host))
            if not good:
                yield f"{file.name}: {link}"


def test_the_site_is_built(site):
    assert "rotary position embedding" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("opened", WIDTHS, indirect=True)
def test_every_page(site, opened):
    visits = visited(*opened, site)
    assert {file.name: seen.faults for file, seen in visits.items() if seen.faults} == {}
    assert sorted(astray(visits)) == []


def test_search(site, opened):
    page, faults = opened
    serve = partial(_Quiet, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator("input[name=q]").first.fill("pairing")
        page.keyboard.press("Enter")
        results = page.locator("#search-results li a")
        results.first.wait_for()
        assert any("words" in found.get_attribute("href") for found in results.all())
        server.shutdown()
    assert faults == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Keep the log of requests out of that of the tests."""


SOUND = "<p id='here'>text</p><a href='#here'>here</a><a href='other.html#there'>there</a>"
BROKEN = {
    "<script>console.error('oh')</script>": "error: oh",
    "<script>console.warn('well')</script>": "warning: well",
    "<script>undefined.call()</script>": "error: Cannot read",
    "<script src='gone.js'></script>": "failed: ",
    "<img src='gone.png'>": "broken image",
    "<img src='data:image/png;base64,AAAA'>": "broken image",
    "<script src='https://elsewhere.invalid/x.js'></script>": "asked for https://elsewhere.invalid/x.js",
    "<div style='width: 2000px'>wide</div>": "out of the window: <div",
    "<p id='here'>again</p>": "two elements with the id here",
    "<a href='gone.html'>link</a>": "page.html: file://",
    "<a href='other.html#gone'>link</a>": "page.html: file://",
    "<a href='#gone'>link</a>": "page.html: file://",
    "<a href='https://nowhere/'>link</a>": "page.html: https://nowhere/",
}


@pytest.mark.parametrize("defect", ["", *BROKEN])
def test_the_tests_above_can_fail(defect, opened, tmp_path):
    (tmp_path / "page.html").write_text(f"<!doctype html><meta charset='utf-8'><article>{SOUND}{defect}</article>", encoding="utf-8")
    (tmp_path / "other.html").write_text("<!doctype html><p id='there'>text</p>", encoding="utf-8")
    visits = visited(*opened, tmp_path)
    found = [*visits[tmp_path / "page.html"].faults, *astray(visits)]
    assert any(fault.startswith(BROKEN[defect]) for fault in found) if defect else found == []
