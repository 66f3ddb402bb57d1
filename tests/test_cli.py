"""The command line: output and files of each command; then in separate processes, pipes, terminals and shells."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from typer.testing import CliRunner

import rope_any as ra
from rope_any import cli
from rope_any._arrays import INSTALLABLE, installed
from rope_any.cli import _check, _common, _inspect, _measure

pytestmark = pytest.mark.thread_unsafe(reason="starts processes")

F = ra.frequencies(16, base=500_000.0)
DOCS = Path(__file__).parents[1] / "docs"
ROPE_ANY = [sys.executable, "-m", "rope_any"]


def run(*args, cwd=".", stdin=None):
    """Run ``rope-any args`` in this process; return the exit code and the output."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(cli.app, [*map(str, args)], input=stdin, catch_exceptions=False, prog_name="rope-any")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def process(*args, **options):
    """Run ``rope-any args`` in a separate process; return the exit code and the output."""
    return subprocess.run([*ROPE_ANY, *map(str, args)], capture_output=True, text=True, check=False, **options)


@pytest.fixture
def files(tmp_path, rng):
    """Return a folder with queries and keys of 6 tokens."""
    for name, heads in (("q", 4), ("k", 2)):
        np.save(tmp_path / f"{name}.npy", rng.uniform(-2, 2, (1, heads, 6, 16)).astype(np.float32))
    return tmp_path


def load(folder, name):
    """Return an array saved in a folder."""
    return np.load(folder / f"{name}.npy")


def test_rotate_accepts_an_offset(files):
    before = {path: path.read_bytes() for path in files.iterdir()}
    args = "rotate q.npy k.npy --base 500000 --pairing half --positions 131072 -o out/"
    done = run(*args.split(), cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    for name in "qk":
        expected = oracle.rotate(load(files, name), range(131_072, 131_078), F, pairing="half")
        np.testing.assert_allclose(load(files / "out", name), expected, atol=1.5e-6, rtol=0)
        assert load(files / "out", name).dtype == np.float32
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in (files / "out").iterdir()) == ["k.npy", "q.npy"]


def test_rotate_reads_positions_from_a_file(files):
    p = np.asarray([5, -3, 0, 70_000, 2**31 - 1, 8])
    np.save(files / "p.npy", p)
    args = "rotate k.npy --pairing interleaved --positions p.npy --rotary-dim 8 -o out"
    done = run(*args.split(), cwd=files)
    assert done.returncode == 0, done.stderr
    expected = oracle.rotate(load(files, "k"), p, ra.frequencies(8), pairing="interleaved")
    np.testing.assert_allclose(load(files / "out", "k"), expected, atol=1.5e-6, rtol=0)


def test_rotate_accepts_inverse_and_a_query_tail(files):
    np.save(files / "q.npy", load(files, "q")[:, :, -2:])
    args = ["q.npy", "k.npy", "--pairing", "half", "--positions", 9]
    assert run("rotate", *args, "-o", "rotated", cwd=files).returncode == 0
    assert run("rotate", *args, "-o", "../back", "--inverse", cwd=files / "rotated").returncode == 0
    for name in "qk":
        assert np.abs(load(files / "rotated", name) - load(files, name)).max() > 0.5
        np.testing.assert_allclose(load(files / "back", name), load(files, name), atol=1.5e-6, rtol=0)
    np.save(files / "packed.npy", np.moveaxis(load(files, "k")[0], 0, 1))  # (tokens, heads, dim)
    args = ["packed.npy", "--pairing", "half", "--positions", 9, "--seq-axis", -3, "-o", "rotated"]
    assert run("rotate", *args, cwd=files).returncode == 0
    assert (np.moveaxis(load(files / "rotated", "packed"), 1, 0) == load(files / "rotated", "k")[0]).all()
    done = run("rotate", "k.npy", "--pairing", "half", "--positions", 9, "-o", "keys", cwd=files)
    assert done.returncode == 0
    assert (load(files / "keys", "k") == load(files / "rotated", "k")).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            "rotate q.npy --pairing neox -o out",
            "--pairing must be one of 'half', 'interleaved'; got 'neox'; write half; see ",
        ),
        ("rotate none.npy --pairing half -o out", "none.npy must be a .npy file of one array of numbers; there is no"),
        ("rotate q.npy --pairing half -o .", "q.npy must not exist"),
        ("rotate q.npy q.npy --pairing half -o out", "overwrite each other"),
        ("rotate q.npy k.npy q.npy --pairing half -o out", "FILE must be one array, or q and k; got 3 files"),
        (
            "rotate q.npy --pairing half --positions here -o out",
            "--positions must be an integer or a .npy file; got 'here'",
        ),
        ("rotate q.npy --pairing half --positions k.npy -o out", "--positions must be (seq,)"),
        ("rotate q.npy --pairing half --base 0 -o out", "--base must be positive"),
        ("rotate q.npy --pairing half --rotary-dim 18 -o out", "FILE must have"),
        ("rotate integers.npy --pairing half -o out", "integers.npy must be floating-point"),
        ("rotate text.npy --pairing half -o out", "text.npy must be a .npy file of one array of numbers; np.save(name"),
        (
            "rotate many.npz --pairing half -o out",
            "one array of numbers; got an archive; np.save(name, array) writes one",
        ),
        ("rotate half.pt --pairing half -o out", "got a broken archive; np.save(name, array) writes one\n"),
        ("rotate cut.npy --pairing half -o out", "got one that is cut off; np.save(name, array) writes one\n"),
        ("rotate cut_header.npy --pairing half -o out", "got one that is cut off; np.save(name, array) writes one\n"),
        ("rotate empty.npy --pairing half -o out", "got an empty file; np.save(name, array) writes one\n"),
        (
            "rotate pickle.npy --pairing half -o out",
            "pickle.npy must be a .npy file of one array of numbers; np.save(n",
        ),
        (
            "convert cut.safetensors out --head-dim 8 --from half --to interleaved",
            "cut.safetensors must be a whole safetensors file; it is cut off\n",
        ),
        ("rotate scalar.npy --pairing half -o out", "scalar.npy must have an even number of features"),
        ("rotate odd.npy --pairing half -o out", "features, or --rotary-dim be given; got shape (3, 63)"),
        ("rotate scalar.npy --pairing half --rotary-dim 8 -o out", "got -2 for shape ()"),
        (
            "convert none out --head-dim 8 --from half --to interleaved",
            "none must be a .safetensors file, the index of several or a folder; there is no such file",
        ),
        ("rotate q.npy --pairing half -o text.npy", "--output must be a folder; got text.npy, the name of a file"),
        ("rotate q.npy --pairing half -o none.npy", "--output must be a folder; got none.npy, the name of a file"),
        (
            "rotate long.npy k.npy --pairing half -o out",
            "or rotate each alone if they are two sequences\n",
        ),
        (
            "rotate k.npy wide.npy --pairing half -o out",
            "got 16 features; q and k have 16 and 32 features: rotate each alone if that is meant\n",
        ),
    ],
)
def test_errors_are_one_line_and_write_no_file(files, args, message):
    np.save(files / "integers.npy", np.ones((3, 16), dtype=int))
    np.save(files / "pickle.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    np.save(files / "scalar.npy", np.float32(1))
    np.save(files / "odd.npy", np.ones((3, 63), dtype=np.float32))
    np.savez(files / "many.npz", q=np.ones(3))
    np.save(files / "long.npy", np.ones((1, 2, 7, 16), dtype=np.float32))
    np.save(files / "wide.npy", np.ones((1, 2, 6, 32), dtype=np.float32))
    (files / "text.npy").write_text("not an array")
    (files / "half.pt").write_bytes(b"PK\x03\x04")
    whole = (files / "q.npy").read_bytes()
    for name, length in (("cut", 200), ("cut_header", 20), ("empty", 0)):
        (files / f"{name}.npy").write_bytes(whole[:length])
    (files / "cut.safetensors").write_bytes((100).to_bytes(8, "little") + b'{"w": ')
    before = sorted(files.rglob("*"))
    done = run(*args.split(), cwd=files)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("rope-any: ")
    assert done.stderr.count("\n") == 1
    assert sorted(files.rglob("*")) == before


def test_files_are_overwritten_only_on_request(files):
    args = ["rotate", "k.npy", "--pairing", "half", "--positions", 3, "-o", "out"]
    assert run(*args, cwd=files).returncode == 0
    assert run(*args[:-1], "out", cwd=files).returncode == 2
    assert run(*args, "--overwrite", cwd=files).returncode == 0


@pytest.fixture
def short_check(monkeypatch):
    """Shorten the measurements of `check`."""
    monkeypatch.setattr(_measure, "TOKENS", 100)


@pytest.mark.long
@pytest.mark.usefixtures("short_check")
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
    for name in INSTALLABLE:
        assert name in done.stdout


@pytest.fixture
def numpy_alone(short_check, monkeypatch):  # noqa: ARG001  # with short measurements too
    """Pretend that only NumPy is installed."""
    monkeypatch.setattr(_measure, "installed", lambda title: installed(title) if title == "NumPy" else None)


@pytest.mark.usefixtures("numpy_alone")
def test_check_lists_missing_libraries_and_fails_if_a_bound_is_exceeded(monkeypatch, capsys):
    _check.check()
    out = capsys.readouterr().out
    assert re.search(r'PyTorch: not found \(extra torch: pip install\s+"rope-any\[torch\]"\)', out)
    assert re.search(r'CuPy: not found .*"rope-any\[cupy-cuda12x\]"', out, re.DOTALL)
    for name, bound in (("TABLE_BOUND", 1e-9), ("ROTATION_BOUNDS", dict.fromkeys(_measure.DTYPES, 1e-9))):
        with monkeypatch.context() as patch:
            patch.setattr(_measure, name, bound)
            with pytest.raises(_check.typer.Exit) as caught:
                _check.check()
        assert caught.value.exit_code == 1
        assert "a bound is broken" in capsys.readouterr().err


@pytest.mark.usefixtures("numpy_alone")
def test_check_fails_if_a_table_has_nan(monkeypatch, capsys):
    table = ra.Rope.table

    def broken(self, positions, **options):
        """Return a table whose sines are nan."""
        cos, sin = table(self, positions, **options)
        return ra.Table(cos, sin * np.float32("nan"))

    monkeypatch.setattr(ra.Rope, "table", broken)
    with pytest.raises(_check.typer.Exit):
        _check.check()
    assert "nan" in capsys.readouterr().out


def test_a_missing_extra_is_reported_with_its_install_command():
    code = "import sys; sys.modules['typer'] = None; import rope_any.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == 'rope-any: typer is missing; install the command line by: pip install "rope-any[cli]"'


# --- configs ------------------------------------------------------------------------------------------------

LLAMA3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131_072,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6}


