"""
`rope_any.integrations.transformers.reposition` on caches of small random models of transformers.

The truth is the model's own code: a prefill of the same tokens at the new positions.
"""

import copy
import re
from pathlib import Path

import numpy as np
import pytest

REASON = "the caches are those of transformers (5.23 or later), which run on torch"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="5.23", reason=REASON)

from newer import is_absent, skip_if_absent  # noqa: E402
from test_replace import CACHE, IDS, MLA, MROPE, built, config_of  # noqa: E402  # it imports torch

from rope_any.config import read  # noqa: E402
from rope_any.config.tables.models import MODELS  # noqa: E402
from rope_any.integrations import _transformers_caches as ours  # noqa: E402
from rope_any.integrations.transformers import reposition  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS = IDS.shape[1]
INDEX = {"index_head_dim": 32, "index_n_heads": 2, "index_topk": 64}
LATENT = {"num_key_value_heads": 4}
PHI3 = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
WINDOW = {"sliding_window": 10}
# Models for each way to cache keys, such as indexers, M-RoPE by sections and fused heads.
CASES = {
    **{name: {} for name in ("cohere", "ernie4_5", "gpt_neox", "gptj", "hunyuan_v1_dense", "llama", "nanochat", "phi")},
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "minicpm3", "sarvam_mla", "youtu"), MLA),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa", "hy_v4"), LATENT | INDEX),
    "hy_v4_vl_text": LATENT | INDEX | {"rope_parameters": MROPE | {"mrope_section": [3, 3, 2]}},
    **dict.fromkeys(("gemma3_text", "mistral"), WINDOW),
    "gemma3n_text": WINDOW | {"num_kv_shared_layers": 2, "num_hidden_layers": 4},
    "gemma4_text": WINDOW | {"num_kv_shared_layers": 6, "num_hidden_layers": 12},
    "llama4_text": {"attention_chunk_size": 10},
    "qwen2_vl_text": {"rope_parameters": MROPE},
    "qwen3_next": {"num_hidden_layers": 4},
    "smollm3": {},
}
NORMED = ("hunyuan_v1_dense",)
"""Their scores depend on absolute positions, because weights multiply rotated keys."""


