"""Every form and name of a config's parameters: old, new, nested, of unknown models, by length and on several axes."""

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from configs import FOUR_HEADS, GPT, LLAMA, LONG, STATED, YARN, no_rotary, scaled

import rope_any as ra
from rope_any import Rope, config, scaling

F = ra.frequencies(128)
YARN_OF_F = scaling.yarn(F, 4.0, base=1e4, original_length=1024)


def like_llama(model_type="llama", **keys):
    """Return a config of Llama with another model_type and other keys."""
    return LLAMA | {"model_type": model_type, **keys}


# --- names of parameters --------------------------------------------------------------------------------------

LINEAR = {"rope_type": "linear", "factor": 2.0}
SU = {"type": "su", "short_factor": [2.0] * 64, "long_factor": [4.0] * 64}
SU_AS_YARN = SU | {"type": "yarn"}
ALPHA = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0}
NEUTRAL = {"use_mrope": False, "rope_interleaved": False, "use_rotary_pos_emb": True, "rotary_scaling_factor": 1.0}
SIXTEEN_HEADS = {"hidden_size": 1024, "num_attention_heads": 16}
GEMMA2 = {"model_type": "gemma2", **SIXTEEN_HEADS}
PALIGEMMA = {"model_type": "paligemma", "text_config": LLAMA}
LLAMA_3 = like_llama(rope_theta=5e5)
CLVP = {"model_type": "clvp_encoder", "projection_dim": 768, "hidden_size": 768, "num_attention_heads": 8}
DBRX = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "attn_config": {"rope_theta": 5e5}}
OPENELM = {"model_type": "openelm", "head_dim": 64, "rope_freq_constant": 5e4, "rope_max_length": 4096}
FLAMINGO = {"model_type": "musicflamingo", "rope_theta": 1200.0, "text_config": {"model_type": "qwen2"}}
CONFORMER = {"model_type": "wav2vec2-conformer", "position_embeddings_type": "rotary", "rotary_embedding_base": 777}
OUTSIDE = like_llama(original_max_position_embeddings=1024, rope_scaling={"rope_type": "yarn", "factor": 4.0})
ODD = tuple(1e4 ** (-2 * i / 21) for i in range(11))
ORIGINAL, BASE = {"original_max_position_embeddings": 4096}, {"rope_theta": 1e4}
# name -> config, number of rotated features, base
UNSCALED = {
    "the base inside and outside": (like_llama(**BASE, rope_parameters=BASE), 128, 1e4),
    "the default head_dim of the class": ({"model_type": "qwen3", **SIXTEEN_HEADS}, 128, 1e4),
    "null for a default head_dim": ({"model_type": "qwen3", "head_dim": None, **SIXTEEN_HEADS}, 64, 1e4),
    "the default rotary slice of the class": (like_llama("deepseek_v3"), 64, 1e4),
    "a part without head_dim": ({"model_type": "gemma3", "text_config": GEMMA2}, 256, 1e4),
    "the default rotary_dim of the class": ({"model_type": "gptj", "n_embd": 4096, "n_head": 16}, 64, 1e4),
    "null rotary_dim": ({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "rotary_dim": None}, 256, 1e4),
    "a base in a nested object": (DBRX, 128, 5e5),
    "rope_freq_constant": (OPENELM, 64, 5e4),
    "keys with neutral values": (LLAMA | NEUTRAL, 128, 1e4),
    "rope_parameters have priority": (like_llama("cohere2_moe", rope_theta=1e6, rope_parameters=BASE), 128, 1e4),
    "projection_dim": (CLVP, 48, 1e4),
    "a model with rotary in its audio part": (FLAMINGO, 128, 1e4),
    "an empty key": (LLAMA | {"": {"rope_theta": 5.0}}, 128, 1e4),
    "rotary_emb_base": (GPT | {"rotary_pct": 1.0, "rotary_emb_base": 777}, 128, 777),
    "rotary_pct": (GPT | {"rotary_pct": 0.5}, 64, 1e4),
    "the default rotary_pct of the model": (GPT, 32, 1e4),
    "partial_rotary_factor": (like_llama("phi", partial_rotary_factor=0.75), 96, 1e4),
    "qk_rope_head_dim": (like_llama("deepseek_v3", qk_rope_head_dim=32, head_dim=32), 32, 1e4),
    "the default base of the model": (like_llama("mixtral"), 128, 1e6),
    "a part for text": ({"model_type": "llava", "vision_config": {"rope_foo": 1}, "text_config": LLAMA_3}, 128, 5e5),
    "a part for text, two levels down": ({"model_type": "colpali", "vlm_config": PALIGEMMA}, 128, 1e4),
    "rope_pct": (like_llama("stablelm", rope_pct=0.25), 32, 1e4),
    "attn_rotary_emb": (like_llama("bamba", attn_rotary_emb=64), 64, 1e4),
    "rotary_embedding_base": (LLAMA | CONFORMER, 128, 777),
    "kv_channels": (like_llama("jetmoe", kv_channels=96), 96, 1e4),
    "rotary_emb_fraction": (like_llama("nomic_bert", rotary_emb_fraction=1, rope_theta=1e4), 128, 1e4),
}
FORMS = {name: (model, ra.frequencies(width, base=base)) for name, (model, width, base) in UNSCALED.items()} | {
    "type": (scaled(type="linear", factor=4), scaling.linear(F, 4.0)),
    "type and rope_type": (scaled(type="linear", rope_type="linear", factor=4), scaling.linear(F, 4.0)),
    "su": (like_llama(**ORIGINAL, rope_scaling=SU), scaling.linear(F, 2.0)),
    "the longrope of Phi-3": (like_llama("phi3", **ORIGINAL, rope_scaling=SU_AS_YARN), scaling.linear(F, 2.0)),
    "alpha": (like_llama("hunyuan_v1_dense", rope_scaling=ALPHA), ra.frequencies(128, base=1e4 * 1000 ** (128 / 126))),
    "the original length outside": (OUTSIDE, YARN_OF_F),
    "yarn with a factor of null": (scaled(**YARN | {"factor": None}), YARN_OF_F),
    "an mscale of zero": (scaled(**YARN, mscale=0, mscale_all_dim=1.0), YARN_OF_F),
    "an odd number of features": (like_llama("phi", head_dim=42, partial_rotary_factor=0.5), ODD),
    "a share that the class reads only with scaling": (
        like_llama(partial_rotary_factor=0.5, rope_scaling=LINEAR),
        scaling.linear(ra.frequencies(64), 2.0),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_all_forms_and_names_of_a_parameter_are_read(name):
    model, frequencies = FORMS[name]
    before = copy.deepcopy(model)
    rope = Rope.from_config(model)
    np.testing.assert_allclose(rope.frequencies, frequencies, rtol=1e-14)
    modern = config.read(model).as_transformers()
    assert Rope.from_config(modern) == rope
    assert config.read(modern).as_transformers() == modern
    assert model == before


@pytest.mark.parametrize(
    ("key", "model_type", "kind", "default"),
    [
        ("rope_local_base_freq", "gemma3_text", "sliding_attention", 10_000.0),
        ("global_rope_theta", "modernbert", "full_attention", 160_000.0),
        ("local_rope_theta", "modernbert", "sliding_attention", 10_000.0),
        ("compress_rope_theta", "deepseek_v4", "compress", 160_000.0),
    ],
)
def test_older_bases_by_layer_type_are_read(key, model_type, kind, default):
    model = {"model_type": model_type, "head_dim": 64}
    for keys, base in (({}, default), ({key: 777.0}, 777.0)):
        (explanation,) = config.read(model | keys).explain(layer_type=kind)
        assert explanation.facts["rope_theta"].value == base
        assert config.read(model | keys).as_transformers()["rope_parameters"][kind]["rope_theta"] == base


@pytest.mark.parametrize(
    ("model_type", "kinds"),
    [("gemma3_text", {"full_attention"}), ("modernbert", {"full_attention", "sliding_attention"})],
)
def test_older_scaling_applies_to_the_layers_that_the_model_names(model_type, kinds):
    explanations = config.read({"model_type": model_type, "head_dim": 64, "rope_scaling": LINEAR}).explain()
    assert {one.layer_type for one in explanations if one.facts["rope_type"].value == "linear"} == kinds


def test_older_names_of_layer_types_are_read():
    """As `_LEGACY_LAYER_TYPE_REMAP` of transformers."""
    parameters = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 2, 2], "partial_rotary_factor": 0.25}
    qwen4 = {"model_type": "qwen4_exp_text", **FOUR_HEADS, "rope_parameters": parameters}
    qwen4 |= {"indexer_head_dim": 64, "indexer_compress_ratio": 4}
    jamba = {"model_type": "olmo_hybrid", **FOUR_HEADS}
    for model, older, newer in (
        (jamba, ["attention", "mamba"] * 2, ["full_attention", "linear_attention"] * 2),
        (qwen4, ["qwen_sparse_attention"] * 4, ["indexed_attention"] * 4),
    ):
        first, second = (model | {"layer_types": kinds} for kinds in (older, newer))
        assert config.read(first).parts == config.read(second).parts
        for part in config.read(second).parts:
            assert config.read(first).layers(part=part) == config.read(second).layers(part=part)
    assert config.read(first).parts == ("text", "indexer")


