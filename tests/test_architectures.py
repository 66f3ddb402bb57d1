"""
Every architecture of the installed transformers, with its default config: the same frequencies, factor and scores.

The rotary classes are found in the source of transformers, with the config classes of the models that build them.
Each is built from its default config. Random queries and keys are rotated by the function that its attention calls, and
by the `Rope` that `Rope.from_config` reads from the same config. ``architectures.json`` lists the architectures that
disagree, with the reason, and those that are not text.
"""

import json
import math
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from configs import rows_of
from newer import is_absent

from rope_any import Rope

REASON = "the architectures are those of transformers (5.23 or later), which run on torch"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="5.23", reason=REASON)

from rotary_classes import VISION, Case, config_class, in_source  # noqa: E402

LISTED: dict[str, str] = json.loads(Path(__file__).with_name("architectures.json").read_text())
DISAGREEING = {name: reason for name, reason in LISTED.items() if not reason.startswith("not text: ")}
VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))


# --- the list of architectures ----------------------------------------------------------------------------

# Models without a rotary class, and configs whose models are in another module.
OTHERS = [
    Case("gptj.modeling_gptj", None, "gptj", "GPTJConfig"),
    Case("codegen.modeling_codegen", None, "codegen", "CodeGenConfig"),
    Case("roformer.modeling_roformer", None, "roformer", "RoFormerConfig"),
    Case("llama.modeling_llama", "LlamaRotaryEmbedding", "exaone", "ExaoneConfig"),
    Case("llama.modeling_llama", "LlamaRotaryEmbedding", "internlm3", "InternLM3Config"),
    Case("llama.modeling_llama", "LlamaRotaryEmbedding", "iquestcoder", "IQuestCoderConfig"),
    Case("deepseek_v3.modeling_deepseek_v3", "DeepseekV3RotaryEmbedding", "sarvam_mla", "SarvamMLAConfig"),
    Case("glm4_moe.modeling_glm4_moe", "Glm4MoeRotaryEmbedding", "sarvam_moe", "SarvamMoEConfig"),
    Case("mimi.modeling_mimi", "MimiRotaryEmbedding", "mimi", "MimiEncoderConfig"),
    Case("mimi.modeling_mimi", "MimiRotaryEmbedding", "mimi", "MimiDecoderConfig"),
]
OTHERS = [case for case in OTHERS if not is_absent(case.home)]


def cases():
    """Yield the text architectures, by kind of layer."""
    known = {case.config for case in OTHERS}
    for case, layers_differ in in_source():
        is_text = not VISION.search(case.rotary) and not LISTED.get(case.config, "").startswith("not text: ")
        if is_text and case.config not in known:
            yield from by_layer(case) if layers_differ else [case]
    yield from OTHERS


def by_layer(case):
    """Return one case for each kind of layer of the default config."""
    config = default_config(case)
    told, used = set(config.rope_parameters or ()), set(config.layer_types or ())
    return [case._replace(layer_type=kind) for kind in sorted(told & used or told or used)]


# Keys that enable rotary if default configs have it off, or have no attention layer.
TURNED_ON = {
    "BambaConfig": {"attn_layer_indices": [0]},
    "EsmConfig": {"position_embedding_type": "rotary"},
    "GraniteMoeHybridConfig": {"position_embedding_type": "rope", "layer_types": ["attention"] * 32},
    "Zamba2Config": {"use_mem_rope": True},
}
CONFORMERS = ("SeamlessM4T", "Wav2Vec2Bert", "Wav2Vec2Conformer")
TURNED_ON |= {f"{name}Config": {"position_embeddings_type": "rotary"} for name in CONFORMERS}


def keys_of(config):
    """Return a config as a file has it; a class without a model_type may have got one."""
    return config.to_dict() | {"model_type": config.model_type}


def default_config(case, **changes):
    """Return the config of a case with its defaults, rotary on, and changes."""
    return config_class(case)(**TURNED_ON.get(case.config, {}) | changes)


@cache
def is_known(model_type):
    """Whether the rotation of a type of model is known."""
    try:
        Rope.from_config({"model_type": model_type})
    except (TypeError, ValueError) as error:
        return "model_type must be one whose rotation is known" not in str(error)
    return True