def model_of(name, **changes):
    """Return a random model, with norms whose weights are random too; skip if transformers does not have it."""
    skip_if_absent(name)
    model = built(config_of(name, **(CASES.get(name, {}) | changes)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model


def filled(model, positions, ids=IDS, cache=None):
    """Return the cache of a prefill at positions ``(batch, seq)``, or ``(batch, seq, axes)``."""
    if cache is None:
        cache = transformers.DynamicCache(config=model.config)
    positions = torch.as_tensor(positions)
    positions = positions.movedim(-1, 0) if positions.ndim == 3 else positions.expand(ids.shape)
    with torch.no_grad():
        model(input_ids=ids, position_ids=positions, attention_mask=torch.ones_like(ids), **{CACHE: cache})
    return cache


def range_of(first):
    """Return the positions of the tokens from `first` on."""
    return torch.arange(first, first + TOKENS)


def prefilled(name, first=0, **changes):
    """Return a random model, and its cache after a prefill at positions from `first` on."""
    model = model_of(name, **changes)
    return model, filled(model, range_of(first))


def static(model, size=40):
    """Return a static cache of a model."""
    return transformers.StaticCache(config=model.config, max_cache_len=size)


def cached_tensors(layer):
    """Return the tensors of a layer by name: keys, values, and keys of an indexer."""
    found = {name: getattr(layer, name, None) for name in ("keys", "values", "indexer_keys")}
    return {name: x for name, x in found.items() if torch.is_tensor(x) and x.numel()}


def bits(cache):
    """Return the bytes of all tensors of a cache, by layer and name."""
    return [{name: x.numpy().tobytes() for name, x in cached_tensors(layer).items()} for layer in cache.layers]


def error(got, want):
    """Return the largest difference of two layers, in standard deviations."""
    got, want = cached_tensors(got), cached_tensors(want)
    assert got.keys() == want.keys()
    return max(float((got[n] - want[n]).abs().max() / want[n].std()) for n in want)


ROWS = np.stack([np.arange(TOKENS) * 2 + 9, np.arange(TOKENS)[::-1] * 3])
"""Other positions for each row, with gaps and in reverse."""


def by_axis(model, positions):
    """Return positions ``(batch, seq)``; with several axes, others on each."""
    positions = torch.as_tensor(np.ascontiguousarray(positions)).expand(IDS.shape)
    (rope, *_) = filter(None, read(model.config).layers())
    if not isinstance(rope.frequencies[0], tuple):
        return positions
    return torch.stack([positions * (axis + 1) + axis for axis in range(len(rope.frequencies))], dim=-1)


# --- moved keys are those of a prefill --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_first_keys_equal_those_of_a_prefill_at_the_new_positions(name):
    model = model_of(name)
    old, new = by_axis(model, np.arange(5, 5 + TOKENS)), by_axis(model, ROWS)
    cache, right = filled(model, old), filled(model, new)
    index = next(i for i, layer in enumerate(cache.layers) if cached_tensors(layer))
    assert error(cache.layers[index], right.layers[index]) > 0.1
    assert reposition(cache, model, old, new) is None
    assert error(cache.layers[index], right.layers[index]) < 1e-5


@pytest.mark.parametrize("name", [name for name in CASES if name not in NORMED])
def test_all_keys_equal_those_of_a_prefill_after_a_shift(name):
    model, cache = prefilled(name, 5, num_hidden_layers=CASES[name].get("num_hidden_layers", 4))
    reposition(cache, model.config, 5, 42)
    for got, want in zip(cache.layers, filled(model, range_of(42)).layers, strict=True):
        assert not cached_tensors(want) or error(got, want) < 3e-4


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "mistral", "deepseek_v3", "glm_moe_dsa", "qwen3_next"])
@pytest.mark.parametrize("size", [8, 40])
def test_static_layers_move_in_place_and_keep_unused_slots(name, size):
    model = model_of(name)
    ids = IDS[:, : min(size, TOKENS)]
    count = ids.shape[1]
    new = torch.as_tensor(ROWS[:, :count].copy())
    cache, right = (filled(model, at, ids, static(model, size)) for at in (torch.arange(count), new))
    index = next(i for i, layer in enumerate(cache.layers) if cached_tensors(layer))
    layer = cache.layers[index]
    for x in cached_tensors(layer).values():
        x[..., count:, :] = 7.0
    before = {kind: x.data_ptr() for kind, x in cached_tensors(layer).items()}
    reposition(cache, model, 0, new)
    assert {kind: x.data_ptr() for kind, x in cached_tensors(layer).items()} == before
    for kind, x in cached_tensors(layer).items():
        want = cached_tensors(right.layers[index])[kind]
        last = min(count, x.shape[-2])
        assert float((x - want)[..., :last, :].abs().max()) < 1e-5 * float(want.std())
        assert bool((x[..., last:, :] == 7).all())


def test_each_head_can_have_positions():
    model = model_of("llama")
    cache, *right = (filled(model, at) for at in (range_of(0), *torch.as_tensor(ROWS.copy())))
    reposition(cache, model, 0, np.broadcast_to(ROWS, (2, *ROWS.shape)).tolist())
    for head, each in enumerate(right):
        away = (cache.layers[0].keys - each.layers[0].keys)[:, head]
        assert float(away.abs().max()) < 1e-5 * float(each.layers[0].keys.std())


def test_caches_made_in_inference_mode_move():
    model = model_of("llama")
    with torch.inference_mode():
        caches = [filled(model, range_of(3), cache=cache) for cache in (None, static(model))]
    right = filled(model, range_of(0))
    for cache in caches:
        reposition(cache, model, 3, 0)
        assert float((cache.layers[0].keys[..., :TOKENS, :] - right.layers[0].keys).abs().max()) < 1e-5


def test_layers_without_rotation_keep_their_bits():
    model, cache = prefilled("smollm3", num_hidden_layers=4)
    before = bits(cache)
    reposition(cache, model, 0, 100)
    ropes = read(model.config).layers()
    assert {rope is None for rope in ropes} == {True, False}
    for rope, new, old in zip(ropes, bits(cache), before, strict=True):
        assert new["values"] == old["values"]
        assert (new["keys"] == old["keys"]) is (rope is None)


def test_cross_attention_keeps_its_bits_and_self_attention_moves():
    config, small = transformers.T5GemmaConfig(vocab_size=64, pad_token_id=0), config_of("gemma2").to_dict()
    for part in (config.encoder, config.decoder):
        for key in ("hidden_size", "intermediate_size", "head_dim", "num_hidden_layers", "layer_types", "vocab_size"):
            setattr(part, key, small[key])
        part.num_attention_heads, part.num_key_value_heads = 4, 2
    config.decoder.cross_attention_hidden_size = config.encoder.hidden_size
    model = transformers.T5GemmaModel(config).eval()

    def run(first):
        """Return the cache of an encoder-decoder after positions from `first` on."""
        at = {"position_ids": range_of(0).expand(IDS.shape), "decoder_position_ids": range_of(first).expand(IDS.shape)}
        with torch.no_grad():
            return model(input_ids=IDS, decoder_input_ids=IDS, **at).past_key_values

    cache, right = run(7), run(0)
    cross = bits(cache.cross_attention_cache)
    reposition(cache, model, 7, 0)
    assert bits(cache.cross_attention_cache) == cross
    assert error(cache.self_attention_cache.layers[0], right.self_attention_cache.layers[0]) < 1e-5


def test_a_shared_layer_moves_once_and_shared_tensors_stay():
    model, cache = prefilled("llama", 9)
    cache.layers[1] = cache.layers[0]
    prefix = copy.copy(cache.layers[0])
    reposition(cache, model, 9, 0)
    assert cache.layers[1] is cache.layers[0]
    assert error(cache.layers[0], filled(model, range_of(0)).layers[0]) < 1e-5
    assert error(prefix, filled(model, range_of(9)).layers[0]) == 0


def test_two_attentions_in_a_layer_have_a_cache_each():
    model = model_of("llama")
    two = transformers.DynamicCache()
    for layer in [*filled(model, range_of(4)).layers, *filled(model, range_of(4)).layers]:
        two.update(layer.keys, layer.values, len(two.layers))
    reposition(two, model, 4, 0)
    assert all(error(layer, filled(model, range_of(0)).layers[i % 2]) < 3e-4 for i, layer in enumerate(two.layers))


# --- generation after a move ------------------------------------------------------------------------------------------

KEPT = [0, 1, 2, *range(9, TOKENS)]


def step(model, cache, at):
    """Return the logits of one more token."""
    one = {"input_ids": IDS[:, :1], "position_ids": torch.full((len(IDS), 1), at)}
    with torch.no_grad():
        return model(**one, **{CACHE: cache}).logits


def next_error(model, cache, right, at):
    """Return the largest difference of the logits after two caches, in standard deviations."""
    got, want = (step(model, each, at) for each in (cache, right))
    return float((got - want).abs().max() / want.std())


def evict(cache, model):
    """Keep some tokens of the layers that hold all, move these, and return a cache of them alone."""
    for layer in cache.layers:
        if layer.keys.shape[-2] == TOKENS:
            layer.keys, layer.values = layer.keys[..., KEPT, :], layer.values[..., KEPT, :]
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length = len(KEPT)
    reposition(cache, model, KEPT, range(len(KEPT)))
    return filled(model, torch.arange(len(KEPT)), IDS[:, KEPT])


@pytest.mark.parametrize(
    "name", ["cohere", "deepseek_v2", "deepseek_v3", "gemma3_text", "hunyuan_v1_dense", "llama", "phi"]
)
def test_tokens_evicted_from_one_layer_have_no_influence(name):
    model, cache = prefilled(name, num_hidden_layers=1, **({"sliding_window": 64} if name == "gemma3_text" else {}))
    right = evict(cache, model)
    assert next_error(model, cache, right, len(KEPT)) < 1e-5


def test_generation_continues_with_windows_that_lost_no_token():
    model, cache = prefilled("gemma3_text", num_hidden_layers=6)  # the windows hold the last 9 tokens
    right = evict(cache, model)
    assert error(cache.layers[0], right.layers[0]) < 1e-5
    assert bool(step(model, cache, len(KEPT)).isfinite().all())
    assert {layer.get_seq_length() for layer in cache.layers} == {len(KEPT) + 1}


def test_tokens_before_a_window_are_evicted_from_one_layer():
    model, cache = prefilled("mistral", num_hidden_layers=1)
    cache.layers[0].cumulative_length = TOKENS - 12  # the layer holds 9
    reposition(cache, model, 12, 0)
    right = filled(model, torch.arange(TOKENS - 12), IDS[:, 12:])
    assert next_error(model, cache, right, TOKENS - 12) < 1e-5


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "deepseek_v3"])
def test_cached_keys_of_a_passage_move_behind_another_prompt(name):
    """The result is exact for one layer: its keys and values depend only on a token and its position."""
    model, whole = prefilled(name, num_hidden_layers=1)
    cache, passage = (filled(model, torch.arange(12), ids) for ids in (IDS[:, :12], IDS[:, 12:]))
    reposition(passage, model, 0, 12)
    for index, layer in enumerate(passage.layers):
        seen = cache.layers[index].get_seq_length()
        cache.update(layer.keys, layer.values, index)
        if getattr(cache.layers[index], "is_sliding", False):
            cache.layers[index].cumulative_length = seen + 12
    assert next_error(model, cache, whole, TOKENS) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "hunyuan_v1_dense"])
def test_a_thousand_moves_keep_the_bound(name):
    model, cache = prefilled(name, 1000, num_hidden_layers=1, max_position_embeddings=4096)
    (rope,), (layer,) = read(model.config).layers(), cache.layers
    weights = model.model.layers[0].self_attn.key_layernorm.weight.detach().double() if name in NORMED else 1.0
    want = rope.reposition(layer.keys.double() / weights, 1000, 0)
    for p in range(1000, 0, -1):
        reposition(cache, model, p, p - 1)
    got = layer.keys.double() / weights
    (away, length) = (torch.hypot(*x.chunk(2, dim=-1)) for x in (got - want, want))
    assert float((away / length).max()) < 1000 * 2**-24 * (1 if name == "llama" else 4)


# --- rotations that depend on the length ------------------------------------------------------------------------------


def test_keys_move_to_the_rotation_of_a_longer_sequence():
    options = {"rope_parameters": PHI3 | {"original_max_position_embeddings": 64}, "max_position_embeddings": 256}
    model, cache = prefilled("phi3", **options)
    reposition(cache, model, 0, 80, old_length=64, new_length=128)
    assert error(cache.layers[0], filled(model, range_of(80)).layers[0]) < 1e-5
    before = bits(cache)
    for lengths in ({}, {"old_length": 64}, {"new_length": 64}):
        with pytest.raises(ValueError, match=r"^(old|new)_length must be given for this model"):
            reposition(cache, model, 80, 0, **lengths)
    assert bits(cache) == before


# --- refusals: nothing is written -------------------------------------------------------------------------------------


def refused(cache, model, match, old=0, *, new=5):
    """Require that `reposition` raises, and leaves the cache unchanged."""
    before = bits(cache)
    with pytest.raises(ValueError, match=match):
        reposition(cache, model, old, new)
    assert bits(cache) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "match"),
    [
        ("mistral", range(TOKENS - 1), 0, "^old must have a position for each of the 24 tokens"),
        ("mistral", 0, range(9), "^new must have a position for each of the 24 tokens"),  # of the keys held
        ("mistral", 0, [range_of(0).tolist()] * 3, r"^new must be \(seq,\) or \(batch, ..., seq\)"),
        ("qwen2_vl_text", range_of(0).expand(3, 2, -1), 0, r"^old must end in an axis .*moveaxis\(p, 0, -1\)"),
        ("qwen2_vl_text", range_of(0).expand(2, -1), 0, r"^old must end in an axis .*stack\(\[p\] \* 3"),
    ],
)
def test_positions_that_do_not_fit_are_refused(name, old, new, match):
    model, cache = prefilled(name)
    refused(cache, model, match, old, new=new)


def test_layers_with_other_tokens_are_refused():
    model, cache = prefilled("gemma3_text", num_hidden_layers=6)
    for layer in cache.layers:
        layer.keys = layer.keys[..., 1:, :]
    refused(cache, model, r"^cache must hold the same tokens in all layers; .*cumulative_length")
    for layer in cache.layers:
        if layer.is_sliding:
            layer.cumulative_length = 3
    refused(cache, model, r"^cache must have a cumulative_length of at least its keys")


def test_layers_that_may_hold_something_else_than_keys_are_refused():
    class DynamicLayer(transformers.cache_utils.DynamicLayer):
        """A layer of another library."""

    model, unknown = prefilled("llama")
    quantised = filled(model, range_of(0), cache=transformers.QuantizedCache("fp8", model.config))
    refused(quantised, model, r"^cache must have layers that hold plain keys; got .*Fp8")
    unknown.layers[1].__class__ = DynamicLayer
    refused(unknown, model, r"^cache must have layers that hold plain keys")


def test_indexers_with_positions_are_refused():
    model, cache = prefilled("deepseek_v32")
    cache.layers[-1].indexer_position_ids = range_of(0)[None, None]
    refused(cache, model, r"^cache must hold no positions")


def test_zero_or_missing_weights_of_norms_are_refused():
    model, cache = prefilled("hunyuan_v1_dense")
    refused(cache, model.config, r"^model must be the model itself, whose norms after the rotation have weights")
    with torch.no_grad():
        model.model.layers[1].self_attn.key_layernorm.weight[3] = 0
    refused(cache, model, r"^model must have weights of key_layernorm other than zero")


def test_keys_of_latent_attention_in_an_older_form_are_refused():
    model, cache = prefilled("deepseek_v3")
    cache.layers[1].values = torch.zeros(2, 4, TOKENS, 16)  # the values themselves, which transformers 4 cached
    refused(cache, model, r"^cache must hold the 16 rotated features of latent attention as values; got shape")


def test_models_whose_keys_cannot_move_are_refused():
    model = model_of("deepseek_v4")
    refused(transformers.DynamicCache(config=model.config), model, r"values that rotate too, and compressed keys")
    refused(transformers.DynamicCache(), {"model_type": "dory"}, r"keys of layers that run several times")
    _, cache = prefilled("llama")
    refused(cache, transformers.GPT2Config(), r"^model must have rotary embedding; got gpt2")
    refused(cache, transformers.BartConfig(), r"^model must have rotary embedding; got bart")
    refused(cache, {"model_type": "unheard_of", "head_dim": 16, "num_hidden_layers": 2}, r"unheard_of")
    learned = transformers.AutoConfig.for_model("mistral_large4_text")
    refused(cache, learned, r"^model must have keys that rotate by its config alone; .*alpha of the weights")


def test_objects_that_are_no_cache_of_a_model_are_refused():
    model, right = prefilled("llama")
    layer = right.layers[0]
    for cache in (None, ((layer.keys, layer.values),), transformers.cache_utils.MtpCache()):
        with pytest.raises(TypeError, match=r"^cache must be the cache of a model of transformers"):
            reposition(cache, model, 0, 5)


def test_a_layer_beyond_those_of_the_config_is_refused():
    model, cache = prefilled("smollm3", num_hidden_layers=4)
    cache.layers.append(type(cache.layers[0])())
    cache.update(cache.layers[0].keys, cache.layers[0].values, 4)
    refused(cache, model, r"^cache must have one layer for each of the 4 layers of the config, which differ; got 5")


# --- the tables of models, against the source of transformers ---------------------------------------------------------


def sources():
    """Yield the names of known models and their source."""
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        name = path.stem.removeprefix("modeling_")
        if MODELS.keys() & {name, f"{name}_text"}:  # for others: tests/test_architectures.py
            yield name, path.read_text(encoding="utf-8")


# The tables decide how keys move, and a model that they lack would be moved wrongly: no call shows which models they
# have.
def test_models_with_caches_of_their_own_are_those_of_transformers():
    cached = re.compile(r"(?:past_key_values|cache)\.update\(\s*(?:k_pass|kv_nope|k_nope), (?:k_rot|k_pe)\b")
    rotates = re.compile(r"\bk\w* = apply_rotary\w*\((?:(?!\bdef ).)*?(?:past_key_values|cache)\.update", re.DOTALL)
    norm = re.compile(r"self\.(\w*norm\w*)\(k\w*\)")
    latent = {name for name, text in sources() if cached.search(text)}
    others = {"kimi_linear", "glm5_next", "mistral_large4"}  # two without rotary, and a learned one
    latents = {name: model.latent for name, model in MODELS.items() if model.latent}
    known = {name.removesuffix("_text") for name in latents if not is_absent(name)}
    assert latent - others == known - {"sarvam_mla"}  # it has the source of deepseek_v3
    normed = {name for name, text in sources() for part in rotates.findall(text) if norm.search(part)}
    others = {"llama4", "nanochat", "timesfm2_5"}  # two without weights, and one that makes no cache
    known = {name.removesuffix("_text") for name, model in MODELS.items() if model.normed}
    assert normed - others == known - {"hunyuan"}  # its code comes with its weights
    sorts = {name for name, text in sources() if "apply_rotary_pos_emb_interleave" in text}
    for name, pairing in latents.items():
        home = "deepseek_v3" if name == "sarvam_mla" else name.removesuffix("_text")
        sorted_or_half = home in sorts or MODELS[name].pairing == "half"
        assert pairing == ("half" if sorted_or_half else "interleaved"), name


# All other classes of layers are refused: no call shows which are known.
def test_classes_of_layers_are_those_of_transformers():
    kinds = {name for name, kind in vars(transformers.cache_utils).items() if isinstance(kind, type)}
    assert set(ours.KINDS) <= kinds
    left = {name for name in kinds - set(ours.KINDS) if name.endswith("Layer")}
    assert all("Quant" in name for name in left)