def test_outer_parameters_apply_to_layer_types_without_their_own():
    kinds = {"hybrid_sliding": {"rope_theta": 5e4}, "hybrid": {"partial_rotary_factor": 0.5}}
    outside = {"rope_parameters": kinds, "layer_types": [*kinds], "rope_theta": 2e4}
    local, full = config.read({"model_type": "zaya", "head_dim": 64, "num_hidden_layers": 2} | outside).explain()
    assert local.rope.frequencies == ra.frequencies(64, base=5e4)
    assert full.rope.frequencies == ra.frequencies(32, base=2e4)


def test_a_share_in_a_scaling_is_not_that_of_unscaled_layers():
    parameters = {"rope_type": "linear", "factor": 8.0, "partial_rotary_factor": 0.5}
    gemma = {"model_type": "gemma3_text", "head_dim": 128, "num_hidden_layers": 6, "rope_scaling": parameters}
    local, full = (Rope.from_config(gemma, layer_type=f"{kind}_attention") for kind in ("sliding", "full"))
    assert local.frequencies == F
    assert full.frequencies == scaling.linear(ra.frequencies(64, base=1e6), 8.0)


# --- pairing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "pairing", "other"),
    [
        ({"model_type": "llama"}, "half", "interleaved"),
        ({"model_type": "cohere"}, "interleaved", "half"),
        ({"model_type": "deepseek_v3"}, "interleaved", "half"),
        ({"model_type": "deepseek_v3", "rope_interleave": False}, "half", "interleaved"),
    ],
)
def test_the_pairing_follows_the_model_and_its_flag(keys, pairing, other):
    model = keys | {"head_dim": 64}
    rope = Rope.from_config(model)
    assert rope.pairing == pairing and Rope.from_config(model, pairing=pairing) == rope
    with pytest.raises(ValueError, match=f"pairing must be '{pairing}', according to "):
        Rope.from_config(model, pairing=other)