def is_newer(case):
    """Whether a model came after transformers 5.24, so it may be unknown."""
    return VERSION > (5, 24) and case.config not in LISTED and not is_known(default_config(case).model_type)


CASES = [case for case in cases() if not is_newer(case)]


# --- the rotation of transformers -------------------------------------------------------------------------

TOKENS = (0, 3, 17, 1000, 5, 64, 300)
ALONG_EACH_AXIS = ((0, 3, 17, 1000, 5, 900, 40), (0, 3, 17, 1000, 64, 5, 300), (0, 3, 17, 1000, 7, 31, 150))


class Rotation(NamedTuple):
    """The frequencies of a rotary class of transformers, and the rotation by them in its attention."""

    frequencies: list[float]
    width: int
    """The number of features that the attention passes to the rotation: a head or a slice of it."""
    rotate_arrays: Callable[[Any, Any], tuple[Any, Any]]
    """A function that returns queries and keys (1, 1, seq, width) rotated at `positions(axes)`."""
    factor: float = 1.0
    axes: int = 1
    """The number of axes of positions."""


def theirs(case, config, power=1):
    """Return the rotation of an architecture, with its frequencies raised to a power, or None if it has none."""
    module = import_module(f"transformers.models.{case.module}")
    if case.rotary is None:
        return without_a_class(case, module, config)
    rotary = getattr(module, case.rotary)(config)
    prefix = f"{case.layer_type}_" if case.layer_type else ""
    stored = getattr(rotary, f"{prefix}inv_freq", None)
    if stored is None:
        return None
    stored.pow_(power)
    if case.layer_type in (kinds := getattr(config, "layer_types", None) or []):
        config = config.per_layer_config[kinds.index(case.layer_type)]
    built = SimpleNamespace(module=module, rotary=rotary, config=config, layer_type=case.layer_type)
    rotating, factor = 2 * len(stored), getattr(rotary, f"{prefix}attention_scaling", 1.0)
    rotate_arrays = on_a_slice(ROTATION_OF.get(case.rotary, rotate_by_function)(built), rotating, case)
    return Rotation(stored.tolist(), width_of(config, rotating), rotate_arrays, factor, axes_of(rotary))


def axes_of(rotary):
    """Return the number of axes of positions: three if the rotary class has sections of pairs, with two exceptions."""
    sections = getattr(rotary, "mrope_section", None)
    return {"NeoMMERotaryEmbedding": 2, "HunYuanVLRotaryEmbedding": 1}.get(type(rotary).__name__, 3 if sections else 1)


def width_of(config, rotating):
    """Return the head dimension, or the width of the rotary slice in latent attention."""
    if hasattr(config, "qk_nope_head_dim"):
        return rotating
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return max(head, rotating)  # layers of full attention may have larger heads


def positions(axes):
    """Return the test positions: (seq,), or (seq, axes), of which the first four are the same on all axes."""
    return torch.tensor(TOKENS) if axes == 1 else torch.tensor(ALONG_EACH_AXIS[:axes]).T


def function(module, config):
    """Return a module's function that rotates q and k: the interleaving one, if it exists and the config uses it."""
    names = ["apply_rotary_pos_emb", "apply_rotary_emb"]
    if hasattr(config, "qk_nope_head_dim") and getattr(config, "rope_interleave", True):
        names.insert(0, "apply_rotary_pos_emb_interleave")
    return next(getattr(module, name) for name in names if hasattr(module, name))


def rotate_by_function(built):
    """Return a rotation by the module's function and the tables of the rotary class, for q and k together or singly."""
    apply, kind = function(built.module, built.config), {"layer_type": built.layer_type} if built.layer_type else {}

    def rotate_arrays(q, k):
        """Return q and k rotated by the module's function and the tables of its rotary."""
        p = positions(axes_of(built.rotary))
        tables = built.rotary(q, p.T[:, None] if p.ndim == 2 else p[None], **kind)
        tables = (tables,) if torch.is_tensor(tables) else tables  # complex, in DeepSeek V2 and Llama 4
        if {"k", "xk"} & set(signature(apply).parameters):
            return apply(q, k, *tables)
        return apply(q, *tables), apply(k, *tables)  # Gemma 3n and 4, DeepSeek V4

    return rotate_arrays


