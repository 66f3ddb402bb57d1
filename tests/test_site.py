"""The built site: every page is opened in a browser, at the widths of phones and desktops."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

import numpy as np
import oracle
import pytest
import words
from numpy.testing import assert_allclose

import rope_any as ra

pytestmark = [
    pytest.mark.long,
    pytest.mark.thread_unsafe(reason="a browser can be used only in the thread that started it"),
]

for needed in ("furo", "matplotlib", "myst_parser", "sphinx_gallery"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

ROOT = Path(__file__).parent.parent
# Sources of the pages besides the README and similar files; of the tests, only the configs are used.
SOURCES = ["docs", "examples", "src", "tests"]
WIDTHS = {
    "phone": {"width": 390, "height": 844},
    "laptop": {"width": 1300, "height": 850},
    "desktop": {"width": 1440, "height": 900},
}
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
  // Phones scroll code, and so do the sources of modules, whose lines are longer than those of pages.
  const scrolls = innerWidth < 1000 || location.pathname.includes("/_modules/");
  const code = scrolls ? [] : [...document.querySelectorAll("article pre")];
  return {
    faults: [
      ...images.filter(image => !image.naturalWidth).map(image => `broken image ${image.src}`),
      ...ids.filter((id, i) => ids.indexOf(id) !== i).map(id => `two elements with the id ${id}`),
      ...wide.filter(e => !wide.some(other => other.parentElement === e))
        .map(e => `out of the window: ${e.outerHTML.slice(0, 80)}`),
      ...code.filter(e => e.scrollWidth > e.clientWidth)
        .map(e => `code wider than its box by ${e.scrollWidth - e.clientWidth}: ${e.innerText.slice(0, 80)}`),
    ],
    anchors: ids,
    links: [...document.querySelectorAll("a[href]")].map(link => link.href),
  };
}"""


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
def shared_page():
    """Open one page of a headless Chromium for all tests, and a list of its faults; skip without Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as run:
        chromium = run.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page()
        yield page, collect_faults(page)
        chromium.close()


@pytest.fixture
def tab(shared_page):
    """Return an empty page, and the list of its faults."""
    page, faults = shared_page
    page.goto("about:blank")
    page.set_viewport_size(WIDTHS["desktop"])
    faults.clear()
    return page, faults


def collect_faults(page):
    """Return a list to which a page appends its errors and its requests to other hosts."""
    faults = []

    def requested(request):
        """Record a request to another host."""
        if urlsplit(request.url).scheme not in {"file", "data", "blob"}:
            faults.append(f"requested {request.url}")

    def failed(request):
        """Record a request that failed, unless the page was left before the answer came."""
        if request.failure != "net::ERR_ABORTED":
            faults.append(f"failed: {request.url}")

    page.on("request", requested)
    page.on("requestfailed", failed)
    page.on("console", lambda log: log.type in {"error", "warning"} and faults.append(f"{log.type}: {log.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    return faults


def inspect_all(page, faults, folder):
    """Open every page of a folder at each width; return {file name: faults}, {file: links} and {file: anchors}."""
    found, links, anchors = {}, {}, {}
    for file in sorted(folder.rglob("*.html")):
        faults.clear()
        page.set_viewport_size(WIDTHS["phone"])
        page.goto(file.as_uri())
        seen = []
        for size in WIDTHS.values():
            page.set_viewport_size(size)
            seen.append(page.evaluate(INSPECT))
        if faults or any(one["faults"] for one in seen):
            found[file.relative_to(folder).as_posix()] = [*faults, *(fault for one in seen for fault in one["faults"])]
        links[file], anchors[file] = ({what for one in seen for what in one[key]} for key in ("links", "anchors"))
    return found, links, anchors


def broken_links(links, anchors, folder):
    """Yield the links to missing files, missing anchors and malformed addresses."""
    for file, addresses in links.items():
        for link in addresses:
            address, anchor = urldefrag(link)
            scheme, host, path, *_ = urlsplit(address)
            if scheme == "file":
                target = Path(unquote(path))
                known = anchors.get(target, {""})
                valid = target.is_file() and target.is_relative_to(folder) and unquote(anchor) in known | {"", "top"}
            else:
                valid = scheme == "mailto" or (scheme in {"http", "https"} and re.fullmatch(r"[\w-]+(\.[\w-]+)+", host))
            if not valid:
                yield f"{file.name}: {link}"


def test_every_page_opens_without_faults(site, tab):
    faults, links, anchors = inspect_all(*tab, site)
    assert faults == {}
    assert sorted(broken_links(links, anchors, site)) == []


def test_the_pages_together_are_short_enough_to_read(site):
    counts = words.pages(site.parent / "docs")
    assert counts["index"] and counts["examples/generate_torch"] > 300  # with its source
    assert sum(counts.values()) <= 55_000, sorted(counts.items(), key=lambda row: -row[1])[:10]


def test_a_link_to_the_site_shows_its_title_and_a_picture(site, tab):
    page, _ = tab
    page.goto((site / "index.html").as_uri())
    said = {name: page.locator(f"meta[property='og:{name}']").get_attribute("content") for name in ("title", "image")}
    assert said["title"] == "rope_any"
    assert (site / said["image"]).read_bytes().startswith(b"\x89PNG")


def test_search_finds_the_pages_with_a_word(site, tab):
    page, _ = tab
    page.goto((site / "index.html").as_uri())
    box = page.get_by_placeholder("Search").first
    box.fill("zigzag")
    box.press("Enter")
    page.get_by_text("Search finished").wait_for()
    found = page.locator("#search-results li a").evaluate_all("links => links.map(link => link.pathname)")
    assert (site / "packing-and-sharding.html").as_posix() in found
    assert (site / "precision.html").as_posix() not in found


VALID = "<p id='here'>text</p><a href='#here'>here</a><a href='other.html#there'>there</a>"
BROKEN = {
    "<script>console.warn('well')</script>": "warning: well",
    "<script>undefined.call()</script>": "error: Cannot read",
    "<script src='gone.js'></script>": "failed: ",
    "<img src='data:image/png;base64,AAAA'>": "broken image",
    "<script src='https://elsewhere.invalid/x.js'></script>": "requested https://elsewhere.invalid/x.js",
    "<div style='width: 2000px'>wide</div>": "out of the window: <div",
    f"<pre style='overflow: auto'>{'wide' * 99}</pre>": "code wider than its box by ",
    "<p id='here'>again</p>": "two elements with the id here",
    "<a href='gone.html'>link</a>": "page.html: file://",
    "<a href='../outside.html'>link</a>": "page.html: file://",
    "<a href='other.html#gone'>link</a>": "page.html: file://",
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
    faults, links, anchors = inspect_all(*tab, folder)
    found = [*faults.get("page.html", []), *broken_links(links, anchors, folder)]
    assert any(fault.startswith(BROKEN[defect]) for fault in found) if defect else found == []


# --- the explorer -----------------------------------------------------------------------------------------------------

# What the Python of the explorer must state of a setting, besides its base and head_dim.
STATED = {
    "plain": "",
    "linear": "factor",
    "ntk": "factor",
    "dynamic_ntk": "factor trained extended",
    "yarn": "factor trained beta_fast beta_slow",
    "llama3": "factor trained low_freq_factor high_freq_factor",
    "longrope": "trained extended",
}


def settings(rng):
    """Draw settings of the explorer, with round numbers and others."""
    for scheme in STATED:
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
            drawn["pair"] = int(rng.integers(0, head_dim // 2))
            choices = {"truncate": [True, False], "pairing": ["half", "interleaved"], "attention_factor": ["", 1.25]}
            choices["context"] = ["", 1000, 2**21]
            drawn |= {name: values[rng.integers(len(values))] for name, values in choices.items()}
            for name in ("short_factor", "long_factor"):
                drawn[name] = ", ".join(map(str, rng.uniform(1, 64, head_dim // 2)))
            yield drawn | {"extended": drawn["context"] or trained * factor}


def executed(text):
    """Return the names that the Python of the explorer defines."""
    names = {}
    exec(text, names)  # noqa: S102
    return names


@pytest.fixture
def explorer(site, tab):
    """Open the explorer; check at the end that it had no faults."""
    page, faults = tab
    page.goto((site / "explorer.html").as_uri())
    yield page
    assert faults == []


def test_the_explorer_agrees_with_the_library(explorer, rng):
    """Its numbers are those of the Python that it shows, which states the whole setting."""
    drawn = list(settings(rng))
    found = explorer.evaluate(
        "all => all.map(s => [ropeExplorer.frequencies(s), ropeExplorer.attentionFactor(s), ropeExplorer.inPython(s)])",
        drawn,
    )
    for setting, (frequencies, attention_factor, text) in zip(drawn, found, strict=True):
        names, scheme = executed(text), setting["scheme"]
        rope, f = names["rope"], np.asarray(names["rope"].frequencies)
        assert_allclose(frequencies, f, rtol=1e-12, atol=0, err_msg=text)
        assert_allclose(attention_factor, rope.attention_factor, rtol=1e-12)
        assert (rope.pairing, 2 * len(f)) == (setting["pairing"], setting["head_dim"])
        numbers = {float(number) for number in re.findall(r"\d[\d_.]*(?:e[+-]?\d+)?", text)}
        assert {float(setting[name]) for name in ["base", *STATED[scheme].split()]} <= numbers, (setting, text)
        assert scheme != "yarn" or ("truncate=False" in text) != setting["truncate"]
        if setting["attention_factor"]:
            assert rope.attention_factor == (1.25 if scheme in {"yarn", "longrope"} else 1)
        angles = (setting["position"] - setting["key"]) * f
        assert_allclose(names["angle"], angles[setting["pair"]], rtol=1e-12)
        assert_allclose(names["score"], np.cos(angles).mean(), rtol=0, atol=1e-9)


def test_the_explorer_is_exact_at_its_limits(explorer):
    """Its largest distance, with the fastest pair, is compared with 60 digits."""
    f, furthest = ra.frequencies(128), 2 * 2**24 * 1024 - 1
    found = explorer.evaluate("([f, r]) => ropeExplorer.score(f, r)", [f, furthest])
    assert_allclose(found, oracle.cos_sin([furthest], f)[0].mean(), rtol=0, atol=1e-5)


QWEN = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}}
PRESETS = {
    "llama-3.1": ("meta-llama/Llama-3.1-8B", {}, None),
    "qwen2.5": ("Qwen/Qwen2.5-7B-Instruct", QWEN, None),
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
        (exact,) = [one for one in ra.config.read(config).explain() if layer_type in {None, one.layer_type}]
        names = executed(text)
        assert_allclose(names["rope"].frequencies, exact.rope.frequencies, rtol=1e-12, atol=0, err_msg=name)
        assert_allclose(names["rope"].attention_factor, exact.rope.attention_factor, rtol=1e-12)
        assert names["rope"].pairing == exact.rope.pairing and faults == []
        stated = config.get("max_position_embeddings")
        assert not stated or "gemma" in name or longest == (131_072 if name == "qwen2.5" else stated)
        scaled = config.get("rope_scaling") or {}
        assert state["trained"] == scaled.get("original_max_position_embeddings", 32_768)


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
    kinds = {one.layer_type or "": one for one in ra.config.read(config).explain()}
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
    assert {model for model, *_ in PRESETS.values()} | {"microsoft/Phi-3.5-mini-instruct", "Qwen/Qwen3-8B"} <= read
    assert not {"Qwen/Qwen2-VL-2B-Instruct", "google/gemma-4-E2B-it", "HuggingFaceTB/SmolLM3-3B"} & read


def test_keys_of_whole_files_that_say_nothing_of_the_rotation_do_not_prevent_drawing(explorer):
    others = {"moe_layer_freq": 1, "routed_scaling_factor": 2.5, "logits_scaling": 8.0, "use_mrope": False}
    models = [ra.config.published()[name] | others for name in ("deepseek-ai/DeepSeek-V3", "Qwen/Qwen2.5-7B-Instruct")]
    for model, found in zip(models, explorer.evaluate(READ, [*map(json.dumps, models)]), strict=True):
        assert assert_read_right({key: model[key] for key in model.keys() - others}, found)
    assert isinstance(explorer.evaluate(READ, [json.dumps(models[0] | {"use_mrope": True})])[0], str)


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 1.0}
LISTS = {"short_factor": [1.0, 1.5] * 16, "long_factor": [2.0, 3.0] * 16}
SCALINGS = [
    None,
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    YARN,
    YARN | {"beta_fast": 16, "beta_slow": 2, "truncate": False},
    YARN | {"attention_factor": 1.1},
    YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    YARN | {"type": "linear"},
    YARN | {"rope_theta": 77_777.0},
    YARN | {"factor": None},
    YARN | {"extrapolation_factor": 1.0},
    LLAMA3,
    LLAMA3 | {"high_freq_factor": 4.0},
    {"rope_type": "longrope", **LISTS},
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
    {"rope_interleave": True},
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
    explorer.get_by_text("The picture shows its sliding_attention layers.").wait_for()
    explorer.get_by_role("combobox", name="layers").select_option("full_attention")
    rope = executed(explorer.locator("#ex-python").inner_text())["rope"]
    exact = ra.Rope.from_config(config, layer_type="full_attention")
    assert_allclose(rope.frequencies, exact.frequencies, rtol=1e-12)
    for text, reason in {
        json.dumps({"model_type": "new"}): "does not know the model type new.",
        json.dumps({"model_type": "llama", "head_dim": 63}): "63 features would rotate, which is no even number.",
        "{": "it is not JSON: ",
    }.items():
        box.fill(text)
        said = explorer.locator("#ex-read").inner_text()
        assert said.startswith("The explorer can't read this config: ") and reason in said


def test_a_preset_is_chosen_by_its_name_and_kept_by_the_address_which_is_checked(explorer):
    models = explorer.get_by_role("combobox", name="model")
    models.select_option("gpt-oss 20B")
    assert not explorer.get_by_label("truncate").is_checked()
    explorer.wait_for_function("location.hash.includes('truncate=false')")
    explorer.reload()
    assert models.input_value() == "gpt-oss"
    explorer.get_by_role("slider", name="beta_fast").press("ArrowRight")
    assert models.input_value() == "" and "beta_fast=48" in explorer.locator("#ex-python").inner_text()
    explorer.goto(f"{explorer.url.split('#')[0]}#head_dim=7")
    explorer.get_by_text("head_dim must be an even number from 2 to 1\u00a0024; got 7.", exact=True).wait_for()


def test_values_are_read_under_the_pointer_and_by_keys(explorer):
    waves, said = explorer.locator("#ex-wavelengths svg"), explorer.locator("#ex-wavelengths output")
    waves.scroll_into_view_if_needed()
    box = waves.bounding_box()
    explorer.mouse.move(box["x"] + box["width"] - 9, box["y"] + 100)
    rope = executed(explorer.locator("#ex-python").inner_text())["rope"]
    wrote = said.inner_text()
    assert wrote.startswith("pair 63: plain 54\u00a0410 tokens, YaRN ")
    ours = int(wrote.split("YaRN ")[1].removesuffix(" tokens").replace("\u00a0", ""))
    assert ours == round(2 * np.pi / rope.frequencies[-1])
    explorer.mouse.move(0, 0)
    assert said.inner_text() == ""
    waves.focus()
    waves.press("Home")
    waves.press("Home")
    assert said.inner_text() == "pair 0: plain 6.283 tokens, YaRN 6.283 tokens"


def test_a_hand_of_the_clock_shows_the_angle_of_a_query_and_a_key(explorer):
    clock = explorer.locator("#ex-clock svg")
    clock.scroll_into_view_if_needed()
    box = clock.locator("circle.scaled").first.bounding_box()
    explorer.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    angle = "The angle between them is 10 × 1 = 10 rad, and its cosine -0.839."
    assert angle in explorer.locator("#ex-relation").inner_text()
    explorer.get_by_role("slider", name="key at").press("Home")
    assert "1\u00a0000 × 1 = 1000 rad" in explorer.locator("#ex-relation").inner_text()


def test_the_explorer_plays_and_pauses(explorer):
    button, at = explorer.locator("#ex-play"), explorer.locator("#ex-position + output")
    assert at.inner_text() == "1\u00a0000"
    button.click()
    explorer.wait_for_function("document.querySelector('#ex-position + output').value !== '1\u00a0000'")
    button.click()
    assert button.inner_text() == "play"
    still = at.inner_text()
    explorer.wait_for_timeout(300)
    assert at.inner_text() == still


@pytest.mark.parametrize("name", WIDTHS)
def test_on_a_phone_the_picture_comes_first_and_nothing_scrolls_sideways(explorer, name):
    size = WIDTHS[name]
    explorer.set_viewport_size(size)
    explorer.reload()
    clock, settings = explorer.locator("#ex-clock svg").bounding_box(), explorer.locator("#ex-settings")
    assert settings.evaluate("e => e.open") == (name != "phone")
    assert name != "phone" or clock["y"] + clock["height"] < size["height"]
    explorer.evaluate("document.querySelectorAll('#rope-explorer details').forEach(e => { e.open = true; })")
    schemes = explorer.get_by_role("combobox", name="scheme")
    for scheme in schemes.locator("option").all_text_contents():
        schemes.select_option(scheme)
        assert explorer.evaluate("document.documentElement.scrollWidth") == size["width"]


def test_the_explorer_draws_its_settings(explorer):
    """By the keyboard, by the buttons, and by the address."""
    base = explorer.get_by_role("slider", name="base")
    base.press("End")
    explorer.get_by_role("combobox", name="scheme").select_option("Llama 3")
    explorer.get_by_role("slider", name="trained").press("ArrowRight")
    explorer.get_by_role("button", name="one token on").click()
    explorer.wait_for_function("location.hash.includes('position=1001')")
    setting = "scheme=llama3&base=100000000&head_dim=128&pairing=half&trained=8192&factor=4"
    setting += "&low_freq_factor=1&high_freq_factor=4&position=1001&key=991&pair=21"
    assert parse_qs(explorer.url.split("#")[1]) == parse_qs(setting)
    explorer.get_by_role("button", name="copy").click()
    assert explorer.evaluate("String(getSelection())") == explorer.locator("#ex-python").inner_text()
    explorer.reload()
    assert base.get_attribute("aria-valuetext") == "100\u00a0000\u00a0000"
    hands = explorer.locator("#ex-clock circle.scaled").evaluate_all(
        "all => all.map(e => [+e.getAttribute('cx'), +e.getAttribute('cy')])"
    )
    face = explorer.locator("#ex-clock circle.axis")
    x, y = (np.asarray(hands) - [float(face.get_attribute(name)) for name in ("cx", "cy")]).T
    f = executed(explorer.locator("#ex-python").inner_text())["rope"].frequencies
    assert_allclose(np.exp(1j * np.arctan2(-y, x)), np.exp(1001j * np.asarray(f)), atol=1e-9)
