"""``rope-any verify``: of a rotary function in a file or module, and of an engine's cache in a file."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import failing, output, refused, run, write_configs, write_safetensors

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="changes the working directory")

F = ra.frequencies(16, base=500_000.0)
LLAMA = {"model_type": "llama", "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 5e5}
OTHER = {"model_type": "other", "head_dim": 32, "rope_theta": 1e4, "partial_rotary_factor": 1.0}

# --- a function -----------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path):
    """Return a folder with a module of rotaries and some that can't be imported; unload all of them afterwards."""
    shutil.copy(Path(__file__).parent / "rotaries.py", tmp_path / "mine.py")
    (tmp_path / "noisy.py").write_text("print('imported')\nfrom mine import exiting, printing")
    write_configs(tmp_path, config=LLAMA | {"head_dim": 32, "rope_theta": 1e4}, other=OTHER)
    (tmp_path / "strict.py").write_text("raise ValueError('base must be odd\\n  in two lines')")
    yield tmp_path
    for name in ("mine", "noisy"):
        sys.modules.pop(name, None)


def test_verify_imports_a_file_and_modules_in_its_folder(mine, tmp_path):
    (mine / "json.py").write_text("import mine\n\ndef both(q, k, p):\n    return mine.right(q, p), mine.right(k, p)\n")
    args = ["--pairing", "half", "--head-dim", 32, "--keys"]
    shown = output("verify", f"{mine}/json.py:both", *args, cwd=tmp_path)
    assert shown.startswith(f"{mine}/json.py:both: passed: half, head_dim 32, float32 of numpy\n")
    assert "can't be imported: FileNotFoundError" in refused("verify", f"{mine}/none.py:both", *args, cwd=tmp_path)


@pytest.mark.long
def test_verify_passes_a_correct_function_of_another_library(mine):
    pytest.importorskip("jax", reason="jax is not installed")
    args = "--pairing interleaved --head-dim 16 --rotary-dim 8 --start 4 --base 500 --attention-factor 1.5"
    shown = output("verify", "mine:compiled", *args.split(), "--library", "jax", "--dtype", "bfloat16", cwd=mine)
    assert "features 4 to 11 are rotated, bfloat16 of jax" in shown


def test_verify_reports_errors_and_their_cause(mine):
    args = ["verify", "mine:careless", "--config", "config.json", "--longest", 4095]
    shown = failing(*args, cwd=mine)
    assert "float32 of numpy\n\n  cause   angles in float32\n  change  multiply position and frequency in" in shown
    found = json.loads(failing(*args, "--json", cwd=mine))
    assert found["target"] == "mine:careless"
    assert (found["passed"], found["causes"], found["refusals"]) == (False, ["angles in float32"], {})
    assert list(found["errors"]) == ["0", "10", "100", "1000", "4088"]
    assert found["properties"]["preserves lengths"]["holds"] is True


@pytest.mark.parametrize(
    ("args", "text", "shown"),
    [
        ("right --config config.json", "0\n\n1, \n2.5", "  2.5 "),
        ("right --config config.json --longest 4095", "7\n4095", "  4095 "),
        ("chunked --pairing half --case chunked", "1 2,5\n3\t4 0", "  (3, 4, 0) "),
        ("chunked --pairing half --case chunked", None, "  (2147483647, 131071, 4095) "),
        ("chunked --pairing half --case chunked --longest 4095", None, "  axes apart "),
        ("tabled --config config.json --table vllm --shape sbhd", None, "  2147483640 "),
        ("right --config other.json --pairing half --head-dim 64", None, "  2147483640 "),
        ("right --pairing half --rotary-dim 32", None, "  2147483640 "),
    ],
)
def test_verify_takes_positions_tables_and_any_rotation(args, text, shown, mine):
    places = [] if text is None else ["--positions", "-"]
    target, *options = args.split()
    assert f"\n{shown}" in output("verify", f"mine:{target}", *options, *places, cwd=mine, stdin=text)


