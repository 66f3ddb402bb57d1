"""
`rope_any.integrations.transformers.replace` on small random models of many architectures.

The truth is the output of the original code of the same model in float64: see `truth`.
"""

import copy
import io
from contextlib import contextmanager
from functools import partial, update_wrapper, wraps
from inspect import signature
from typing import Any
from unittest import mock

import pytest

REASON = "the models are those of transformers (5 or later), which run on torch"
torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="5", reason=REASON)

from rope_any.integrations import transformers as ours  # noqa: E402  # it imports torch
from rope_any.integrations.transformers import replace  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _use_rotate_for_few_elements(monkeypatch):
    """Use `rotate` for the few elements of these models too."""
    monkeypatch.setattr(ours, "FEW", -1)


CACHE = next(
    name for name in ("cache", "past_key_values") if name in signature(transformers.LlamaModel.forward).parameters
)
"""The argument and output of a model for its cache: from transformers 5.24 on, and before."""


# --- the models -------------------------------------------------------------------------------------------------------

# Each config takes the keys that it has. Weights are large: rotations have almost no effect on attention that is almost
# uniform.
SIZES: dict[str, Any] = {"rotary_dim": 8, "initializer_range": 0.2, "pad_token_id": 0}
SIZES |= {"bos_token_id": 1, "eos_token_id": 2, "num_kv_shared_layers": 0}
SIZES |= dict.fromkeys(["vocab_size", "vocab_size_per_layer_input", "hidden_size", "intermediate_size", "n_embd"], 64)
SIZES |= dict.fromkeys(["moe_intermediate_size", "shared_expert_intermediate_size", "global_head_dim"], 32)
SIZES |= dict.fromkeys(["hidden_size_per_layer_input", "head_dim", "qk_rope_head_dim", "qk_nope_head_dim"], 16)
SIZES |= dict.fromkeys(["v_head_dim", "q_lora_rank", "kv_lora_rank"], 16)
SIZES |= dict.fromkeys(["num_attention_heads", "n_head", "n_routed_experts", "num_experts", "num_local_experts"], 4)
SIZES |= dict.fromkeys(["num_hidden_layers", "num_key_value_heads", "n_layer", "num_experts_per_tok"], 2)
SIZES |= dict.fromkeys(["n_group", "topk_group", "first_k_dense_replace"], 1)
MLA = {"num_key_value_heads": 4, "head_dim": None}
LONG = {"n_positions": 2**17 + 64}  # GPT-J and CodeGen have tables of all their positions
MROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}

# Their attention uses `rotate`; that of TABLES_ONLY uses the original function, with exact tables.
_NAMES = """
    apertus arcee cohere cohere2 diffllama ernie4_5 eurobert exaone4 falcon gemma gemma2 gemma3_text gemma4_text
    glm glm4 glm4_moe gpt_neox gpt_oss granite helium hunyuan_v1_dense llama mistral mixtral modernbert
    modernbert-decoder nanochat nemotron olmo2 olmo3 persimmon phi phi3 qwen2 qwen3 qwen3_moe seed_oss smollm3
    stablelm starcoder2
"""
ALL: dict[str, dict[str, Any]] = {name: {} for name in _NAMES.split()} | {
    "codegen": LONG,
    "deepseek_v3": MLA,
    "glm4v_text": {"rope_parameters": MROPE},
    "gptj": LONG,
    "minicpm3": MLA,
    "qwen2_vl_text": {"rope_parameters": MROPE},
}
TABLES_ONLY: dict[str, dict[str, Any]] = {"deepseek_v2": MLA, "deepseek_v4": {}, "llama4_text": {}}
ARCHITECTURES = ALL | TABLES_ONLY


def config_of(name, **changes):
    """Return a small config of a model type."""
    kind = type(transformers.AutoConfig.for_model(name))
    default = kind().to_dict()
    known = {key: value for key, value in SIZES.items() if key in default}
    # Lists with one item for each layer.
    lists = {key: None for key in ("layer_types", "mlp_layer_types") if key in default}
    return kind(**known | lists | ARCHITECTURES.get(name, {}) | changes)


def built(config):
    """Return a model with random weights, with its language head if it has one."""
    config._experts_implementation = "eager"  # the others do not support float64
    causal = type(config) in transformers.AutoModelForCausalLM._model_mapping
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return auto.from_config(config).eval()