@pytest.fixture
def configs(tmp_path):
    """Return a folder with the configs of some models."""
    models = {
        "scaled": LLAMA3,
        "plain": LLAMA3 | {"rope_scaling": None},
        "gemma": GEMMA3,
        "narrow": LLAMA3 | {"head_dim": 64},
        "dynamic": LLAMA3 | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
        "no_rotary": {"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": None}},
        "typo": LLAMA3 | {"rope_tetha": 1.0},
        "new": LLAMA3 | {"model_type": "new"},
        "string": LLAMA3 | {"rope_theta": "4096"},
    }
    for name, model in models.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(model))
    (tmp_path / "invalid.json").write_text("{")
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_inspect_prints_a_config(configs):
    done = run("inspect", "scaled.json", cwd=configs)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "all layers: Rope(<64 frequencies from 1 to 3.06893e-07>, pairing='half')" in text
    assert "head_dim 128 hidden_size // num_attention_heads" in text
    assert "factor 8 rope_scaling.factor" in text
    assert "attention_factor 1 derived from these" in text
    assert "in tokens pairs shortest 25% 50% 75% longest 64 6.28 136 7334 769929 20473564 32 of" in text
    tokens = sorted(ra.config.wavelengths(ra.Rope.from_config(LLAMA3)))
    assert [round(tokens[i]) for i in (0, 15, 31, 47, 63)] == [6, 136, 7334, 769_929, 20_473_564]
    for length, name in ((8192, "trained_length"), (131_072, "extended_length")):
        unfinished = sum(n > length for n in ra.config.wavelengths(ra.Rope.from_config(LLAMA3)))
        assert f"{unfinished} of 64 pairs never complete a turn within {length} tokens ({name})" in text


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (4096, "never complete a turn within 4096 tokens (extended_length)"),
        ("x", "the config gives no context length"),
        ([4096], "the config gives no context length"),
        (0.5, "the config gives no context length"),
    ],
)
def test_inspect_shows_a_length_in_rope_scaling(length, message, tmp_path):
    scaling = {"type": "linear", "factor": 2, "max_position_embeddings": length}
    (tmp_path / "a.json").write_text(json.dumps(LLAMA3 | {"max_position_embeddings": None, "rope_scaling": scaling}))
    done = run("inspect", "a.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert message in done.stdout
    for kind in ("wavelengths", "decay"):
        done = run("plot", "a.json", kind, "-o", f"{kind}.svg", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("options", "tokens"), [([], 4096), (["--sequence-length", 131_072], 131_072)])
def test_inspect_counts_pairs_within_the_length_of_the_rotation(options, tokens, tmp_path):
    lists = {"short_factor": [1.0] * 32, "long_factor": [16.0] * 32}
    phi = {"model_type": "phi3", "head_dim": 64, "max_position_embeddings": 131_072}
    phi |= {"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 4096, **lists}}
    (tmp_path / "phi.json").write_text(json.dumps(phi))
    rope = ra.Rope.from_config(phi, sequence_length=tokens)
    unfinished = sum(n > tokens for n in ra.config.wavelengths(rope))
    done = run("inspect", "phi.json", *options, cwd=tmp_path)
    *_, counted, others = done.stdout.splitlines()
    assert counted == f"{unfinished} of 32 pairs never complete a turn within {tokens} tokens (length)"
    assert "--sequence-length" in others
    for kind in ("wavelengths", "decay"):
        plotted = run("plot", "phi.json", kind, "-o", f"{kind}.png", "--json", *options, cwd=tmp_path)
        drawn = json.loads(plotted.stdout)
        if kind == "decay":
            assert drawn["lines"][0]["x"][-1] == tokens
        else:
            name = "phi, for " + f"{tokens:,} tokens".replace(",", "\u202f")
            assert name in {line["label"] for line in drawn["lines"]}


def test_inspect_shows_each_kind_of_layer(configs):
    both = run("inspect", "gemma.json", cwd=configs).stdout
    assert both.index("sliding_attention (0-4): Rope(") < both.index("full_attention (5): Rope(")
    one = run("inspect", "gemma.json", "--layer-type", "full_attention", cwd=configs).stdout
    assert "sliding_attention" not in one
    assert "full_attention: no rotary" in run("inspect", "no_rotary.json", cwd=configs).stdout


# Published configs, without the keys that have nothing to do with rotary embedding.
DEEPSEEK = {
    "model_type": "deepseek_v32",
    "num_hidden_layers": 61,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "rope_theta": 10_000,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}
QWEN3_VL = {
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "head_dim": 128,
        "num_hidden_layers": 36,
        "max_position_embeddings": 262_144,
        "rope_theta": 5_000_000,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"},
    },
    "vision_config": {"model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "num_heads": 16},
}
FLUX = {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56]}
GEMMA4 = {
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    },
}
SUMMARIES = {
    "an indexer": (
        DEEPSEEK,
        [
            "text 61 64 of 64 interleaved 10000 yarn × 40",
            "indexer 61 64 of 128 half 10000 yarn × 40",
            "text, layers (0-60): Rope(",
            "indexer, layers (0-60): Rope(",
        ],
    ),
    "a tower": (
        QWEN3_VL,
        [
            "text 36 128 of 128 half 3 5000000 default 262144",
            "vision 27 72 of 72 16 half 2 10000 axial",
            "value from (… is text_config)",
            "rope_theta 5000000 …rope_theta",
            "axis pairs shortest 25% 50% 75% longest",
            "0 24 6.28 233 17879 1369057 24687577",
            "1 20 8 ",
            "2 20 10.2 ",
            "19 of 64 pairs never complete a turn within 262144 tokens",
            "0, 1 18 6.28 48.6 377 2916 37667",
        ],
    ),
    "axes alone": (
        FLUX,
        ["transformer, all layers: Rope(<3 axes", "0 8 6.28 19.9 199 1987 19869", "1, 2 28 6.28 45.2 452 4522 45219"],
    ),
    "layers that differ": (
        GEMMA4,
        [
            "text 5 sliding_attention 256 of 256 half 10000 default",
            "text 1 full_attention 128 of 512 half 1000000 proportional",
            "model_type gemma4_text model_type",
            "full_attention (5): Rope(",
            "partial_rotary_factor 0.25 ",
            "other values: as for sliding_attention",
            "64 6.28 14.1 33.5 79.4 188",
            "192 of 256 pairs don't rotate",
        ],
    ),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_inspect_prints_the_summary_first(name, tmp_path):
    config, lines = SUMMARIES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("inspect", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    found = [text.find(line) for line in lines]
    assert found == sorted(found) and found[0] >= 0, dict(zip(lines, found, strict=True))
    assert text.count("model_type gemma4_text model_type") <= 1  # what layers have in common is printed once
    printed = terminal("inspect", tmp_path, columns=100).splitlines()
    assert max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in printed) <= 100


PLAIN_HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8}
OVERVIEWS = {  # configs, and rows of their overviews
    "one rotation": (
        LLAMA3 | PLAIN_HEADS | {"num_hidden_layers": 32},
        ["part layers rotates heads q / k pairing base scheme tokens", "text 32 128 of 128 32 / 8 half 500000 llama3"],
    ),
    "no length": (
        {"model_type": "llama", "head_dim": 64},
        ["part layers rotates pairing base scheme", "text all 64 of 64 half 10000 default"],
    ),
    "one rotated key for all heads": (DEEPSEEK | PLAIN_HEADS, ["text 61 64 of 64 32 / 1 interleaved"]),
    "only query heads": (
        {"model_type": "gpt_neox", "hidden_size": 256, "num_attention_heads": 4},
        ["text all 16 of 64 4 half 10000"],
    ),
    "other heads in some layers": (
        GEMMA4 | PLAIN_HEADS | {"num_global_key_value_heads": 2},
        ["part layers rotates pairing base scheme"],
    ),
    "axes": (
        FLUX | {"num_attention_heads": 24},
        ["part layers rotates heads q / k pairing axes base", "transformer all 128 of 128 24 interleaved 3 10000"],
    ),
}


