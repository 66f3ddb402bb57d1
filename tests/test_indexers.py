"""The rotation of sparse-attention indexers: that of transformers' own modules, on random queries and keys."""

import random
import re
from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from newer import is_absent, skip_if_absent

from rope_any import Rope, config

REASON = "the indexers are those of transformers (5.23 or later), which run on torch"
# In transformers cos and sin are float32, and so are angles: those of positions below 2⁸ are off by up to 2⁻¹⁷, those
# of a wrong pairing or slice by whole radians. Of the largest feature:
TOLERANCE = 1e-4


def indexer(model):
    """Return what the library says of the indexer of a config: its Rope and facts."""
    (one,) = config.read(model).explain(part="indexer")
    return one


class Case(NamedTuple):
    """How to build a small transformers model, and which modules of its indexer return unrotated queries and keys."""

    model_type: str
    classes: str
    """The prefix of the names of the config class and the model class."""
    q: str
    k: str
    halves: bool = False
    """Whether adjacent features come out as halves, which is the same for queries and keys."""

    def __str__(self):
        """Return the name of the case."""
        return self.model_type


CASES = [
    Case("deepseek_v32", "DeepseekV32", "wq_b", "k_norm"),
    Case("axk2", "AXK2", "wq_b", "k_norm"),
    Case("glm_moe_dsa", "GlmMoeDsa", "wq_b", "k_norm", halves=True),
    Case("dots3_note_text", "Dots3NoteText", "wq_b", "k_norm", halves=True),
    Case("mistral_large4_text", "MistralLarge4Text", "softmax_scaling", "k_norm", halves=True),
    Case("hy_v4", "HYV4", "wq_b", "k_norm"),
    Case("hy_v4_vl_text", "HYV4VLText", "wq_b", "k_norm"),
    Case("deepseek_v4", "DeepseekV4", "q_b_proj", "kv_norm"),
    Case("qwen4_exp_text", "Qwen4ExpText", "q_layernorm", "k_layernorm"),
    Case("minimax_m3_vl_text", "MiniMaxM3VLText", "q_norm", "k_norm"),
]
SECTIONED = ("hy_v4_vl_text", "qwen4_exp_text")
"""Models whose positions have three axes."""
SEEDS = range(3)
BATCH, SEQ = 2, 19


@pytest.fixture(scope="module")
def torch():
    """Return torch; skip if it or transformers is missing."""
    found = pytest.importorskip("torch", reason=REASON)
    pytest.importorskip("transformers", minversion="5.23", reason=REASON)
    return found