def test_verify_prints_json_if_the_function_prints_or_raises(mine):
    args = ["--pairing", "half", "--head-dim", 32, "--longest", 127, "--json"]
    done = run("verify", "noisy:printing", *args, cwd=mine)
    assert (done.returncode, json.loads(done.stdout)["passed"]) == (0, True)
    assert done.stderr.startswith("imported\nrotating\n")
    found = json.loads(failing("verify", "noisy:exiting", *args, cwd=mine))
    assert set(found["refusals"].values()) == {"raised SystemExit: no GPU"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("mine", "TARGET must be like package.module:function or file.py:function; got 'mine'"),
        ("mine:left", "'left'; it has ..., chunked, axes, compiled, printing, exiting"),
        ("mine:rigth", "TARGET must exist; got 'mine:rigth'; there is no 'rigth'; did you mean right?"),
        ("strict:f --base 5", "strict can't be imported: ValueError: base must be odd in two lines"),
        ("mine:number", "TARGET must be callable, as function(x, positions); got int 3"),
        ("mine:right --head-dim 31", "--rotary-dim must be even and from 2 to 1048576; got 31; 30 leaves"),
        ("mine:right --start 130 --rotary-dim 64", "--head-dim must hold the features that rotate, 194 at least"),
        ("mine:right --case plain --base 5", "--base must not be given beside --case; leave out one of the two"),
        ("mine:right --config config.json --start 4", "--start must not be given beside --config; leave out one"),
        ("mine:right --config config.json --part vision", "--part must be one that the config has (text)"),
        ("mine:right --part vision", "--part must not be given without --config or --cache"),
        ("mine:right --positions mine.py", "--positions must be a .npy file, or a text of numbers, with a line"),
        ("mine:right --positions none.txt", "none.txt must be a .npy file, or a text of numbers, with a line for each"),
        ("mine:right --table llama.cpp", "--table must be a layout of cosines and sines: vllm, "),
        ("mine:right --library pytorch", "array_api_strict; got 'pytorch'; did you mean torch?"),
        ("mine:right --dtype fp16", "'float64'; got 'fp16'; did you mean float16; see"),
    ],
)
def test_verify_refuses_a_wrong_function_or_option(args, message, mine):
    assert message in refused("verify", *args.split(), "--pairing", "half", cwd=mine)


@pytest.mark.parametrize(
    ("target", "options", "cause"),
    [
        ("Holder.other", "--head-dim 32", "the other pairing"),
        ("rows", "--head-dim 32 --rows", "the positions of the first"),
        ("axes", "--case chunked", "the axes of the positions are taken as 0, 0, 0"),
        ("autocast", "--head-dim 32 --library torch --longest 9999", "angles in bfloat16"),
    ],
)
def test_verify_names_the_causes_on_the_page_of_symptoms(target, options, cause, mine):
    if "torch" in options:
        pytest.importorskip("torch", reason="torch is not installed")
    shown = failing("verify", f"mine.py:{target}", "--pairing", "half", *options.split(), cwd=mine)
    assert cause in shown.partition("\n  cause   ")[2]
    page = Path(__file__).parents[1] / "docs" / "something-is-wrong.md"
    assert f"| `{cause}` |" in page.read_text(encoding="utf-8")


# --- a cache --------------------------------------------------------------------------------------------------


@pytest.fixture
def caches(tmp_path):
    """Return a folder with a config and caches of its rotation, of another base and in bfloat16."""
    write_configs(tmp_path, config=LLAMA | {"max_position_embeddings": 300})
    table = ra.cos_sin(range(300), F, like=np.zeros(1, dtype=np.float32))
    packed = ra.layouts.pack(table, "vllm")
    other = ra.layouts.pack(ra.cos_sin(range(300), ra.frequencies(16), like=packed), "vllm")
    meta = ra.layouts.pack(table, "meta")
    for name, array in {"vllm": packed, "other": other, "cos": table.cos, "sin": table.sin, "meta": meta}.items():
        np.save(tmp_path / f"{name}.npy", array)
    bfloat16 = (packed.view(np.uint32) + 0x8000 >> 16).astype(np.uint16)
    write_safetensors(tmp_path / "one.safetensors", cache=("BF16", bfloat16.shape, bfloat16))
    arrays = {"cos": ("F32", table.cos), "sin": ("F32", table.sin), "n": ("I16", bfloat16)}
    parts = {name: (dtype, data.shape, data) for name, (dtype, data) in arrays.items()}
    write_safetensors(tmp_path / "several.safetensors", **parts)
    write_safetensors(tmp_path / "empty.safetensors")
    (tmp_path / "half.pt").write_bytes(b"PK\x03\x04")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "layout", "dtype"),
    [
        ("--cache vllm.npy", "vllm", "float32"),
        ("--cache meta.npy", "meta", "complex64"),
        ("--cache cos.npy --cache sin.npy", "onnxruntime", "float32"),
        ("--cache one.safetensors", "sglang", "bfloat16"),
        ("--cache several.safetensors --tensor cos --tensor sin", "flash-attention", "float32"),
    ],
)
def test_verify_passes_a_correct_cache(files, layout, dtype, caches):
    shown = output("verify", *files.split(), "--layout", layout, "--config", "config.json", cwd=caches)
    names = ", ".join(name for name in files.split() if "." in name)
    assert shown.startswith(f"{names}: passed: layout {layout}, 300 rows of 8 pairs, {dtype}")


