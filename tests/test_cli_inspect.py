"""``rope-any inspect``, ``diff`` and ``published``: how models rotate, and how two of them differ."""

import json
import re

import pytest
from commands import LLAMA3, refused, run, terminal, write_config

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="starts processes, and changes the working directory")

PLAIN = LLAMA3 | {"rope_scaling": None}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6}
PUBLISHED = ra.config.published()


def read(command, *args, **options):
    """Run a command that succeeds; return its output, with single spaces."""
    done = run(*command.split(), *args, **options)
    assert (done.returncode, done.stderr) == (0, ""), done
    return " ".join(done.stdout.split())


def read_json(command, *args, **options):
    """Run a command that succeeds, with --json; return the data."""
    done = run(*command.split(), *args, "--json", **options)
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout, parse_constant=pytest.fail)


@pytest.fixture
def configs(tmp_path):
    """Return a folder with the configs of some models."""
    models = {
        "scaled": LLAMA3,
        "plain": PLAIN,
        "gemma": GEMMA3,
        "narrow": LLAMA3 | {"head_dim": 64},
        "no_rotary": {"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": None}},
        "typo": LLAMA3 | {"rope_tetha": 1.0},
        "new": LLAMA3 | {"model_type": "new"},
        "string": LLAMA3 | {"rope_theta": "4096"},
    }
    for name, model in models.items():
        write_config(tmp_path, model, f"{name}.json")
    (tmp_path / "invalid.json").write_text("{")
    (tmp_path / "empty").mkdir()
    return tmp_path


# --- inspect ----------------------------------------------------------------------------------------------------------


def test_inspect_prints_a_config(configs):
    text = read("inspect scaled.json", cwd=configs)
    assert "all layers: Rope(<64 frequencies from 1 to 3.06893e-07>, pairing='half')" in text
    assert "head_dim 128 hidden_size // num_attention_heads" in text
    assert "factor 8 rope_scaling.factor" in text
    assert "attention_factor 1 derived from these" in text
    assert "in tokens pairs shortest 25% 50% 75% longest 64 6.28 136 7334 769929 20473564 32 of" in text
    wavelengths = ra.config.wavelengths(ra.Rope.from_config(LLAMA3))
    assert [round(sorted(wavelengths)[i]) for i in (0, 15, 31, 47, 63)] == [6, 136, 7334, 769_929, 20_473_564]
    for length, name in ((8192, "trained_length"), (131_072, "extended_length")):
        unfinished = sum(n > length for n in wavelengths)
        assert f"{unfinished} of 64 pairs never complete a turn within {length} tokens ({name})" in text


def test_inspect_prints_json(configs):
    (record,) = read_json("inspect scaled.json", cwd=configs)
    rope = ra.Rope.from_config(LLAMA3)
    assert tuple(record["rope"]["frequencies"]) == rope.frequencies
    assert record["wavelengths"] == sorted(ra.config.wavelengths(rope))
    assert record["facts"]["rope_theta"] == {"value": 500_000.0, "source": "rope_theta"}
    assert record["pairs_without_a_turn"].keys() == {"trained_length", "extended_length"}
    (without_rotary,) = read_json("inspect no_rotary.json", cwd=configs)
    assert without_rotary["rope"] is None


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (4096, "never complete a turn within 4096 tokens (extended_length)"),
        ("x", "the config gives no context length"),
        (0.5, "the config gives no context length"),
    ],
)
def test_inspect_shows_a_length_in_rope_scaling(length, message, tmp_path):
    scaling = {"type": "linear", "factor": 2, "max_position_embeddings": length}
    write_config(tmp_path, LLAMA3 | {"max_position_embeddings": None, "rope_scaling": scaling})
    assert message in read("inspect", tmp_path)
    for kind in ("wavelengths", "decay"):
        read(f"plot . {kind} -o {kind}.svg", cwd=tmp_path)