def config_keys(model_type, rng):
    """Return the keys of a small model of random sizes."""
    rotary, yarn = 2 * rng.randint(2, 6), rng.random() < 0.5
    head, index_head = rotary + rng.choice([0, 4, 10]), rotary + rng.choice([0, 2, 8])
    scaled = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "rope_theta": 500.0}
    rope = scaled if yarn else {"rope_type": "default", "rope_theta": float(rng.choice([100, 10_000]))}
    keys = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    keys |= dict.fromkeys(("n_group", "topk_group"), 1)
    keys |= dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "num_experts_per_tok"), 2)
    keys |= dict.fromkeys(("n_routed_experts", "index_topk"), 4)
    keys |= dict.fromkeys(("vocab_size", "moe_intermediate_size", "v_head_dim"), 8)
    keys |= dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 12)
    keys |= {"intermediate_size": 16, "hidden_size": 32, "max_position_embeddings": 512, "rope_parameters": rope}
    partial = rope | {"partial_rotary_factor": rotary / 32}
    sections = {"mrope_section": [rotary // 2 - 2 * (rotary // 6), rotary // 6, rotary // 6]}
    if model_type == "qwen4_exp_text":
        keys |= {"head_dim": 32, "rope_parameters": partial | sections | {"mrope_interleaved": True}}
        keys |= {"indexer_n_heads": rng.randint(1, 3), "indexer_kv_heads": 1, "indexer_head_dim": index_head}
        keys |= {"indexer_compress_ratio": (ratio := rng.randint(2, 5)), "indexer_budget": 2 * ratio}
        keys |= {"layer_types": ["linear_attention", "full_attention"], "hc_lowrank": 4, "num_experts": 4}
        keys |= dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads", "hc_count"), 2)
        wide = ("linear_key_head_dim", "linear_value_head_dim", "shared_expert_intermediate_size")
        return keys | dict.fromkeys(wide, 8)
    if model_type == "minimax_m3_vl_text":
        sparse = {"sparse_index_dim": index_head, "sparse_attention_freq": [0, 1], "sparse_num_index_heads": 2}
        keys |= {"sparse_attention_config": sparse | {"sparse_block_size": 4}, "rope_parameters": partial}
        keys |= {"head_dim": 32, "num_local_experts": 4, "dense_intermediate_size": 16}
        return keys | {"shared_intermediate_size": 8}
    keys |= {"qk_rope_head_dim": rotary, "qk_nope_head_dim": head}
    keys |= {"index_head_dim": index_head, "index_n_heads": rng.randint(1, 3)}
    if model_type == "dots3_note_text":
        keys |= dict.fromkeys(("swa_num_attention_heads", "swa_num_key_value_heads"), 2)
        keys |= dict.fromkeys(("swa_kv_lora_rank", "swa_q_lora_rank", "swa_v_head_dim"), 8)
        keys |= {"head_dim": 32, "swa_head_dim": 24, "swa_qk_nope_head_dim": 16}
        kinds = {"indexed_attention": rope, "sliding_attention": rope | {"rope_theta": 77.0}}
        return keys | {"layer_types": [*kinds], "rope_parameters": kinds}
    if model_type == "deepseek_v4":
        ratios = {"compressed_sparse_attention": rng.randint(2, 5), "heavily_compressed_attention": 8}
        keys |= {"compress_rates": ratios, "compress_rope_theta": float(rng.choice([300, 160_000]))}
        keys |= {"num_key_value_heads": 1, "num_hidden_layers": 4, "num_hash_layers": 0, "head_dim": 32}
        keys |= {"o_groups": 2, "o_lora_rank": 4, "partial_rotary_factor": rotary / 32}
        return keys | {"rope_parameters": {key: value for key, value in rope.items() if key != "rope_theta"}}
    return keys | {
        "glm5_next_text": {"qk_rope_head_dim": 0, "index_kpool": 2},
        "mistral_large4_text": {"no_rope_layers": [0, 1]},
        "hy_v4_vl_text": {"rope_parameters": rope | sections},
    }.get(model_type, {})


def home_of(model_type):
    """Return the modeling module of a model type."""
    return import_module(f"transformers.models.{(name := model_type.removesuffix('_text'))}.modeling_{name}")


def built(case, keys):
    """Return a small random model; skip the test if transformers does not have it."""
    skip_if_absent(case.model_type)
    home = home_of(case.model_type)
    return getattr(home, f"{case.classes}Model")(getattr(home, f"{case.classes}Config")(**keys)).eval()


def indexers_of(model):
    """Return the indexers of a model, by layer."""
    found = {name: module for name, module in model.named_modules() if name.endswith(".indexer")}
    return {int(name.split(".")[1]): module for name, module in found.items()}


def run_indexer(torch, module, case, call):
    """Run an indexer as its model has run it; return its queries and keys before they rotate, and its products."""

    class Products(torch.overrides.TorchFunctionMode):
        """A mode that records the factors of matrix products."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            """Record the arguments of matmul."""
            if func is torch.matmul:
                products.append(args)
            return func(*args, **(kwargs or {}))

    products, before = [], {case.q: [], case.k: []}
    hooks = [
        getattr(module, name).register_forward_hook(lambda _, __, out, seen=seen: seen.append(out.detach()))
        for name, seen in before.items()
    ]
    with Products():
        module(*call[0], **call[1])
    for hook in hooks:
        hook.remove()
    return *before.values(), products


def of_one_product(q, k, products, case):
    """Return queries and keys (batch, seq, heads, features) before and after, of an indexer with one product."""
    (after_q, after_k), width = products[0], k[0].shape[-1]
    after_k = after_k.transpose(-1, -2).reshape(BATCH, -1, 1, width)
    after_q = after_q.transpose(1, 2) if case.model_type == "minimax_m3_vl_text" else after_q
    return (q[0].reshape(BATCH, SEQ, -1, width), after_q), (k[0].reshape(BATCH, -1, 1, width), after_k)


def of_products_by_query(torch, q, k, products, stride):
    """Return the same for an indexer with one product for each query that has a block of keys: of the last query."""
    calls = list(product(range(BATCH), range(stride - 1, SEQ)))
    assert len(calls) == len(products) == len(k)
    after = q[0].clone()
    for (batch, query), (row, _) in zip(calls, products, strict=True):
        after[batch, query] = row
    last = [calls.index((batch, SEQ - 1)) for batch in range(BATCH)]
    keys = [torch.stack(x)[:, :, None] for x in ([k[i] for i in last], [products[i][1].T for i in last])]
    seen = slice(stride - 1, None)
    return (q[0][:, seen], after[:, seen]), keys


def to_halves(torch, x, start, width):
    """Return features with the first members of adjacent pairs before the second ones."""
    parts = x[..., :start], x[..., start : start + width : 2], x[..., start + 1 : start + width : 2]
    return torch.cat([*parts, x[..., start + width :]], -1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_indexer_rotates_like_that_of_transformers(torch, case, seed):
    rng = random.Random(f"{case} {seed}")
    keys = config_keys(case.model_type, rng)
    torch.manual_seed(seed)
    model = built(case, keys)
    form = {**model.config.to_dict(), "model_type": case.model_type}
    found = indexer(form)
    rope, facts = found.rope, {name: fact.value for name, fact in found.facts.items()}
    if case.model_type != "deepseek_v4":  # whose parameters its class divides by kind of layer
        raw = indexer({**keys, "model_type": case.model_type})
        assert (raw.rope, {name: fact.value for name, fact in raw.facts.items()}) == (rope, facts)
    if case.model_type == "mistral_large4_text":  # the learned part, which no config has
        with torch.no_grad():
            model.rotary_emb.alpha.copy_(0.2 * torch.randn_like(model.rotary_emb.alpha))
        alpha = model.rotary_emb.alpha.detach().double().exp().tolist()
        rope = replace(rope, frequencies=tuple(f * a for f, a in zip(rope.frequencies, alpha, strict=True)))
    stride = facts.get("key_stride", 1)

    # MiniMax takes positions for places in the cache.
    most = SEQ if case.model_type == "minimax_m3_vl_text" else 2**8
    axes, by_query = (3,) if case.model_type in SECTIONED else (), case.model_type == "qwen4_exp_text"
    positions = torch.randint(0, most, (*axes, BATCH, SEQ)).sort().values
    calls = {}
    for i, module in indexers_of(model).items():
        module.register_forward_pre_hook(lambda _, args, kw, i=i: calls.setdefault(i, (args, kw)), with_kwargs=True)
    with torch.no_grad():
        model(inputs_embeds=torch.randn(BATCH, SEQ, 32), position_ids=positions, use_cache=False)
    assert calls
    assert any(getattr(module, "use_rope", True) for module in indexers_of(model).values())
    for layer, module in indexers_of(model).items():
        assert facts["head_dim"] == (module.index_head_dim if by_query else module.head_dim)
        with torch.no_grad():
            before = run_indexer(torch, module, case, calls[layer])
        at = positions.movedim(0, -1) if axes else positions
        if by_query:
            seen = at[:, stride - 1 :]
            (q, new_q), (k, new_k) = of_products_by_query(torch, *before, stride)
            at_k = at[:, ::stride][:, : k.shape[1]]
        else:
            seen = at
            (q, new_q), (k, new_k) = of_one_product(*before, case)
            at_k = at if stride == 1 else torch.arange(k.shape[1]).expand(BATCH, -1) * stride
        if not getattr(module, "use_rope", True):
            torch.testing.assert_close(new_q, q)
            torch.testing.assert_close(new_k, k)
            continue
        for x, new, where in ((q, new_q, seen), (k, new_k, at_k)):
            ours = rope.apply(x, where, seq_axis=1)
            size = float(x.abs().max())
            assert float((ours - x).abs().max()) > size / 10  # something rotates
            if case.halves:
                ours = to_halves(torch, ours, rope.start, facts["rotary_dim"])
            torch.testing.assert_close(ours, new, rtol=0, atol=TOLERANCE * size)


# --- layers with an indexer -------------------------------------------------------------------------------

SIZED = {"layer_types": ["indexed_attention", "sliding_attention", "full_attention", "indexed_attention"]}
FIRST = ["full", *["shared"] * 8]
SCHEDULES = {
    "deepseek_v32": [{}, {"layer_types": ["full_attention"] * 9}],
    "axk2": [{}],
    "glm_moe_dsa": [
        {},
        {"index_topk_freq": 4},
        {"index_topk_freq": 3, "index_skip_topk_offset": 5},
        {"index_topk_freq": 4, "index_skip_topk_offset": 0},
        {"index_topk_pattern": "FSSFSFFSS"},
        {"index_topk_pattern": FIRST, "index_topk_freq": 2},
        {"indexer_types": ["full", "full", *["shared"] * 7], "index_topk_freq": 2},
    ],
    "mistral_large4_text": [{}, {"index_topk_freq": 2}, {"index_topk_pattern": "FFFFSSSSF"}],
    **{name: [{}, {"indexer_types": FIRST}, {"index_topk_freq": 4}] for name in ("hy_v4", "hy_v4_vl_text")},
    "glm5_next_text": [{}, {"index_topk_freq": 3}, {"layer_types": ["full_attention", *["linear_attention"] * 8]}],
    "dots3_note_text": [
        {"layer_types": None},
        {"layer_types": None, "use_sliding_window": False},
        {"layer_types": None, "use_dsa": False},
        {"num_hidden_layers": 4, **SIZED},
        {"num_hidden_layers": 4, **SIZED, "use_dsa": True},
        {"num_hidden_layers": 4, **SIZED, "use_dsa": None},
        {"num_hidden_layers": 4, **SIZED, "use_dsa": False},
    ],
    "qwen4_exp_text": [
        {"layer_types": None},
        {"layer_types": None, "full_attention_interval": 3},
        {"num_hidden_layers": 3, "layer_types": ["linear_attention", "indexed_attention", "full_attention"]},
    ],
    "minimax_m3_vl_text": [
        {"sparse_attention_config": None},
        {"sparse_attention_config": {"sparse_attention_freq": [0, 1] * 4 + [1]}},
        {"sparse_attention_config": None, "layer_types": ["minimax_m3_sparse", *["full_attention"] * 8]},
    ],
    "deepseek_v4": [
        {},
        {"compress_ratios": [0, 4, 128, 4, 4, 0, 128, 4, 4, 0]},
        {"layer_types": ["compressed_sparse_attention", *["sliding_attention"] * 8]},
    ],
}
CLASSES = {case.model_type: case.classes for case in CASES} | {"glm5_next_text": "Glm5NextText"}


@pytest.mark.parametrize(("model_type", "schedule"), [(name, row) for name, rows in SCHEDULES.items() for row in rows])
def test_layers_with_an_indexer_equal_those_of_transformers(torch, model_type, schedule):
    keys = {**config_keys(model_type, random.Random(1)), "num_hidden_layers": 9, "no_rope_layers": None, **schedule}
    keys = {key: value for key, value in keys.items() if value is not None or key in ("use_dsa", "pad_token_id")}
    if model_type in ("dots3_note_text", "glm5_next_text"):
        del keys["rope_parameters"]
    case = Case(model_type, CLASSES[model_type], "", "")
    with torch.device("meta"):
        model = built(case, keys)
    count = keys["num_hidden_layers"]
    theirs = {i for i, module in indexers_of(model).items() if getattr(module, "use_rope", True)}
    # the keys of these models have no parameters by kind of layer
    divided = model_type in ("deepseek_v4", "dots3_note_text")
    for form in (model.config.to_dict(), *(() if divided else (keys,))):
        whole = {**form, "model_type": model_type}
        rotates = bool(theirs) and model_type != "glm5_next_text"
        assert ("indexer" in config.read(whole).parts) == rotates
        if rotates:
            ours = [rope is not None for rope in config.read(whole).layers(part="indexer")]
            assert ours == [i in theirs for i in range(count)]
            assert indexer(whole).layers == tuple(sorted(theirs))


def reads_as_text(name):
    """Return whether a model type is read, with rotary embedding; others: tests/test_architectures.py."""
    try:
        return bool(config.read({"model_type": name}).parts)
    except ValueError:
        return False


def test_every_indexer_of_transformers_is_known():
    transformers = pytest.importorskip("transformers", minversion="5.23", reason=REASON)
    sources = Path(transformers.__file__).parent.glob("models/*/*.py")
    found = {path: path.read_text(encoding="utf-8") for path in sources}
    has_indexer = re.compile(r"^class \w+Indexer\b", re.MULTILINE)
    homes = {path.parent.name for path, text in found.items() if "modeling_" in path.name and has_indexer.search(text)}
    known = {name.removesuffix("_text") for name in SCHEDULES if not is_absent(name)}
    others = {home for home in homes - known if reads_as_text(home) or reads_as_text(f"{home}_text")}
    assert known <= homes and not others
    # Were it read, a config could choose the pairing.
    assert not [path for path, source in found.items() if "indexer_rope_interleave" in source]


# --- published configs, and others ------------------------------------------------------------------------

THETA = {"rope_type": "default", "rope_theta": 1e4}
GLM5 = {"model_type": "glm_moe_dsa", "index_head_dim": 128, "qk_rope_head_dim": 64, "num_hidden_layers": 78}
GLM5 |= {"rope_parameters": THETA}


def test_glm_5_is_read_with_sources():
    found = indexer(GLM5 | {"indexer_rope_interleave": True, "rope_interleave": True})
    text = GLM5 | {"indexer_rope_interleave": False}  # which the text does not read
    assert found.rope == Rope.from_config(GLM5, part="text") == Rope.from_config(text)
    assert found.facts["pairing"] == ("interleaved", "the indexer of glm_moe_dsa, and indexer_rope_interleave")
    assert found.facts["head_dim"] == (128, "index_head_dim")
    assert found.facts["rotary_dim"] == (64, "qk_rope_head_dim")


def test_deepseek_v3_2_pairs_halves_but_its_main_attention_interleaves():
    found = indexer({"model_type": "deepseek_v32"})
    assert Rope.from_config({"model_type": "deepseek_v32"}).pairing == "interleaved"
    assert found.facts["pairing"] == ("half", "the indexer of deepseek_v32")
    assert found.facts["head_dim"] == (128, "default of deepseek_v32")


@pytest.mark.parametrize("model_type", [case.model_type for case in CASES])
def test_a_flag_that_contradicts_the_class_is_refused(model_type):
    keys = {} if model_type == "deepseek_v4" else config_keys(model_type, random.Random(0))
    keys = {"model_type": model_type, **keys}
    pairing = indexer(keys).rope.pairing
    with pytest.raises(ValueError, match=f"indexer_rope_interleave.*{model_type}.*'{pairing}'.*cannot be guessed"):
        indexer(keys | {"indexer_rope_interleave": pairing == "half"})
    agreed = indexer(keys | {"indexer_rope_interleave": pairing != "half"})
    assert "indexer_rope_interleave" in agreed.facts["pairing"].source


@pytest.mark.parametrize(
    "model",
    [
        {"model_type": "llama"},
        {"model_type": "deepseek_v3", "index_topk": None},
        {"model_type": "step3p5"},
        {"model_type": "glm5_next_text", "qk_rope_head_dim": 0},
        {"model_type": "minimax_m3_vl_text"},
        {"model_type": "qwen4_exp_text"},
        {"model_type": "dots3_note_text", "use_dsa": False},
        {"model_type": "deepseek_v4", "num_hidden_layers": 3},
    ],
)
def test_a_model_without_a_rotary_indexer_has_no_such_part(model):
    assert "indexer" not in config.read(model).parts
    with pytest.raises(ValueError, match="part must be one that the config has"):
        indexer(model)


DSA = {"model_type": "deepseek_v32", "rope_parameters": THETA}
MINIMAX = {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 1, "layer_types": ["minimax_m3_sparse"]}
PATTERNS = {"num_hidden_layers": 2, "indexer_types": ["full", "shared"], "index_topk_pattern": "FF"}
# Each kind of check once, and what would be another rotation if it were ignored.
REFUSALS = [
    ({"model_type": "llama", "head_dim": 64, "index_topk": 4}, "index_topk must not be given"),
    ({"model_type": "deepseek_v3", "indexer_rope_interleave": False}, "indexer_rope_interleave must not be given"),
    (DSA | {"index_head_dim": 63}, "index_head_dim must be at least the 64 features"),
    (DSA | {"index_head_dim": None}, "index_head_dim must be given for deepseek_v32; got null"),
    (DSA | {"index_head_dim": 2**60}, "index_head_dim must be from 2 to 4096"),
    (DSA | {"indexer_rope_interleave": "false"}, "indexer_rope_interleave must be True or False"),
    (GLM5 | {"indexer_types": ["full"] * 2}, "indexer_types must have an entry for layer 2"),
    (GLM5 | {"indexer_types": ["F"] * 78}, r"indexer_types\[0\] must be 'full' or 'shared'"),
    (GLM5 | {"index_topk_pattern": "FX" * 39}, r"index_topk_pattern\[1\] must be 'F' or 'S'"),
    (GLM5 | {"index_topk_freq": -1}, "index_topk_freq must be from 0"),
    (GLM5 | PATTERNS, r"index_topk_pattern\[1\] must agree with indexer_types\[1\]"),
    (MINIMAX | {"sparse_attention_config": [1]}, "sparse_attention_config must be an object"),
    (MINIMAX | {"index_head_dim": 64, "sparse_attention_config": {"sparse_index_dim": 128}}, "sparse_index_dim, 128"),
    (MINIMAX | {"sparse_attention_config": {"sparse_attention_freq": [0]}}, "must agree with layer_types"),
]


@pytest.mark.parametrize(("model", "message"), REFUSALS)
def test_configs_that_contradict_the_class_are_refused(model, message):
    with pytest.raises((TypeError, ValueError), match=message):
        indexer(model)
