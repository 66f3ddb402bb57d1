"""Layers of a config: which of them rotate, by which frequencies, and how they are grouped."""

import pytest
from configs import FOUR_HEADS, GEMMA3, LLAMA, no_rotary

import rope_any as ra
from rope_any import Rope, config, scaling


def half(frequencies):
    """Return a Rope that pairs halves."""
    return Rope(frequencies, pairing="half")


WIDE, NARROW = half(ra.frequencies(64)), half(ra.frequencies(32))


def assert_differing(model, key, **options):
    """Check that a model has no single Rope, because a key differs by layer."""
    with pytest.raises(ValueError, match=rf"{key} must be the same for all layers; .*\(config\).layers\(\) gives"):
        Rope.from_config(model, **options)


# --- layers without rotary ------------------------------------------------------------------------------------

MUSE = {"rope_parameters": {"rope_theta": 5e5}}
DORY = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e7}}
SLIDING_LAST = ["full_attention", "full_attention", "sliding_attention"]
EVERY_SECOND = {"prefix_dense_sliding_window_pattern": 2, "rope_theta": 1e4}
# A model, its keys, and which layers rotate.
LAYERS = [
    ("exaone4", {}, "1110"),
    ("exaone4", {"sliding_window_pattern": "LG"}, "1010"),
    ("exaone4", {"sliding_window": None}, "1111"),
    ("mllama_text_model", {}, "11101"),
    ("mllama_text_model", {"cross_attention_layers": [1]}, "101"),
    ("muse_spark_text", MUSE, "101110"),
    ("muse_spark_text", MUSE | {"layer_rope_theta": [0, 1.0, 1.0]}, "011"),
    ("recurrent_gemma", {}, "0010"),
    ("recurrent_gemma", {"block_types": ["recurrent", "recurrent", "attention"]}, "00100"),
    ("lara_mini", {}, "0100101"),
    ("dory", {"layer_types": ["sliding_attention", "mlp", "full_attention", "mlp"], "rope_parameters": DORY}, "1010"),
    ("flint", {}, "0011100"),
    ("cohere2_moe", {"layer_types": SLIDING_LAST, "mlp_layer_types": ["dense", "sparse", "sparse"]}, "101"),
    ("cohere2_moe", {"first_k_dense_replace": 2, "rope_theta": 1e4}, "11111011"),
    ("cohere2_moe", {"first_k_dense_replace": 2, **EVERY_SECOND}, "10111011"),
    ("bamba", {"attn_layer_indices": [1]}, "010"),
    ("lfm2", {"full_attn_idxs": [1]}, "010"),
    ("smollm3", {}, "11101110"),
    ("smollm3", {"no_rope_layer_interval": 2}, "1010"),
    ("llama4_text", {"no_rope_layers": [0, 1, 1, 0]}, "0110"),
    ("cohere2", {}, "1110"),
    ("qwen3_next", {}, "0001"),
    ("granite_swa", {"layer_rope_theta": [10_000.0, 0, 10_000.0]}, "101"),
    ("zamba2", {"attention_head_dim": 64}, "00"),
    ("zamba2", {"attention_head_dim": 64, "use_mem_rope": True}, "11"),
    ("olmo_hybrid", {"rope_parameters": {"rope_theta": None}}, "0000"),
    ("olmo_hybrid", {}, "0001"),
    ("llama", {}, "1"),
]


def tuples(value):
    """Return a value with tuples instead of lists."""
    if isinstance(value, dict):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value


@pytest.mark.parametrize(("model_type", "keys", "rotated"), LAYERS)
def test_layers_without_rotary_are_found(model_type, keys, rotated):
    width = {} if model_type in ("dory", "flint", "lara_mini", "cohere2_moe") else {"head_dim": 64}
    model = {"model_type": model_type, "num_hidden_layers": len(rotated), **width, **keys}
    layers = config.read(model).layers()
    assert "".join(str(int(rope is not None)) for rope in layers) == rotated
    frozen = tuples(model)
    assert config.read(frozen).layers() == layers
    assert config.read({"model_type": "llava", "text_config": frozen}).layers() == layers
    assert frozen == tuples(model)  # not modified


