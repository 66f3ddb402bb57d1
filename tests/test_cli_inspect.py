"""``rope-any inspect`` and ``rope-any diff``: what they say of configs, in a pipe, on a terminal and as JSON."""

import cmath
import json
import math
import re
from operator import sub

import pytest
from commands import output, refused, run, terminal, words, write_configs
from configs import GPT
from test_parts import FLUX, OMNI

import rope_any as ra

pytestmark = pytest.mark.thread_unsafe(reason="changes the working directory")

PUBLISHED = ra.config.published()
LLAMA3 = PUBLISHED["meta-llama/Llama-3.1-8B"]
PLAIN = LLAMA3 | {"rope_scaling": None}
BEAM = {"model_type": "beam", "head_dim": 64, "rope_parameters": {"full_attention": None}}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6}
GEMMA4 = PUBLISHED["google/gemma-4-26B-A4B"]["text_config"]
TOWER = {"model_type": "qwen3_vl", "depth": 27, "hidden_size": 1152, "num_heads": 16}
QWEN3_VL = PUBLISHED["Qwen/Qwen3-VL-4B-Instruct"] | {"vision_config": TOWER}
DEEPSEEK = PUBLISHED["deepseek-ai/DeepSeek-V3"] | {"model_type": "deepseek_v32", "index_head_dim": 128}

# --- inspect: the overview, then the values with their sources ------------------------------------------------