def test_the_rotary_slice_can_be_at_the_end_of_the_head():
    deepseek = {"model_type": "deepseek_v4", "head_dim": 512}
    main = Rope.from_config(deepseek, layer_type="main")
    assert main == Rope(ra.frequencies(64), pairing="interleaved", start=448)
    compress = Rope.from_config(deepseek | {"qk_rope_head_dim": 32}, layer_type="compress")
    assert compress == Rope(ra.frequencies(32, base=160_000.0), pairing="interleaved", start=480)


# --- models without rotary ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["gpt2", "bloom", "t5", "mamba", "nemotron_h"])
def test_models_without_rotary_are_refused(model_type):
    model = {"model_type": model_type, "num_hidden_layers": 2}
    read = config.read(model)
    assert no_rotary(model) and read.layers() == [None, None] and read.as_transformers() == model


def test_disabled_rotary_is_refused():
    falcon = {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 1}
    plain = Rope(ra.frequencies(64), pairing="half")
    assert Rope.from_config(falcon | {"alibi": False}) == Rope.from_config(falcon) == plain
    assert no_rotary(falcon | {"alibi": True})
    assert config.read(falcon | {"alibi": True}).explain()[0].facts == {"rotary": (None, "alibi is bool True")}
    assert no_rotary(falcon | {"model_type": "granitemoehybrid", "position_embedding_type": "nope"})