@pytest.mark.parametrize("name", OVERVIEWS)
def test_inspect_begins_with_an_overview(name, tmp_path):
    config, rows = OVERVIEWS[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("inspect", tmp_path)
    first = done.stdout.partition("\n\n")[0]
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in first.splitlines()]
    assert all(any(line.startswith(row) for line in lines) for row in rows), lines


OMNI = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "text_config": QWEN3_VL["text_config"] | {"model_type": "qwen3_omni_moe_text"} | PLAIN_HEADS,
        "vision_config": QWEN3_VL["vision_config"] | {"model_type": "qwen3_omni_moe_vision_encoder"},
    },
    "talker_config": {
        "text_config": QWEN3_VL["text_config"] | {"model_type": "qwen3_omni_moe_talker_text"} | PLAIN_HEADS,
        "code_predictor_config": {
            "model_type": "qwen3_omni_moe_talker_code_predictor",
            "head_dim": 128,
            "num_hidden_layers": 5,
        },
    },
}
PUBLISHED = ra.config.published()
TERMINAL_CONFIGS = {
    "Llama 3.1": PUBLISHED["meta-llama/Llama-3.1-8B"],
    "Gemma 3": PUBLISHED["google/gemma-3-4b-it"],
    "Qwen2-VL": PUBLISHED["Qwen/Qwen2-VL-2B-Instruct"],
    "DeepSeek V3": PUBLISHED["deepseek-ai/DeepSeek-V3"],
    "gpt-oss": PUBLISHED["openai/gpt-oss-20b"],
    "Flux": FLUX,
    "long names of parts": OMNI,
}


@pytest.mark.parametrize("name", TERMINAL_CONFIGS)
@pytest.mark.thread_unsafe(reason="starts processes")
def test_inspect_fits_a_terminal(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TERMINAL_CONFIGS[name]))
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in terminal("inspect", tmp_path).splitlines()]
    assert max(map(len, lines)) <= 80
    wide = run("inspect", tmp_path).stdout
    overview, details = (pieces(text) for text in wide.split("\n\n", 1))
    cut = lines.index("")
    assert pieces("\n".join(lines[:cut])) == overview  # no word is broken
    starts = set().union(*(pieces(line.split()[0]) for line in lines[cut + 1 :] if line[:1].strip()))
    assert {"head_dim", "rope_theta", "rotary_dim"} <= starts <= details | overview


def pieces(text):
    """Return the words of a text, split after dots, where a line may break."""
    return {piece for word in text.split() for piece in re.findall(r"[^.]+\.?|\.", word)}