SHOWN = {  # configs, and texts in the order in which they are shown
    "one rotation": (  # whose overview the page shows
        LLAMA3,
        [
            "head_dim 128 hidden_size // num_attention_heads",
            "factor 8 rope_scaling.factor",
            "of 64 pairs never complete a turn within 8192 tokens (trained_length)",
        ],
    ),
    "an indexer": (
        DEEPSEEK,
        [
            "text 61 64 of 64 128 / 1 interleaved 10000 yarn × 40",
            "indexer 61 64 of 128 half 10000 yarn × 40",
            "text, layers (0-60): Rope(",
            "indexer, layers (0-60): Rope(",
        ],
    ),
    "a tower": (
        QWEN3_VL,
        [
            "text 36 128 of 128 32 / 8 half 3 5000000 default 262144",
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
            "1, 2 28 6.28 45.2 452 4522 45219",
        ],
    ),
    "layers that differ": (
        GEMMA4 | {"num_global_key_value_heads": 2},  # so it has other heads in some layers
        [
            "part layers rotates pairing base scheme",
            "text 5 full_attention 128 of 512 half 1000000 proportional",
            "text 25 sliding_attention 256 of 256 half 10000 default",
            "model_type gemma4_text model_type",
            "partial_rotary_factor 0.25 ",
            "64 6.28 14.1 33.5 79.4 188",
            "192 of 256 pairs don't rotate",
            "sliding_attention (0-4, 6-10, 12-16, 18-22, 24-28): Rope(",
            "other values: as for full_attention",
            "128 6.28 58.5 585 5847 58470",
        ],
    ),
    "no length": (
        {"model_type": "llama", "head_dim": 64},
        ["part layers rotates pairing base scheme text all 64 of 64 half 10000 default", "gives no context length"],
    ),
    "a length in the scaling": (
        PLAIN | {"rope_scaling": {"type": "linear", "factor": 2, "max_position_embeddings": 4096}},
        ["linear × 2 131072", "never complete a turn within 4096 tokens (extended_length)"],
    ),
    "only query heads": (GPT, ["text all 32 of 128 32 half 10000"]),
    "heads by layer": (
        {"general.architecture": "qwen3", "qwen3.block_count": 2, "qwen3.attention.head_count": [48, 64]}
        | {"qwen3.attention.head_count_kv": [8, 8], "qwen3.attention.key_length": 128},
        ["text 2 128 of 128 48, 64 / 8 half 10000"],
    ),
    "one key head": (PUBLISHED["google/gemma-3-1b-it"], ["text 4 full_attention 256 of 256 4 / 1 half 1000000"]),
    "no rotary in a class": (
        {"_class_name": "DiTTransformer2DModel"},
        ["transformer 0 no rotary", "transformer, no layer: no rotary"],
    ),
    "no rotary": (BEAM, ["text 0 full_attention no rotary", "full_attention: no rotary"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_inspect_shows_an_overview_then_the_values(name, tmp_path):
    config, texts = SHOWN[name]
    shown = words("inspect", "config.json", cwd=write_configs(tmp_path, config=config))
    found = [shown.find(text) for text in texts]
    assert found == sorted(found) and found[0] >= 0, dict(zip(texts, found, strict=True))
    assert shown.count(" model_type gemma4_text model_type ") <= 1  # what layers have in common is shown once


def test_inspect_shows_one_type_of_layer(tmp_path):
    write_configs(tmp_path, config=GEMMA3)
    both = output("inspect", tmp_path)
    assert both.index("sliding_attention (0-4): Rope(") < both.index("full_attention (5): Rope(")
    assert "sliding_attention" not in output("inspect", tmp_path, "--layer-type", "full_attention")


def test_inspect_takes_the_pairing_of_an_unknown_model_from_an_option():
    stated = {"model_type": "unheard_of", "head_dim": 64, "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    assert "pairing='interleaved'" in words("inspect", "-", "--pairing", "interleaved", stdin=json.dumps(stated))


@pytest.mark.parametrize(("options", "tokens"), [([], 4096), (["--sequence-length", "128K"], 131_072)])
def test_inspect_and_plot_show_the_rotation_for_a_length(options, tokens, tmp_path):
    phi = PUBLISHED["microsoft/Phi-3-mini-128k-instruct"]
    write_configs(tmp_path, phi=phi)
    rope = ra.Rope.from_config(phi, sequence_length=tokens)
    unfinished = sum(n > tokens for n in (2 * math.pi / f for f in rope.frequencies))
    *_, counted, others, caution = output("inspect", "phi.json", *options, cwd=tmp_path).splitlines()
    assert counted == f"{unfinished} of 48 pairs never complete a turn within {tokens} tokens (length)"
    assert "--sequence-length" in others and caution.startswith("caution: for a maximum above 4096")
    drawn = json.loads(output("plot", "phi.json", "decay", "-o", "it.png", "--json", *options, cwd=tmp_path))
    assert drawn["lines"][0]["x"][-1] == tokens


VALUES = {  # of a key that has nothing to do with the rotation
    "a list of NaN": ([float("nan")] * 5, "[nan, nan, nan, nan, nan]"),
    "numbers beyond floats": ([10**400] * 5, "list"),
    "numbers": ([1, 2, 3.5, 4, 5], "5 numbers from 1 to 5"),
    "an escape sequence": ("\x1b[2J", r"str '\x1b[2J'"),
    "nested lists": (json.loads("[" * 300 + "]" * 300), "list"),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_any_type_are_shown_and_become_json(name, tmp_path):
    value, text = VALUES[name]
    write_configs(tmp_path, config=LLAMA3 | {"rope_scaling": {"type": "linear", "factor": 2, "finetuned": value}})
    assert f" finetuned {text} rope_scaling.finetuned; " in words("inspect", "config.json", cwd=tmp_path)
    for command in (["inspect", "config.json"], ["diff", "config.json", "config.json"]):
        json.loads(output(*command, "--json", cwd=tmp_path), parse_constant=pytest.fail)


def test_inspect_prints_json(tmp_path):
    (record,) = json.loads(output("inspect", "-", "--json", stdin=json.dumps(LLAMA3)))
    rope = ra.Rope.from_config(LLAMA3)
    tokens = sorted(2 * math.pi / f for f in rope.frequencies)
    assert (tuple(record["rope"]["frequencies"]), record["wavelengths"]) == (rope.frequencies, tokens)
    assert record["facts"]["rope_theta"] == {"value": 500_000.0, "source": "rope_theta"}
    lengths = {"trained_length": 8192, "extended_length": 131_072}
    assert record["pairs_without_a_turn"] == {key: sum(n > m for n in tokens) for key, m in lengths.items()}
    (record,) = json.loads(output("inspect", "a.json", "--json", cwd=write_configs(tmp_path, a=BEAM)))
    assert record["rope"] is None


def test_inspect_fails_only_if_all_parts_are_refused(tmp_path):
    (tmp_path / "model_index.json").write_text("{}")
    for name in ("transformer", "transformer_2"):
        write_configs(tmp_path / name, config={"_class_name": "MochiTransformer3DModel"})
    for form in ([], ["--json"]):
        done = run("inspect", tmp_path, *form)
        assert (done.returncode, done.stderr, done.stdout.count("its frequencies are learned")) == (2, "", 2)
    write_configs(tmp_path / "transformer", config=FLUX)
    shown = words("inspect", tmp_path)
    assert "transformer_2 refused transformer, all layers: Rope(" in shown and "transformer_2: refused" in shown
    read, refused = json.loads(output("inspect", tmp_path, "--json"))
    assert (read["part"], read["refused"], refused["rope"]) == ("transformer", None, None)
    assert "learned" in refused["refused"]


# --- diff -----------------------------------------------------------------------------------------------------


def test_diff_shows_the_values_that_differ_and_the_drift(tmp_path):
    yarn = PLAIN | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}}
    write_configs(tmp_path, scaled=LLAMA3, plain=PLAIN, narrow=LLAMA3 | {"head_dim": 64}, yarn=yarn)
    for other, model in (("scaled", LLAMA3), ("yarn", yarn)):
        (record,) = json.loads(output("diff", f"{other}.json", "plain.json", "--json", cwd=tmp_path))
        a, b = map(ra.Rope.from_config, (model, PLAIN))
        for n in range(11):
            ours, theirs = ([x.attention_factor * cmath.rect(1, 4**n * f) for f in x.frequencies] for x in (a, b))
            assert record["drift"][str(4**n)] == pytest.approx(max(map(abs, map(sub, ours, theirs))), abs=1e-12)
    (record,) = json.loads(output("diff", "scaled.json", "plain.json", "--json", cwd=tmp_path))
    assert record["facts"]["rope_type"] == ["llama3", "default"]
    assert "layers (0-31): the same rotation" in output("diff", "plain.json", "plain.json", cwd=tmp_path)
    assert "can't be compared: the numbers of pairs" in output("diff", "plain.json", "narrow.json", cwd=tmp_path)


def test_diff_accepts_models_without_rotary(tmp_path):
    write_configs(tmp_path, gemma=GEMMA3, bert={"model_type": "bert"}, gpt2={"model_type": "gpt2"})
    neither = output("diff", "bert.json", "gpt2.json", cwd=tmp_path)
    assert "no rotary here: bert.json, gpt2.json" in neither
    one = output("diff", "bert.json", "gemma.json", cwd=tmp_path)
    assert one.count("no rotary here: bert.json\n") == 2
    assert "numbers of pairs differ" not in neither + one


def test_diff_pairs_types_of_layers_by_name(tmp_path):
    records = json.loads(output("diff", "a.json", "a.json", "--json", cwd=write_configs(tmp_path, a=GEMMA3)))
    assert [r["layer_types"] for r in records] == [[kind] * 2 for kind in ("sliding_attention", "full_attention")]
    assert all(r["facts"] == {} and set(r["drift"].values()) == {0.0} for r in records)


def test_diff_pairs_layers_one_by_one_if_a_type_has_several_rotations(tmp_path):
    granite = {"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4}
    bases = {"a": [1e4, 1e4, 5e5, 5e5], "b": [2e4, 2e4, 5e5, 5e5], "c": [0, 1e4, 2e4, 1e4]}
    write_configs(tmp_path, **{name: granite | {"layer_rope_theta": base} for name, base in bases.items()})
    shown = words("diff", "a.json", "b.json", cwd=tmp_path)
    assert "layers (0-1) value a.json b.json rope_theta 10000 20000 position largest difference" in shown
    assert shown.endswith("layers (2-3): the same rotation")
    records = json.loads(output("diff", "a.json", "c.json", "--json", cwd=tmp_path))
    found = [(r["layers"][0], r["facts"]["rope_theta"]) for r in records if r["facts"]]
    assert found == [([0], [1e4, None]), ([2], [5e5, 2e4]), ([3], [5e5, 1e4])]
    assert [r["layers"] for r in records if not r["facts"]] == [[[1], [1]]]


def test_diff_pairs_all_with_all_if_a_config_has_no_number_of_layers(tmp_path):
    step = {"model_type": "step3p5", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    write_configs(tmp_path, step=step | {"rope_theta": [1e4, 1e4, 2e4]}, gemma={"model_type": "gemma3_text"})
    records = json.loads(output("diff", "step.json", "gemma.json", "--json", cwd=tmp_path))
    found = [(*r["layers"], r["layer_types"][1]) for r in records]
    kinds = ["sliding_attention", "full_attention"]
    assert found == [(layers, None, kind) for layers in ([0, 1], [2]) for kind in kinds]


# --- on a terminal --------------------------------------------------------------------------------------------


def without_colours(text):
    """Return a text without escape sequences."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def pieces(text):
    """Return the words of a text, split after dots, where a line may break."""
    return {piece for word in text.split() for piece in re.findall(r"[^.]+\.?|\.", word)}


FITTING = {"llama": LLAMA3, "tower": QWEN3_VL, "indexer": DEEPSEEK, "gemma": GEMMA3, "flux": FLUX, "names": OMNI}


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("name", FITTING)
def test_inspect_fits_a_terminal(name, columns, tmp_path):
    write_configs(tmp_path, config=FITTING[name])
    lines = without_colours(terminal("inspect", tmp_path, columns=columns)).splitlines()
    assert max(map(len, lines)) <= columns
    overview, details = (pieces(text) for text in output("inspect", tmp_path).split("\n\n", 1))
    cut = lines.index("")
    assert pieces("\n".join(lines[:cut])) == overview  # no word is broken
    starts = set().union(*(pieces(line.split()[0]) for line in lines[cut + 1 :] if line[:1].strip()))
    assert {"head_dim", "rope_theta", "rotary_dim"} <= starts <= details | overview


def test_a_terminal_gets_colours_and_wrapped_lines(tmp_path):
    write_configs(tmp_path, config=LLAMA3)
    shown, piped = terminal("inspect", tmp_path), output("inspect", tmp_path)
    assert "\x1b[1mlayers (0-31): Rope(" in shown
    assert "\x1b" not in piped
    assert max(map(len, piped.splitlines())) > 80
    assert without_colours(shown).split() != piped.split()  # one long source is wrapped
    wide = without_colours(terminal("inspect", tmp_path, columns=1000))
    assert [line.rstrip() for line in wide.splitlines()] == piped.splitlines()


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_color_disables_colours(variable, tmp_path):
    shown = terminal("diff", "a.json", "b.json", cwd=write_configs(tmp_path, a=LLAMA3, b=PLAIN), **variable)
    assert "rope_type" in shown and "\x1b" not in shown


# --- wrong configs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("diff plain.json typo.json", "typo.json: rope_tetha must be left out: it is an unknown name"),
        ("inspect none.json", "config must be a path to a config.json; there is none at none.json"),
        ("inspect .", "config must be a path to a config.json; there is none in /"),
        ("plot invalid.json decay -o a.png", "invalid.json must be a config.json; it is no JSON: Expecting property"),
        ("inspect new.json", "new.json: model_type must be one whose rotation is known, or --pairing"),
        ("inspect plain.json --layer-type full", "plain.json: --layer-type must be one that the config has"),
        ("export plain.json out.txt", "OUT must end in .onnx; got 'out.txt'"),
    ],
)
def test_wrong_configs_are_refused_with_the_name_of_the_file(args, message, tmp_path):
    write_configs(
        tmp_path, plain=PLAIN, typo=LLAMA3 | {"rope_tetha": 1.0}, new={"model_type": "unheard_of", "head_dim": 64}
    )
    (tmp_path / "invalid.json").write_text("{")
    assert refused(*args.split(), cwd=tmp_path).startswith(message)
