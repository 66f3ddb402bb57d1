"""The numbers of the README are those of the committed results, and its links have targets."""

import importlib
import json
import re
from pathlib import Path

import pytest

import rope_any as ra
from rope_any.testing._check import TABLE_BOUND

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def figure(pattern):
    """Return the group or groups that match a pattern in the README."""
    (found,) = re.findall(pattern, " ".join(README.split()))
    return found


SPEED = {
    "a prompt of 4096 tokens, float32": "float32, half, new array",
    "a decoding step, bfloat16": "decode, bfloat16, half, new array",
    "a table and a decoding step, float32": "decode at a new position, float32",
}


def readable(seconds):
    """Return seconds with three digits, in milliseconds or microseconds."""
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def test_speed_figures_agree_with_the_results():
    rows = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))["rows"]
    for name, what in SPEED.items():
        times = []
        for end in (", eager", ", fused") if "position" in what else ("", ", fused"):
            key = {"library": "PyTorch", "regime": "default allocator", "what": what + end}
            (row,) = [row for row in rows if {**key, "peer": "transformers, eager"}.items() <= row.items()]
            times += [row["ours"]] if times else [row["theirs"], row["ours"]]
        assert f"| {name} | {' | '.join(map(readable, times))} |" in README


def test_error_figures_agree_with_the_table():
    first = (ROOT / "docs" / "precision_table.md").read_text(encoding="utf-8").split("\n**")[1]
    integers = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", first, re.MULTILINE)]
    heads = integers[0]
    ours = [float(error) for row in integers if row[0].startswith("ours: ") for error in row[1:]]
    assert len(ours) > 20
    assert max(ours) == float(figure(r"largest error that was measured on CPUs is ([\d.e-]+)\."))
    assert float(figure(r"below 2³¹ are within ([\d.e-]+) of the exact ones")) == TABLE_BOUND
    column = heads.index("1 048 576")
    in_float32, in_float64 = (
        next([float(row[at]) for at in (column, -1)] for row in integers if row[0].startswith(name))
        for name in ("float32 product, NumPy", "float64 product and cosine, rounded, NumPy")
    )
    assert float(figure(r"it is ([\d.]+) at a million")) == round(in_float32[0], 2)
    assert [*map(float, figure(r"its error is ([\d.e-]+) at a million tokens and ([\d.e-]+) at 2³¹"))] == in_float64


def test_the_picture_agrees_with_its_caption(monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("agg")
    from rope_any import plot

    caption = re.search(
        r"!\[.*grows from ([\d.e-]+) to ([\d.e-]+), ours stays below ([\d.e-]+)\.\]\(docs/errors.svg\)", README
    )
    first, last, bound = map(float, caption.groups())
    found = {name.split("/")[1].lower(): name for name in ra.config.published()}
    short = re.search(r"`rope-any plot published:(\S+) errors -o errors.svg`", README)[1]
    (name,) = (found[name] for name in found if name.startswith(short))
    config = ra.config.published()[name]
    lines = [line.get_ydata().tolist() for line in plot.errors(ra.Rope.from_config(config)).lines]
    monkeypatch.syspath_prepend(ROOT / "docs")
    (narrow,) = importlib.import_module("pictures").errors_narrow().axes
    assert [line.get_ydata().tolist() for line in narrow.lines] == lines
    in_float32, ours, *_ = lines
    assert first == float(f"{in_float32[0]:.0e}")
    assert last == round(in_float32[-1])
    assert max(ours) < bound == TABLE_BOUND
    svg = (ROOT / "docs" / "errors.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text}" in svg for text in ("rope_any", name.split("/")[1], "position (tokens)"))


def test_model_counts_agree_with_the_test_data():
    published = json.loads((ROOT / "tests" / "published.json").read_text(encoding="utf-8"))
    models = len({entry["model"] for entry in published})
    assert int(figure(r"published configs of (\d+) models")) == models
    listed = json.loads((ROOT / "tests" / "architectures.json").read_text(encoding="utf-8"))
    differ = sum(not reason.startswith("not text") for reason in listed.values())
    assert int(figure(r"(\d+) of the \d+ rotary tables")) == int(figure(r"of the (\d+) rotary tables")) - differ


def test_counted_tables_equal_the_compared_ones():
    pytest.importorskip("transformers", minversion="5.24", reason="they are those of transformers 5.24")
    architectures = pytest.importorskip("test_architectures", reason="torch is not installed")
    cases = [case for case in architectures.CASES if not architectures.is_newer(case)]
    assert int(figure(r"of the (\d+) rotary tables")) == len(cases)
    assert int(figure(r"of (\d+) architectures")) == len({case.config for case in cases})


def test_the_examples_are_short():
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 5  # NumPy, torch, and one for each door
    assert max(len(re.findall(r"^(>>>|\.\.\.)", example, re.MULTILINE)) for example in examples) <= 10


def test_the_readme_is_short():
    assert len(README.split()) <= 1_100


def test_perplexities_agree_with_their_page():
    page = (ROOT / "docs" / "something-is-wrong.md").read_text(encoding="utf-8")
    right, wrong = figure(r"of a small decoder rose from ([\d.]+) to ([\d.]+)\.")
    assert f"| as trained | {right} |" in page and f"| the other pairing | {wrong} |" in page


def test_links_have_targets():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []
