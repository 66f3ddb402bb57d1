"""
Tell by what a model multiplies q·k before the softmax, by ``model_type``.

Read in transformers 5.23, and compared there with the attention of each model. The scale is that of rotated queries and
keys: the attention factor, which is in their cos and sin, is no part of it, and neither is what a class multiplies q or
k by before it rotates them. The source says so if a class does that, or if it scales q by its position.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rope_any._checks import integer, positive, shown
from rope_any.config._load import Fact, fail
from rope_any.config._models import MODELS, Model
from rope_any.config._part import Part

Facts = Mapping[str, Fact]


class Layers(NamedTuple):
    """Layers of one kind: the part of the config, their sizes, and the parameters of their rotation."""

    part: Part
    sizes: Facts
    parameters: Facts

    def size(self, key: str) -> Fact:
        """Return a size, checked; its source is its name, for the formula that is told."""
        fact, model_type = self.sizes.get(key), self.part.model_type or ""
        if fact is None and key == _PLAIN and model_type in PLAIN_SIZES:
            fact = Fact(PLAIN_SIZES[model_type], self.part.default)
        if fact is None:
            fail(f"{self.part.name(key)} must be given for the score scale of {model_type}; got none")
        if integer(fact.source, fact.value) < 1:
            fail(f"{fact.source} must be positive; got {shown(fact.value)}")
        default = fact.source == self.part.default
        return Fact(fact.value, f"{key} {fact.value}, {fact.source}" if default else fact.source)


Formula = Callable[[Layers], Fact]


class Score(NamedTuple):
    """How one model scales its scores."""

    formula: Formula
    besides: str = ""
    """What else its class does to q or k, for the source."""
    when: tuple[str, Any, Any] | None = None
    """The key that this depends on, its default, and the value with which nothing is done."""


_PLAIN, _ROTARY, _MSCALE = "qk_nope_head_dim", "qk_rope_head_dim", "mscale_all_dim"


def _by_head(layers: Layers) -> Fact:  # 1/√d
    """Return the scale of most models."""
    head = layers.size("head_dim")
    return Fact(head.value**-0.5, f"1 / sqrt({head.source})")


def _by_half_a_head(layers: Layers) -> Fact:  # 1/√(d/2)
    """Return the scale of heads that read two vectors side by side."""
    head = layers.size("head_dim")
    return Fact((head.value / 2) ** -0.5, f"1 / sqrt({head.source} / 2)")


def _by_slices(layers: Layers) -> Fact:  # 1/√(plain + rotary)
    """Return the scale of a head that is put together of a plain and a rotary slice (MLA)."""
    plain, rotary, said = layers.size(_PLAIN), layers.size(_ROTARY), layers.part.get("qk_head_dim")
    whole = plain.value + rotary.value
    if said is not None and integer(said.source, said.value) != whole:
        fail(f"{said.source} must be {whole}, which is {plain.source} + {rotary.source}; got {shown(said.value)}")
    return Fact(whole**-0.5, f"1 / sqrt({plain.source} + {rotary.source})")


def _with_mscale(layers: Layers) -> Fact:  # m²/√d, m = 1 + 0.1 mscale_all_dim ln factor
    """Return the scale of MLA, which grows if the context is extended, whatever the rope type."""
    scale, given = _by_slices(layers), layers.parameters
    kind, c, s = (given.get(key) or Fact(None, layers.part.name(key)) for key in ("rope_type", _MSCALE, "factor"))
    if kind.value in (None, "default") or not c.value:
        return scale
    if s.value is None:
        fail(f"{s.source} must be given: {layers.part.model_type} scales scores by it and {c.source}; got none")
    m = 1 + 0.1 * positive(c.source, c.value) * math.log(max(positive(s.source, s.value), 1))
    return Fact(scale.value * m * m, f"{scale.source} * mscale², mscale = 1 + 0.1 * {c.source} * ln({s.source})")


def _by_key(key: str, power: float, default: float | None) -> Formula:
    """Return the formula of a key; the class's default is a number, or None for 1/√d."""

    def formula(layers: Layers) -> Fact:
        """Return the power of what the key says."""
        part = layers.part
        fact = part.get(key)
        if fact is None and default is None:
            return _by_head(layers)
        if fact is None and key in part.keys:
            fail(f"{part.name(key)} must be a number for {part.model_type}; got null")
        fact = fact or Fact(default, f"{key} {default}, {part.default}")
        value = positive(part.name(key), fact.value)
        return Fact(value**power, fact.source if power == 1 else f"({fact.source}) ** {power}")

    return formula


def _one(layers: Layers) -> Fact:
    """Return the scale of models that leave scores as they are."""
    return Fact(1.0, f"{layers.part.model_type} does not scale q·k")


def _refused(why: str) -> Formula:
    """Return the formula of a scale that a config cannot tell."""
    return lambda layers: fail(f"the score scale of {layers.part.model_type} is not told: {why}")


