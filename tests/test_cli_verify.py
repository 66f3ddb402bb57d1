"""``rope-any verify`` and ``rope-any check``: functions, caches of engines, installed libraries."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import LLAMA3, refused, run, write_config, write_safetensors

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="imports and unloads modules, and changes the working directory")

F = ra.frequencies(16, base=500_000.0)
LIKE = np.zeros(1, dtype=np.float32)


# --- functions ------------------------------------------------------------------------------------------------

MINE = """
import numpy as np
import rope_any as ra

right = ra.Rope(ra.frequencies(32), pairing="half").apply

class Holder:
    right = right

def careless(x, positions):
    angle = np.outer(positions.astype(np.float32), np.float32(ra.frequencies(32)))
    return ra.rotate(x, np.cos(angle), np.sin(angle), pairing="half")

def compiled(x, positions):
    import jax
    rope = ra.Rope(ra.frequencies(8, base=500.0), pairing="interleaved", attention_factor=1.5, start=4)
    return jax.jit(rope.apply)(x, positions)

def printing(x, positions):
    print("rotating")
    return right(x, positions)

def exiting(x, positions):
    raise SystemExit("no GPU")

number = 3
"""
HALF = ["--pairing", "half", "--head-dim", 32]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Return a folder with a module of rotaries and one that can't be imported; unload both afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "noisy.py").write_text("print('imported')\nfrom mine import exiting, printing")
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    yield tmp_path
    for name in ("mine", "noisy"):
        sys.modules.pop(name, None)


def test_verify_passes_a_correct_rotary(mine, tmp_path):
    done = run("verify", "mine:Holder.right", *HALF, cwd=mine)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine:Holder.right: passed: half, head_dim 32, float32 of numpy\n")
    # a file may have the name of a module, and import its neighbours
    (mine / "json.py").write_text("import mine\n\ndef both(q, k, p):\n    return mine.right(q, p), mine.right(k, p)\n")
    done = run("verify", f"{mine}/json.py:both", *HALF, "--keys", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "passed" in done.stdout


@pytest.mark.long
def test_verify_passes_a_correct_rotary_of_another_library(mine):
    pytest.importorskip("jax", reason="jax is not installed")
    args = "--pairing interleaved --head-dim 16 --rotary-dim 8 --start 4 --base 500 --attention-factor 1.5"
    done = run("verify", "mine:compiled", *args.split(), "--library", "jax", "--dtype", "bfloat16", cwd=mine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "features 4 to 11 are rotated, bfloat16 of jax" in done.stdout


def test_verify_reports_errors_and_their_cause(mine):
    args = ["verify", "mine:careless", *HALF, "--longest", 4095]
    done = run(*args, cwd=mine)
    assert done.returncode == 1
    assert done.stdout.endswith("likely cause: angles in float32\n")
    done = run(*args, "--json", cwd=mine)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["passed"], found["causes"], found["refusals"]) == (False, ["angles in float32"], {})
    assert list(found["errors"]) == ["0", "10", "100", "1000", "4088"]
    assert found["properties"]["preserves lengths"]["holds"] is True
    done = run("verify", "mine:careless", "--pairing", "half", "--case", "plain", cwd=mine)
    assert done.returncode == 1
    assert "raised ArgumentValueError" in done.stdout


def test_verify_prints_json_if_the_function_prints_or_raises(mine):
    done = run("verify", "noisy:printing", *HALF, "--longest", 127, "--json", cwd=mine)
    assert (done.returncode, json.loads(done.stdout)["passed"]) == (0, True)
    assert done.stderr.startswith("imported\nrotating\n")
    done = run("verify", "noisy:exiting", *HALF, "--longest", 127, "--json", cwd=mine)
    assert done.returncode == 1
    assert set(json.loads(done.stdout)["refusals"].values()) == {"raised SystemExit: no GPU"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("mine --pairing half", "TARGET must be like package.module:function or file.py:function; got 'mine'"),
        ("mine:left --pairing half", "there is no 'left'; it has ..., Holder, careless, compiled, printing, exiting\n"),
        ("mine:rigth --pairing half", "there is no 'rigth'; did you mean right?\n"),
        ("mine:number.x --pairing half", "there is no 'x'\n"),
        ("none.py:f --pairing half", "can't be imported: FileNotFoundError"),
        ("broken:f --pairing half", "broken can't be imported: ZeroDivisionError: division by zero"),
        ("exits:f --pairing half", "exits can't be imported: SystemExit: 3"),
        ("mine:number --pairing half", "TARGET must be callable"),
        ("mine:right --pairing half --longest 5", "--longest must be from 127"),
        ("mine:right --pairing half --library pytorch", "did you mean torch?"),
        ("mine:right --pairing half --dtype fp16", "did you mean float16; see"),
        ("mine:right --pairing half --case plain --base 5", "--base must not be given beside --case"),
        ("mine:right", "--pairing must be given for TARGET"),
        ("mine:right --pairing half --layout vllm", "--layout must not be given for TARGET"),
    ],
)
def test_verify_refuses_wrong_functions_in_one_line(mine, args, words):
    assert words in refused("verify", *args.split(), cwd=mine)


FAULTY = """
import numpy as np
import rope_any as ra
F = ra.frequencies(128)
ROPE, OTHER = (ra.Rope(F, pairing=pairing) for pairing in ("half", "interleaved"))