JAMBA = {"model_type": "jamba", "num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"]}


@pytest.mark.parametrize("model", [{"model_type": "bert"}, {"model_type": "falcon", "alibi": True}, JAMBA])
@pytest.mark.parametrize(("wrong", "error"), [("nonsense", ValueError), (3, TypeError)])
def test_wrong_layer_types_of_models_without_rotary_are_refused(model, wrong, error):
    for method in (config.Config.rope, config.Config.explain):
        with pytest.raises(error, match="layer_type must be one that the config has"):
            method(config.read(model), layer_type=wrong)
    assert no_rotary(JAMBA, layer_type="attention")


# --- unknown models -------------------------------------------------------------------------------------------


def test_an_unknown_model_needs_its_pairing_base_share_and_layers():
    bare = {"model_type": "llama_our", "head_dim": 64, "num_hidden_layers": 2}
    listed = r"`pairing`, rope_theta, partial_rotary_factor and layer_types be given; got 'llama_our'; if it rotates"
    with pytest.raises(ValueError, match=f"rotation is known, or {listed}"):
        Rope.from_config(bare)
    unknown = bare | STATED | {"layer_types": ["full_attention"] * 2}
    rope = Rope(ra.frequencies(64), pairing="interleaved")
    assert Rope.from_config(unknown, pairing="interleaved") == rope
    read = config.read(unknown | {"rope_theta": 1e6}, pairing="interleaved")
    assert config.read(unknown, pairing="interleaved").layers() == [rope, rope]
    assert read.explain()[0].facts["pairing"] == ("interleaved", "argument pairing")
    assert read.as_transformers()["rope_parameters"]["rope_theta"] == 1e6
    for key in (*STATED, "layer_types"):
        with pytest.raises(ValueError, match=f"or {key} be given; got 'llama_our'"):
            Rope.from_config({name: value for name, value in unknown.items() if name != key}, pairing="half")


@pytest.mark.parametrize("form", ["rope_parameters", "rope_scaling"])
def test_an_unknown_model_may_have_its_base_and_share_in_the_parameters(form):
    unknown = {"model_type": "our_model", "head_dim": 64, form: {"rope_theta": 5e5, "partial_rotary_factor": 0.5}}
    assert Rope.from_config(unknown, pairing="half").frequencies == ra.frequencies(32, base=5e5)
    kinds = {"full_attention": unknown[form], "sliding_attention": {"rope_theta": 1e4}}
    with pytest.raises(ValueError, match="partial_rotary_factor be given"):
        config.read(unknown | {form: kinds}, pairing="half").explain()


def test_a_config_of_an_unknown_model_must_have_no_words_of_its_own():
    sizes = {"model_type": "unheard_of", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28}
    stated = {"rope_theta": 1e4 * 50, "partial_rotary_factor": 0.5, "layer_types": ["full_attention"] * 28}
    own = sizes | {"kv_channels": 128, "original_rope": True, "rope_ratio": 50}
    for written, message in (
        (own, "got 'unheard_of'; if it rotates"),
        (own | stated, "kv_channels must equal head_dim, which alone is read for an unknown model"),
        (own | stated | {"head_dim": 128}, "original_rope must not be given for an unknown model_type"),
    ):
        with pytest.raises(ValueError, match=message):
            Rope.from_config(written, pairing="interleaved")
    rope = Rope(ra.frequencies(64, base=5e5), pairing="interleaved")
    assert Rope.from_config(sizes | stated, pairing="interleaved") == rope
    assert Rope.from_config(own | {"model_type": "chatglm"}) == rope