def test_layer_types_without_rotary_are_found():
    cohere = {"model_type": "cohere2", **FOUR_HEADS}
    assert no_rotary(cohere, layer_type="full_attention")
    assert Rope.from_config(cohere, layer_type="sliding_attention") == Rope.from_config(cohere)
    assert config.read(cohere).score_scale(layer_type="full_attention") == config.read(cohere).score_scale() == 0.125
    with pytest.raises(ValueError, match="have rotary embedding"):
        config.read({"model_type": "qwen3_next", **FOUR_HEADS}).score_scale(layer_type="linear_attention")


# --- kinds of layers ------------------------------------------------------------------------------------------


def test_a_layer_must_be_chosen_if_layers_differ():
    with pytest.raises(ValueError, match=r"layer_type must be given, .*: one of sliding_attention, full_attention"):
        Rope.from_config(GEMMA3)
    with pytest.raises(ValueError, match=r"layer_type must be one that the config has .* got 'full'"):
        Rope.from_config(GEMMA3, layer_type="full")
    sliding, full = (Rope.from_config(GEMMA3, layer_type=f"{kind}_attention") for kind in ("sliding", "full"))
    assert sliding == half(ra.frequencies(256))
    assert full == half(scaling.linear(ra.frequencies(256, base=1e6), 8.0))
    assert config.read(GEMMA3).layers() == [*[sliding] * 5, full, *[sliding] * 2]


def test_rope_parameters_by_layer_type_give_the_layers():
    by_type = {"full_attention": None, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    beam = {"model_type": "beam", **FOUR_HEADS, "rope_parameters": by_type}
    beam |= {"layer_types": ["sliding_attention", "full_attention"] * 2}
    assert no_rotary(beam, layer_type="full_attention")
    assert config.read(beam).layers() == [WIDE, None] * 2


def test_head_dim_can_differ_by_layer_type():
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    }
    types = {"num_hidden_layers": 2, "layer_types": list(parameters)}
    gemma4 = {"model_type": "gemma4_text", "head_dim": 256, "rope_parameters": parameters} | types
    full = half(scaling.proportional(ra.frequencies(512, base=1e6), 0.25))
    for width in ({"global_head_dim": 512}, {"per_layer_config": {"01": {"head_dim": 512}}}):
        assert config.read(gemma4 | width).layers() == [half(ra.frequencies(256)), full]


GEMMA4_FLAT = {"model_type": "gemma4_text", "num_hidden_layers": 6, "rope_parameters": {"rope_type": "default"}}
EIGHT_HEADS = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4}


def test_flat_parameters_apply_to_layer_types_with_different_head_dims():
    with pytest.raises(ValueError, match="layer_type must be given, since layers differ"):
        Rope.from_config(GEMMA4_FLAT)
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        Rope.from_config({key: value for key, value in GEMMA4_FLAT.items() if key != "num_hidden_layers"})
    sliding, full = half(ra.frequencies(256)), half(ra.frequencies(512))
    assert Rope.from_config(GEMMA4_FLAT, layer_type="full_attention") == full
    read = config.read(GEMMA4_FLAT)
    assert read.layers() == config.read(read.as_transformers()).layers() == [*[sliding] * 5, full]
    explanations = read.explain()
    assert [(one.layer_type, one.rope, one.layers) for one in explanations] == [
        ("sliding_attention", sliding, (0, 1, 2, 3, 4)),
        ("full_attention", full, (5,)),
    ]


# --- single layers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [{"0": {"head_dim": 32}}, {0: {"hidden_size": 256}}, {"00": {"num_attention_heads": 16}}]
)
def test_single_layers_can_have_another_head_dim(sizes):
    model = EIGHT_HEADS | {"per_layer_config": sizes}
    assert config.read(model).layers() == [NARROW, WIDE, WIDE, WIDE]
    assert_differing(model, "per_layer_config")
    first, others = config.read(model).explain()
    assert [(one.rope, one.layers) for one in (first, others)] == [(NARROW, (0,)), (WIDE, (1, 2, 3))]
    assert f"per_layer_config.{next(iter(sizes))}." in first.facts["head_dim"].source