_WARM = "rope_any.bending.temperature"
_SCALAR, _MULTIPLIER = "query_pre_attn_scalar", "attention_multiplier"
_ROWS: list[tuple[Score, str]] = [
    (
        Score(_by_key(_SCALAR, -0.5, 256)),
        "gemma2 gemma3_text t5_gemma_module t5gemma2_decoder t5gemma2_text vaultgemma",
    ),
    (Score(_by_key(_SCALAR, -0.5, None)), "step3p5"),
    (
        Score(_by_key(_MULTIPLIER, 1, 1.0)),
        "granite granite4_vision_text granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared",
    ),
    (Score(_by_key(_MULTIPLIER, 1, 0.015625)), "granite_docling_text"),
    (Score(_by_key(_MULTIPLIER, 1, None)), "hyperclovax"),
    (
        Score(_one),
        """
        dia_decoder dia_encoder diffusion_gemma_text embedding_gemma2_text gemma3n_text gemma4_text gemma4_unified_text
        """,
    ),
    (Score(_by_half_a_head), "zamba2"),
    (Score(_by_slices), "dots3_note_text"),
    (
        Score(_with_mscale),
        """
        axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa hy_v4 kimi_k2 minicpm3
        youtu
        """,
    ),
    # --- what a class does besides -------------------------------------------------------------------------
    (Score(_one, "q is multiplied by 1 / sqrt(head_dim) before the rotation"), "clvp_encoder esm"),
    (Score(_by_head, "by head_dim ** -0.25 on q and the same on k"), "openai_privacy_filter"),
    (Score(_by_head, "k is multiplied by key_multiplier before the rotation", ("key_multiplier", 1, 1)), "falcon_h1"),
    (Score(_by_head, "q is multiplied by qk_scale_factor before the rotation"), "muse_glimmer_text muse_spark_text"),
    (Score(_with_mscale, "q and the latent of k are multiplied before the rotation"), "longcat_flash"),
    (Score(_by_head, "the norm of k, before the rotation, has a learned factor for each head"), "zaya"),
    (Score(_by_head, "layers without rotary also scale q by position"), "beam"),
    (
        Score(
            _by_head,
            f"layers without rotary also scale q by position: {_WARM}",
            ("attn_temperature_tuning", True, False),
        ),
        "llama4_text",
    ),
    (Score(_by_head, f"q is also scaled by position: {_WARM}", ("llama_4_scaling_beta", None, None)), "ministral3"),
    (Score(_with_mscale, f"q is also scaled by position: {_WARM}", ("llama_4_scaling_beta", None, None)), "mistral4"),
    # --- refused -------------------------------------------------------------------------------------------
    (Score(_refused("it is learned, and grows with the logarithm of the position of q")), "mistral_large4_text"),
    (Score(_refused("it is learned, one for each feature")), "timesfm2_5"),
    (
        Score(_refused("its code comes with the weights, and is not known here")),
        "exaone internlm internlm2 minicpm openelm orion phi-msft phi3_v RefinedWeb RefinedWebModel xverse Yi",
    ),
]
SCORES: dict[str, Score] = {name: score for score, names in _ROWS for name in names.split()}
"""The models whose scale is not 1 / sqrt(head_dim), or that do more to q or k."""

PLAIN_SIZES: dict[str, int] = {
    name: size
    for size, names in {
        64: "axk2 minicpm3 mistral4",
        128: "axk1 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 dots3_note_text kimi_k2 longcat_flash youtu",
        192: "glm4_moe_lite glm_moe_dsa hy_v4",
    }.items()
    for name in names.split()
}
"""What classes assume of the plain slice of the head."""


def score_scale(part: Part, sizes: Facts, parameters: Facts, layer_type: str | None) -> Fact:
    """
    Return what a model multiplies the product of rotated queries and keys by, before the softmax.

    Parameters
    ----------
    part : Part
        Of the model.
    sizes : mapping of str to Fact
        What is known of head_dim, qk_nope_head_dim and qk_rope_head_dim in these layers.
    parameters : mapping of str to Fact
        Those of the rotation of these layers, under today's names.
    layer_type : str or None
        The kind of layer, if kinds differ.

    Returns
    -------
    Fact
        The scale, as a float, and what it is made of.

    Raises
    ------
    TypeError
        If a value that it is made of is no number.
    ValueError
        If the scale of the model is learned or not known, or a value is missing or out of range.
    """
    name, layers = part.name("model_type"), Layers(part, sizes, parameters)
    if name == "general.architecture":
        fail("GGUF metadata does not tell the score scale: read the config.json of the model")
    if not (part.model_type and MODELS.get(part.model_type, Model(rotary=False)).rotary):
        fail(f"{name} must be one whose score scale is known, in most 1 / sqrt(head_dim); got {shown(part.model_type)}")
    score = SCORES.get(part.model_type, Score(_by_head))
    scale = score.formula(layers)
    of = f"{scale.source}, in layers of type {layer_type}" if layer_type else scale.source
    besides = score.besides if score.when is None or _is_done(layers, *score.when) else ""
    return Fact(float(scale.value), f"{of}; {besides}" if besides else of)


def _is_done(layers: Layers, key: str, default: Any, neutral: Any) -> bool:
    """Whether a class does what a key asks for."""
    fact = layers.parameters.get(key) or layers.part.get(key) or Fact(default, "")
    return bool(fact.value != neutral)
