"""Each example runs and does what its page describes."""

import ast
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rope_any as ra

pytestmark = [pytest.mark.long, pytest.mark.thread_unsafe(reason="starts processes")]

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result_of(name, arguments="", before=""):
    """Run the main() of an example in a separate process, which may start others; return its result."""
    code = f"import json, {name}\nif __name__ == '__main__': print(json.dumps({name}.main({arguments}), default=float))"
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n{before}\n{code}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def test_each_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py") if f"test_{path.stem}_runs" not in globals()} == set()


def test_each_example_is_in_the_index():
    page = (EXAMPLES.parent / "docs" / "examples" / "index.md").read_text(encoding="utf-8")
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    assert sorted(re.findall(r"^- \[`(\w+)`\]\(\1\.md\)", page, re.MULTILINE)) == names
    assert sorted(re.findall(r"(?m)^(\w+)$", page)) == names  # in the table of contents


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_each_docstring_makes_a_page(name):
    title, *text = (ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text("utf-8"))) or "").splitlines()
    assert re.fullmatch(r"[A-Z][^:]*: [a-z].*\.", title)
    assert any(line.startswith("Needs ") for line in text)
    assert any(line.startswith(f"    python examples/{name}.py") for line in text)


def test_sliding_cache_runs():
    example = load("sliding_cache")
    assert example.main(tokens=300) < 1e-5


def test_sliding_cache_detects_keys_that_do_not_move(monkeypatch):
    monkeypatch.setattr(ra.Rope, "reposition", lambda _, keys, *__: keys)
    assert load("sliding_cache").main(tokens=80) > 1e-2


def test_sharded_torch_runs():
    pytest.importorskip("torch.distributed.tensor", reason="torch is not installed")
    # forked, because importing DTensor takes seconds; test_context_parallel_runs spawns its processes, as users do
    start = "lambda *args, nprocs: mp.start_processes(*args, nprocs, start_method='fork')"
    forked = f"import torch.multiprocessing as mp\nmp.spawn = {start}"
    found = result_of("sharded_torch", "ranks=2", forked if hasattr(os, "fork") else "")
    assert set(found) == {"batch", "heads", "seq"}
    for error, sent in found.values():
        assert error < 1e-6
        assert sent == 0


def test_context_parallel_runs():
    pytest.importorskip("torch", reason="torch is not installed")
    assert result_of("context_parallel", "ranks=2") < 2e-6


def test_sharded_jax_runs():
    pytest.importorskip("jax", reason="jax is not installed")
    found = result_of("sharded_jax")
    assert len(found) == 6
    for error, sent in found.values():
        assert error < 2e-6
        assert sent == []


def run_sharded_dask(tokens):
    """Return the results of the Dask example, checked; skip if distributed is not installed."""
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    found = result_of("sharded_dask", f"tokens={tokens}")
    assert found["tasks"] < 8
    assert found["moved"] > 1
    assert found["error"] < 4e-6
    return found


def test_sharded_dask_runs():
    run_sharded_dask(tokens=2**14)


@pytest.mark.slow
def test_sharded_dask_data_have_2_gib():
    assert run_sharded_dask(tokens=2**19)["GiB"] == 2


def test_attention_numpy_runs():
    found = load("attention_numpy").main()
    assert max(found["all"].values()) < 2e-6
    assert min(found["keys"].values()) > 0.1


def test_attention_numpy_detects_scores_that_depend_on_absolute_positions(monkeypatch):
    example = load("attention_numpy")
    rotation = ra.Rope.apply
    monkeypatch.setattr(ra.Rope, "apply", lambda rope, x, at: rotation(rope, x, at**2))
    assert min(example.main()["all"].values()) > 0.1


@pytest.mark.usefixtures("one_thread")
def test_generate_torch_runs():
    found = load("generate_torch").main(new=40)
    assert found["same"]
    assert found["difference"] < 1e-4
    assert found["cached"] > 0 < found["plain"]


@pytest.mark.usefixtures("one_thread")
def test_generate_torch_compiles_at_most_three_times():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    counter, example, cache = pytest.importorskip("torch._dynamo.testing").CompileCounter(), load("generate_torch"), {}
    torch._dynamo.reset()
    decoder = torch.compile(example.decoder, fullgraph=True, backend=counter)
    weights, text = example.model_of(0), torch.arange(16)
    for _ in range(65):
        decoder(weights, text[-1:] if cache else text, cache)
    assert cache[0][0].shape[1] == 80
    assert counter.frame_count <= 3


