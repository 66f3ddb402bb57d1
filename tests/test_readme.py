"""The numbers of the README are those of the committed results, and its links have targets."""

import json
import re
from pathlib import Path

import pytest

import rope_any as ra

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
    assert max(ours) < float(figure(r"below 2³¹ are within ([\d.e-]+) of the exact ones")) == 1.2e-7
    column = heads.index("1 048 576")
    in_float32, in_float64 = (
        next([float(row[at]) for at in (column, -1)] for row in integers if row[0].startswith(name))
        for name in ("float32 product, NumPy", "float64 product and cosine, rounded, NumPy")
    )
    assert float(figure(r"it is ([\d.]+) at a million")) == round(in_float32[0], 2)
    assert [*map(float, figure(r"its error is ([\d.e-]+) at a million tokens and ([\d.e-]+) at 2³¹"))] == in_float64


def test_the_picture_agrees_with_its_caption():
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("agg")
    first, last, bound = map(
        float, figure(r"grows from ([\d.e-]+) to ([\d.e-]+), ours stays below ([\d.e-]+)\.\]\(docs/e")
    )
    short = figure(r"`rope-any plot published:(\S+) errors -o errors.svg`")
    (config,) = (one for name, one in ra.config.published().items() if name.split("/")[1].lower().startswith(short))
    in_float32, ours, limit = (line.get_ydata() for line in ra.plot.errors(ra.Rope.from_config(config)).lines)
    assert first == float(f"{in_float32[0]:.0e}") and last == round(in_float32[-1])
    assert max(ours) < bound == limit[0]
    svg = (ROOT / "docs" / "errors.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text}" in svg for text in ("rope_any", "position (tokens)"))


def test_model_counts_agree_with_the_test_data():
    whole = json.loads((ROOT / "tests" / "whole_configs.json").read_text(encoding="utf-8"))
    published = json.loads((ROOT / "tests" / "published.json").read_text(encoding="utf-8"))
    assert int(figure(r"in (\d+) published configs")) == len({*whole, *(entry["model"] for entry in published)})
    listed = json.loads((ROOT / "tests" / "architectures.json").read_text(encoding="utf-8"))
    differ = sum(not reason.startswith("not text") for reason in listed.values())
    assert int(figure(r"(\d+) of the \d+ rotary tables")) == int(figure(r"of the (\d+) rotary tables")) - differ


def test_the_readme_is_short():
    assert len(README.split()) <= 1_100