def with_tokens_before_heads(built):
    """Return a rotation for a function that takes tokens before heads, as in Llama 4."""
    rotate_arrays = rotate_by_function(built)
    return lambda q, k: tuple(x.transpose(1, 2) for x in rotate_arrays(q.transpose(1, 2), k.transpose(1, 2)))


def with_any_sections(built):
    """Return HunyuanVL's rotation with sections, which its default config lacks: any, as positions are equal here."""
    built.rotary.mrope_section = [16] * 4
    return rotate_by_function(built)


def with_stored_frequencies(built):
    """Return the rotation of PhiMoE by its stored frequencies, which it would compute again in each call."""
    built.rotary.rope_init_fn = lambda _: (built.rotary.inv_freq, built.rotary.attention_scaling)
    return rotate_by_function(built)


def with_features_sorted(built):
    """Return a rotation that sorts features before it calls the function, as the DiT of Qwen 2.5 Omni does."""
    rotate_arrays, sort = rotate_by_function(built), built.module.deinterleave_head_dim
    return lambda q, k: rotate_arrays(sort(q), sort(k))


def with_angles(built):
    """Return the rotation of CLVP: its class gives the angles of 0, 1, 2, ..., its function rotates values too."""

    def rotate_arrays(q, k):
        """Return q and k rotated by the module's function, from angles."""
        angles = built.rotary(torch.zeros(1, max(TOKENS) + 1))[0]
        return built.module.apply_rotary_pos_emb(q, k, k, angles.cos(), angles.sin(), positions(1)[None])[:2]

    return rotate_arrays


def in_its_attention(built):
    """Return the rotation of a conformer: its class gives tables of 0, 1, 2, ..., a method of its attention rotates."""
    name = type(built.rotary).__name__.replace("RotaryPositionalEmbedding", "SelfAttention")
    attention = getattr(built.module, name)

    def rotate_arrays(q, k):
        """Return q and k rotated by a method of the attention."""
        tables = built.rotary(torch.zeros(1, max(TOKENS) + 1, dtype=q.dtype))[:, positions(1)]
        sizes = SimpleNamespace(num_heads=1, head_size=q.shape[-1])
        return tuple(attention._apply_rotary_embedding(sizes, x[0], tables)[None] for x in (q, k))

    return rotate_arrays


ROTATION_OF = {
    "ClvpRotaryPositionalEmbedding": with_angles,
    "HunYuanVLRotaryEmbedding": with_any_sections,
    "Llama4TextRotaryEmbedding": with_tokens_before_heads,
    "PhimoeRotaryEmbedding": with_stored_frequencies,
    "Qwen2_5OmniDiTRotaryEmbedding": with_features_sorted,
    "SeamlessM4TConformerRotaryPositionalEmbedding": in_its_attention,
    "Wav2Vec2BertRotaryPositionalEmbedding": in_its_attention,
    "Wav2Vec2ConformerRotaryPositionalEmbedding": in_its_attention,
}

# Models whose attention rotates a slice of the features, and concatenates the others.
CUT = {"clvp", "codegen", "gpt_neox_japanese", "gptj", "persimmon", "phi", "stablelm"}


def on_a_slice(rotate_arrays, rotating, case):
    """Return a rotation of the first `rotating` features only, if the attention of a case cuts them out."""

    def rotated(q, k):
        """Return q and k with their first features rotated."""
        parts = rotate_arrays(q[..., :rotating], k[..., :rotating])
        return tuple(torch.cat([x, whole[..., rotating:]], -1) for x, whole in zip(parts, (q, k), strict=True))

    return rotated if case.home in CUT else rotate_arrays