@pytest.mark.parametrize(("options", "tokens"), [([], 4096), (["--sequence-length", 131_072], 131_072)])
def test_inspect_counts_pairs_within_the_length_of_the_rotation(options, tokens, tmp_path):
    lists = {"short_factor": [1.0] * 32, "long_factor": [16.0] * 32}
    phi = {"model_type": "phi3", "head_dim": 64, "max_position_embeddings": 131_072}
    phi |= {"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 4096, **lists}}
    write_config(tmp_path, phi, "phi.json")
    unfinished = sum(n > tokens for n in ra.config.wavelengths(ra.Rope.from_config(phi, sequence_length=tokens)))
    *_, counted, others = run("inspect", "phi.json", *options, cwd=tmp_path).stdout.splitlines()
    assert counted == f"{unfinished} of 32 pairs never complete a turn within {tokens} tokens (length)"
    assert "--sequence-length" in others
    drawn = read_json("plot phi.json decay -o decay.png", *options, cwd=tmp_path)
    assert drawn["lines"][0]["x"][-1] == tokens
    drawn = read_json("plot phi.json wavelengths -o wavelengths.png", *options, cwd=tmp_path)
    name = "phi, for " + f"{tokens:,} tokens".replace(",", "\u202f")
    assert name in {line["label"] for line in drawn["lines"]}


def test_inspect_shows_each_kind_of_layer(configs):
    both = read("inspect gemma.json", cwd=configs)
    assert both.index("sliding_attention (0-4): Rope(") < both.index("full_attention (5): Rope(")
    assert "sliding_attention" not in read("inspect gemma.json --layer-type full_attention", cwd=configs)
    assert "full_attention: no rotary" in read("inspect no_rotary.json", cwd=configs)


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
HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8}
SUMMARIES = {  # configs, and what is printed of them, in this order
    "one rotation": (
        LLAMA3 | HEADS | {"num_hidden_layers": 32},
        [
            "part layers rotates heads q / k pairing base scheme",
            "text 32 128 of 128 32 / 8 half 500000 llama3",
        ],
    ),
    "no length": (
        {"model_type": "llama", "head_dim": 64},
        ["part layers rotates pairing base scheme", "text all 64 of 64 half 10000 default"],
    ),
    "an indexer, and one rotated key for all heads": (
        DEEPSEEK | HEADS,
        [
            "text 61 64 of 64 32 / 1 interleaved 10000 yarn × 40",
            "indexer 61 64 of 128",
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
            "19 of 64 pairs never complete a turn within 262144 tokens",
            "0, 1 18 6.28 48.6 377 2916 37667",
        ],
    ),
    "axes alone": (
        FLUX | {"num_attention_heads": 24},
        [
            "part layers rotates heads q / k pairing axes base",
            "transformer all 128 of 128 24 interleaved 3 10000",
            "transformer, all layers: Rope(<3 axes",
            "0 8 6.28 19.9 199 1987 19869",
            "1, 2 28 6.28 45.2 452 4522 45219",
        ],
    ),
    "layers that differ": (
        GEMMA4 | HEADS | {"num_global_key_value_heads": 2},
        [
            "part layers rotates pairing base scheme",
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
def test_inspect_prints_an_overview_and_then_each_rotation(name, tmp_path):
    config, lines = SUMMARIES[name]
    write_config(tmp_path, config)
    text = read("inspect", tmp_path)
    found = [text.find(line) for line in lines]
    assert found == sorted(found) and found[0] >= 0, dict(zip(lines, found, strict=True))
    assert text.count("model_type gemma4_text model_type") <= 1  # what layers have in common is printed once


OMNI = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "text_config": QWEN3_VL["text_config"] | {"model_type": "qwen3_omni_moe_text"} | HEADS,
        "vision_config": QWEN3_VL["vision_config"] | {"model_type": "qwen3_omni_moe_vision_encoder"},
    },
    "talker_config": {
        "text_config": QWEN3_VL["text_config"] | {"model_type": "qwen3_omni_moe_talker_text"} | HEADS,
        "code_predictor_config": {
            "model_type": "qwen3_omni_moe_talker_code_predictor",
            "head_dim": 128,
            "num_hidden_layers": 5,
        },
    },
}
WIDE = {"long names of parts": OMNI, "layers that differ": PUBLISHED["google/gemma-3-4b-it"], "an indexer": DEEPSEEK}


@pytest.mark.parametrize("name", WIDE)
def test_inspect_fits_a_terminal(name, tmp_path):
    write_config(tmp_path, WIDE[name])
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in terminal("inspect", tmp_path).splitlines()]
    assert max(map(len, lines)) <= 80
    overview, details = (pieces(text) for text in run("inspect", tmp_path).stdout.split("\n\n", 1))
    cut = lines.index("")
    assert pieces("\n".join(lines[:cut])) == overview  # no word is broken
    starts = set().union(*(pieces(line.split()[0]) for line in lines[cut + 1 :] if line[:1].strip()))
    assert {"head_dim", "rope_theta", "rotary_dim"} <= starts <= details | overview


def pieces(text):
    """Return the words of a text, split after dots, where a line may break."""
    return {piece for word in text.split() for piece in re.findall(r"[^.]+\.?|\.", word)}