def other(x, positions):
    return OTHER.apply(x, positions)

def rows(x, positions):
    return ROPE.apply(x, positions[0] if positions.ndim == 2 else positions)

def axes(x, positions):
    rope = ra.Rope(ra.testing.cases()["chunked"].frequencies, pairing="half")
    return rope.apply(x, np.broadcast_to(positions[:, :1], positions.shape))

def autocast(x, positions):
    import torch
    with torch.autocast("cpu", torch.bfloat16):
        angles = positions[:, None].float() @ torch.tensor([F])
    return ra.rotate(x, angles.cos().float(), angles.sin().float(), pairing="half")
"""


@pytest.mark.parametrize(
    ("name", "options", "cause"),
    [
        ("other", "", "the other pairing"),
        ("rows", "--rows", "the positions of the first"),
        ("axes", "--case chunked", "all axes take the positions of the first"),
        ("autocast", "--library torch --longest 9999", "angles in bfloat16"),
    ],
)
def test_verify_says_what_the_page_of_symptoms_promises(name, options, cause, tmp_path):
    if name == "autocast":
        pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "faulty.py").write_text(FAULTY)
    done = run("verify", f"faulty.py:{name}", "--pairing", "half", *options.split(), cwd=tmp_path)
    assert done.returncode == 1
    assert cause in done.stdout.partition("likely cause: ")[2]
    page = Path(__file__).parents[1] / "docs" / "something-is-wrong.md"
    assert f"| `{cause}` |" in page.read_text(encoding="utf-8")


# --- caches -------------------------------------------------------------------------------------------------------


@pytest.fixture
def caches(tmp_path):
    """Return a folder with a config and caches of its rotation, of another base and in bfloat16."""
    write_config(tmp_path, LLAMA3 | {"head_dim": 16, "rope_scaling": None, "max_position_embeddings": 300})
    table = ra.cos_sin(range(300), F, like=LIKE)
    other = ra.cos_sin(range(300), ra.frequencies(16), like=LIKE)
    np.save(tmp_path / "vllm.npy", ra.layouts.pack(table, "vllm"))
    np.save(tmp_path / "other.npy", ra.layouts.pack(other, "vllm"))
    np.save(tmp_path / "cos.npy", table.cos)
    np.save(tmp_path / "sin.npy", table.sin)
    np.save(tmp_path / "meta.npy", ra.layouts.pack(table, "meta"))
    bfloat16 = (ra.layouts.pack(table, "vllm").view(np.uint32) + 0x8000 >> 16).astype(np.uint16)
    write_safetensors(tmp_path / "one.safetensors", cache=("BF16", bfloat16))
    parts = {"cos": ("F32", table.cos), "sin": ("F32", table.sin), "n": ("I16", bfloat16)}
    write_safetensors(tmp_path / "several.safetensors", **parts)
    write_safetensors(tmp_path / "empty.safetensors")
    (tmp_path / "half.pt").write_bytes(b"PK\x03\x04")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "subject"),
    [
        ("--cache vllm.npy --layout vllm", "vllm.npy: passed: layout vllm, 300 rows of 8 pairs, float32"),
        ("--cache meta.npy --layout meta", "meta.npy: passed: layout meta, 300 rows of 8 pairs, complex64"),
        ("--cache cos.npy --cache sin.npy --layout onnxruntime", "cos.npy, sin.npy: passed: layout onnxruntime, 300"),
        ("--cache one.safetensors --layout sglang", "one.safetensors: passed: layout sglang, 300 rows of 8 pairs, bfl"),
        (
            "--cache several.safetensors --tensor cos --tensor sin --layout flash-attention",
            "several.safetensors: passed: layout flash-attention, 300 rows of 8 pairs, float32",
        ),
    ],
)
def test_verify_passes_a_correct_cache(caches, args, subject):
    done = run("verify", *args.split(), "--config", "config.json", cwd=caches)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(subject)


def test_verify_reports_a_wrong_cache(caches):
    args = ["verify", "--cache", "other.npy", "--layout", "vllm", "--config", "config.json"]
    done = run(*args, cwd=caches)
    assert (done.returncode, done.stderr) == (1, "")
    assert "  299 of 300 rows are wrong, first row 1\n" in done.stdout
    assert done.stdout.endswith("likely cause: other frequencies: those of base 10000\n")
    done = run(*args, "--json", cwd=caches)
    found = json.loads(done.stdout)
    assert (done.returncode, found["files"], found["layout"]) == (1, ["other.npy"], "vllm")
    assert (found["passed"], found["first_wrong"], len(found["errors"])) == (False, 1, 300)
    assert found["causes"] == ["other frequencies: those of base 10000"]


LLAMA = {"model_type": "llama", "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 5e5}
LONGROPE = {
    "model_type": "phi3",
    "max_position_embeddings": 1200,
    "original_max_position_embeddings": 300,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300}
DYNAMIC = {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 300}


@pytest.mark.parametrize(
    ("config", "length", "needed"),
    [
        ({"max_position_embeddings": 300}, None, 300),
        ({"max_position_embeddings": 301}, None, 301),
        ({"max_position_embeddings": 4096}, 300, 300),
        ({"max_position_embeddings": 300}, 301, 301),
        ({}, None, None),
        ({"rope_scaling": YARN}, None, 1200),
        # the unscaled cache is for the trained length, and an engine makes another one beyond it
        (DYNAMIC, None, 300),
        # but a config that states both lengths is for the longer one
        (LONGROPE, None, 1200),
        (LONGROPE, 300, 300),
    ],
)
def test_verify_tells_a_cache_that_is_shorter_than_the_length_of_the_config(caches, config, length, needed):
    write_config(caches, LLAMA | config)
    table = ra.Rope.from_config(LLAMA | config).table(range(300), like=LIKE)
    np.save(caches / "made.npy", ra.layouts.pack(table, "vllm"))
    args = ["verify", "--cache", "made.npy", "--layout", "vllm", "--config", "config.json"]
    args += ["--sequence-length", length] if length else []
    done, found = run(*args, cwd=caches), json.loads(run(*args, "--json", cwd=caches).stdout)
    is_short = (needed or 0) > 300
    assert (done.returncode, done.stderr, "likely cause" in done.stdout) == (int(is_short), "", False)
    assert (f"  300 rows for {needed} tokens are too few\n" in done.stdout) == is_short
    assert ("not checked: the number of rows, as the config gives no length" in done.stdout) == (needed is None)
    is_one_of_several = config in (DYNAMIC, LONGROPE) and length is None
    assert ("compared with the rotation for 300 tokens; for another length" in done.stdout) == is_one_of_several
    assert (found["passed"], found["length"], found["wrong"]) == (not is_short, needed, 0)


def test_verify_names_the_layers_that_a_cache_is_for(caches):
    layers = {"rope_theta": 1e6, "rope_local_base_freq": 5e5, "num_hidden_layers": 2, "sliding_window_pattern": 2}
    write_config(caches, LLAMA | {"model_type": "gemma3_text", **layers})
    args = ["verify", "--cache", "vllm.npy", "--layout", "vllm", "--config", "config.json"]
    assert "choose by --layer-type" in run(*args, cwd=caches).stderr
    assert run(*args, "--layer-type", "sliding_attention", cwd=caches).returncode == 0
    done = run(*args, "--layer-type", "full_attention", cwd=caches)
    assert done.returncode == 1
    assert "likely cause: the rotation is that of text, sliding_attention" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("--layout vllm", "TARGET must be given, or --cache"),
        ("--cache vllm.npy", "--layout must be given for --cache"),
        ("--cache vllm.npy --layout vllm --head-dim 8", "--head-dim must not be given for"),
        ("mine:f --cache vllm.npy --layout vllm", "TARGET must not be given for"),
        ("--cache vllm.npy --layout vlm", "did you mean vllm?"),
        ("--cache none.npy --layout vllm", "none.npy must be a .npy file"),
        ("--cache half.pt --layout vllm", "half.pt must be a .npy file"),
        ("--cache cos.npy --layout vllm", "--cache must have the shape (seq, 16) for the layout vllm"),
        ("--cache cos.npy --layout onnxruntime", "--cache must be given twice, for cosines and for sines"),
        ("--cache cos.npy --cache sin.npy --layout vllm", "--cache must be given once"),
        ("--cache several.safetensors --tensor cos --layout onnxruntime", "--tensor must be given twice"),
        ("--cache several.safetensors --tensor cos --tensor sin --layout vllm", "--tensor must be given once"),
        ("--cache empty.safetensors --layout vllm", "empty.safetensors must contain a tensor"),
        ("--cache vllm.npy --tensor a --layout vllm", "--tensor must be given for .safetensors"),
        ("--cache several.safetensors --layout vllm", "--tensor must be one of cos, sin, n, for several.safetensors"),
        ("--cache several.safetensors --tensor n --layout vllm", "got I16"),
        ("--cache one.safetensors --layout flashinfer", "--cache must be of float32"),
        ("--cache vllm.npy --layout llama.cpp", "--base must be given for the layout llama.cpp"),
        ("--cache vllm.npy --layout vllm --base 3", "--base must not be given for the layout vllm"),
        ("--cache vllm.npy --layout megatron-interleaved", "--config must have pairing 'interleaved'"),
    ],
)
def test_verify_refuses_wrong_caches_in_one_line(caches, args, words):
    assert words in refused("verify", *args.split(), "--config", "config.json", cwd=caches)


def test_verify_requires_a_config_for_a_cache(caches):
    args = ["verify", "--cache", "vllm.npy", "--layout", "vllm"]
    assert "--config must be given for --cache" in refused(*args, cwd=caches)
    assert "--config must be a path to a config.json" in refused(*args, "--config", "none.json", cwd=caches)


# --- check ----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_check_reports_each_library_within_its_bounds():
    done = run("check")
    assert done.returncode == 0, done.stdout + done.stderr
    entries = int(re.search(r"over (\d+) table\s+entries", done.stdout)[1])
    assert entries >= 10_000
    rows = [line.split() for line in done.stdout.splitlines() if " float32 " in line]
    assert rows[0][:4] == ["NumPy", np.__version__, "cpu", "float32"]
    for row in rows:
        assert 1e-9 < float(row[4]) <= 1.2e-7, row
        assert 1e-9 < float(row[5]) <= 4e-7, row
    assert "bounds: table err 1.2e-07; q, k err 4.0e-07 (float32), 4.2e-03 (bfloat16)" in done.stdout.splitlines()
    for name in ("CuPy", "PyTorch", "JAX", "Dask", "MLX"):
        assert name in done.stdout


ALONE = """
import sys
import numpy as np
sys.modules |= dict.fromkeys(("cupy", "torch", "jax", "dask", "mlx", "array_api_strict"))  # so importing them fails
import rope_any as ra
{}
from rope_any.cli import main
main()
"""
WRONG = """
right = ra.Rope.{0}