def test_inspect_lists_refused_parts(tmp_path):
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer_2").mkdir()
    (tmp_path / "model_index.json").write_text('{"_class_name": "Pipeline"}')
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(FLUX))
    (tmp_path / "transformer_2" / "config.json").write_text('{"_class_name": "MochiTransformer3DModel"}')
    text = " ".join(run("inspect", tmp_path).stdout.split())
    assert "transformer_2 refused transformer, all layers: Rope(" in text
    assert "transformer_2: refused" in text and "its frequencies are learned" in text
    read, refused = json.loads(run("inspect", tmp_path, "--json").stdout)
    assert (read["part"], read["refused"]) == ("transformer", None)
    assert refused["rope"] is None and "learned" in refused["refused"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_inspect_exits_with_2_if_all_parts_are_refused(tmp_path, form):
    (tmp_path / "model_index.json").write_text("{}")
    for name in ("transformer", "transformer_2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(FLUX))
    done = run("inspect", tmp_path, "--pairing", "half", *form)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("must be 'interleaved', according to _class_name FluxTransformer2DModel; got 'half'") == 2
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(LLAMA3))
    assert run("inspect", tmp_path, "--pairing", "half", *form).returncode == 0


def test_inspect_prints_json(configs):
    (record,) = json.loads(run("inspect", "scaled.json", "--json", cwd=configs).stdout)
    rope = ra.Rope.from_config(LLAMA3)
    assert tuple(record["rope"]["frequencies"]) == rope.frequencies
    assert record["wavelengths"] == sorted(ra.config.wavelengths(rope))
    assert record["facts"]["rope_theta"] == {"value": 500_000.0, "source": "rope_theta"}
    assert record["pairs_without_a_turn"].keys() == {"trained_length", "extended_length"}
    (without_rotary,) = json.loads(run("inspect", "no_rotary.json", "--json", cwd=configs).stdout)
    assert without_rotary["rope"] is None


UNUSUAL_VALUES = {
    "words and numbers": (["a", "b", "c", 1, 2], "finetuned ['a', 'b', 'c', 1, 2] rope_scaling.finetuned"),
    "words": (list("abcde"), "finetuned ['a', 'b', 'c', 'd', 'e'] rope_scaling.finetuned"),
    "NaN": (float("nan"), "finetuned nan"),
    "a list of NaN": ([float("nan")] * 5, "finetuned [nan, nan, nan, nan, nan]"),
    "numbers beyond floats": ([10**400] * 5, "finetuned list"),
    "numbers": ([1, 2, 3.5, 4, 5], "finetuned 5 numbers from 1 to 5"),
    "an escape sequence": ("\x1b[2J", r"finetuned str '\x1b[2J'"),
    "nested lists": (json.loads("[" * 300 + "]" * 300), "finetuned list"),
}


@pytest.mark.parametrize("name", UNUSUAL_VALUES)
def test_inspect_shows_values_of_any_type(name, tmp_path):
    value, text = UNUSUAL_VALUES[name]
    scaling = {"type": "linear", "factor": 2, "finetuned": value}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3 | {"rope_scaling": scaling}))
    done = run("inspect", "config.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert text in " ".join(done.stdout.split())
    for command in (["inspect", "config.json"], ["diff", "config.json", "config.json"]):
        done = run(*command, "--json", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        json.loads(done.stdout, parse_constant=pytest.fail)


def test_diff_accepts_models_without_rotary(configs):
    for name in ("bert", "gpt2"):
        (configs / f"{name}.json").write_text(json.dumps({"model_type": name}))
    neither = run("diff", "bert.json", "gpt2.json", cwd=configs).stdout
    assert "no rotary here: bert.json, gpt2.json" in neither
    one = run("diff", "bert.json", "gemma.json", cwd=configs).stdout
    assert one.count("no rotary here: bert.json\n") == 2
    assert "different numbers of pairs" not in neither + one


def test_diff_prints_the_differences(configs):
    done = run("diff", "scaled.json", "plain.json", cwd=configs)
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    assert "rope_type llama3 default" in text
    assert "factor 8 –" in text
    assert "rope_theta" not in text  # the same in both
    a, b = (ra.Rope.from_config(c) for c in (LLAMA3, LLAMA3 | {"rope_scaling": None}))
    assert f"1024 {ra.config.drift(a, b, 1024):.2g} 4096 " in text
    assert "all layers: the same rotation" in run("diff", "plain.json", "plain.json", cwd=configs).stdout
    assert (
        "can't be compared: the numbers of pairs differ" in run("diff", "plain.json", "narrow.json", cwd=configs).stdout
    )


def test_diff_prints_json(configs):
    (record,) = json.loads(run("diff", "scaled.json", "plain.json", "--json", cwd=configs).stdout)
    assert record["facts"]["rope_type"] == ["llama3", "default"]
    a, b = (ra.Rope.from_config(c) for c in (LLAMA3, LLAMA3 | {"rope_scaling": None}))
    assert record["drift"] == {str(4**n): ra.config.drift(a, b, 4**n) for n in range(11)}
    records = json.loads(run("diff", "gemma.json", "gemma.json", "--json", cwd=configs).stdout)
    assert [r["layer_types"] for r in records] == [[kind] * 2 for kind in ("sliding_attention", "full_attention")]
    assert all(r["facts"] == {} and set(r["drift"].values()) == {0.0} for r in records)


def write_granite_configs(folder, **bases):
    """Write configs of Granite with a base for each layer."""
    for name, by_layer in bases.items():
        model = {"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4, "layer_rope_theta": by_layer}
        (folder / f"{name}.json").write_text(json.dumps(model))


def test_diff_compares_layers_one_by_one(tmp_path):
    write_granite_configs(tmp_path, a=[1e4, 1e4, 5e5, 5e5], b=[2e4, 2e4, 5e5, 5e5], c=[0, 1e4, 2e4, 1e4])
    text = " ".join(run("diff", "a.json", "b.json", cwd=tmp_path).stdout.split())
    assert "layers (0-1) value a.json b.json rope_theta 10000 20000 position largest difference" in text
    assert text.endswith("layers (2-3): the same rotation")
    records = json.loads(run("diff", "a.json", "c.json", "--json", cwd=tmp_path).stdout)
    assert [(r["layers"][0], r["facts"]["rope_theta"]) for r in records if r["facts"]] == [
        ([0], [1e4, None]),
        ([2], [5e5, 2e4]),
        ([3], [5e5, 1e4]),
    ]
    assert [r["layers"] for r in records if not r["facts"]] == [[[1], [1]]]
    text = " ".join(run("diff", "a.json", "c.json", cwd=tmp_path).stdout.split())
    assert "layers (0) value a.json c.json" in text


def test_diff_pairs_all_layers_if_one_config_has_no_number_of_layers():
    step = {"model_type": "step3p5", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    first = ra.config.explain(step | {"rope_theta": [1e4, 1e4, 2e4]})
    second = ra.config.explain({"model_type": "gemma3_text"})
    assert _inspect._paired(first, second) == [(a, b) for a in first for b in second]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["inspect", "typo.json"],
            "rope-any: typo.json: rope_tetha must be left out: it is an unknown name about rotary embedding",
        ),
        (["inspect", "none.json"], "rope-any: config must be a path to a config.json; there is none at none.json"),
        (["inspect", "empty"], "rope-any: config must be a path to a config.json; there is none in /"),
        (["inspect", "invalid.json"], "invalid.json must be a config.json; it is no JSON: Expecting property name"),
        (["advise", "invalid.json", "--length", "8K"], "rope-any: invalid.json must be a config.json; it is no JSON"),
        (
            ["inspect", "new.json"],
            "new.json: model_type must be one whose rotation is known, or --pairing and partial_rotary_factor be given",
        ),
        (
            ["inspect", "gemma.json", "--layer-type", "full"],
            "gemma.json: --layer-type must be one that the config has (sliding_attention, full_attention); got 'full'",
        ),
        (
            ["inspect", "new.json", "--pairing", "both"],
            "--pairing must be one of 'half', 'interleaved'; got 'both'",
        ),
        (["diff", "plain.json", "typo.json"], "rope-any: typo.json: rope_tetha must be left out"),
        (["inspect", "string.json"], "rope-any: string.json: rope_theta must be a real number; got str '4096'"),
        (
            ["plot", "string.json", "hands", "--position", "4096", "-o", "a.png"],
            "rope-any: string.json: rope_theta must be a real number; got str '4096'",
        ),
        (
            ["inspect", "plain.json", "--sequence-length", "0"],
            ": --sequence-length must be from 1 to 9007199254740992; got 0",
        ),
        (["inspect", "gemma.json", "--layer-type", 50 * "x"], f"; got {50 * 'x'!r}"),
    ],
)
def test_wrong_configs_are_refused_in_one_line(configs, args, message):
    done = run(*args, cwd=configs)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_an_unknown_model_takes_its_pairing_from_an_option(configs):
    stated = json.loads((configs / "new.json").read_text()) | {"partial_rotary_factor": 1.0}
    done = run("inspect", "-", "--pairing", "interleaved", cwd=configs, stdin=json.dumps(stated))
    assert "pairing='interleaved'" in done.stdout


# --- verify -----------------------------------------------------------------------------------------------

MINE = """
from dataclasses import dataclass
import numpy as np
import rope_any as ra

right = ra.Rope(ra.frequencies(32), pairing="half").apply

class Holder:
    right = right

def careless(x, positions):
    angle = np.outer(positions.astype(np.float32), np.float32(ra.frequencies(32)))
    return ra.rotate(x, np.cos(angle), np.sin(angle), pairing="half")

def partial(x, positions):
    rope = ra.Rope(ra.frequencies(8, base=500.0), pairing="interleaved", attention_factor=1.5, start=4)
    return rope.apply(x, positions)

def compiled(x, positions):
    import jax
    return jax.jit(partial)(x, positions)

def printing(x, positions):
    print("rotating")
    return right(x, positions)

def exiting(x, positions):
    raise SystemExit("no GPU")

number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Return a folder with a module of rotaries and one that can't be imported; unload both afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "noisy.py").write_text("print('imported')\nfrom mine import exiting, printing")
    (tmp_path / "exits.py").write_text("raise SystemExit(3)")
    (tmp_path / "strict.py").write_text("raise ValueError('base must be odd')")
    yield tmp_path
    for name in ("mine", "noisy", "package", "package.module"):
        sys.modules.pop(name, None)


def test_verify_passes_a_correct_rotary(mine):
    done = run("verify", "mine:Holder.right", "--pairing", "half", "--head-dim", 32, cwd=mine)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("mine:Holder.right: passed: half, head_dim 32, float32 of numpy\n")


def test_verify_imports_a_file_and_modules_in_its_folder(mine, tmp_path):
    (mine / "json.py").write_text("import mine\n\ndef both(q, k, p):\n    return mine.right(q, p), mine.right(k, p)\n")
    args = ["--pairing", "half", "--head-dim", 32, "--keys"]
    done = run("verify", f"{mine}/json.py:both", *args, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "passed" in done.stdout
    done = run("verify", f"{mine}/none.py:both", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert "can't be imported: FileNotFoundError" in done.stderr


@pytest.mark.long
def test_verify_passes_a_correct_rotary_of_another_library(mine):
    pytest.importorskip("jax", reason="jax is not installed")
    args = "--pairing interleaved --head-dim 16 --rotary-dim 8 --start 4 --base 500 --attention-factor 1.5"
    done = run("verify", "mine:compiled", *args.split(), "--library", "jax", "--dtype", "bfloat16", cwd=mine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "features 4 to 11 are rotated, bfloat16 of jax" in done.stdout


def test_verify_reports_errors_and_their_cause(mine):
    args = ["verify", "mine:careless", "--pairing", "half", "--head-dim", 32, "--longest", 4095]
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
    args = ["--pairing", "half", "--head-dim", 32, "--longest", 127, "--json"]
    done = run("verify", "noisy:printing", *args, cwd=mine)
    assert (done.returncode, json.loads(done.stdout)["passed"]) == (0, True)
    assert done.stderr.startswith("imported\nrotating\n")
    done = run("verify", "noisy:exiting", *args, cwd=mine)
    assert done.returncode == 1
    assert set(json.loads(done.stdout)["refusals"].values()) == {"raised SystemExit: no GPU"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("mine --pairing half", "TARGET must be like package.module:function or file.py:function; got 'mine'"),
        (
            "mine:left --pairing half",
            (
                "TARGET must exist; got 'mine:left'; there is no 'left'; "
                "it has ..., careless, partial, compiled, printing, exiting\n"
            ),
        ),
        (
            "mine:rigth --pairing half",
            "TARGET must exist; got 'mine:rigth'; there is no 'rigth'; did you mean right?\n",
        ),
        ("mine:number.x --pairing half", "TARGET must exist; got 'mine:number.x'; there is no 'x'\n"),
        ("none:f --pairing half", "none can't be imported: ModuleNotFoundError: No module named 'none'"),
        ("broken:f --pairing half", "broken can't be imported: ZeroDivisionError: division by zero"),
        ("exits:f --pairing half", "exits can't be imported: SystemExit: 3"),
        ("strict:f --pairing half --base 5", "strict can't be imported: ValueError: base must be odd"),
        ("mine:number --pairing half", "TARGET must be callable, as function(x, positions); got int 3"),
        ("mine:right --pairing neox", "--pairing must be one of 'half', 'interleaved'; got 'neox'"),
        (
            "mine:right --pairing half --head-dim 31",
            "--head-dim must leave an even number of features from --start 0 on, 2 at least; got 31",
        ),
        ("mine:right --pairing half --longest 5", "--longest must be from 127"),
        ("mine:right --pairing half --case none", "--case must be one of plain, "),
        (
            "mine:right --pairing half --library pytorch",
            "--library must be one of numpy, cupy, torch, jax, dask, mlx, array_api_strict; got 'pytorch'; did you",
        ),
        (
            "mine:right --pairing half --dtype fp16",
            "--dtype must be one of 'float16', 'bfloat16', 'float32', 'float64'; got 'fp16'; did you mean float16; see",
        ),
        (
            "mine:right --pairing half --case plain --base 5",
            "--base must not be given beside --case, which has its own",
        ),
        ("mine:right --pairing half --library tf", "--library must be one of numpy, cupy, torch, jax"),
        (
            "mine:right --pairing half --dtype int8",
            "--dtype must be one of 'float16', 'bfloat16', 'float32', 'float64'",
        ),
    ],
)
def test_verify_refuses_wrong_arguments_in_one_line(mine, args, message):
    done = run("verify", *args.split(), cwd=mine)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rope-any: {message}")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def caches(tmp_path):
    """Return a folder with a config and caches of its rotation, of another base and in bfloat16."""
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA3 | {"head_dim": 16, "rope_scaling": None, "max_position_embeddings": 300})
    )
    table = ra.cos_sin(range(300), F, like=np.zeros(1, dtype=np.float32))
    other = ra.cos_sin(range(300), ra.frequencies(16), like=table.cos)
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


def write_safetensors(file, **tensors):
    """Write a file of tensors, each a dtype of the format and an array."""
    header, end = {}, 0
    for name, (dtype, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": data.shape, "data_offsets": [end, end + data.nbytes]}
        end += data.nbytes
    head = json.dumps(header).encode()
    file.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(x.tobytes() for _, x in tensors.values()))


@pytest.mark.parametrize(
    ("args", "subject"),
    [
        ("--cache vllm.npy --layout vllm", "vllm.npy: passed: layout vllm, 300 rows of 8 pairs, float32"),
        ("--cache meta.npy --layout meta", "meta.npy: passed: layout meta, 300 rows of 8 pairs, complex64"),
        ("--cache cos.npy --cache sin.npy --layout onnxruntime", "cos.npy, sin.npy: passed: layout onnxruntime, 300"),
        ("--cache one.safetensors --layout sglang", "one.safetensors: passed: layout sglang, 300 rows of 8 pairs, bf"),
        (
            "--cache several.safetensors --tensor cos --tensor sin --layout flash-attention",
            "several.safetensors: passed: layout flash-attention, 300 rows of 8 pairs, float32",
        ),
    ],
)
def test_verify_passes_a_correct_cache(caches, args, subject):
    done = run("verify", *args.split(), "--config", "config.json", cwd=caches)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(subject.replace("pairs, bf", "pairs, bfloat16"))


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


@pytest.mark.parametrize(
    ("config", "args", "needed"),
    [
        ({"max_position_embeddings": 300}, (), 300),
        ({"max_position_embeddings": 301}, (), 301),
        ({"max_position_embeddings": 4096}, ("--sequence-length", "300"), 300),
        ({"max_position_embeddings": 300}, ("--sequence-length", "301"), 301),
        ({}, (), None),
        ({"rope_scaling": YARN}, (), 1200),
        ({"rope_scaling": YARN, "max_position_embeddings": 1200}, (), 1200),
        # the unscaled cache is for the trained length, and an engine makes another one beyond it
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 300}, (), 300),
        # but a config that states both lengths is for the longer one
        (LONGROPE, (), 1200),
        (LONGROPE, ("--sequence-length", "300"), 300),
    ],
)
def test_verify_tells_a_cache_that_is_shorter_than_the_length_of_the_config(caches, config, args, needed):
    (caches / "config.json").write_text(json.dumps(LLAMA | config))
    table = ra.Rope.from_config(LLAMA | config).table(range(300), like=np.zeros(1, dtype=np.float32))
    np.save(caches / "made.npy", ra.layouts.pack(table, "vllm"))
    args = ["verify", "--cache", "made.npy", "--layout", "vllm", "--config", "config.json", *args]
    done, found = run(*args, cwd=caches), json.loads(run(*args, "--json", cwd=caches).stdout)
    is_short = (needed or 0) > 300
    assert (done.returncode, done.stderr, "likely cause" in done.stdout) == (int(is_short), "", False)
    assert (f"  300 rows for {needed} tokens are too few\n" in done.stdout) == is_short
    assert ("not checked: the number of rows, as the config gives no length" in done.stdout) == (needed is None)
    is_one_of_several = ("dynamic" in str(config) or "longrope" in str(config)) and "--sequence-length" not in args
    assert ("compared with the rotation for 300 tokens; for another length" in done.stdout) == is_one_of_several
    assert (found["passed"], found["length"], found["wrong"]) == (not is_short, needed, 0)


def test_verify_names_the_layers_that_a_cache_is_for(caches):
    layers = {"rope_theta": 1e6, "rope_local_base_freq": 5e5, "num_hidden_layers": 2, "sliding_window_pattern": 2}
    gemma = {"model_type": "gemma3_text", "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, **layers}
    (caches / "config.json").write_text(json.dumps(gemma))
    args = ["verify", "--cache", "vllm.npy", "--layout", "vllm", "--config", "config.json"]
    assert "choose by --layer-type" in run(*args, cwd=caches).stderr
    assert run(*args, "--layer-type", "sliding_attention", cwd=caches).returncode == 0
    done = run(*args, "--layer-type", "full_attention", cwd=caches)
    assert done.returncode == 1
    assert "likely cause: the rotation is that of text, sliding_attention" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--layout vllm --config config.json", "TARGET must be given, or --cache"),
        ("mine:f", "--pairing must be given for TARGET"),
        ("mine:f --pairing half --layout vllm", "--layout must not be given for TARGET"),
        ("--cache vllm.npy --config config.json", "--layout must be given for --cache"),
        ("--cache vllm.npy --layout vllm", "--config must be given for --cache"),
        (
            "--cache vllm.npy --layout vllm --config config.json --head-dim 8",
            "--head-dim must not be given for",
        ),
        ("mine:f --cache vllm.npy --layout vllm --config config.json", "TARGET must not be given for"),
        ("--cache vllm.npy --layout vlm --config config.json", "--layout must be one of vllm, "),
        ("--cache vllm.npy --layout vllm --config none.json", "--config must be a path to a config.json"),
        ("--cache none.npy --layout vllm --config config.json", "none.npy must be a .npy file of one array of numbers"),
        (
            "--cache half.pt --layout vllm --config config.json",
            "half.pt must be a .npy file of one array of numbers or ",
        ),
        (
            "--cache cos.npy --layout vllm --config config.json",
            "--cache must have the shape (seq, 16) for the layout vllm with 16 rotated features: cosines, then sines;",
        ),
        ("--cache none.safetensors --layout vllm --config config.json", "none.safetensors must be a .npy file"),
        (
            "--cache cos.npy --layout onnxruntime --config config.json",
            "--cache must be given twice, for cosines and for sines, for the layout onnxruntime; got ['cos.npy']; or",
        ),
        (
            "--cache cos.npy --cache sin.npy --layout vllm --config config.json",
            "--cache must be given once for the layout vllm; got ['cos.npy', 'sin.npy']\n",
        ),
        (
            "--cache several.safetensors --tensor cos --layout onnxruntime --config config.json",
            "--tensor must be given twice, for cosines and for sines, for the layout onnxruntime; got ['cos']\n",
        ),
        (
            "--cache several.safetensors --tensor cos --tensor sin --layout vllm --config config.json",
            "--tensor must be given once for the layout vllm; got ['cos', 'sin']\n",
        ),
        ("--cache empty.safetensors --layout vllm --config config.json", "empty.safetensors must contain a tensor\n"),
        ("--cache vllm.npy --tensor a --layout vllm --config config.json", "--tensor must be given for .safetensors"),
        ("--cache several.safetensors --layout vllm --config config.json", "--tensor must be one of cos, sin, n, for "),
        (
            "--cache several.safetensors --tensor x --layout vllm --config config.json",
            "--tensor must be one of cos, sin, n, for several.safetensors; got 'x'",
        ),
        (
            "--cache several.safetensors --tensor n --layout vllm --config config.json",
            "several.safetensors must have n in one of F64, F32, F16, BF16, C64; got I16",
        ),
        ("--cache one.safetensors --layout flashinfer --config config.json", "--cache must be of float32 for the layo"),
        ("--cache vllm.npy --layout llama.cpp --config config.json", "--base must be given for the layout llama.cpp"),
        ("--cache vllm.npy --layout vllm --config config.json --base 3", "--base must not be given for the layout vll"),
        (
            "--cache vllm.npy --layout megatron-interleaved --config config.json",
            "--config must have pairing 'interleaved': the layout megatron-interleaved holds no other; got pairing",
        ),
    ],
)
def test_verify_refuses_wrong_arguments_for_a_cache_in_one_line(caches, args, message):
    done = run("verify", *args.split(), cwd=caches)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rope-any: {message}")
    assert done.stderr.count("\n") == 1


# --- all commands -------------------------------------------------------------------------------------------

EXAMPLES = [example for commands in cli.COMMANDS.values() for examples in commands.values() for example in examples]
NAMES = [command.__name__ for commands in cli.COMMANDS.values() for command in commands]


def test_help_lists_commands_in_groups_with_an_example_each():
    shown = run("--help").stdout
    assert run().stdout == run("-h").stdout == shown
    firsts = {group: [examples[0] for examples in commands.values()] for group, commands in cli.COMMANDS.items()}
    texts = [text for group, examples in firsts.items() for text in (f"\n{group}:\n", *examples)]
    places = [shown.index(text) for text in texts]
    assert places == sorted(places)
    assert len(NAMES) == len(set(NAMES)) == len(re.findall(r"^  [a-z]+  ", shown, re.MULTILINE))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_placeholders_in_upper_case(name):
    shown = run(name, "--help").stdout
    usage, *lines = shown.splitlines()
    assert re.fullmatch(rf"Usage: rope-any {name} \[OPTIONS\]( \[?[A-Z]+(:[A-Z]+)?(\.\.\.)?\]?)*", usage)
    arguments = [line.split()[0] for line in lines if re.match(r"  [A-Z:]+(\.\.\.)?  ", line)]
    assert re.sub(r"[][]", "", usage.split("[OPTIONS]")[1]).split() == arguments
    # an option has one of a few words, a placeholder in upper case, or no value
    kinds = [found[1] for line in lines if (found := re.match(r"  (?:-\w, )?--\S+ (\S+)", line))]
    assert kinds or name in {"check", "published"}
    assert [kind for kind in kinds if not re.fullmatch(r"[A-Z/|]+|[a-z0-9]+(\|[a-z0-9]+)+", kind)] == []
    assert not re.search(r"[<>{}]|by default|default: \(", shown)


def params_of(name):
    """Return the parameters of a command, without --help."""
    return cli.typer.main.get_command(cli.app).commands[name].params


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_is_made_of_sentences(name):
    for param in params_of(name):
        assert re.fullmatch(r"[A-Zq].*[^.]\.", param.help), param.name
        assert len(param.help.split()) >= 2
        assert not re.match("(Of|For|In|As|By|To|From|With|Also|Needed) ", param.help), param.help
    shown = run(name, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    about = shown.split("\n\n")[1:]
    assert all(text.strip().endswith(".") for text in about[: 1 if name == "check" else 2]), about


def test_help_of_plot_names_the_option_that_hands_need():
    assert "--position TEXT Draw hands at this position" in " ".join(run("plot", "--help").stdout.split())


@pytest.mark.usefixtures("numpy_alone", "mine")
@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs_and_ends_the_help_of_its_command(example, files):
    if " export " in example:
        pytest.importorskip("ndonnx", reason="ndonnx is not installed")
    (files / "config.json").write_text(json.dumps(LLAMA3 | {"head_dim": 16, "rope_scaling": None}))
    table = ra.cos_sin(range(131_072), F, like=np.zeros(1, dtype=np.float32))
    np.save(files / "cache.npy", ra.layouts.pack(table, "vllm"))
    (files / "mine.py").write_text("import rope_any as ra\nrotary = ra.Rope(ra.frequencies(128), pairing='half').apply")
    weights = {"dtype": "F16", "shape": [128, 1], "data_offsets": [0, 256]}
    header = json.dumps({"layers.0.self_attn.q_proj.weight": weights}).encode()
    (files / "in").mkdir()
    (files / "in" / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(256))
    args = example.split()
    done = run(*args[1:], cwd=files)
    assert (done.returncode, done.stderr) == (0, ""), done
    (examples,) = (found for group in cli.COMMANDS.values() for found in group.values() if example in found)
    shown = "".join(f"  {each}\n" for each in examples)
    assert run(args[1], "--help").stdout.endswith(f"\nExamples:\n{shown}")


# --- published configs ----------------------------------------------------------------------------------------


def test_published_lists_the_configs_that_contain_a_word():
    every = run("published").stdout.splitlines()
    assert len(every) == 1 + len(ra.config.published())
    some = [line.split() for line in run("published", "qwen3").stdout.splitlines()[1:]]
    assert ["Qwen/Qwen3-8B", "qwen3"] in some and all("Qwen3" in name for name, _ in some)
    assert run("published", "qwen/*8b").stdout.splitlines()[1:] == ["Qwen/Qwen3-8B  qwen3"]
    found = json.loads(run("published", "Qwen3-8B", "--json").stdout)
    assert found == {"Qwen/Qwen3-8B": ra.config.published()["Qwen/Qwen3-8B"]}
    done = run("published", "qwen3-8c")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rope-any: PATTERN must be in the name of a config; got 'qwen3-8c'")


@pytest.mark.parametrize(
    "args",
    [
        "inspect published:qwen3-8b",
        "diff published:QWEN3-8B config.json",
        "diff config.json published:qwen/qwen3-8b",
        "advise published:qwen3-8b --length 64K",
        "plot published:qwen3-8b config.json wavelengths -o out.svg",
        "verify --cache cache.npy --layout vllm --config published:qwen3-8b",
    ],
)
def test_a_published_config_may_stand_for_a_file(args, tmp_path):
    config = ra.config.published()["Qwen/Qwen3-8B"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    table = ra.Rope.from_config(config).table(range(40_960), like=np.zeros(1, dtype=np.float32))
    np.save(tmp_path / "cache.npy", ra.layouts.pack(table, "vllm"))
    done = run(*args.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "diff" not in args or "the same rotation" in done.stdout
    assert "plot" not in args or done.stdout == "out.svg: wavelengths of published:Qwen/Qwen3-8B, config.json\n"


@pytest.mark.parametrize(
    "args", ["inspect published:qwen3-8c", "diff config.json published:qwen3-8c", "export published:qwen3-8c a.onnx"]
)
def test_a_wrong_name_of_a_published_config_is_one_line(args, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3))
    done = run(*args.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(
        "rope-any: published:qwen3-8c must name one published config; did you mean Qwen/Qwen3"
    )


def test_a_diff_with_a_published_config_shows_its_full_name(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(ra.config.published()["Qwen/Qwen3-8B"] | {"rope_theta": 1e4}))
    shown = run("diff", "config.json", "published:qwen3-8b", cwd=tmp_path).stdout.splitlines()
    assert shown[1].split() == ["value", "config.json", "published:Qwen/Qwen3-8B"]
    assert shown[2].split() == ["rope_theta", "10000", "1000000"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspet", "no such command 'inspet'; did you mean 'inspect'; see rope-any --help"),
        ("banana", "no such command 'banana'; see rope-any --help"),
        ("version", "no such command 'version'; did you mean '--version'; see rope-any --help"),
        ("con", "no such command 'con'; did you mean 'convert'; see rope-any --help"),
        ("inspect a --jsn", "no such option: --jsn; did you mean --json; see rope-any inspect --help"),
        (
            "inspect a --sequence 5",
            "no such option: --sequence; did you mean --sequence-length; see rope-any inspect --help",
        ),
        ("inspect a --pair half", "no such option: --pair; did you mean --pairing; see rope-any inspect --help"),
        ("inspect --config a", "no such option: --config; give CONFIG without --config; see rope-any inspect --help"),
        ("export a -o b", "no such option: -o; give OUT without -o; see rope-any export --help"),
        ("export a --output b", "no such option: --output; give OUT without --output; see rope-any export --help"),
        ("convert a b --source half", "no such option: --source; did you mean --from; see rope-any convert --help"),
        ("convert a b --target half", "no such option: --target; did you mean --to; see rope-any convert --help"),
        ("verify --target a:b", "no such option: --target; give TARGET without --target; see rope-any verify --help"),
        ("rotate a --theta 5", "no such option: --theta; did you mean --base; see rope-any rotate --help"),
        ("rotate a --rope_theta 5", "no such option: --rope_theta; did you mean --base; see rope-any rotate --help"),
        ("rotate a --offset 5", "no such option: --offset; did you mean --positions; see rope-any rotate --help"),
        ("inspect a --theta 5", "no such option: --theta; see rope-any inspect --help"),
        ("plot a hands --offset 5", "no such option: --offset; see rope-any plot --help"),
        ("inspect a --banana", "no such option: --banana; see rope-any inspect --help"),
        ("inspect a --to", "no such option: --to; see rope-any inspect --help"),
        ("--nonsense", "no such option: --nonsense; see rope-any --help"),
        ("--json check", "--json must come after a command, or with --version"),
        ("rotate", "missing argument FILE; see rope-any rotate --help"),
        ("rotate q.npy -o out", "missing option --pairing; choose from: half, interleaved; see rope-any rotate --help"),
        ("rotate q.npy --pairing half -o", "option -o requires an argument; see rope-any rotate --help"),
        (
            "rotate q.npy --pairing half -o out --base x",
            "--base must be a valid number; got 'x'; see rope-any rotate --help",
        ),
        (
            "convert a b --from half --to half --head-dim 1.5",
            "--head-dim must be a valid integer; got '1.5'; see rope-any convert --help",
        ),
        (
            "--show-completion zsh",
            "--show-completion must be the only word, and applies to the current shell; got 'zsh'",
        ),
        (
            "--version --show-completion zsh",
            "--show-completion must be the only word, and applies to the current shell; got '--version'",
        ),
        ("check more", "got unexpected extra argument(s) (more); see rope-any check --help"),
        ("inspect a --json=1", "option --json does not take a value; see rope-any inspect --help"),
        (
            "inspect a --sequence-length 8X",
            (
                "--sequence-length must be a number of tokens, such as 131072, 128K or 1M; got '8X'; "
                "see rope-any inspect --help"
            ),
        ),
    ],
)
def test_wrong_command_lines_get_one_line(args, message):
    done = run(*args.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rope-any: {message}\n")


@pytest.mark.parametrize(
    ("args", "tokens"),
    [("inspect dynamic.json --sequence-length", 8192), ("plot plain.json decay -o a.svg --overwrite --length", 8192)],
)
def test_lengths_may_be_given_in_thousands(args, tokens, configs):
    short, whole, other = (run(*args.split(), length, "--json", cwd=configs) for length in ("8K", tokens, 9000))
    assert (short.returncode, short.stdout) == (0, whole.stdout)
    assert "plot" in args or short.stdout != other.stdout


def test_a_missing_package_of_the_command_line_is_reported_with_its_install_command(configs, monkeypatch):
    def fail(_):
        msg = "No module named 'rich'"
        raise ModuleNotFoundError(msg, name="rich")

    monkeypatch.setattr(_common, "_console", fail)
    done = run("inspect", "plain.json", cwd=configs)
    text = 'the command line needs rich, which is missing; install it by: pip install "rope-any[cli]"'
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rope-any: {text}\n")


def test_version_is_printed():
    assert run("--version").stdout == f"{ra.__version__}\n"
    assert json.loads(run("--version", "--json").stdout) == {"version": ra.__version__}


def test_rotate_prints_json(files):
    done = run("rotate", "q.npy", "k.npy", "--pairing", "half", "-o", "out", "--json", cwd=files)
    expected = [{"file": f"out/{x}.npy", "shape": [1, n, 6, 16], "dtype": "float32"} for x, n in (("q", 4), ("k", 2))]
    assert (json.loads(done.stdout), done.stderr) == (expected, "")


@pytest.mark.usefixtures("numpy_alone")
def test_check_prints_json():
    report = json.loads(run("check", "--json").stdout)
    (row,) = report["measured"]
    assert row["library"] == "NumPy" and row["passed"] and report["passed"]
    assert 1e-9 < row["table_error"] <= report["bounds"]["table_error"] == 1.2e-7
    assert row["seconds"] > row["copy_seconds"] / 10 > 0
    assert report["not_measured"]["PyTorch"] == "not found"
    assert report["job"]["q"] == [1, 32, 100, 128]


@pytest.mark.usefixtures("numpy_alone")
def test_check_prints_json_if_libraries_print(monkeypatch):
    found = _measure.installed  # which finds NumPy alone
    monkeypatch.setattr(_measure, "installed", lambda title: print("found?") or found(title))  # noqa: T201
    done = run("check", "--json")
    assert json.loads(done.stdout)["passed"]
    assert "found?\n" in done.stderr


@pytest.mark.parametrize("args", [("inspect", "none.json", "--json"), ("check", "more", "--json")])
def test_errors_are_one_line_with_json_too(args, tmp_path):
    done = run(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_errors_with_line_breaks_are_printed_in_one_line(monkeypatch):
    def fail(*_, **__):
        """Raise an error whose message has two lines."""
        msg = "first\n  second"
        raise OSError(msg)

    monkeypatch.setattr(_measure, "installed", fail)
    assert run("check").stderr == "rope-any: first second\n"


# --- in processes, pipes, terminals and shells ----------------------------------------------------------------


def terminal(*args, columns=80, **options):
    """Run ``rope-any args`` on a terminal and return its output."""
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    parent, child = pty.openpty()
    size = {"COLUMNS": str(columns), "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*ROPE_ANY, *map(str, args)],
        stdin=child,
        stdout=child,
        stderr=child,
        **{"env": os.environ | size, **options},
    ):
        os.close(child)
        shown = b""
        with contextlib.suppress(OSError):  # a closed terminal raises this
            while part := os.read(parent, 65536):
                shown += part
    os.close(parent)
    return shown.decode().replace("\r\n", "\n")


def test_the_module_is_the_command(configs):
    done = process("inspect", "scaled.json", "--json", cwd=configs)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("inspect", "scaled.json", "--json", cwd=configs).stdout
    assert process("inspet").stderr.endswith("; see rope-any --help\n")


def test_help_imports_only_what_it_needs():
    code = "import sys; from rope_any import cli; cli.app(['--help'], standalone_mode=True)"
    code = f"import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, sep=' ')); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "rope_any.cli._check" in loaded
    assert loaded & {"mpmath", "numpy", "onnx", "rich", "torch", "jax"} == set()


def test_a_terminal_gets_colours_and_wrapped_lines(configs):
    shown = terminal("inspect", "scaled.json", cwd=configs)
    assert "\x1b[1mall layers: Rope(" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in plain
    piped = run("inspect", "scaled.json", cwd=configs).stdout
    assert "\x1b" not in piped
    assert max(map(len, piped.splitlines())) > 80
    assert plain.split() != piped.split()  # one long source is wrapped
    wide = terminal("inspect", "scaled.json", columns=1000, cwd=configs)
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", wide).splitlines()] == piped.splitlines()


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_color_disables_colours(variable, value, configs):
    shown = terminal("diff", "scaled.json", "plain.json", cwd=configs, env=os.environ | {variable: value})
    assert "rope_type" in shown and "\x1b" not in shown


def test_force_color_does_not_colour_a_pipe(configs):
    done = process("diff", "scaled.json", "plain.json", cwd=configs, env=os.environ | {"FORCE_COLOR": "1"})
    assert done.stdout == run("diff", "scaled.json", "plain.json", cwd=configs).stdout


def test_progress_is_shown_only_on_terminals(files):
    args = ["rotate", "k.npy", "--pairing", "half", "--overwrite", "-o", "out"]
    assert "rotating k.npy" in terminal(*args, cwd=files)
    done = process(*args, cwd=files)
    assert (done.stdout, done.stderr) == ("out/k.npy: (1, 2, 6, 16) float32\n", "")


@pytest.mark.long
@pytest.mark.thread_unsafe(reason="starts processes")
@pytest.mark.parametrize(
    ("args", "library", "progress"),
    [
        ("plot plain.json decay -o decay.png --overwrite", "matplotlib", "drawing decay"),
        ("export plain.json rope.onnx --overwrite", "onnx", "exporting plain.json"),
        ("verify mine:slow --pairing half --longest 9999", "numpy", "verifying mine:slow"),
    ],
)
def test_slow_commands_show_progress(args, library, progress, configs):
    pytest.importorskip(library, reason=f"{library} is not installed")
    code = "import rope_any as ra\n\ndef slow(x, positions):\n"
    code += "    return ra.Rope(ra.frequencies(128), pairing='half').apply(x, positions)\n"
    (configs / "mine.py").write_text(code)
    on_terminal = terminal(*args.split(), cwd=configs)
    assert progress in on_terminal
    done = process(*args.split(), cwd=configs)
    assert (done.returncode, done.stderr) == (0, "")
    last = done.stdout.splitlines()[-1]
    assert last in on_terminal and progress not in done.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_pipe_that_closes_early_is_no_error(options, configs):
    with subprocess.Popen(
        [*ROPE_ANY, "inspect", "scaled.json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=configs
    ) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspect pairing", "pairing must be"),
        ("inspect layers.json", "layers.json: layer_types must be"),
        ("inspect layer_type", "layer_type must hold a JSON object; got None"),
        ("rotate base --pairing half --positions seq_axis.npy -o out", "seq_axis.npy must be a .npy file"),
        ("convert named out --head-dim 4 --from half --to interleaved", "named/head_dim.safetensors must be"),
        ("convert . out --head-dim 4 --from half --to interleaved", "head_dim.safetensors must be a whole"),
        ("rotate rotary_dim --pairing half -o out", "rotary_dim must be a .npy file"),
        ("rotate base --pairing half --base -1 -o out", "--base must be positive and finite; got -1.0"),
        ("rotate must --pairing half --base -1 -o out", "--base must be positive and finite; got -1.0"),
        ("rotate shards --pairing half -o out", "shards must be a .npy file of one array of numbers; Is a directory"),
        ("convert 0 1 --head-dim 4 --from half --to interleaved", "0 must be a whole safetensors file"),
        ("convert shards out --head-dim 4 --from half --to interleaved", "shards/start must be a whole"),
        ("inspect ./pairing", "pairing must be"),
        ("diff b a", "b must be"),
        ("convert to out --head-dim 4 --from half --to interleaved", "to must be"),
        ("convert lr=1,head_dim=64/m out --head-dim 4 --from half --to interleaved", "lr=1,head_dim=64/m must be"),
    ],
)
def test_files_named_like_parameters_keep_their_names(args, message, tmp_path):
    for name in ("pairing", "a", "b", "to", "0", "rotary_dim", "lr=1,head_dim=64/m", "shards/start"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{")
    for name in ("base", "must"):
        with (tmp_path / name).open("wb") as file:
            np.save(file, np.ones((2, 8), dtype=np.float32))
    (tmp_path / "layer_type").write_text("null")
    for folder in (tmp_path, tmp_path / "named"):
        folder.mkdir(exist_ok=True)
        (folder / "head_dim.safetensors").write_text("{")
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "head_dim.safetensors"}}')
    (tmp_path / "shards" / "model.safetensors.index.json").write_text('{"weight_map": {"w": "start"}}')
    (tmp_path / "layers.json").write_text(json.dumps(GEMMA3 | {"layer_types": 3}))
    done = run(*args.split(), cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"rope-any: {message}"), done.stderr


def test_file_names_keep_repeated_spaces(tmp_path):
    name = "two  spaces"
    (tmp_path / name).write_text("{")
    done = run("inspect", name, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"rope-any: {name} must be")
    with (tmp_path / name).open("wb") as file:
        np.save(file, np.ones((2, 8), dtype=np.float32))
    done = run("rotate", name, "--pairing", "half", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"out/{name}: (2, 8) float32\n")
    assert np.load(tmp_path / "out" / name).shape == (2, 8)


def test_ctrl_c_ends_quietly(mine):
    (mine / "slow.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(60)")
    handle = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # even if the parent process ignores it
    start = f"import signal; {handle}; from rope_any.cli import main; main()"
    args = [sys.executable, "-c", start, "verify", "slow:f", "--pairing", "half"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=mine) as done:
        assert done.stderr.readline() == "imported\n"
        done.send_signal(signal.SIGINT)
        assert (done.stdout.read(), done.stderr.read()) == ("", "")
    assert done.returncode == 130


BASH = """
set -e
eval "$(rope-any --show-completion)"
try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _rope_any_completion "$1" "${@: -1}" "${@: -2:1}"
    echo "${COMPREPLY[*]}"
}
try rope-any in
try rope-any rotate k.npy --pairing ""
try rope-any verify --case ll
try rope-any verify --library j
try rope-any export c.json o.onnx --dtype fl
try rope-any inspect ./
complete -p rope-any
_ROPE_ANY_COMPLETE=source_zsh rope-any | grep compdef
"""


@pytest.mark.long
def test_completion_works_in_bash(tmp_path):
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    (tmp_path / "rope-any").write_text(f'#!/bin/sh\nexec {" ".join(ROPE_ANY)} "$@"\n')
    (tmp_path / "rope-any").chmod(0o755)
    (tmp_path / "try.bash").write_text(BASH)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, tmp_path / "try.bash"], capture_output=True, text=True, check=False, env=os.environ | path
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "inspect",
        "half interleaved",
        "llama3",
        "jax",
        "float32 float16",
        "",  # so bash completes file names
        "complete -o default -F _rope_any_completion rope-any",
        "#compdef rope-any",
        "compdef _rope_any_completion rope-any",
    ]


BLOCK = re.compile(r"```console\n\$ (.+)\n((?:.*\n)*?)```")  # a command and its output


@pytest.fixture
def page_files(files, mine):  # noqa: ARG001  # modules are unloaded afterwards
    """Return a folder with the files that commands on pages read."""
    (files / "mine").mkdir()
    llama = PUBLISHED["meta-llama/Llama-3.1-8B"]
    (files / "mine" / "config.json").write_text(json.dumps(llama | {"rope_scaling": None}))
    table = ra.cos_sin(range(4096), ra.frequencies(128), like=np.zeros(1, dtype=np.float32))
    np.save(files / "cache.npy", ra.layouts.pack(table, "vllm"))
    weights = np.zeros((16, 4), dtype=np.float32)
    names = [f"model.layers.{i}.self_attn.{x}_proj.weight" for i in range(2) for x in "qkv"]
    write_safetensors(files / "in.safetensors", **dict.fromkeys(names, ("F32", weights)))
    return files


@pytest.mark.parametrize("name", ["command-line", "something-is-wrong"])
def test_pages_show_the_output_of_commands(name, page_files):
    """Each output is the shown one, with any text in place of dots and any float32 error in place of another."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("```console") >= 4
    for command, shown in blocks:
        program, *args = command.split()
        if program == "cat":
            (page_files / args[0]).write_text(shown, encoding="utf-8")
            continue
        assert program == "rope-any"
        if args[0] == "export":
            pytest.importorskip("ndonnx", reason="ndonnx is not installed")
        done = run(*args, cwd=page_files)
        output, expected = (re.sub(r"\d\.\de-\d\d", "#", text) for text in (done.stdout + done.stderr, shown))
        assert re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), output, re.DOTALL), output
    if name == "command-line":
        assert {command for command in NAMES if f"\n### {command}\n" in page} == {*NAMES} - {"published"}


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
    assert f"| `{cause}` |" in (DOCS / "something-is-wrong.md").read_text(encoding="utf-8")


# --- standard input, and checks before files are written ------------------------------------------------------------


@pytest.fixture
def stdin_data(tmp_path):
    """Return the bytes of a config, and of an array as NumPy saves it."""
    np.save(tmp_path / "x.npy", np.ones((1, 2, 3, 8), np.float32))
    config = json.dumps({"model_type": "llama", "head_dim": 8, "max_position_embeddings": 64}).encode()
    (tmp_path / "config.json").write_bytes(config)
    return config, (tmp_path / "x.npy").read_bytes()


@pytest.mark.parametrize(
    "args",
    ["inspect -", "diff - config.json", "advise - --length 128", "export - out.onnx", "plot - decay -o out.png"],
)
def test_a_config_may_come_from_standard_input(args, tmp_path, stdin_data):
    if "export" in args:
        pytest.importorskip("spox", reason="spox is not installed")
    done = run(*args.split(), stdin=stdin_data[0], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_may_come_from_standard_input(tmp_path, stdin_data):
    args = "rotate - --pairing half -o out"
    assert run(*args.split(), stdin=stdin_data[1], cwd=tmp_path).returncode == 0
    expected = ra.Rope(ra.frequencies(8), pairing="half").apply(np.ones((1, 2, 3, 8), np.float32))
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "stdin.npy"), expected)
    np.save(tmp_path / "p.npy", np.arange(3))
    args = "rotate x.npy --positions - --pairing half -o two"
    assert run(*args.split(), stdin=(tmp_path / "p.npy").read_bytes(), cwd=tmp_path).returncode == 0
    np.testing.assert_allclose(np.load(tmp_path / "two" / "x.npy"), expected, atol=1e-6)


@pytest.mark.usefixtures("stdin_data")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("diff - -", "- must be one file: standard input is read once; got 2"),
        ("inspect -", "standard input: model_type must be one whose rotation is known"),
        ("export config.json out.txt", "OUT must end in .onnx; got 'out.txt'"),
        ("export config.json out", "OUT must end in .onnx; got 'out'"),
        ("convert a b --head-dim 8 --from half --to half", "--to must be the other pairing, not that of the weights"),
    ],
)
def test_errors_are_raised_before_anything_is_written(args, message, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = run(*args.split(), stdin=b'{"model_type": "nope"}', cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("args", "data", "message"),
    [
        ("inspect -", b"", "standard input must be a config.json; it is empty\n"),
        ("inspect -", b"404: Not Found", "standard input must be a config.json; it is no JSON: Extra data"),
        ("advise - --length 8K", b"404: Not Found", "standard input must be a config.json; it is no JSON: Extra data"),
        ("inspect -", b"[]", "standard input must hold a JSON object; got list []\n"),
        ("inspect -", b"\x93NUMPY", "standard input must be a config.json; give the config.json beside the weights\n"),
        (
            "rotate - --pairing half -o out",
            b"404",
            "standard input must be a .npy file of one array of numbers; np.save",
        ),
        (
            "convert - out --head-dim 8 --from half --to interleaved",
            b"404",
            "standard input must be a whole safetensors file; it has no header\n",
        ),
    ],
)
def test_wrong_standard_input_is_refused_by_what_it_must_be(args, data, message, tmp_path):
    done = run(*args.split(), stdin=data, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"rope-any: {message}")