@pytest.fixture
def pipeline(tmp_path):
    """Return a folder of a pipeline with two transformers."""
    (tmp_path / "model_index.json").write_text('{"_class_name": "Pipeline"}')
    for name in ("transformer", "transformer_2"):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name, FLUX)
    return tmp_path


def test_inspect_lists_refused_parts(pipeline):
    write_config(pipeline / "transformer_2", {"_class_name": "MochiTransformer3DModel"})
    text = read("inspect", pipeline)
    assert "transformer_2 refused transformer, all layers: Rope(" in text
    assert "transformer_2: refused" in text and "its frequencies are learned" in text
    first, second = read_json("inspect", pipeline)
    assert (first["part"], first["refused"]) == ("transformer", None)
    assert second["rope"] is None and "learned" in second["refused"]


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_inspect_exits_with_2_if_all_parts_are_refused(pipeline, form):
    done = run("inspect", pipeline, "--pairing", "half", *form)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.count("must be 'interleaved', according to _class_name FluxTransformer2DModel; got 'half'") == 2
    write_config(pipeline / "transformer", LLAMA3)
    assert run("inspect", pipeline, "--pairing", "half", *form).returncode == 0


UNUSUAL_VALUES = {
    "words and numbers": (["a", "b", "c", 1, 2], "finetuned ['a', 'b', 'c', 1, 2] rope_scaling.finetuned"),
    "a list of NaN": ([float("nan")] * 5, "finetuned [nan, nan, nan, nan, nan]"),
    "numbers beyond floats": ([10**400] * 5, "finetuned list"),
    "numbers": ([1, 2, 3.5, 4, 5], "finetuned 5 numbers from 1 to 5"),
    "an escape sequence": ("\x1b[2J", r"finetuned str '\x1b[2J'"),
    "nested lists": (json.loads("[" * 300 + "]" * 300), "finetuned list"),
}


@pytest.mark.parametrize("name", UNUSUAL_VALUES)
def test_inspect_shows_values_of_any_type(name, tmp_path):
    value, text = UNUSUAL_VALUES[name]
    write_config(tmp_path, LLAMA3 | {"rope_scaling": {"type": "linear", "factor": 2, "finetuned": value}})
    assert text in read("inspect", tmp_path)
    read_json("inspect", tmp_path)
    read_json("diff", tmp_path, tmp_path)


# --- diff -------------------------------------------------------------------------------------------------------------


def test_diff_prints_the_differences(configs):
    text = read("diff scaled.json plain.json", cwd=configs)
    assert "rope_type llama3 default" in text
    assert "factor 8 –" in text
    assert "rope_theta" not in text  # the same in both
    a, b = (ra.Rope.from_config(c) for c in (LLAMA3, PLAIN))
    assert f"1024 {ra.config.drift(a, b, 1024):.2g} 4096 " in text
    assert "all layers: the same rotation" in read("diff plain.json plain.json", cwd=configs)
    assert "can't be compared: the numbers of pairs differ" in read("diff plain.json narrow.json", cwd=configs)


def test_diff_prints_json(configs):
    (record,) = read_json("diff scaled.json plain.json", cwd=configs)
    assert record["facts"]["rope_type"] == ["llama3", "default"]
    a, b = (ra.Rope.from_config(c) for c in (LLAMA3, PLAIN))
    assert record["drift"] == {str(4**n): ra.config.drift(a, b, 4**n) for n in range(11)}
    records = read_json("diff gemma.json gemma.json", cwd=configs)
    assert [r["layer_types"] for r in records] == [[kind] * 2 for kind in ("sliding_attention", "full_attention")]
    assert all(r["facts"] == {} and set(r["drift"].values()) == {0.0} for r in records)


def test_diff_accepts_models_without_rotary(configs):
    for name in ("bert", "gpt2"):
        write_config(configs, {"model_type": name}, f"{name}.json")
    neither = read("diff bert.json gpt2.json", cwd=configs)
    assert "no rotary here: bert.json, gpt2.json" in neither
    one = read("diff bert.json gemma.json", cwd=configs)
    assert one.count("no rotary here: bert.json") == 2
    assert "different numbers of pairs" not in neither + one