def without_a_class(case, module, config):
    """Return the rotation of GPT-J, CodeGen or RoFormer: by a table of sines, then cosines, of a constant base."""
    width = config.hidden_size // config.num_attention_heads
    rotating = getattr(config, "rotary_dim", width)
    if case.home == "roformer":
        table = module.RoFormerSinusoidalPositionalEmbedding(max(TOKENS) + 1, rotating).create_weight()
    else:
        table = module.create_sinusoidal_positions(max(TOKENS) + 1, rotating)
    rows = table[positions(1)][None]

    def rotate_arrays(q, k):
        """Return q and k rotated by a model that has no class for its rotary."""
        if case.home == "roformer":
            return module.RoFormerSelfAttention.apply_rotary_position_embeddings(rows[None], q, k)
        sin, cos = rows.chunk(2, dim=-1)  # heads follow tokens here
        return tuple(module.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in (q, k))

    frequencies = torch.atan2(*table[1].chunk(2)).tolist()
    return Rotation(frequencies, width, on_a_slice(rotate_arrays, rotating, case))


# --- comparison of transformers and rope_any --------------------------------------------------------------


# Keys that default configs lack for their class to run, with values of released configs.
_GLM = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
COMPLETED: dict[str, dict[str, Any]] = {
    "CohereCompassTextConfig": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}}},
    "Glm4vTextConfig": {"rope_parameters": _GLM},
    "Glm4vMoeTextConfig": {"rope_parameters": _GLM, "head_dim": 128},
    "GlmImageTextConfig": {"rope_parameters": _GLM},
    "Qwen3OmniMoeCode2WavConfig": {"model_type": "qwen3_omni_moe_code2wav"},
    "Qwen3OmniMoeTextConfig": {"head_dim": 128},
    "SaProtConfig": {"model_type": "saprot"},
}
ERRORS = (AssertionError, KeyError, RuntimeError, TypeError, ValueError)

# Unchanged, slow pairs hardly rotate at position 1000; with the tenth roots of the frequencies every pair does.
POWERS = (1, 0.1)
# Tolerance of scores, in standard deviations. transformers' float32 angles cause errors of up to 1e-4, a single pair
# that rotates backwards 0.04 or more, and any other fault 0.3 or more.
TOLERANCE = 3e-4


def ours(case, config, power=1):
    """Return our Rope for a config, with frequencies to a power; None if the model has no rotary."""
    try:
        rope = Rope.from_config(keys_of(config), layer_type=case.layer_type)
    except ValueError as error:
        if "must have rotary embedding" not in str(error):
            raise
        return None
    return with_frequencies(rope, lambda f: math.copysign(abs(f) ** power, f))


def powers(case):
    """Return the powers of the frequencies to test: without a class there are no frequencies to change."""
    return POWERS if case.rotary else (1,)


def completed(case):
    """Return a config that runs."""
    return default_config(case, **deepcopy(COMPLETED.get(case.config, {})))


def with_frequencies(rope, change):
    """Return a `Rope` with each of its frequencies changed."""
    row_by_row = [tuple(map(change, row)) for row in rows_of(rope)]
    return replace(rope, frequencies=tuple(row_by_row) if len(row_by_row) > 1 else row_by_row[0])


def frequencies_on_equal_axes(rope):
    """Return the unsigned frequencies for equal positions on all axes; those of NanoChat are negative."""
    return [abs(sum(column)) for column in zip(*rows_of(rope), strict=True)]


@cache
def queries_and_keys(width):
    """Return random float64 queries and keys of one head."""
    generator = torch.Generator().manual_seed(width)
    return tuple(torch.randn(1, 1, len(TOKENS), width, generator=generator, dtype=torch.float64) for _ in range(2))


def distance(rope, rotation):
    """Return the largest difference of the scores of two rotations, in units of their spread."""
    q, k = queries_and_keys(rotation.width)
    with torch.no_grad():  # a learned part of their frequencies
        (q1, k1), (q2, k2) = rotation.rotate_arrays(q, k), rope(q, k, positions(rotation.axes))
    expected, got = q1 @ k1.mT, q2 @ k2.mT
    return float((got - expected).abs().max() / expected.std())


def assert_same_frequencies(rope, rotation):
    """Check the sorted frequencies, because ERNIE VL has them in order of axes; the scores test their order."""
    assert sorted(frequencies_on_equal_axes(rope)) == pytest.approx(sorted(rotation.frequencies), rel=1e-5, abs=0)