def model_of(name, **changes):
    """Return a small random model of a model type."""
    return built(config_of(name, **changes))


FAR = 2**17
IDS = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(0))


def outputs(model, first=0, **options):
    """Return the logits, or the last states of a model without a head; the first token is at position `first`."""
    positions = torch.arange(first, first + IDS.shape[1]).expand(IDS.shape)
    mask = torch.ones_like(IDS)  # otherwise positions that don't begin at 0 may count as several texts
    options = {"position_ids": positions, "attention_mask": mask, "use_cache": False} | options
    with torch.no_grad():
        output = model(input_ids=IDS, **options)
    return output.logits if "logits" in output else output.last_hidden_state


def distance(a, b):
    """Return the largest difference, in standard deviations of b."""
    return float((a.double() - b.double()).abs().max() / b.double().std())


@contextmanager
def all_float64():
    """Make transformers use float64 instead of float32: in angles, norms and softmax."""
    float32 = torch.float32
    torch.set_default_dtype(torch.float64)
    with (
        mock.patch.multiple(torch, float=torch.float64, float32=torch.float64),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield
    torch.set_default_dtype(float32)


def truth(model, first=0):
    """Return the outputs of the original code of a model, in float64 from the frequencies on."""
    with all_float64():
        exact = built(type(model.config)(**model.config.to_dict() | {"dtype": "float64"})).double()
        exact.load_state_dict(model.state_dict())
        return outputs(exact, first)


# --- logits at near and far positions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_unchanged_at_near_positions_and_right_at_far_ones(name):
    model = model_of(name)
    right, right_far = truth(model), truth(model, FAR)
    assert distance(right_far, right) < 1e-9  # the truth depends only on distances
    before, before_far = outputs(model), outputs(model, FAR)
    noise = distance(before, right)  # the rounding of float32
    undo = replace(model)
    assert undo.tables
    assert bool(undo.rotations) == (name in ALL)
    assert distance(outputs(model), before) < 4 * noise
    assert distance(outputs(model), right) < 4 * noise
    assert distance(outputs(model, FAR), right) < 4 * noise < 0.1 * distance(before_far, right)
    undo()
    assert torch.equal(outputs(model), before)
    assert torch.equal(outputs(model, FAR), before_far)


# The first four have no language head; DeepSeek V4 supports no static cache.
GENERATING = sorted(ARCHITECTURES.keys() - {"eurobert", "glm4v_text", "modernbert", "qwen2_vl_text", "deepseek_v4"})


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", GENERATING)
def test_the_same_text_is_generated(name, cache):
    if (name, cache) == ("llama4_text", "static"):
        pytest.importorskip("transformers", minversion="5.21", reason="before, it had no static cache")
    model = model_of(name, eos_token_id=None)
    options = {"max_new_tokens": 6, "do_sample": False, "cache_implementation": cache, "pad_token_id": 0}
    expected = model.generate(IDS, **options)
    replace(model)
    assert torch.equal(model.generate(IDS, **options), expected)


COMPILED = [pytest.param(name, "eager", marks=pytest.mark.long) for name in ("gemma3_text", "llama4_text", "minicpm3")]


@pytest.mark.parametrize(("name", "backend"), [*COMPILED, pytest.param("llama", "inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_is_one_graph_with_the_same_logits(name, backend):
    model = model_of(name)
    before = outputs(model, FAR)
    undo = replace(model)
    expected = outputs(model, FAR)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert distance(outputs(compiled, FAR), expected) < 1e-4 < distance(expected, before)
    undo()
    assert distance(outputs(compiled, FAR), before) < 1e-4  # undo applies to the compiled model too


# --- copies, wrappers, buffers and gradients --------------------------------------------------------------------------


def test_models_of_the_same_class_are_replaced_and_restored_one_by_one():
    one, other = model_of("llama"), model_of("llama")
    before = outputs(one, FAR)
    undo = replace(one)
    after = outputs(one, FAR)
    assert torch.equal(outputs(other, FAR), before)
    undo_other = replace(other)
    undo()
    assert torch.equal(outputs(one, FAR), before)
    assert torch.equal(outputs(other, FAR), after)
    undo_other()
    assert torch.equal(outputs(other, FAR), before)


def test_a_copy_is_independent():
    model = model_of("llama")
    before = outputs(model, FAR)
    undo = replace(model)
    after, copied = outputs(model, FAR), copy.deepcopy(model)
    undo()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight.zero_()
    assert torch.equal(outputs(copied, FAR), after)
    assert not torch.equal(after, before)


def wrap(module):
    """Wrap the ``forward`` of a module, as the hooks of accelerate do."""
    forward = module.forward
    module.forward = update_wrapper(partial(lambda _, *args, **options: forward(*args, **options), module), forward)


def test_undo_keeps_wrappers_of_others_and_is_idempotent():
    model = model_of("llama")
    before, rotary, attention = outputs(model, FAR), model.model.rotary_emb, model.model.layers[0].self_attn
    undo = replace(model)
    wrap(rotary)
    wrap(attention)
    wrappers = rotary.forward, attention.forward
    undo()
    assert (rotary.forward, attention.forward) == wrappers
    assert "forward" not in vars(model.model.layers[1].self_attn)
    del rotary.forward, attention.forward
    assert torch.equal(outputs(model, FAR), before)
    replace(model)
    after = outputs(model, FAR)
    undo()
    assert torch.equal(outputs(model, FAR), after) and not torch.equal(after, before)


@pytest.mark.parametrize("name", ["codegen", "gptj"])
def test_undo_restores_buffers_in_the_current_dtype_of_the_model(name):
    model = model_of(name)
    expected = outputs(copy.deepcopy(model).to(torch.bfloat16), FAR)
    undo = replace(model)
    model = model.to(torch.bfloat16)
    undo()
    assert {buffer.dtype for buffer in model.buffers()} <= {torch.bfloat16, torch.bool}
    assert torch.equal(outputs(model, FAR), expected)


def pickled(model):
    """Return what torch loads of a model that it saved."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


CAST = (torch.nn.Module.float, copy.deepcopy, pickled, torch.nn.Module.bfloat16, torch.nn.Module.half)


@pytest.mark.parametrize("name", ["codegen", "gemma3_text", "gptj", "llama"])
def test_new_weights_leave_exact_tables(name):
    model = model_of(name)
    undo = replace(model)
    for change in CAST:
        changed = change(model)
        expected, weights = outputs(changed, FAR), copy.deepcopy(changed.state_dict())
        changed.apply(changed._init_weights)
        changed.load_state_dict(weights)
        assert torch.equal(outputs(changed, FAR), expected), change
    undo()
    assert all("_apply" not in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", ["gptj", "llama"])
def test_a_pickled_model_keeps_its_exact_tables(name):
    model = model_of(name)
    replace(model)
    loaded = pickled(model)
    assert distance(outputs(loaded, FAR), outputs(model, FAR)) < 1e-4
    assert outputs(loaded.to(torch.bfloat16), FAR).dtype == torch.bfloat16


def test_the_state_dict_and_the_buffers_are_unchanged():
    model = model_of("gemma3_text")
    before = {name: value.clone() for name, value in (model.state_dict() | dict(model.named_buffers())).items()}
    replace(model)
    outputs(model, FAR)
    after = model.state_dict() | dict(model.named_buffers())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")
def test_gradients_are_unchanged_even_if_layers_run_twice():
    model = model_of("qwen3").train()

    def gradient():
        """Return the gradient of a weight after one step."""
        model.zero_grad()
        model(input_ids=IDS, labels=IDS).loss.backward()
        return model.model.layers[0].self_attn.q_proj.weight.grad.clone()

    expected = gradient()
    replace(model)
    torch.testing.assert_close(gradient(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.testing.assert_close(gradient(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["llama", "qwen2", "starcoder2"])
def test_a_half_precision_model_is_nearer_to_the_truth(name):
    model = model_of(name)
    with torch.no_grad():
        for weight in model.parameters():  # otherwise their rounding would add to the error
            weight.copy_(weight.to(torch.bfloat16))
    right = truth(model)
    model = model.to(torch.bfloat16)
    before = outputs(model, FAR)
    replace(model)
    after = outputs(model, FAR)
    assert after.dtype == torch.bfloat16
    error, error_before = ((x.double() - right).square().mean().sqrt() for x in (after, before))
    assert error < 0.9 * error_before


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("gemma4_text", "bfloat16"), ("gemma4_text", "float32"), ("gptj", "float32"), ("llama", "bfloat16")],
)
def test_few_elements_are_rotated_like_many(name, dtype, monkeypatch):
    model = model_of(name).to(getattr(torch, dtype))
    before = outputs(model, FAR)
    replace(model)
    many = outputs(model, FAR)
    monkeypatch.setattr(ours, "FEW", 2**20)
    few = outputs(model, FAR)
    assert few.dtype == many.dtype
    assert (few - many).abs().mean() < 0.5 * (before - many).abs().mean()


def indirect(way):
    """Return an attention that rotates by its own function, though its ``forward`` does not name it."""
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    attention, rotation = modeling.LlamaAttention, modeling.apply_rotary_pos_emb

    def forward(self, *args, **options):
        """Call the attention's forward."""
        return attention.forward(self, *args, **options)

    class Closure(torch.nn.Module):
        """An attention whose forward gets the rotation from a closure."""

        def forward(self, hidden_states, position_embeddings, **_):
            """Return attention by the rotation of the closure."""
            parts = (self.q_proj, self.k_proj, self.v_proj)
            q, k, v = (part(hidden_states).unflatten(-1, (-1, 16)).transpose(1, 2) for part in parts)
            q, k = rotation(q, k, *position_embeddings)
            output = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            return self.o_proj(output.transpose(1, 2).flatten(-2)), None

    forward = wraps(attention.forward)(forward) if way == "decorated" else forward
    return Closure if way == "closure" else type("Indirect", (attention,), {"forward": forward})


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("way", ["inherited", "decorated", "closure", "wrapped", "outside of the model"])
def test_tables_are_rounded_if_they_may_reach_a_function_of_another_attention(way, count):
    model = model_of("llama").to(torch.bfloat16)
    modules = torch.nn.ModuleDict({"it": model})
    for attention in (layer.self_attn for layer in model.model.layers[:count]):
        if way == "wrapped":
            wrap(attention)
        elif way == "outside of the model":
            modules["other"] = type(attention)(model.config, 0)
        else:
            attention.__class__ = indirect(way)
    before = outputs(model)
    undo = replace(modules)
    own = [f"it.model.layers.{layer}.self_attn" in undo.rotations for layer in range(2)]
    assert own == ([True, True] if way == "outside of the model" else [False, count == 1])
    assert distance(outputs(model), before) < 0.2
    cos, _ = model.model.rotary_emb(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[3]]))
    assert cos.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["llama", "gptj"])
def test_a_model_is_found_in_what_is_around_it(name):
    model = model_of(name)
    alone = replace(model)
    alone()
    around = torch.nn.ModuleDict({"mine": torch.nn.DataParallel(model)})
    around.config = {"learning_rate": 1e-3}
    undo = replace(around)
    assert undo.tables == tuple(f"mine.module.{path}" for path in alone.tables)
    assert undo.rotations == tuple(f"mine.module.{path}" for path in alone.rotations) != ()


def test_tables_have_the_device_of_x_and_at_least_float32_if_every_attention_uses_rotate():
    model = model_of("llama")
    replace(model)
    rotary = model.model.rotary_emb
    assert rotary(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[3]]))[0].dtype == torch.float32
    assert rotary(torch.zeros(1, dtype=torch.float64), torch.tensor([[FAR]]))[0].dtype == torch.float64
    assert rotary(torch.zeros(1, device="meta"), torch.tensor([[3]]))[0].is_meta