def test_diff_compares_layers_one_by_one(tmp_path):
    for name, bases in {"a": [1e4, 1e4, 5e5, 5e5], "b": [2e4, 2e4, 5e5, 5e5], "c": [0, 1e4, 2e4, 1e4]}.items():
        model = {"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4, "layer_rope_theta": bases}
        write_config(tmp_path, model, f"{name}.json")
    text = read("diff a.json b.json", cwd=tmp_path)
    assert "layers (0-1) value a.json b.json rope_theta 10000 20000 position largest difference" in text
    assert text.endswith("layers (2-3): the same rotation")
    records = read_json("diff a.json c.json", cwd=tmp_path)
    assert [(r["layers"][0], r["facts"]["rope_theta"]) for r in records if r["facts"]] == [
        ([0], [1e4, None]),
        ([2], [5e5, 2e4]),
        ([3], [5e5, 1e4]),
    ]
    assert [r["layers"] for r in records if not r["facts"]] == [[[1], [1]]]
    assert "layers (0) value a.json c.json" in read("diff a.json c.json", cwd=tmp_path)


def test_diff_compares_all_layers_if_one_config_has_no_number_of_layers(tmp_path):
    step = {"model_type": "step3p5", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    write_config(tmp_path, step | {"head_dim": 64, "rope_theta": [1e4, 1e4, 2e4]}, "a.json")
    write_config(tmp_path, {"model_type": "gemma3_text", "head_dim": 64}, "b.json")
    records = read_json("diff a.json b.json", cwd=tmp_path)
    assert [record["layers"] for record in records] == [[layers, None] for layers in ([0, 1], [2]) for _ in range(2)]


# --- published configs ------------------------------------------------------------------------------------------------


def test_published_lists_the_configs_that_contain_a_word():
    every = run("published").stdout.splitlines()
    assert len(every) == 1 + len(PUBLISHED)
    some = [line.split() for line in run("published", "qwen3").stdout.splitlines()[1:]]
    assert ["Qwen/Qwen3-8B", "qwen3"] in some and all("Qwen3" in name for name, _ in some)
    assert run("published", "qwen/*8b").stdout.splitlines()[1:] == ["Qwen/Qwen3-8B  qwen3"]
    assert read_json("published Qwen3-8B") == {"Qwen/Qwen3-8B": PUBLISHED["Qwen/Qwen3-8B"]}
    assert refused("published", "qwen3-8c").startswith("PATTERN must be in the name of a config; got 'qwen3-8c'")


@pytest.mark.parametrize(
    "args",
    [
        "inspect published:qwen3-8b",
        "diff published:QWEN3-8B config.json",
        "advise published:qwen3-8b --length 64K",
        "plot published:qwen3-8b config.json wavelengths -o out.svg",
    ],
)
def test_a_published_config_may_stand_for_a_file(args, tmp_path):
    write_config(tmp_path, PUBLISHED["Qwen/Qwen3-8B"])
    text = read(args, cwd=tmp_path)
    assert "diff" not in args or "the same rotation" in text
    assert "plot" not in args or text == "out.svg: wavelengths of published:Qwen/Qwen3-8B, config.json"


def test_a_diff_with_a_published_config_shows_its_full_name(tmp_path):
    write_config(tmp_path, PUBLISHED["Qwen/Qwen3-8B"] | {"rope_theta": 1e4})
    text = read("diff config.json published:qwen3-8b", cwd=tmp_path)
    assert "value config.json published:Qwen/Qwen3-8B rope_theta 10000 1000000 " in text


# --- wrong configs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspect typo.json", "typo.json: rope_tetha must be left out: it is an unknown name about rotary embedding"),
        ("inspect none.json", "config must be a path to a config.json; there is none at none.json"),
        ("inspect empty", "config must be a path to a config.json; there is none in /"),
        ("advise invalid.json --length 8K", "invalid.json must be a config.json; it is no JSON: Expecting property"),
        ("inspect new.json", "new.json: model_type must be one whose rotation is known, or --pairing and partial_rota"),
        ("inspect gemma.json --layer-type full", "gemma.json: --layer-type must be one that the config has (sliding_"),
        ("inspect new.json --pairing both", "--pairing must be one of 'half', 'interleaved'; got 'both'"),
        ("diff plain.json typo.json", "typo.json: rope_tetha must be left out"),
        ("plot string.json hands --position 4096 -o a.png", "string.json: rope_theta must be a real number; got str"),
        ("inspect plain.json --sequence-length 0", "plain.json: --sequence-length must be from 1 to 9007199254740992;"),
        ("inspect published:qwen3-8c", "published:qwen3-8c must name one published config; did you mean Qwen/Qwen3"),
        ("export published:qwen3-8c a.onnx", "published:qwen3-8c must name one published config; did you mean Qwen"),
    ],
)
def test_wrong_configs_are_refused_in_one_line(configs, args, message):
    assert refused(*args.split(), cwd=configs).startswith(message)


def test_an_unknown_model_takes_its_pairing_from_an_option():
    stated = LLAMA3 | {"model_type": "new", "partial_rotary_factor": 1.0}
    assert "pairing='interleaved'" in read("inspect - --pairing interleaved", stdin=json.dumps(stated))