@pytest.mark.parametrize("key", ["attention_head_dim", "head_dim"])
def test_single_layers_can_have_another_head_dim_under_model_names(key):
    zamba = {"model_type": "zamba2", "attention_head_dim": 64, "num_hidden_layers": 2, "use_mem_rope": True}
    first, second = config.read(zamba | {"per_layer_config": {"1": {key: 32}}}).explain()
    assert first.facts["head_dim"] == (64, "attention_head_dim")
    assert second.facts["head_dim"] == (32, f"per_layer_config.1.{key}")


def test_single_layers_can_have_another_head_dim_by_layer_type():
    model = EIGHT_HEADS | {"layer_types": ["sliding_attention", "full_attention"] * 2}
    narrow = {"head_dim": 32}
    both, one = (model | {"per_layer_config": layers} for layers in ({"0": narrow, "2": narrow}, {"0": narrow}))
    assert Rope.from_config(both, layer_type="sliding_attention") == NARROW
    assert config.read(both).layers() == [NARROW, WIDE] * 2
    assert_differing(one, "per_layer_config", layer_type="sliding_attention")
    assert config.read(one).layers() == [NARROW, WIDE, WIDE, WIDE]


def test_sizes_of_single_layers_that_do_not_change_head_dim_are_ignored():
    by_layer = {"0": {"num_attention_heads": 4, "intermediate_size": 64}, "1": {"num_attention_heads": 6}, "2": {}}
    for same in (by_layer, {}):
        model = EIGHT_HEADS | {"head_dim": 64, "per_layer_config": same}
        assert Rope.from_config(model) == half(ra.frequencies(64))
        assert [one.layers for one in config.read(model).explain()] == [(0, 1, 2, 3)]