def test_verify_reports_a_wrong_cache(caches):
    args = "--cache other.npy --layout vllm --config config.json --json"  # a page shows the text
    found = json.loads(failing("verify", *args.split(), cwd=caches))
    assert (found["files"], found["layout"]) == (["other.npy"], "vllm")
    assert (found["passed"], found["first_wrong"], len(found["errors"])) == (False, 1, 300)
    assert found["causes"] == ["other frequencies: those of base 10000"]


LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
BOTH_LENGTHS = {"max_position_embeddings": 1200, "original_max_position_embeddings": 300, "rope_scaling": LONGROPE}


@pytest.mark.parametrize(
    ("config", "length", "needed"),
    [
        ({"max_position_embeddings": 301}, None, 301),
        ({"max_position_embeddings": 4096}, 300, 300),
        ({"max_position_embeddings": 300}, 301, 301),
        ({}, None, None),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300}}, None, 1200),
        # the unscaled cache is for the trained length, and an engine makes another one beyond it
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 300}, None, 300),
        # but a config that states both lengths is for the longer one
        ({"model_type": "phi3"} | BOTH_LENGTHS, None, 1200),
        ({"model_type": "phi3"} | BOTH_LENGTHS, 300, 300),
    ],
)
def test_verify_tells_a_cache_that_is_shorter_than_the_length_of_the_config(config, length, needed, caches):
    write_configs(caches, config=LLAMA | config)
    table = ra.Rope.from_config(LLAMA | config).table(range(300), like=np.zeros(1, dtype=np.float32))
    np.save(caches / "made.npy", ra.layouts.pack(table, "vllm"))
    args = ["verify", "--cache", "made.npy", "--layout", "vllm", "--config", "config.json"]
    args += [] if length is None else ["--sequence-length", length]
    done, found = run(*args, cwd=caches), json.loads(run(*args, "--json", cwd=caches).stdout)
    is_short = (needed or 0) > 300
    assert (done.returncode, done.stderr) == (int(is_short), "")
    assert (f"  cause   300 rows for {needed} tokens are too few\n" in done.stdout) == is_short
    assert ("the number of rows is not checked, as the config gives no" in done.stdout) == (needed is None)
    is_one_of_several = "dynamic" in str(config) or "longrope" in str(config)
    assert ("compared with the rotation of sequences of 300 tokens; for others" in done.stdout) == is_one_of_several
    assert (found["passed"], found["length"], found["wrong"]) == (not is_short, needed, 0)


def test_verify_names_the_layers_that_a_cache_is_for(caches):
    layers = {"rope_theta": 1e6, "rope_local_base_freq": 5e5, "num_hidden_layers": 2, "sliding_window_pattern": 2}
    write_configs(caches, config=LLAMA | layers | {"model_type": "gemma3_text"})
    args = ["verify", "--cache", "vllm.npy", "--layout", "vllm", "--config", "config.json"]
    assert "choose by --layer-type" in refused(*args, cwd=caches)
    assert run(*args, "--layer-type", "sliding_attention", cwd=caches).returncode == 0
    shown = failing(*args, "--layer-type", "full_attention", cwd=caches)
    assert "cause   the rotation is that of text, sliding_attention" in shown


CACHE = "--cache vllm.npy --layout vllm --config config.json"
SEVERAL = CACHE.replace("vllm.npy", "several.safetensors")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--layout vllm --config config.json", "TARGET must be given, or --cache"),
        ("mine:f", "--config must be given, or --pairing for a rotation without a config"),
        ("mine:f --case plain", "--pairing must be given beside --case"),
        ("mine:f --pairing half --layout vllm", "--layout must not be given without --config or --cache"),
        ("--cache vllm.npy --config config.json", "--layout must be given beside --cache"),
        (f"{CACHE} --head-dim 8", "--head-dim must not be given beside --cache; leave out one of the two"),
        (CACHE.replace("vllm.npy", "half.pt"), "half.pt must be a .npy file of one array of numbers or "),
        (CACHE.replace("vllm.npy", "empty.safetensors"), "empty.safetensors must contain a tensor"),
        (CACHE.replace("vllm.npy", "cos.npy"), "--cache must have the shape (seq, 16) for the layout vllm"),
        (f"{CACHE} --layout onnxruntime", "--cache must be given twice, for cosines and for sines"),
        (f"{CACHE} --cache sin.npy", "--cache must be given once for the layout vllm"),
        (f"{CACHE} --tensor a", "--tensor must be given for .safetensors"),
        (SEVERAL, "--tensor must be one of cos, sin, n, for several.safetensors"),
        (f"{SEVERAL} --tensor n", "several.safetensors must have n in one of F64, F32, F16, BF16, C64; got I16"),
    ],
)
def test_verify_refuses_wrong_files_and_options_of_a_cache(args, message, caches):
    assert refused("verify", *args.split(), cwd=caches).startswith(message)