def test_generate_torch_detects_steps_that_all_begin_at_0(monkeypatch):
    table = ra.Rope.table
    monkeypatch.setattr(ra.Rope, "table", lambda rope, at: table(rope, at - at[0]))
    found = load("generate_torch").main(new=40)
    assert not found["same"]
    assert found["difference"] > 0.1


@pytest.mark.usefixtures("one_thread")
def test_replace_transformers_runs():
    pytest.importorskip("transformers", minversion="5", reason="transformers (5 or later) is not installed")
    found, changed = load("replace_transformers").main()
    (near, far), (near_before, far_before) = found["replaced"], found["before"]
    assert near < 4 * near_before < 1e-4
    assert far < 4 * near_before < 0.1 * far_before
    assert found["undone"] == found["before"]
    assert changed == ["model.rotary_emb", "model.layers.0.self_attn", "model.layers.1.self_attn"]


def test_load_config_runs(tmp_path):
    example = load("load_config")
    (sliding, full), ropes = example.main()
    assert [rope == full.rope for rope in ropes] == [(layer + 1) % 6 == 0 for layer in range(34)]
    assert sliding.facts["rope_theta"] == (10_000.0, "rope_local_base_freq")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(example.GEMMA | {"sliding_window_pattern": 2}))
    assert [rope == full.rope for rope in example.main(path)[1]] == [False, True] * 17


def has_gpu():
    """Whether CuPy is installed and finds a GPU."""
    return find_spec("cupy") is not None and importlib.import_module("cupy").cuda.is_available()


def test_cupy_rotate_runs():
    if not has_gpu():
        pytest.skip("cupy is not installed, or finds no CUDA GPU")
    found = load("cupy_rotate").main(tokens=4096)
    assert found["error"] < 2e-6
    assert found["rotation"] > 0 < found["copy"]