def test_each_layer_can_have_its_own_base():
    step = {"model_type": "step3p5", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": [5e6, 1e4]}
    step |= {"layer_types": ["full_attention", "sliding_attention"], "partial_rotary_factors": [0.5, 1.0]}
    full = half(ra.frequencies(32, base=5e6))
    assert config.read(step).layers() == [full, WIDE]
    assert Rope.from_config(step, layer_type="full_attention") == full


def test_different_layers_of_one_type_are_reported_separately():
    granite = {"model_type": "granite_swa", "head_dim": 64, "num_hidden_layers": 4}
    differing, other = granite | {"layer_rope_theta": [1e4, 1e6, 0, 1e4]}, half(ra.frequencies(64, base=1e6))
    assert config.read(differing).layers() == [WIDE, other, None, WIDE]
    assert_differing(differing, "layer_rope_theta")
    first, second = config.read(differing).explain()
    assert (first.layers, first.facts["rope_theta"]) == ((0, 3), (1e4, "layer_rope_theta[0]"))
    assert (second.layers, second.facts["rope_theta"]) == ((1,), (1e6, "layer_rope_theta[1]"))
    assert Rope.from_config(granite | {"layer_rope_theta": [1e6, 1e6, 0, 1e6]}) == other


def test_scaling_can_apply_to_some_layers():
    molmo = {"model_type": "molmo2_text", "head_dim": 64, "num_hidden_layers": 2, "rope_scaling_layers": [1]}
    molmo |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    scaled = half(scaling.linear(ra.frequencies(64), 2.0))
    assert config.read(molmo).layers() == [WIDE, scaled]
    assert_differing(molmo, "rope_scaling_layers")
    assert Rope.from_config(molmo | {"rope_scaling_layers": [0, 1]}) == scaled


# --- counting -------------------------------------------------------------------------------------------------


def test_layers_are_counted():
    assert [one.layers for one in config.read({"model_type": "smollm3", **FOUR_HEADS}).explain()] == [(0, 1, 2)]
    assert [one.layers for one in config.read(GEMMA3).explain()] == [(0, 1, 2, 3, 4, 6, 7), (5,)]
    assert config.read(LLAMA).explain()[0].layers is None
    zamba = {"model_type": "zamba2", "num_hidden_layers": 2, "attention_head_dim": 64}
    assert config.read(zamba).explain()[0].layers == ()
    windows = {"model_type": "ultrabert", **FOUR_HEADS, "attention_windows": [128, 128, 0, 0]}
    full = half(ra.frequencies(64, base=2_560_000.0))
    assert config.read(windows).layers() == [WIDE, WIDE, full, full]
    assert len(config.read({"model_type": "llava_next", "text_config": {"model_type": "mistral"}}).layers()) == 32
    types = ["full_attention", "sliding_attention", "sliding_attention"]  # the last predicts a further token
    step = {"model_type": "step3p5", "num_hidden_layers": 2, "num_nextn_predict_layers": 1, "layer_types": types}
    assert [one.layers for one in config.read(step).explain()] == [(1,), (0,)]


def test_a_block_of_layers_does_not_give_their_number():
    gemma = {"model_type": "recurrent_gemma", "head_dim": 64, "block_types": ["recurrent", "recurrent", "attention"]}
    assert config.read(gemma).explain()[0].layers is None
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        config.read(gemma).layers()


def test_unused_keys_can_have_any_value():
    listed = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
    exaone = {"model_type": "exaone4", "head_dim": 64, "sliding_window": None, "sliding_window_pattern": 0} | listed
    assert all(config.read(exaone).layers())
    unused = {"cross_attention_layers": "none", "mlp_layer_types": 3}
    assert Rope.from_config(LLAMA | unused) == half(ra.frequencies(128))


@pytest.mark.parametrize(
    "keys",
    [
        {"max_position_embeddings": 0},
        {"original_max_position_embeddings": "x"},
        {"num_hidden_layers": "x"},
        {"num_hidden_layers": "x", "layer_types": ["full_attention"]},
        {"num_hidden_layers": "x", "model_type": "granite_swa", "layer_rope_theta": [1e4, 1e4]},
    ],
    ids=str,
)
def test_unneeded_wrong_numbers_do_not_prevent_reading(keys):
    (explanation,) = config.read(LLAMA | keys).explain()
    assert explanation.rope == Rope.from_config(LLAMA | keys) == half(ra.frequencies(128))
    assert explanation.layers is None
    lengths = {name: explanation.facts[name].value for name in explanation.facts if "length" in name}
    assert lengths == ({} if "max_position_embeddings" in keys else {"trained_length": 4096.0})


# --- against transformers -------------------------------------------------------------------------------------

COMPRESSED = {"head_dim": 512, "num_hidden_layers": 6}
# A model and its keys, and the oldest transformers that has the same kinds of layers.
AS_IN_TRANSFORMERS = [
    ("cohere2_moe", {"num_hidden_layers": 9, "rope_theta": 1e4}, "5.23"),
    ("cohere2_moe", {"num_hidden_layers": 9, "rope_theta": 1e4, "first_k_dense_replace": 3}, "5.23"),
    ("cohere2_moe", {"num_hidden_layers": 9, "rope_theta": 1e4, "mlp_layer_types": ["dense", *["sparse"] * 8]}, "5.23"),
    ("deepseek_v4", COMPRESSED, "5.23"),
    ("deepseek_v4", COMPRESSED | {"compress_ratios": [0, 4, 128, 4, 0, 128, 0]}, "5.23"),
    ("deepseek_v4", COMPRESSED | {"compress_ratios": [0] * 6}, "5.23"),
    ("lara_mini", {"num_hidden_layers": 13}, "5.24"),
    ("llama4_text", {"num_hidden_layers": 13, "attention_chunk_size": None}, "5.24"),
]


@pytest.mark.parametrize(("name", "keys", "version"), AS_IN_TRANSFORMERS)
def test_kinds_of_layers_equal_those_of_transformers(name, keys, version):
    transformers = pytest.importorskip("transformers", minversion=version, reason="before, it has other kinds")
    theirs = transformers.CONFIG_MAPPING[name](**keys).to_dict()
    ours, those = (
        [(one.layer_type, one.rope, one.layers) for one in config.read(model).explain()]
        for model in ({"model_type": name, **keys}, theirs)
    )
    assert ours == those