# --- positions of several axes, and tables that depend on the length --------------------------------------------------


@pytest.mark.parametrize("name", ["glm4v_text", "qwen2_vl_text"])
def test_positions_of_several_axes_are_recognised(name):
    model = model_of(name)
    line = torch.arange(24)
    positions = torch.stack([line, line // 4, line % 4])[:, None].expand(3, 2, 24)
    expected = outputs(model, position_ids=positions)
    replace(model)
    assert distance(outputs(model, position_ids=positions), expected) < 1e-4
    assert distance(outputs(model), expected) > 0.1


FACTORS = {"short_factor": [1.0 + 0.1 * i for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4} | FACTORS
LENGTHS = {"original_max_position_embeddings": 64, "max_position_embeddings": 512}


@pytest.mark.parametrize("length", [None, 64, 65, FAR])
def test_longrope_depends_on_the_largest_position_or_the_given_length(length):
    model = model_of("phi3", rope_parameters=LONGROPE, **LENGTHS)
    short, long = outputs(model, 40), outputs(model, 41)  # the last of 24 tokens at 63, at 64
    assert distance(long, short) > 0.1
    replace(model, sequence_length=length)
    assert distance(outputs(model, 40), long if (length or 0) > 64 else short) < 1e-3
    assert distance(outputs(model, 41), short if length == 64 else long) < 1e-3


def test_dynamic_tables_are_made_for_a_length():
    model = model_of("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    with pytest.raises(ValueError, match=r"sequence_length must be given for rope type 'dynamic', .*; got None"):
        replace(model)
    trained = model.config.max_position_embeddings
    expected = outputs(model, 3 * trained - 24)  # the length is three times as large
    replace(model, sequence_length=3 * trained)
    assert distance(outputs(model, 3 * trained - 24), expected) < 1e-2  # the original angles are inexact
    assert distance(outputs(model, 0), expected) < 1e-2


def test_the_vision_tower_is_not_replaced():
    sizes = {key: SIZES[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "head_dim")}
    vision = {"depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64}
    config = type(transformers.AutoConfig.for_model("qwen3_vl"))(text_config=sizes, vision_config=vision)
    undo = replace(transformers.AutoModel.from_config(config))
    assert undo.tables == ("language_model.rotary_emb",)
    assert undo.rotations == ("language_model.layers.0.self_attn", "language_model.layers.1.self_attn")
    assert undo.left == ("visual.rotary_pos_emb",)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_function_with_another_rotation_is_not_replaced(monkeypatch):
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    original = modeling.apply_rotary_pos_emb

    def doubled(q, k, cos, sin, unsqueeze_dim=1):
        """Return q and k rotated twice as long."""
        return tuple(2 * x for x in original(q, k, cos, sin, unsqueeze_dim))

    monkeypatch.setattr(modeling, "apply_rotary_pos_emb", doubled)
    model = model_of("llama")
    right, before = truth(model), outputs(model, FAR)
    undo = replace(model)
    assert undo.tables
    assert not undo.rotations
    assert distance(outputs(model, FAR), right) < 1e-4 < distance(before, right)


def make_unknown(model):
    """Give a model a config of an unknown model type."""
    model.config.__class__ = type("UnknownConfig", (type(model.config),), {"model_type": "unknown"})


REFUSED = {
    "twice": ("llama", replace),
    "rotary embeddings": ("gpt2", id),
    "model_type": ("llama", make_unknown),
    "LlamaRotaryEmbedding": ("llama", lambda model: model.model.rotary_emb.inv_freq[-1:].mul_(1.0001)),
    "Qwen2VLRotaryEmbedding": ("qwen2_vl_text", lambda model: setattr(model.rotary_emb, "mrope_section", [3, 3, 2])),
    "without a wrapped forward": ("llama", lambda model: wrap(model.model.rotary_emb)),
    "in memory": ("llama", lambda model: model.to("meta")),
}


@pytest.mark.parametrize("words", REFUSED)
def test_unknown_and_changed_models_are_refused_and_left(words):
    name, change = REFUSED[words]
    model = model_of(name)
    change(model)
    before = [dict(vars(module)) for module in model.modules()]
    with pytest.raises(ValueError, match=words):
        replace(model)
    assert [dict(vars(module)) for module in model.modules()] == before


def test_default_device_and_dtype_of_torch_do_not_matter():
    model = model_of("llama")
    with torch.device("meta"):
        undo = replace(model)
    assert undo.rotations
    undo()
    torch.set_default_dtype(torch.float16)
    try:
        assert replace(model).rotations
    finally:
        torch.set_default_dtype(torch.float32)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="model must be a torch module; got str"):
        replace("llama")
    for length in (True, 0):
        with pytest.raises((TypeError, ValueError), match=r"^sequence_length must .*; got "):
            replace(model_of("llama"), sequence_length=length)