def test_cupy_rotate_runs_with_numpy_as_cupy(monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed")
    calls = []

    def benchmark(call, **_):
        """Call once, and return three times in place of cupyx's profiler."""
        calls.append(call())
        return SimpleNamespace(gpu_times=np.array([[3e-3, 1e-3, 2e-3]]))

    names = {name: getattr(np, name) for name in ("arange", "copyto", "empty_like", "float32", "random")}
    example = load("cupy_rotate")
    monkeypatch.setattr(example, "gpu", lambda: SimpleNamespace(asnumpy=np.asarray, **names))
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.profiler", SimpleNamespace(benchmark=benchmark))
    found = example.main(heads=2, tokens=64)
    assert found.pop("error") < 2e-6
    assert found == {"rotation": 2.0, "copy": 2.0, "GiB": 2 * 64 * 128 * 4 / 2**30}
    assert len(calls) == 2
    names["arange"] = lambda *ends: np.arange(*ends) + 1
    assert example.main(heads=2, tokens=64)["error"] > 1


def test_cupy_rotate_reports_a_missing_gpu():
    if has_gpu():
        pytest.skip("cupy finds a CUDA GPU")
    run = subprocess.run([sys.executable, EXAMPLES / "cupy_rotate.py"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert len(run.stderr.splitlines()) == 1
    assert run.stderr.startswith("this example needs a CUDA GPU")


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("context_parallel", "torch"),
        ("cupy_rotate", "cupy"),
        ("generate_torch", "torch"),
        ("perplexity", "rich"),
        ("perplexity", "torch"),
        ("replace_transformers", "torch"),
        ("replace_transformers", "transformers"),
        ("sharded_dask", "dask"),
        ("sharded_dask", "distributed"),
        ("sharded_jax", "jax"),
        ("sharded_torch", "torch"),
        ("wrong_angles", "rich"),
        ("wrong_angles", "torch"),
    ],
)
def test_an_example_reports_a_missing_library(name, library):
    before = {"rich": "torch", "transformers": "torch", "distributed": "dask"}.get(library)
    if before and find_spec(before) is None:
        pytest.skip(f"{before} is not installed either, and the example imports it first")
    code = f"import runpy, sys; sys.modules[{library!r}] = None; runpy.run_path({name + '.py'!r}, run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=EXAMPLES)
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(rf"(?i)this example needs .*{library}.*, which is not installed\n", run.stderr)


def test_perplexity_reports_a_missing_matplotlib_at_once(perplexity, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit):
        perplexity.main(["--chart", "out.svg"])
    assert capsys.readouterr().err.endswith("--chart needs matplotlib, which is not installed\n")


# --- perplexity: tiny runs, and the committed results -----------------------------------------------------------------


@pytest.fixture
def perplexity(one_thread):  # noqa: ARG001  # fixtures can't be marked to use others
    """Return the experiment."""
    pytest.importorskip("rich", reason="rich is not installed")
    return load("perplexity")


def test_perplexity_runs(perplexity, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr(perplexity, "BATCH", 2)
    monkeypatch.setattr(perplexity, "LENGTHS", (128, 256))
    files = {kind: tmp_path / f"out.{kind}" for kind in ("json", "markdown", "svg")}
    options = ["--seeds", "2", "--steps", "8", "--windows", "2", "--threads", "1", "--json", files["json"]]
    perplexity.main([*map(str, options), "--markdown", str(files["markdown"]), "--chart", str(files["svg"])])
    results = json.loads(files["json"].read_text())
    for run in results["runs"]:
        assert all(loss < math.log(256) for loss in run["last_losses"].values())  # log 256 is that of a uniform guess
        rope = [nats["128"] for method, nats in run["nats"].items() if method.startswith("RoPE")]
        assert max(rope) - min(rope) < 1e-6  # at the trained length nothing is scaled
    first, second = (run["nats"]["RoPE"]["128"] for run in results["runs"])
    assert first != second
    rows = [line.split(" | ") for line in files["markdown"].read_text().splitlines() if line.startswith("| ")][2:]
    names = ["no positions", "sinusoidal", "learned", "RoPE", "RoPE, linear", "RoPE, NTK", "RoPE, YaRN"]
    assert [row[0].removeprefix("| ") for row in rows] == names
    assert all(len(row) == 3 for row in rows)
    assert [row[0] for row in rows if any("can't" in cell for cell in row)] == ["| learned"]
    cell = f"{(math.exp(first) + math.exp(second)) / 2:.2f} "
    assert rows[3][1].startswith(cell)


def test_perplexity_trains_all_methods_on_the_same_data(perplexity):
    torch = pytest.importorskip("torch")
    text = torch.randint(256, (2000,), generator=torch.Generator().manual_seed(1))
    models, losses = zip(*(perplexity.trained(name, text, seed=5, steps=2) for name in perplexity.METHODS), strict=True)
    repeated, other = (perplexity.trained("RoPE", text, seed=seed, steps=2)[1] for seed in (5, 6))
    assert repeated == losses[-1] != other
    torch.manual_seed(5)
    plain = dict(perplexity.Model("RoPE").named_parameters())
    for name in perplexity.METHODS:
        torch.manual_seed(5)
        drawn = dict(perplexity.Model(name).named_parameters())
        assert drawn.keys() - plain.keys() == ({"places"} if name == "learned" else set())
        assert all(torch.equal(value, drawn[key]) for key, value in plain.items())
    assert not torch.equal(models[0].bytes, plain["bytes"])


def logits_of(perplexity, method, text, **options):
    """Return the logits of a new model."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = options.pop("layers", perplexity.LAYERS)
    with torch.no_grad():
        return perplexity.Model(method, layers=layers)(text, **options)


def test_perplexity_of_rope_depends_on_distances(perplexity):
    torch = pytest.importorskip("torch")
    text = torch.randint(256, (2, 64), generator=torch.Generator().manual_seed(1))
    for rope in perplexity.ropes(512).values():
        near, far = (logits_of(perplexity, "RoPE", text, rope=rope, first=first) for first in (0, 100_000))
        assert (near - far).abs().max() < 1e-4
        assert (near - logits_of(perplexity, "RoPE", text)).abs().max() > 1e-2
    for method in ("sinusoidal", "learned"):
        near, far = (logits_of(perplexity, method, text, first=first) for first in (0, 50))
        assert (near - far).abs().max() > 1e-2


def test_perplexity_without_positions_sees_no_order_in_one_layer(perplexity):
    torch = pytest.importorskip("torch")
    text = torch.randperm(256, generator=torch.Generator().manual_seed(1))[None, :64]
    reordered = torch.cat([text[:, :-1].flip(-1), text[:, -1:]], dim=-1)

    def change(method, **options):
        """Return how much the last logits change if earlier bytes are reordered."""
        one, other = (logits_of(perplexity, method, x, **options)[:, -1] for x in (text, reordered))
        return (one - other).abs().max()

    assert change("no positions", layers=1) < 1e-5
    assert change("no positions", layers=2) > 1e-3  # the first layer counts the tokens before each
    assert change("RoPE", layers=1, rope=perplexity.ropes(128)["RoPE"]) > 1e-3
    assert change("sinusoidal", layers=1) > 1e-3


def test_perplexity_is_measured_on_the_same_bytes(perplexity):
    torch = pytest.importorskip("torch")
    windows = (torch.arange(max(perplexity.LENGTHS) + 1) + torch.arange(40)[:, None]) % 256
    seen = []

    def successor(text, **_):  # predicts the next byte, but only for the targets
        """Return logits that predict the next byte at the targets only, and record the text."""
        seen.append(text)
        logits = 100.0 * torch.nn.functional.one_hot((text + 1) % 256, 256)
        logits[:, : -perplexity.TARGETS] = 0
        return logits

    for length in perplexity.LENGTHS:
        seen.clear()
        assert perplexity.measured(successor, windows, length, None) < 1e-6
        assert torch.equal(torch.cat(seen), windows[:, -length - 1 : -1])


DOCS = EXAMPLES.parent / "docs"


@pytest.fixture
def committed():
    """Return the committed results."""
    return json.loads((DOCS / "perplexity.json").read_text(encoding="utf-8"))


def test_the_perplexity_page_agrees_with_the_committed_results(perplexity, committed):
    page = " ".join((DOCS / "perplexity.md").read_text(encoding="utf-8").split())
    found, longer = perplexity.perplexities(committed), perplexity.LENGTHS[1:]

    def below(one, other, length):
        """Whether one method has the lower perplexity at a length, for each seed."""
        return all(a < b for a, b in zip(found[one][length], found[other][length], strict=True))  # for each seed

    for absolute in ("sinusoidal", "learned"):
        assert below("RoPE", absolute, 128) and below(absolute, "no positions", 128)
    assert below("RoPE", "no positions", 256) and below("no positions", "RoPE", 512)
    for length in longer:
        assert all(below("RoPE, YaRN", other, length) for other in found if other not in {"RoPE, YaRN", "learned"})
        assert below("RoPE, NTK", "RoPE", length) and (length == 1024 or below("RoPE, NTK", "RoPE, linear", length))
        plain, linear = found["RoPE"][length], found["RoPE, linear"][length]
        assert max(min(plain), min(linear)) <= min(max(plain), max(linear))  # their ranges overlap
        assert all(min(row[length]) > max(row[128]) for row in found.values() if length in row)
    means = [sum(found["RoPE, YaRN"][length]) for length in perplexity.LENGTHS]
    percents = [f"{100 * (mean / means[0] - 1):.0f}" for mean in means[1:]]
    assert f"by {percents[0]}, {percents[1]} and {percents[2]} percent" in page
    minutes = [run["cpu_s"] / 60 / committed["about"]["threads"] for run in committed["runs"]]
    assert f"about {sum(minutes) / len(minutes):.1f} minutes of two cores" in page
    assert f"At twice the length sinusoidal is at {sum(found['sinusoidal'][256]) / 3:.0f}," in page


def test_committed_perplexity_results_match_the_page_and_the_program(perplexity, committed):
    assert perplexity.shown(committed) == (DOCS / "perplexity_table.md").read_text(encoding="utf-8")
    now = perplexity.about(b"", [], [], steps=perplexity.STEPS)  # the program hasn't changed since
    assert all(committed["about"][key] == now[key] for key in ("model", "training"))


def markers(svg):
    """Return x and y of the ticks, the data and the ends of the error bars of a chart."""
    axes = svg[svg.index('<g id="axes_1">') : svg.index('<g id="legend_1">')]
    return np.asarray(re.findall(r'<use \S+ x="([\d.]+)" y="([\d.]+)"', axes), dtype=float).T


def test_the_perplexity_chart_shows_the_committed_results(perplexity, committed, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = perplexity.draw(committed, tmp_path / "chart.svg")
    found = perplexity.perplexities(committed)
    drawn = {bars.get_label(): bars.lines[0].get_xydata().tolist() for bars in figure.axes[0].containers}
    assert drawn.keys() == found.keys()
    for method, row in found.items():
        for point, (length, seeds) in zip(drawn[method], row.items(), strict=True):
            assert point == pytest.approx((length, sum(seeds) / len(seeds)))
    now, before = (file.read_text(encoding="utf-8") for file in (tmp_path / "chart.svg", DOCS / "perplexity.svg"))
    labels, written = (re.findall("<!-- (.*?) -->", svg) for svg in (now, before))
    assert labels == written and {*found} < {*labels}
    # Processors round the coordinates differently; the margins depend on the version of matplotlib.
    for new, old in zip(markers(now), markers(before), strict=True):
        np.testing.assert_allclose(np.polyval(np.polyfit(new, old, 1), new), old, rtol=0, atol=0.01)


def test_wrong_angles_runs(perplexity, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "perplexity", perplexity)
    monkeypatch.setattr(perplexity, "BATCH", 2)
    wrong = load("wrong_angles")
    wrong.main(["--steps", "4", "--windows", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:34].rstrip() for line in lines] == [*wrong.ROTATIONS]
    assert all(float(line[34:]) > 1 for line in lines)