def wrong(*args, **options):
    print("rotating")  # as some libraries do
    first, second = right(*args, **options)
    return ra.Table(first, second + np.float32("{1}")) if "{0}" == "table" else (first, second + np.float32("{1}"))

ra.Rope.{0} = wrong
"""


def check_numpy_alone(*args, change=""):
    """Run ``rope-any check`` in a process where only NumPy is installed, after a change of the library."""
    command = [sys.executable, "-c", ALONE.format(change), "check", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_check_lists_missing_libraries():
    done = check_numpy_alone()
    assert (done.returncode, done.stderr) == (0, "")
    assert 'PyTorch: not found (extra torch: pip install "rope-any[torch]")' in done.stdout
    assert 'CuPy: not found (extra cupy-cuda12x or cupy-cuda13x: pip install "rope-any[cupy-cuda12x]")' in done.stdout
    report = json.loads(check_numpy_alone("--json").stdout)
    (row,) = report["measured"]
    assert row["library"] == "NumPy" and row["passed"] and report["passed"]
    assert 1e-9 < row["table_error"] <= report["bounds"]["table_error"] == 1.2e-7
    assert row["seconds"] > row["copy_seconds"] / 10 > 0
    assert report["not_measured"]["PyTorch"] == "not found"
    assert report["job"]["q"] == [1, 32, 4096, 128]


@pytest.mark.parametrize(("method", "error"), [("table", "1e-5"), ("table", "nan"), ("__call__", "1e-5")])
def test_check_fails_if_a_bound_is_exceeded(method, error):
    done = check_numpy_alone("--json", change=WRONG.format(method, error))
    report = json.loads(done.stdout)
    assert (done.returncode, report["passed"]) == (1, False)
    assert "rotating\n" in done.stderr and "a bound is broken" in done.stderr