# --- several axes ---------------------------------------------------------------------------------------------


def test_sections_apply_to_unknown_models_and_default_ones_only_where_they_fit():
    sections = STATED | {"head_dim": 128, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}
    (unknown,) = config.read({"model_type": "llama_our"} | sections, pairing="half").explain()
    assert unknown.rope.frequencies == ra.axes.chunked(F, (16, 24, 24))
    assert unknown.facts["axes"] == (3, "chunked sections")
    none = {"head_dim": 128, "rope_scaling": {"type": "mrope", "mrope_section": []}}
    assert Rope.from_config({"model_type": "qwen2_vl_text"} | none).frequencies == ra.frequencies(128, base=1e6)
    (explanation,) = config.read({"model_type": "glm4v_text", "head_dim": 128}).explain()
    assert explanation.rope == Rope(F, pairing="interleaved")
    assert "the default sections are for 32 pairs, not 64" in explanation.facts["axes"].source
    for width, axes in ((128, 3), (64, 1)):
        (explanation,) = config.read({"model_type": "ernie4_5_vl_moe_text", "head_dim": width}).explain()
        assert explanation.facts["axes"].value == axes


# --- the length of the sequence -------------------------------------------------------------------------------

DYNAMIC = scaled(type="dynamic", factor=2.0)
LENGTHS = {
    "dynamic": (DYNAMIC, lambda n: scaling.dynamic_ntk(F, 2.0, length=n, trained_length=4096)),
    "longrope": (LONG, lambda n: scaling.linear(F, 4.0 if n > 4096 else 1.0)),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_the_length_chooses_the_frequencies(name):
    model, frequencies = LENGTHS[name]
    for length in (100, 4096, 4097, 20_000):
        assert Rope.from_config(model, sequence_length=length).frequencies == frequencies(length)
    assert Rope.from_config(model).frequencies == frequencies(4096)
    assert Rope.from_config(LLAMA, sequence_length=10**9) == Rope.from_config(LLAMA)


def long_phi(**keys):
    """Return a config of Phi-3.5-MoE with LongRoPE and further parameters, without its extended length."""
    long = {key: value for key, value in LONG.items() if key != "max_position_embeddings"}
    return long | {"model_type": "phimoe", "rope_scaling": LONG["rope_scaling"] | keys}


def test_two_mscales_are_chosen_by_length():
    both = long_phi(short_mscale=1.1, long_mscale=1.3)
    factors = [Rope.from_config(both, sequence_length=n).attention_factor for n in (None, 4096, 4097)]
    assert factors == [1.1, 1.1, 1.3]
    (explanation,) = config.read(long_phi(short_mscale=1.1, long_mscale=1.3, attention_factor=1.5)).explain()
    assert explanation.facts["attention_factor"] == (1.1, "rope_scaling.short_mscale")
    assert explanation.rope.attention_factor == 1.1


def test_longrope_needs_factor_only_for_the_attention_factor():
    assert Rope.from_config(long_phi(attention_factor=1.5), sequence_length=9000).attention_factor == 1.5
    with pytest.raises(ValueError, match="must be given for rope type 'longrope' without a factor"):
        Rope.from_config(long_phi(long_mscale=1.5), sequence_length=9000)


@pytest.mark.parametrize(("mscale", "mscale_all_dim"), [(1.0, 0.7), (0.7, 1.0), (0, 0.7), (1.0, 0)])
def test_deepseek_mscales_apply_unless_one_is_zero(mscale, mscale_all_dim):
    yarn = YARN | {"mscale": mscale, "mscale_all_dim": mscale_all_dim}
    scales = {"mscale": mscale, "mscale_all_dim": mscale_all_dim} if mscale and mscale_all_dim else {}
    rope = Rope.from_config(LLAMA | {"rope_parameters": yarn})
    assert rope.attention_factor == scaling.yarn_attention_factor(4.0, **scales)


# --- against the functions of transformers --------------------------------------------------------------------


def log_uniform(low, high):
    """Return a function that draws a float between two limits, uniform in its logarithm."""
    return lambda rng: float(math.exp(rng.uniform(math.log(low), math.log(high))))


# The parameters of each rope type: needed ones, and ones that may be left out.
OF_YARN = "attention_factor beta_fast beta_slow mscale mscale_all_dim truncate"
OF_TYPE = {
    "linear": ("factor", ""),
    "dynamic": ("factor", ""),
    "yarn": ("factor original_max_position_embeddings", OF_YARN),
    "longrope": ("short_factor long_factor original_max_position_embeddings", "attention_factor factor"),
    "llama3": ("factor original_max_position_embeddings low_freq_factor high_freq_factor", ""),
    "proportional": ("factor", ""),
}


def parameters(kind, rng, pairs):
    """Return random valid parameters of a rope type."""
    low = rng.uniform(0.5, 4)
    values = {
        "factor": log_uniform(1, 64)(rng),
        "original_max_position_embeddings": int(log_uniform(256, 65_536)(rng)),
        "attention_factor": rng.uniform(0.5, 2),
        "beta_fast": rng.uniform(8, 64),
        "beta_slow": rng.uniform(0.5, 4),
        "mscale": rng.uniform(0.1, 2),
        "mscale_all_dim": rng.uniform(0.1, 2),
        "truncate": bool(rng.integers(2)),
        "short_factor": rng.uniform(0.5, 60, pairs).tolist(),
        "long_factor": rng.uniform(0.5, 60, pairs).tolist(),
        "low_freq_factor": low,
        "high_freq_factor": low + rng.uniform(1, 8),
    }
    needed, optional = (names.split() for names in OF_TYPE[kind])
    given = {key: values[key] for key in needed + [key for key in optional if rng.integers(2)]}
    return {"rope_type": kind, "rope_theta": log_uniform(100, 1e8)(rng), **given}


@pytest.mark.parametrize("kind", OF_TYPE)
def test_random_parameters_are_read_as_by_transformers(kind):
    pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rng = np.random.default_rng(list(OF_TYPE).index(kind))
    for _ in range(200):
        head_dim = 8 * int(rng.integers(2, 33))
        share = rng.uniform(0, 1) if kind == "proportional" else float(rng.choice([1.0, 0.5, 0.25]))
        pairs = head_dim // 2 if kind == "proportional" else int(head_dim * share) // 2
        given = parameters(kind, rng, pairs) | {"partial_rotary_factor": share}
        length = int(log_uniform(100, 300_000)(rng))
        trained = int(rng.integers(2**10, 2**17))
        theirs = transformers.LlamaConfig(head_dim=head_dim, max_position_embeddings=trained, rope_parameters=given)
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](theirs, "cpu", seq_len=length)
        rope = Rope.from_config(theirs, sequence_length=length)
        np.testing.assert_allclose(rope.frequencies, frequencies.double().numpy(), rtol=1e-5, atol=1e-30)
        assert rope.attention_factor == pytest.approx(factor, rel=1e-6)


def test_a_published_sarvam_mla_is_read_as_by_transformers():
    transformers = pytest.importorskip("transformers", minversion="5.24", reason="Sarvam came with 5.24")
    scaling = {"type": "deepseek_yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32}
    scaling["original_max_position_embeddings"] = 4096
    older = {"head_dim": 576, "q_head_dim": 192, "rope_theta": 10_000, "rope_scaling": scaling}
    theirs = transformers.CONFIG_MAPPING["sarvam_mla"](**copy.deepcopy(older)).to_dict()
    ours = {"model_type": "sarvam_mla", **older}
    assert Rope.from_config(ours) == Rope.from_config(theirs)
    assert config.read(ours).score_scale() == config.read(theirs).score_scale()


# --- where a config comes from --------------------------------------------------------------------------------


def test_a_config_can_be_a_dict_path_folder_or_object(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    for given in (path, str(path), tmp_path, SimpleNamespace(to_dict=lambda: LLAMA)):
        assert Rope.from_config(given) == Rope.from_config(LLAMA)