def check(case, config, *, scores=True):
    """Fail unless both have the same frequencies and factor, and the same scores."""
    rotation, rope = theirs(case, config), ours(case, config)
    if rotation is None or rope is None:
        assert rotation is rope
        return
    assert_same_frequencies(rope, rotation)
    assert rope.attention_factor == pytest.approx(rotation.factor, rel=1e-6)
    for power in powers(case) if scores else ():
        assert distance(ours(case, config, power), theirs(case, config, power)) < TOLERANCE


# --- the tests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in CASES if case.config not in DISAGREEING], ids=str)
def test_an_architecture_agrees(case):
    check(case, default_config(case), scores=case.config not in COMPLETED)


@pytest.mark.parametrize("case", [case for case in CASES if case.config in TURNED_ON], ids=str)
def test_a_default_config_with_rotary_off_is_refused(case):
    with pytest.raises(ValueError, match="config must have rotary embedding to make a Rope of; got none"):
        Rope.from_config(config_class(case)().to_dict())


@pytest.mark.parametrize("case", [case for case in CASES if case.config in DISAGREEING], ids=str)
def test_a_listed_architecture_disagrees(case):
    """One that agrees must be taken off the list in architectures.json."""
    with pytest.raises(ERRORS):
        check(case, default_config(case))


@pytest.mark.parametrize("case", [case for case in CASES if case.config in COMPLETED], ids=str)
def test_an_incomplete_default_config_agrees_when_completed(case):
    with pytest.raises(ERRORS):
        check(case, default_config(case))
    check(case, completed(case))


# Models whose files must give the parameters, because released ones differ, as must those whose default is scaled.
WITHOUT_DEFAULTS = {"beam", "cosmos3_edge_text", "dory", "embedding_gemma2_text", "laguna", "mellum", "neomme", "zaya"}
WITHOUT_DEFAULTS |= {"moonshine_streaming", "muse_spark_text", "nemotron3_5_transcribe_asr_audio"}
WITHOUT_DEFAULTS |= {"nemotron3_5_transcribe_word_timestamp"}
WITH_SCALED_DEFAULTS = {"gemma4_text", "gemma4_unified_text"}


def is_scaled(parameters):
    """Return whether the parameters of a class, or those of a kind of layers, have a rope type with a scaling."""
    inner = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    return any(each.get("rope_type", "default") != "default" for each in inner)


@pytest.mark.parametrize("case", [case for case in CASES if case.config not in DISAGREEING], ids=str)
def test_missing_rope_parameters_are_class_defaults_or_refused(case):
    """Default configs have complete rope_parameters; here they are removed."""
    config = default_config(case)
    unsaid = {key: value for key, value in keys_of(config).items() if key != "rope_parameters"}
    scaled = is_scaled(getattr(config, "rope_parameters", None) or {}) and config.model_type not in WITH_SCALED_DEFAULTS
    if config.model_type in WITHOUT_DEFAULTS or scaled:
        with pytest.raises(ValueError, match="rope_parameters must be given"):
            Rope.from_config(unsaid, layer_type=case.layer_type)
        return
    rope = Rope.from_config(unsaid, layer_type=case.layer_type)
    assert_same_frequencies(rope, theirs(case, config))


