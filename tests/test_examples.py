"""Each example runs and does what its page describes."""

import importlib
import json
import math
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import cupy_stand_in
import numpy as np
import pytest

import rope_any as ra

pytestmark = [pytest.mark.long, pytest.mark.thread_unsafe(reason="starts processes")]

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    """Return an example as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        return importlib.import_module(name)


def result_of(name, arguments):
    """Run the main() of an example in a separate process, which may start others; return its result."""
    code = f"import json, {name}\nif __name__ == '__main__': print(json.dumps({name}.main({arguments}), default=float))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=EXAMPLES)
    return json.loads(done.stdout.splitlines()[-1])


def test_each_example_is_tested():
    tests = "\n".join(globals())
    assert {path.stem for path in EXAMPLES.glob("*.py") if f"test_{path.stem}_runs" not in tests} == set()


def test_sliding_cache_runs_and_detects_keys_that_do_not_move(monkeypatch):
    example = load("sliding_cache")
    assert example.main(tokens=300) < 1e-5
    monkeypatch.setattr(ra.Rope, "reposition", lambda _, keys, *__: keys)
    assert example.main(tokens=80) > 1e-2


def test_context_parallel_runs():
    pytest.importorskip("torch", reason="torch is not installed")
    assert result_of("context_parallel", "ranks=2") < 2e-6


def test_sharded_dask_runs():
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    found = result_of("sharded_dask", f"tokens={2**14}")
    assert found["tasks"] < 8 and found["moved"] > 1
    assert found["error"] < 4e-6


@pytest.mark.usefixtures("one_thread")
def test_generate_torch_runs_and_detects_steps_that_all_begin_at_0(monkeypatch):
    example, table = load("generate_torch"), ra.Rope.table
    found = example.main(new=40)
    assert found["same"]
    assert found["difference"] < 1e-4
    assert found["cached"] > 0 < found["plain"]
    monkeypatch.setattr(ra.Rope, "table", lambda rope, at: table(rope, at - at[0]))
    found = example.main(new=40)
    assert not found["same"]
    assert found["difference"] > 0.1


@pytest.mark.usefixtures("one_thread")
def test_generate_torch_compiles_at_most_three_times():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    counter, example, cache = pytest.importorskip("torch._dynamo.testing").CompileCounter(), load("generate_torch"), {}
    torch.compiler.reset()
    decoder = torch.compile(example.decoder, fullgraph=True, backend=counter)
    weights, text = example.model_of(0), torch.arange(16)
    for _ in range(65):
        decoder(weights, text[-1:] if cache else text, cache)
    assert cache[0][0].shape[1] == 80
    assert counter.frame_count <= 3


def test_cupy_rotate_runs():
    cupy = pytest.importorskip("cupy", reason="cupy is not installed", exc_type=ImportError)
    if not cupy.cuda.is_available():
        pytest.skip("cupy finds no CUDA GPU")
    found = load("cupy_rotate").main(tokens=4096)
    assert found["error"] < 2e-6
    assert found["rotation"] > 0 < found["copy"]


def test_cupy_rotate_runs_on_the_stand_in(monkeypatch, rng):
    times = SimpleNamespace(gpu_times=np.array([[3e-3, 1e-3, 2e-3]]))  # in place of cupyx's profiler
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.profiler", SimpleNamespace(benchmark=lambda call, **_: (call(), times)[1]))
    with cupy_stand_in.installed() as cupy:
        normal = SimpleNamespace(
            standard_normal=lambda *args, **kwargs: cupy.asarray(rng.standard_normal(*args, **kwargs))
        )
        monkeypatch.setattr(cupy, "random", SimpleNamespace(default_rng=lambda _: normal), raising=False)
        found = load("cupy_rotate").main(heads=2, tokens=64)
        assert found.pop("error") < 2e-6
        assert found == {"rotation": 2.0, "copy": 2.0, "GiB": 2 * 64 * 128 * 4 / 2**30}
        arange = cupy.arange
        monkeypatch.setattr(cupy, "arange", lambda *ends: arange(*ends) + 1)
        assert load("cupy_rotate").main(heads=2, tokens=64)["error"] > 1


NEEDED = {"cupy": "cupy_rotate", "torch": "generate_torch"}


@pytest.mark.parametrize("library", [*NEEDED, "distributed"])
def test_an_example_reports_a_missing_library(library):
    if library == "distributed" and find_spec("dask") is None:
        pytest.skip("dask is not installed either, and the example imports it first")
    name = NEEDED.get(library, "sharded_dask")
    code = f"import runpy, sys; sys.modules[{library!r}] = None; runpy.run_path({name + '.py'!r}, run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=EXAMPLES)
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(rf"(?i)this example needs .*{library}.*, which is not installed\n", run.stderr)


# --- perplexity: tiny runs, and the committed results -----------------------------------------------------------------


@pytest.fixture
def perplexity(one_thread):  # noqa: ARG001  # fixtures can't be marked to use others
    """Return the experiment."""
    pytest.importorskip("rich", reason="rich is not installed")
    return importlib.import_module("perplexity")  # of tools/


def test_perplexity_runs(perplexity, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr(perplexity, "BATCH", 2)
    monkeypatch.setattr(perplexity, "LENGTHS", (128, 256))
    monkeypatch.chdir(tmp_path)
    options = "--seeds 2 --steps 8 --windows 2 --threads 1 --json out.json --markdown out.md --chart out.svg"
    perplexity.main(options.split())
    results = json.loads(Path("out.json").read_text())
    for run in results["runs"]:
        assert all(loss < math.log(256) for loss in run["last_losses"].values())  # log 256 is that of a uniform guess
        rope = [nats["128"] for method, nats in run["nats"].items() if method.startswith("RoPE")]
        assert max(rope) - min(rope) < 1e-6  # at the trained length nothing is scaled
    first, second = (run["nats"]["RoPE"]["128"] for run in results["runs"])
    assert first != second
    table = Path("out.md").read_text()
    assert f"\n| RoPE | {(math.exp(first) + math.exp(second)) / 2:.2f} " in table and "| can't" in table


def test_committed_perplexity_results_match_the_page_and_the_program(perplexity):
    docs = EXAMPLES.parent / "docs"
    committed = json.loads((docs / "perplexity.json").read_text(encoding="utf-8"))
    assert perplexity.shown(committed) == (docs / "perplexity_table.md").read_text(encoding="utf-8")
    now = perplexity.about(b"", [], [], steps=perplexity.STEPS)  # the program hasn't changed since
    assert all(committed["about"][key] == now[key] for key in ("model", "training"))


def test_wrong_angles_runs(perplexity, monkeypatch, capsys):
    monkeypatch.setattr(perplexity, "BATCH", 2)
    wrong = importlib.import_module("wrong_angles")
    wrong.main(["--steps", "4", "--windows", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:34].rstrip() for line in lines] == [*wrong.ROTATIONS]
    assert all(float(line[34:]) > 1 for line in lines)