# Keys in the places where files have them. "nested" gives each kind of layers the parameters.
BASE = {"rope_theta": 777.0}
LINEAR = {"rope_type": "linear", "factor": 3.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
PLAIN, HALF = {"rope_type": "default", **BASE}, {"partial_rotary_factor": 0.5}
WRITTEN: dict[str, dict[str, Any]] = {
    "base": BASE,
    "base inside": {"rope_parameters": PLAIN},
    "no base": {"rope_parameters": LINEAR},
    "share": HALF,
    "share and scaling": HALF | {"rope_parameters": LINEAR},
    "share inside": {"rope_parameters": PLAIN | HALF},
    "older type": BASE | {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "older form": BASE | {"rope_scaling": LINEAR},
    "older form, base inside": {"rope_scaling": LINEAR | BASE},
    "both forms": {"rope_parameters": BASE, "rope_scaling": LINEAR},
    "alpha": BASE | {"rope_scaling": {"rope_type": "dynamic", "alpha": 5.0, "factor": 3.0}},
    "yarn": BASE | {"rope_scaling": YARN | {"beta_fast": 16}},
    "truncate": BASE | {"rope_scaling": YARN | {"truncate": False}},
    "two original lengths": BASE | {"original_max_position_embeddings": 256, "rope_scaling": YARN},
    "nested": {"nested": LINEAR | BASE},
    "nested, no base": {"nested": LINEAR},
    "nested, base outside": BASE | {"nested": LINEAR},
    "nested, share": {"nested": PLAIN | HALF},
    "nested, share outside": HALF | {"nested": PLAIN},
    "older form without scaling": BASE | {"rope_scaling": {"rope_type": "default"}},
    "dynamic": BASE | {"rope_scaling": {"type": "dynamic", "factor": 3.0}},
    "proportional": BASE | {"rope_scaling": {"rope_type": "proportional", **HALF}},
    "width of the head": BASE | {"head_dim": 96},
    "other names": {"rotary_emb_base": 777.0, "rotary_pct": 0.5},
}
REPLACED = {*(key for keys in WRITTEN.values() for key in keys), "layer_rope_theta"}


def written(case, name):
    """Return the default config of a case as a file, with the keys of `WRITTEN` in place of its own; None if unfit."""
    default, extra = keys_of(completed(case)), dict(WRITTEN[name])
    if (parameters := extra.pop("nested", None)) is not None:
        kinds = [kind for kind, inner in (default.get("rope_parameters") or {}).items() if isinstance(inner, dict)]
        if not kinds:
            return None
        extra["rope_parameters"] = {kind: dict(parameters) for kind in kinds}
    return deepcopy({key: value for key, value in default.items() if key not in REPLACED} | extra)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.filterwarnings("ignore")
def test_a_key_is_read_as_the_class_reads_it_or_refused(name):
    tried, wrong = 0, []
    for case in CASES:
        keys = None if case.config in DISAGREEING else written(case, name)
        if keys is None:
            continue
        tried += 1
        try:
            rope = Rope.from_config(deepcopy(keys), layer_type=case.layer_type)
        except (TypeError, ValueError):
            continue
        try:
            rotation = theirs(case, config_class(case).from_dict(keys))
        except Exception:  # noqa: BLE001, S112 # classes refuse configs by errors of many kinds
            continue
        found = [*sorted(frequencies_on_equal_axes(rope)), rope.attention_factor]
        expected = [*sorted(rotation.frequencies), rotation.factor]
        wrong += [] if found == pytest.approx(expected, rel=1e-5, abs=0) else [str(case)]
    assert tried > 20
    assert not wrong


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_wrong_pairing_sign_slice_or_axis_changes_the_scores(case):
    config, power = completed(case), powers(case)[-1]
    rotation, rope = theirs(case, config, power), ours(case, config, power)
    for fault in faults(rope, rotation.width) if rope else ():
        assert distance(fault, rotation) > 100 * TOLERANCE


def faults(rope, width):
    """Yield rotations that are wrong in one respect."""
    yield replace(rope, pairing="half" if rope.pairing == "interleaved" else "interleaved")
    yield with_frequencies(rope, lambda f: -f)
    slowest = min(filter(None, frequencies_on_equal_axes(rope)))
    yield with_frequencies(rope, lambda f: -f if abs(f) == slowest else f)
    rows = rows_of(rope)
    behind = width - rope.start - 2 * len(rows[0])
    if behind or rope.start:
        yield replace(rope, start=rope.start + (1 if behind else -1))
    for axis in range(1, len(rows)):
        yield replace(rope, frequencies=(rows[axis], *rows[1:axis], rows[0], *rows[axis + 1 :]))


def test_most_architectures_agree():
    """Most architectures with text positions agree; the tests above show that the others are listed."""
    listed = [case for case in CASES if case.config in DISAGREEING]
    assert len(listed) <= 0.02 * len(CASES)
    assert len({case.config for case in CASES}) >= 180


def test_each_listed_architecture_exists_and_has_a_reason():
    names = {case.config for case, _ in in_source()}
    for name, reason in LISTED.items():
        assert name in names
        assert re.match(r"(theirs is wrong|the default config is unusable|not text): \w", reason)
