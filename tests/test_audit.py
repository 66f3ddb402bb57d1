"""
`audit` and `refill` of `rope_any.integrations.torch`: damaged rotary state of several libraries is found and refilled.

The expected state is that of a new model.
"""

import copy
import importlib.util
import math
import runpy
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from bits import bits

import rope_any as ra

torch = pytest.importorskip("torch", reason="torch is not installed")

from rope_any.integrations.torch import audit, refill  # noqa: E402  # it imports torch

nn = torch.nn
ROPE = ra.Rope(ra.frequencies(64, base=500_000.0), pairing="half")
FREQUENCIES = torch.tensor(ROPE.frequencies, dtype=torch.float32)
COS, SIN = ROPE.table(range(64), like=torch.empty(0))


# --- models -----------------------------------------------------------------------------------------------------------

SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}
YARN = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0, "original_max_position_embeddings": 2048}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64}
LONGROPE |= {"short_factor": [1.0] * 8, "long_factor": [1 + 0.5 * i for i in range(8)]}
MSCALES = {"factor": 4.0, "short_mscale": 1.2, "long_mscale": 1.3}
LENGTHS = {"max_position_embeddings": 256, "pad_token_id": 0}
SECTIONS = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
STRIDED = {"mrope_section": [3, 3, 2], "mrope_interleaved": True}
TOWER = {"depth": 1, "embed_dim": 64, "hidden_size": 64, "num_heads": 4, "num_attention_heads": 4}
GPTJ = {"vocab_size": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 0}
VISION_WIDTHS = ("vision_output_dim", "projector_input_dim", "projector_output_dim")
IMAGE = SIZES | {"image_size": 56, "patch_size": 14}


def hf_model(name, **keys):
    """Return a random model of transformers by the prefix of its class; skip if transformers is missing."""
    transformers = pytest.importorskip("transformers", minversion="5", reason="transformers is not installed")
    model = getattr(transformers, f"{name}Model")
    return model(model.config_class(**keys)).eval()


MODELS = {
    "llama": lambda: hf_model("Llama", **SIZES),
    "llama3": lambda: hf_model("Llama", **SIZES, rope_parameters=LLAMA3, max_position_embeddings=512),
    "yarn": lambda: hf_model("Llama", **SIZES, rope_parameters=YARN, max_position_embeddings=8192),
    "dynamic": lambda: hf_model("Llama", **SIZES, rope_parameters=DYNAMIC, max_position_embeddings=16),
    "longrope": lambda: hf_model("Phi3", **SIZES | LENGTHS, rope_parameters=LONGROPE),
    "phimoe": lambda: hf_model("Phimoe", **SIZES | LENGTHS, num_local_experts=2, rope_parameters=LONGROPE | MSCALES),
    "gemma3": lambda: hf_model("Gemma3Text", **SIZES | {"num_hidden_layers": 6}, head_dim=16),
    "gptj": lambda: hf_model("GPTJ", **GPTJ, rotary_dim=8, eos_token_id=0),
    "roformer": lambda: hf_model("RoFormer", **SIZES, embedding_size=64, max_position_embeddings=64),
    "esm": lambda: hf_model("Esm", **SIZES, position_embedding_type="rotary", pad_token_id=0, mask_token_id=1),
    "qwen2_vl": lambda: hf_model("Qwen2VL", text_config=SIZES | {"rope_parameters": SECTIONS}, vision_config=TOWER),
    "qwen3_vl": lambda: hf_model("Qwen3VLText", **SIZES, head_dim=16, rope_parameters=SECTIONS | STRIDED),
    "llama4_vision": lambda: hf_model("Llama4Vision", **IMAGE, **dict.fromkeys(VISION_WIDTHS, 64)),
    "pixtral": lambda: hf_model("PixtralVision", **IMAGE | {"image_size": 64}),
    "dinov3": lambda: hf_model("DINOv3ViT", **IMAGE),
}
"""Models of transformers, whose configs give their rotations."""


def torchtune(file, name, **options):
    """Return a rotary module of torchtune, loaded from its file, as the package imports much more."""
    sizes = options or {"max_seq_len": 96}
    package = importlib.util.find_spec("torchtune") or pytest.skip("torchtune is not installed")
    names = runpy.run_path(str(Path(package.origin).parent / "models" / f"{file}.py"), run_name="torchtune")
    return names[name](**{"dim": 64, "base": 500_000} | sizes)


def timm(name, *args, **options):
    """Return a rotary module of timm; skip if it can't be imported, as without torchvision."""
    reason = "timm or its torchvision is not installed"
    return getattr(pytest.importorskip("timm.layers", reason=reason, exc_type=ImportError), name)(*args, **options)


def rotary(**options):
    """Return the rotary of rotary-embedding-torch; skip if it is not installed."""
    module = pytest.importorskip("rotary_embedding_torch", reason="rotary-embedding-torch is not installed")
    embedding = module.RotaryEmbedding(64, theta=500_000, **options)
    vars(embedding).pop("apply_rotary_emb", None)  # a function of xPos, which can't be copied
    return embedding


def cached(module):
    """Return a module of rotary-embedding-torch that has filled the first rows of its cache."""
    module.rotate_queries_or_keys(torch.ones(1, 1, 20, 64))
    return module


class Holder(nn.Module):
    """A module with buffers and attributes, named as in vLLM, Megatron, flash-attn and others."""

    def __init__(self, buffers, attributes):
        """Register buffers, and set attributes."""
        super().__init__()
        for name, x in buffers.items():
            self.register_buffer(name, x.clone(), persistent=False)
        for name, x in attributes.items():
            setattr(self, name, copy.deepcopy(x))


def model_with(attributes=(), /, **buffers):
    """Return a model with buffers, and with attributes that are no buffers."""
    return nn.Sequential(nn.Linear(4, 4), Holder(buffers, dict(attributes)))


DOUBLED = {"cos_cached": torch.cat((COS, COS), -1), "sin_cached": torch.cat((SIN, SIN), -1)}
COMPLEX = torch.polar(torch.ones(64, 32), torch.outer(torch.arange(64.0), FREQUENCIES))
LLAMA31 = {"model_type": "llama", "head_dim": 64, "rope_parameters": LLAMA3}
MODULES = {
    "torchtune": lambda: torchtune("../modules/position_embeddings", "RotaryPositionalEmbeddings"),
    "torchtune, llama3": lambda: torchtune(
        "llama3_1/_position_embeddings", "Llama3ScaledRoPE", max_seq_len=96, old_context_len=64
    ),
    "torchtune, qwen2": lambda: torchtune("qwen2/_positional_embeddings", "Qwen2RotaryPositionalEmbeddings"),
    "rotary-embedding-torch": rotary,
    "rotary-embedding-torch, cached": lambda: cached(rotary()),
    "rotary-embedding-torch, xpos": lambda: rotary(use_xpos=True),
    "Megatron": lambda: model_with({"inv_freq": FREQUENCIES}),
    "vLLM": lambda: model_with(cos_sin_cache=torch.cat((COS, SIN), -1)),
    "transformers 4": lambda: model_with(**{name: x[None, None] for name, x in DOUBLED.items()}),
    "flash-attn": lambda: model_with({"_cos_cached": COS, "_sin_cached": SIN}, inv_freq=FREQUENCIES),
    "Meta": lambda: model_with({"freqs_cis": COMPLEX}),
    "gpt-fast": lambda: model_with(freqs_cis=torch.stack((COS, SIN), -1)),
    "a list of tables": lambda: model_with({"freqs_cis": [COMPLEX, COMPLEX[:32]]}),
    "a dict of tables": lambda: model_with({"cos_sin_cache": {1e4: torch.cat((COS, SIN), -1)}}),
    "torchtitan": lambda: model_with(rope_cache=torch.cat((COS, COS, SIN, SIN), -1)),
}
"""Rotary modules without a config."""
ROPES = {
    "torchtune, llama3": ra.Rope.from_config(LLAMA31),
    "rotary-embedding-torch, cached": ra.Rope(ROPE.frequencies, pairing="interleaved"),
}
"""Their rotations, if these are not `ROPE`."""


def build(name):
    """Return a new model, and the config or Rope for its audit; None if the model has a config."""
    torch.manual_seed(0)
    return (MODELS | MODULES)[name](), None if name in MODELS else ROPES.get(name, ROPE)


def tensors(model):
    """Return buffers, parameters and plain tensors, also those in lists and dicts, by name."""
    found = {}
    for path, module in model.named_modules():
        for name, x in vars(module).items():
            items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
            is_own = name in ("_buffers", "_parameters")
            inner = {name: x} | {key if is_own else f"{name}.{key}": each for key, each in items}
            found |= {f"{path}.{key}".lstrip("."): each for key, each in inner.items() if torch.is_tensor(each)}
    return found


def snapshot(model):
    """Return the bits of all tensors of a model, by name."""
    return {name: bits(x) for name, x in tensors(model).items()}


def audited_names(model, config):
    """Return the names of the tensors that `audit` reports."""
    return {found.name for found in audit(model, config)}


def verdicts(model, config=None):
    """Return the verdicts of `audit`."""
    return [found.verdict for found in audit(model, config)]


def zero_buffers(model):
    """Set the floating-point buffers of a model to 0."""
    for x in model.buffers():
        x.zero_() if x.is_floating_point() else None


ALL = [*MODELS, *MODULES]


# --- damaged state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_new_models_are_right_and_not_changed_by_refill(name):
    model, config = build(name)
    before, objects = snapshot(model), tensors(model)
    report = audit(model, config)
    assert report, str(report)
    assert all(found.verdict == "exempt" or found.error <= 1e-6 for found in report)
    undo = refill(model, config)
    assert (undo.written, undo.left) == ((), ())
    assert snapshot(model) == before
    assert all(x is objects[path] for path, x in tensors(model).items())


def emptied(model):
    """Return a copy of a model with wrong values in all tensors, as after `to_empty`."""
    model = copy.deepcopy(model)
    for x in tensors(model).values():
        if x.is_floating_point() or x.is_complex():
            nn.init.uniform_(x.detach()) if not x.is_complex() else x.copy_(x.flip(-1) + 1)
    return model


DAMAGE = {
    "bfloat16": lambda model: copy.deepcopy(model).bfloat16(),
    "half": lambda model: copy.deepcopy(model).half(),
    "half and back": lambda model: copy.deepcopy(model).half().float(),
    "to_empty": emptied,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ALL)
def test_damaged_state_is_found_refilled_and_restored_by_undo(name, damage):
    model, config = build(name)
    damaged = DAMAGE[damage](model)
    fresh, before = snapshot(model), snapshot(damaged)
    needed = {found.name for found in audit(model, config) if found.verdict != "exempt"}
    report = {found.name: found.verdict for found in audit(damaged, config)}
    wrong = {path for path, verdict in report.items() if verdict not in ("right", "exempt")}
    assert wrong == {path for path in needed if fresh[path] != before[path]}
    assert {report[path] for path in wrong} <= ({"garbage", "other"} if damage == "to_empty" else {"rounded"})
    undo = refill(damaged, config)
    assert set(undo.written) == wrong and undo.left == ()
    now, original = tensors(damaged), tensors(model)
    for path in wrong:
        assert now[path].dtype == original[path].dtype and now[path].shape == original[path].shape
        scale = original[path].abs().clamp(max=1) if now[path].ndim == 1 else 1e2  # tables have float32 angles
        assert bool(((now[path] - original[path]).abs() <= 1e-6 * scale).all()), path
    assert all(bits(now[path]) == before[path] for path in now.keys() - wrong) and now.keys() == before.keys()
    assert bool(audit(damaged, config)) == bool(report)
    for _ in range(2):
        undo()
        assert snapshot(damaged) == before


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("roformer", "esm")])
def test_a_model_from_the_meta_device_is_refilled_after_its_weights(name):
    """As in a training script: build on the meta device, `to_empty`, load the state dict, refill."""
    model, _ = build(name)
    with torch.device("meta"):
        damaged = type(model)(model.config)
    assert {found.verdict for found in audit(damaged)} == {found.verdict for found in refill(damaged).left} == {"meta"}
    damaged = damaged.to_empty(device="cpu")
    zero_buffers(damaged)  # `to_empty` leaves any values
    damaged.load_state_dict(model.state_dict(), strict=False)
    assert {*verdicts(damaged)} == {"garbage"}
    refill(damaged)
    assert audit(damaged) and audited_names(damaged, None) == audited_names(model, None)


@pytest.mark.long
def test_models_of_many_architectures_are_right_and_refilled():
    """The models of the tests of `replace`: the frequencies of each are those of its config."""
    pytest.importorskip("transformers", minversion="5", reason="transformers is not installed")
    from test_replace import ALL as ARCHITECTURES
    from test_replace import model_of

    for name in ARCHITECTURES:
        model = model_of(name)
        assert audit(model), f"{name}: {audit(model)}"
        zero_buffers(model)
        assert {*verdicts(model)} == {"garbage"}, name
        assert refill(model).left == () and audit(model), f"{name}: {audit(model)}"


WIDTHS = {"attention_head_dim": 24, "num_attention_heads": 2, "num_layers": 1}
TRANSFORMERS = {
    "WanTransformer3DModel": {"text_dim": 16, "freq_dim": 16, "ffn_dim": 16, "in_channels": 4, "out_channels": 4},
    "QwenImageTransformer2DModel": {"joint_attention_dim": 16, "axes_dims_rope": (4, 8, 12)},
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_tables_of_diffusers_are_right_and_refilled(name):
    """Wan has two real tables with each value twice, QwenImage complex attributes, one of negative positions."""
    diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")
    model = getattr(diffusers, name)(**WIDTHS, **TRANSFORMERS[name])
    assert audit(torch.compile(model, backend="eager"))
    assert len(audit(model)) == 2 and audit(model), str(audit(model))
    damaged = emptied(model)
    assert {*verdicts(damaged)} <= {"garbage", "other"}
    assert len(refill(damaged).written) == 2 and audit(damaged)
    for path in audited_names(model, None):  # angles of thousands are in float32
        torch.testing.assert_close(tensors(damaged)[path], tensors(model)[path], rtol=0, atol=1e-3)


# --- wrong values -----------------------------------------------------------------------------------------------------


def with_value(i, value):
    """Return a function that returns a tensor with another i-th value from the end."""
    return lambda x: torch.where(torch.arange(x.numel()).reshape(x.shape) == x.numel() - i, value, x)


SLOW = torch.tensor(ROPES["torchtune, llama3"].frequencies)
WRONG_FREQUENCIES = {  # the verdicts without a config and with one, which also has a text
    "one element": (with_value(5, 0.1), "unknown", "garbage", "1 of 32 values"),
    "one element by 1e-5": (lambda x: x * torch.where(torch.arange(32) == 7, 1 + 1e-5, 1), "unknown", None, None),
    "one NaN": (with_value(3, torch.nan), "garbage", "garbage", "1 of 32 values are not finite"),
    "zeros": (torch.zeros_like, "garbage", "garbage", "32 of 32 values"),
    "transposed halves": (lambda x: x.roll(16), "unknown", "other", "the right values in another order"),
    "base": (lambda _: torch.tensor(ra.frequencies(64)), "right", "other", "base 1e+04"),
    "linear": (lambda x: x / 4, "unknown", "other", "the right values times 0.25"),
    "base, rounded": (
        lambda _: torch.tensor(ra.frequencies(64, base=8e6)).bfloat16().float(),
        "unknown",
        "other",
        "base 8e+06, rounded to bfloat16",
    ),
    "ntk": (lambda _: torch.tensor(ra.frequencies(64, base=1_234_567.0)), "right", "other", "base 1.235e+06"),
    "llama3": (lambda _: SLOW, "unknown", "other", "base 5e+05, slow frequencies divided by 8, as by llama3 and yarn"),
}


@pytest.mark.parametrize("fault", WRONG_FREQUENCIES)
def test_wrong_frequencies_are_found_and_named_and_refilled_only_if_there_is_a_config(fault):
    change, guess, verdict, text = WRONG_FREQUENCIES[fault]
    model = model_with(inv_freq=change(FREQUENCIES))
    x, before = model[1].inv_freq, snapshot(model)
    assert verdicts(model) == [guess] and bool(audit(model)) == (guess == "right")
    assert refill(model).written == () and snapshot(model) == before
    (found,) = report = audit(model, ROPE)
    assert not report
    assert verdict is None or (found.verdict, found.text) == (verdict, text)
    undo = refill(model, ROPE)
    assert undo.written == ("1.inv_freq",) and undo.left == ()
    assert model[1].inv_freq is x and torch.equal(x, FREQUENCIES)  # in place
    undo()
    assert snapshot(model) == before


WRONG_TABLES = {
    "one element": with_value(5, 0.1),
    "one NaN": with_value(9, torch.nan),
    "transposed halves": lambda x: x.roll(x.shape[1] // 2, dims=1),
    "doubled rows": lambda x: x[: len(x) // 2].repeat_interleave(2, dim=0),
    "shifted by a row": lambda x: x.roll(1, dims=0),
    "transposed": lambda x: x.mT if x.shape[0] == x.shape[1] else x.flip(0),
}
CACHES = {
    "cos_sin_cache": torch.cat((COS, SIN), -1),
    "cache": torch.stack((COS, SIN), -1),
    "rope_cache": torch.cat((COS, COS, SIN, SIN), -1),
    "embed_positions": torch.cat((SIN, COS), -1),
    "freqs_cis": COMPLEX,
    "sin_cached": torch.cat((SIN, SIN), -1),
    "freqs_cos": COS,
}


class RotaryTable(Holder):
    """A module whose class name marks its tensors as rotary tables."""


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("fault", WRONG_TABLES)
def test_wrong_tables_are_found(name, fault):
    model = RotaryTable({name: CACHES[name]}, {})
    x = model.get_buffer(name)
    assert audit(model, ROPE)
    x.copy_(WRONG_TABLES[fault](x.clone()))
    if torch.equal(x, CACHES[name]):  # its halves are equal
        return
    before = bits(x)
    assert verdicts(model, ROPE)[0] in ("garbage", "other")
    undo = refill(model, ROPE)
    torch.testing.assert_close(x, CACHES[name], rtol=0, atol=1e-5)
    undo()
    assert bits(x) == before


def test_a_complex_table_that_became_real_is_refilled():
    model = model_with(freqs_cis=COMPLEX)
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        model.to(torch.bfloat16)
    (found,) = audit(model, ROPE)
    assert (found.verdict, found.text) == ("garbage", "it is real, its sines are lost")
    refill(model, ROPE)
    assert model[1].freqs_cis.dtype == torch.complex64 and audit(model, ROPE)


# --- without a config -------------------------------------------------------------------------------------------------


def test_without_a_config_frequencies_of_any_base_are_right():
    for base in (100.0, 10_000.0, 12_345.678, 500_000.0, 1e6):
        f = ra.frequencies(64, base=base)
        cos, sin = ra.cos_sin(range(64), f, like=COS)
        tables = {"cos_cached": cos, "sin_cached": sin, "cos_sin_cache": torch.cat((cos, sin), -1)}
        assert verdicts(RotaryTable({"inv_freq": torch.tensor(f)} | tables, {})) == ["right"] * 4


@pytest.mark.parametrize("name", [name for name in MODULES if "llama3" not in name])
def test_without_a_config_new_modules_are_right(name):
    model, _ = build(name)
    assert audit(model), str(audit(model))
    assert {*verdicts(DAMAGE["bfloat16"](model))} <= {"rounded", "exempt", "right"}  # right: complex tables
    assert not audit(DAMAGE["to_empty"](model))


def test_a_config_that_cannot_be_read_is_an_error_only_if_it_is_given():
    model, _ = build("llama")
    model.config = model.rotary_emb.config = {"model_type": "unheard_of"}
    report = audit(model)
    assert report and all("unheard_of" in found.text for found in report)
    with pytest.raises(ra.ArgumentValueError, match="unheard_of"):
        audit(model, model.config)
    with pytest.raises(ra.ArgumentTypeError, match="model must be a torch module"):
        audit(model.config)


# --- modules around a model -------------------------------------------------------------------------------------------


def around(name, model, config=None):
    """Return a module around a model, which may have a config that is not the model's."""
    wrapper = nn.ModuleDict({name: model})
    wrapper.config = config
    return wrapper


WRAPPERS = {
    "_orig_mod": partial(torch.compile, backend="eager"),
    "base_model.model": lambda model: around("base_model", around("model", model), {"model_type": "custom"}),  # PEFT
    "mine": lambda model: around("mine", model, {"learning_rate": 1e-3}),
    "module._orig_mod": lambda model: nn.DataParallel(torch.compile(model, backend="eager")),
    "vision_text.0": lambda model: nn.ModuleDict({"vision_text": nn.ModuleList([model])}),
}
"""What is around a model, by its path in that."""


@pytest.mark.parametrize("path", WRAPPERS)
@pytest.mark.parametrize("name", ["llama3", "gptj"])
def test_a_model_is_found_in_what_is_around_it(name, path):
    model, _ = build(name)
    wrapped = WRAPPERS[path](model)
    assert audit(wrapped) and [found[1:] for found in audit(wrapped)] == [found[1:] for found in audit(model)]
    assert [found.name for found in audit(wrapped)] == [f"{path}.{found.name}" for found in audit(model)]
    zero_buffers(model)
    undo = refill(wrapped)
    assert undo.written and all(each.startswith(f"{path}.") for each in undo.written)
    assert audit(wrapped) and audit(model)


def test_each_model_in_a_module_has_its_own_config():
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500_000.0}
    first = around("rotary_emb", Holder({"inv_freq": FREQUENCIES}, {}), config)
    second = around("rotary_emb", Holder({"inv_freq": FREQUENCIES}, {}), config | {"rope_theta": 1e4})
    alone = Holder({"inv_freq": FREQUENCIES * 2}, {})
    assert verdicts(nn.ModuleList([first, second, alone])) == ["right", "other", "unknown"]
    assert verdicts(around("draft", nn.ModuleList([first, second]), config)) == ["right", "other"]
    second.config["rope_theta"] = 500_000.0
    assert audit(around("draft", nn.ModuleList([first, second]), config | {"rope_theta": 1e4}))


GRID = {"bands": torch.linspace(1, 128, 16), "t_x": torch.arange(64.0) % 8, "axis": torch.arange(16) % 3}
GRID |= {"cos": torch.outer(GRID["t_x"], FREQUENCIES).cos()}  # of the shape of a table of `ROPE`


def filled_by(method, package):
    """Return a rotary module whose `method` fills its buffers, whatever their numbers are."""

    def fill(self):
        """Fill the buffers."""
        for name, x in GRID.items():
            self.register_buffer(name, x.clone(), persistent=False)

    module = type("RotaryGrid", (nn.Module,), {method: fill, "__module__": package})()
    fill(module)
    return module


FILLED = {
    "like timm": partial(filled_by, "init_non_persistent_buffers", "timm.layers"),
    "like torchtune": partial(filled_by, "rope_init", "torchtune.modules"),
    "timm": lambda: timm("RotaryEmbedding", 64, feat_shape=[7, 7]),
    "timm, without a table": lambda: timm("RotaryEmbeddingCat", 64, in_pixels=False),
    "timm, dinov3": lambda: timm("RotaryEmbeddingDinoV3", 64, feat_shape=[7, 7]),
    "timm, learned": lambda: timm("RotaryEmbeddingMixed", 64, 2, 2, feat_shape=[7, 7]),
    "torchtune, vision": lambda: torchtune(
        "../modules/position_embeddings",
        "VisionRotaryPositionalEmbeddings",
        patch_size=8,
        tile_size=56,
        max_num_tiles=4,
    ),
    "torchtune, llama3": MODULES["torchtune, llama3"],
}


@pytest.mark.parametrize("name", FILLED)
def test_buffers_are_compared_with_what_their_class_fills(name):
    new = nn.Sequential(FILLED[name](), nn.Linear(4, 4))
    rope = None if "llama3" in name else ROPE  # a given one says nothing of a grid
    assert audit(new) and audit(new, rope), audit(new, rope)
    assert audited_names(new, None) == {name for name, _ in tensors(new).items() if name.startswith("0.")}
    cast = copy.deepcopy(new).bfloat16()  # today's timm fills its frequencies again then
    if name == "like timm":
        assert [found.verdict for found in audit(cast) if "bands" in found.name] == ["rounded"]  # of a copy in float32
    assert not any(found.advice for found in audit(cast) if found.verdict == "right")  # tables of timm
    for model in (copy.deepcopy(new), cast):
        for x in model[0].buffers():
            x.fill_(5)
        before = snapshot(model)
        assert {*verdicts(model, rope)} <= {"garbage", "exempt"} and snapshot(model) == before
        assert {*refill(model, rope).written} == {f"0.{name}" for name, _ in new[0].named_buffers()}
        assert audit(model, rope)
        assert {x.dtype for x in model[0].buffers() if not x.is_floating_point()} <= {torch.int64}
    assert {*verdicts(new.to("meta"))} <= {"meta", "exempt"}


@pytest.mark.parametrize("share", [2e-7, 1e-4, 1e-2])  # the first is float32's, as between devices
def test_errors_of_what_a_class_fills_are_those_of_its_angles(share):
    """Frequency i of n differs by about share * i / n."""
    name = "RotaryPositionalEmbeddings"
    make = partial(torchtune, "../modules/position_embeddings", name, max_seq_len=96)
    right, other = make(base=1e4), make(base=1e4 * (1 + share))
    right.theta, right.cache = other.theta, other.cache
    theta, table = audit(right)
    assert theta.error == pytest.approx(share * 31 / 32, 0.05, 2e-7) and table.error < share + 2e-7
    assert (theta.verdict == table.verdict == "right") == (share < 1e-6) and table.error > share / 4 - 2e-7


def ramp(dim, count=None, base=1e4):
    """Return the frequencies of an axis, or the angles of so many rows."""
    f = torch.tensor(ra.frequencies(dim, base=base))
    return f if count is None else torch.outer(torch.arange(float(count)), f)


OMNIGEN = {"hidden_size": 64, "num_attention_heads": 4, "original_max_position_embeddings": 64}
OMNIGEN |= {"rope_scaling": {"type": "su"} | {key: LONGROPE[key] for key in ("short_factor", "long_factor")}}
OF_DIFFUSERS = {  # keys of the config, attributes, buffers
    "HeliosTransformer3DModel": ({}, {}, {"freqs_base_t": ramp(44), "freqs_base_y": ramp(42)}),
    "Cosmos3OmniTransformer": ({}, {}, {"inv_freq": ramp(128, base=5e6)}),  # chunks of one ramp
    # its forward divides the positions of two axes by 2
    "Kandinsky6Transformer3DModel": ({}, {}, {"angles_0": ramp(32, 128), "angles_1": ramp(48, 128)}),
    "OmniGenTransformer2DModel": (OMNIGEN, {"short_factor": []}, {"inv_freq": ramp(16)}),  # scaled by its first call
}


@pytest.mark.parametrize("name", OF_DIFFUSERS)
def test_other_tables_of_diffusers_are_right_and_refilled(name):
    keys, attributes, buffers = OF_DIFFUSERS[name]
    model = around("rope", RotaryTable(buffers, attributes), {"_class_name": name, **keys})
    assert len(audit(model)) == len(buffers) and audit(model), audit(model)
    zero_buffers(model)
    assert {*verdicts(model)} == {"garbage"}
    assert len(refill(model).written) == len(buffers) and audit(model)


def test_tables_with_negative_positions_at_their_end_are_right():
    positions = torch.cat((torch.arange(8192.0), torch.arange(-1024.0, 0)))
    freqs = [torch.polar(torch.ones(9216, dim // 2), torch.outer(positions, ramp(dim))) for dim in (16, 56)]
    table = RotaryTable({}, {"freqs": freqs})
    assert verdicts(around("rope", table, {"_class_name": "QwenImage21Transformer2DModel"})) == ["right"] * 2


def test_a_part_that_cannot_be_read_says_what_to_give():
    config = {"_class_name": "Kandinsky5Transformer3DModel"}
    model = around("visual", RotaryTable({"args_0": torch.zeros(128, 8)}, {}), config)
    (found,) = audit(model)
    assert found.verdict == "garbage" and "all are zero" in found.text and "scale_factor must be given" in found.text
    assert refill(model).written == () and refill(model, config | {"scale_factor": [1, 2, 2]}).written
    assert audit(model)


def test_lost_sines_are_told_without_a_config():
    (found,) = audit(model_with(freqs_cis=COMPLEX.real.bfloat16()))
    assert found[:3] == ("1.freqs_cis", "garbage", "it is real, its sines are lost")


def test_what_no_config_tells_of_a_rotary_class_is_not_known():
    """Its buffers that no checkpoint has may be lost; complex tables without a name are right if a config says so."""
    sana = {"_class_name": "SanaWMTransformer3DModel", "linear_head_dim": 24}
    freqs = torch.cat([torch.polar(torch.ones(64, 4), ramp(8, 64))] * 3, dim=-1)
    model = around("rope", RotaryTable({}, {"freqs": freqs}), sana)
    assert audit(model), audit(model)
    freqs = model.rope.freqs
    freqs[-1] = freqs[0]  # negative positions at its end, for all that is known
    assert verdicts(model) == ["unknown"] and refill(model).written == ()
    learned = RotaryTable({"position_angles": torch.rand(64, 32)}, {"freqs": nn.Parameter(torch.rand(7))})
    assert verdicts(learned, ROPE) == ["unknown", "exempt"]
    nn.init.constant_(learned.freqs, torch.nan)
    assert str(audit(learned, ROPE)[1]) == "freqs: not known (learned, and not finite); load its checkpoint"
    assert refill(learned, ROPE).written == ()


FACTOR = 0.1 * math.log(4.0) + 1  # of YARN
OTHER_FACTORS = {  # model, its attribute, a wrong value, what is said
    "forgotten": ("yarn", "attention_scaling", 1.0, "1 instead of 1.13863"),
    "squared": ("yarn", "attention_scaling", FACTOR**2, "1.29648 instead of 1.13863"),
    "of layers": ("gemma3", "sliding_attention_attention_scaling", FACTOR, "1.13863 instead of 1"),
}


@pytest.mark.parametrize("fault", OTHER_FACTORS)
def test_another_attention_factor_is_found_and_refilled(fault):
    name, attribute, wrong, text = OTHER_FACTORS[fault]
    model, _ = build(name)
    right = getattr(model.rotary_emb, attribute)
    setattr(model.rotary_emb, attribute, wrong)
    (found,) = (each for each in audit(model) if each.verdict != "right")
    assert found[:3] == (f"rotary_emb.{attribute}", "other", text)
    undo = refill(model)
    assert undo.written == (found.name,) and getattr(model.rotary_emb, attribute) == right and audit(model)
    undo()
    assert getattr(model.rotary_emb, attribute) == wrong


def test_a_model_gets_all_of_a_scaling_that_its_config_has_got():
    model, _ = build("llama")
    model.config.rope_parameters = YARN
    found, *_ = audit(model)
    assert found.text == "base 1e+04; the config has base 5e+05 scaled by yarn"
    assert refill(model).left == () and audit(model) and model.rotary_emb.attention_scaling == FACTOR


def test_the_attention_factor_of_a_tower_is_not_that_of_the_text():
    model, _ = build("qwen2_vl")
    written = refill(model, ra.Rope(ra.frequencies(16), pairing="half", attention_factor=FACTOR)).written
    assert "language_model.rotary_emb.attention_scaling" in written and not any("visual" in name for name in written)


class Lazy:
    """Attributes that are no config, of which one is computed."""

    mask = torch.ones(3)

    @cached_property
    def device(self):
        """Raise an error."""
        raise RuntimeError


@pytest.mark.parametrize("args", [Lazy(), Lazy, torch.zeros(3).numpy(), torch.device("cpu")])
def test_attributes_that_are_no_config_and_no_rotary_are_left(args):
    attention = Holder({"inv_freq": FREQUENCIES}, {"attention_scaling": 0.25, "args": args})  # which scales scores
    assert verdicts(attention) == verdicts(attention, ROPE) == ["right"]
    assert refill(attention, ROPE).written == ()


def test_tables_times_a_factor_are_named():
    assert audit(model_with(freqs_cis=COMPLEX * 1.1), ROPE)[0].text == "the right values times 1.1"


@dataclass
class ModelArgs:
    """The arguments of a model of Meta."""

    dim: int = 256
    n_layers: int = 1
    n_heads: int = 4
    multiple_of: int = 256
    rope_theta: float = 500_000.0
    max_seq_len: int = 64
    use_scaled_rope: bool = False


class OwnArgs(NamedTuple):
    """Arguments that no ``__dict__`` holds."""

    dim: int = 256
    n_layers: int = 1
    n_heads: int = 4
    multiple_of: int = 256
    rope_theta: float = 500_000.0


ARGUMENTS = {
    "params": ModelArgs(),
    "model_args": SimpleNamespace(**vars(ModelArgs())),
    "args": OwnArgs(),
    "config": vars(ModelArgs()),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("buffers", [{}, {"freqs_cis": COMPLEX}])
def test_the_arguments_of_a_model_are_its_config(name, buffers, monkeypatch):
    model = model_with({} if buffers else {"freqs_cis": COMPLEX}, **buffers)
    model.params = torch.rand(3)  # something else of this name
    setattr(model, name, ARGUMENTS[name])
    monkeypatch.setattr(Holder, name, ARGUMENTS[name], raising=False)  # blocks have them too, or their class
    assert [found[:3] for found in audit(model)] == [("1.freqs_cis", "right", "")]  # not by its own values
    model[1].freqs_cis.conj_physical_()
    assert not audit(model) and refill(model).written and audit(model)


@pytest.mark.parametrize(("factor", "verdict"), [(8.0, "right"), (32.0, "right"), (1.0, "other"), (16.0, "other")])
def test_a_scaled_table_of_meta_has_a_published_factor(factor, verdict):
    options = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_length": 8192}
    f = torch.tensor(ra.scaling.llama3(ra.frequencies(64, base=5e5), factor, **options), dtype=torch.float32)
    model = model_with({"freqs_cis": torch.polar(torch.ones(64, 32), torch.outer(torch.arange(64.0), f))})
    model.params = ModelArgs(use_scaled_rope=True)
    (found,) = audit(model)
    assert found.verdict == verdict and refill(model).written == ()  # it may be either


# --- which rotation a tensor belongs to -------------------------------------------------------------------------------


def test_a_tower_that_the_config_does_not_have_is_not_read_as_text():
    parts = {name: Holder({"inv_freq": torch.zeros(32)}, {}) for name in ("vision_tower", "language_model")}
    undo = refill(nn.ModuleDict(parts), {"model_type": "llama", "head_dim": 64})
    assert undo.written == ("language_model.inv_freq",)
    assert [found.name for found in undo.left] == ["vision_tower.inv_freq"]


def test_layers_are_distinguished_by_their_index():
    config = build("gemma3")[0].config
    old = around("layers", nn.ModuleList(Holder({"inv_freq": torch.zeros(8)}, {}) for _ in range(6)), config)
    assert len(refill(old).written) == 6
    for layer, rope in zip(old.layers, ra.config.read(config).layers(), strict=True):
        assert layer.inv_freq.tolist() == pytest.approx(rope.frequencies, 1e-6)
    one = around("rotary", Holder({"inv_freq": torch.zeros(8)}, {}), config)
    assert "several" in refill(one).left[0].text


def test_tensors_that_only_have_the_name_are_left():
    model = Holder({"theta": torch.rand(32), "cache": torch.rand(64, 64), "freqs": torch.rand(32)}, {})
    assert list(audit(model, ROPE)) == [] and not audit(model, ROPE)
    assert str(audit(model, ROPE)) == "no rotary state was found"
    named = Holder({"mine": FREQUENCIES, "own": torch.cat((COS, SIN), -1), "other": torch.rand(32)}, {})
    assert [found.name for found in audit(named, ROPE)] == ["mine", "own"]  # by their values, under any name


OF_ANOTHER_SHAPE = [torch.rand(16), torch.rand(33), torch.rand(2, 32), torch.rand(7).bfloat16()]


@pytest.mark.parametrize("x", [*OF_ANOTHER_SHAPE, *(torch.tensor(ra.frequencies(2 * pairs)) for pairs in (16, 33, 2))])
def test_frequencies_of_another_shape_are_unknown_and_left(x):
    model = model_with(inv_freq=x)
    assert verdicts(model, ROPE) == ["unknown"]
    undo = refill(model, ROPE)
    assert undo.written == () and [found.name for found in undo.left] == ["1.inv_freq"]
    assert verdicts(model_with(inv_freq=0 * x.bfloat16()), ROPE) == ["garbage"]  # and not rounded


def test_ambiguous_values_are_left():
    """In a model of several axes a row of frequencies may be that of any."""
    rope = ra.Rope(((1.0, 0.5, 0.0, 0.0), (0.0, 0.0, 1.0, 0.25)), pairing="half")
    assert audit(model_with(inv_freq=torch.tensor([1.0, 0.5])), rope)
    assert audit(model_with(inv_freq=torch.tensor([1.0, 0.25])), rope)
    model = model_with(inv_freq=torch.zeros(2))
    assert verdicts(model, rope) == ["garbage"]
    assert "several" in refill(model, rope).left[0].text


def test_doubled_tables_of_interleaved_pairs_are_left_if_the_pairing_is_only_that_of_a_config():
    """Some classes sort neighbours into halves first, so both layouts occur."""
    glm = {"model_type": "glm", "head_dim": 64, "partial_rotary_factor": 1.0, "rope_theta": 500_000.0}
    for rows in (torch.cat((COS, COS), -1), COS.repeat_interleave(2, -1)):
        assert audit(model_with(cos_cached=rows), glm)
    model = model_with(cos_cached=torch.zeros(64, 64))
    assert refill(model, glm).written == ()
    assert refill(model, ra.Rope.from_config(glm)).written == ("1.cos_cached",)
    torch.testing.assert_close(model[1].cos_cached, COS.repeat_interleave(2, -1), rtol=0, atol=1e-5)


def test_short_tables_are_named():
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500_000.0, "max_position_embeddings": 65}
    model = model_with(cos_sin_cache=torch.cat((COS, SIN), -1))
    (found,) = report = audit(model, config)
    assert (found.verdict, found.text, bool(report)) == ("short", "64 rows for 65 tokens", False)
    assert audit(model, config | {"max_position_embeddings": 64})
    assert refill(model, config).written == ()
    dynamic = {"rope_type": "dynamic", "factor": 4.0}  # a longer sequence changes the table
    assert audit(model, config | {"rope_scaling": dynamic, "max_position_embeddings": 64})
    grows = {"_cos_cached": COS, "_sin_cached": SIN, "_seq_len_cached": 64}
    for attributes in (grows, {"freqs_cis": [COMPLEX]}):  # in a list: of an axis
        assert audit(model_with(attributes), config), audit(model_with(attributes), config)


@pytest.mark.parametrize("is_scaled", [False, True])
def test_short_tables_of_meta_are_named(is_scaled):
    """They are attributes, of as many rows as the arguments say or more; params.json says nothing of it."""
    given = vars(ModelArgs(use_scaled_rope=is_scaled))
    rope = ra.Rope.from_config(given, factor=8.0 if is_scaled else None)
    model = model_with({"freqs_cis": torch.complex(*rope.table(range(64), like=COS))})
    (found,) = audit(model, given | {"max_seq_len": 65})
    assert (found.verdict, found.text) == ("short", "64 rows for 65 tokens")
    assert audit(model, given | {"max_seq_len": 64})
    del given["max_seq_len"]
    assert audit(model, given)


@pytest.mark.parametrize(("name", "tokens"), [("longrope", (8, 100, 8)), ("dynamic", (8, 24, 8))])
@torch.no_grad()
def test_frequencies_that_forward_changes_are_right_in_each_state(name, tokens):
    model, _ = build(name)
    for count in tokens:
        model(torch.zeros(1, count, dtype=torch.int64))
        assert audit(model), str(audit(model))
        damaged = DAMAGE["to_empty"](model)
        refill(damaged)
        for last in (count, 8):  # later calls equal those of the model
            tables = [each.rotary_emb(torch.zeros(1), torch.arange(last)[None])[0] for each in (model, damaged)]
            torch.testing.assert_close(*tables, rtol=0, atol=1e-4)


def test_options_of_rotary_embedding_torch_are_respected():
    learned = rotary(learned_freq=True)
    with torch.no_grad():
        learned.freqs.mul_(1.5)
    assert audit(learned, ROPE) and "exempt" in verdicts(learned, ROPE)
    pixels = rotary(freqs_for="pixel")
    assert verdicts(pixels, ROPE) == ["exempt", "unknown"] and refill(pixels, ROPE).written == ()
    divides_positions = rotary(interpolate_factor=4.0)  # and keeps its frequencies
    rope = ra.Rope(tuple(f / 4 for f in ROPE.frequencies), pairing="interleaved")
    assert audit(divides_positions, rope) and audit(cached(divides_positions), rope)


def test_dtypes_of_vllm_are_right(monkeypatch):
    monkeypatch.setattr(Holder, "__module__", "vllm.model_executor.layers.rotary_embedding")
    model = model_with(cos_sin_cache=torch.cat((COS, SIN), -1).bfloat16())
    assert audit(model, ROPE)
    model[1].cos_sin_cache.zero_()
    refill(model, ROPE)
    assert model[1].cos_sin_cache.dtype == torch.bfloat16 and audit(model, ROPE)


def test_refill_keeps_float64():
    model = model_with(inv_freq=FREQUENCIES.double() * 2)
    refill(model, ROPE)
    assert model[1].inv_freq.dtype == torch.float64
    assert model[1].inv_freq.tolist() == list(ROPE.frequencies)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_shared_and_expanded_buffers_stay_shared(dtype):
    shared = (FREQUENCIES * 2).to(dtype)
    model = nn.Sequential(Holder({}, {}), Holder({}, {}), Holder({}, {}))
    for module, x in zip(model, (shared, shared, torch.tensor(0.5, dtype=dtype).expand(32)), strict=True):
        module.register_buffer("inv_freq", x)
    before = snapshot(model)
    undo = refill(model, ROPE)
    assert model[0].inv_freq is model[1].inv_freq and audit(model, ROPE)
    assert (model[0].inv_freq is shared) == (dtype == torch.float32)
    undo()
    assert model[0].inv_freq is model[1].inv_freq is shared and snapshot(model) == before


def test_refill_keeps_parameter_objects():
    model = rotary().bfloat16()
    parameter, old = model.freqs, bits(model.freqs)
    undo = refill(model, ROPE)
    assert model.freqs is parameter and parameter.dtype == torch.float32
    undo()
    assert model.freqs is parameter and bits(parameter) == old


def test_the_report_prints_a_line_for_each_tensor():
    model = model_with(inv_freq=FREQUENCIES.bfloat16(), original_inv_freq=FREQUENCIES, cos_cached=torch.zeros(64, 32))
    assert str(audit(model, ROPE)).splitlines() == [
        "1.inv_freq: wrong, rounded (to bfloat16), error 2.9e-03; call `refill`",
        "1.original_inv_freq: right, error 5.1e-08",
        "1.cos_cached: wrong (2048 of 2048 values), error 1.0e+00; call `refill`",
    ]


# --- tensors that are not rotary, and towers -----------------------------------------------------------------


class VisionRotaryEmbeddingFast(Holder):
    """A vision tower that only its class name shows to be one."""


@pytest.mark.parametrize("make", [torch.zeros, torch.randn])
def test_tensors_that_are_not_rotary_are_left_alone(make):
    caches = {name: make(1, 1, 128, 64) for name in ("k_cache", "v_cache", "kv_cache")}
    model = model_with(inv_freq=FREQUENCIES, mel_freqs=torch.rand(32), log_theta=torch.rand(32), **caches)
    angles = torch.outer(torch.arange(16.0), torch.tensor(ra.frequencies(32))).repeat_interleave(2, -1)
    grid = torch.cat([angles[:, None].expand(16, 16, -1), angles[None].expand(16, 16, -1)], -1)
    assert audit(model, ROPE)
    model.append(VisionRotaryEmbeddingFast({"freqs_cos": grid.reshape(256, 64).cos()}, {}))
    before = snapshot(model)
    assert refill(model, {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5}).written == ()
    assert snapshot(model) == before


def test_tied_buffers_of_two_rotations_get_a_tensor_each():
    model, _ = build("gemma3")
    rotary, zeros = model.rotary_emb, torch.zeros(8)
    for name, _ in list(rotary.named_buffers()):
        setattr(rotary, name, zeros)
    assert not audit(model)
    refill(model)
    assert audit(model)
    assert not torch.equal(rotary.full_attention_inv_freq, rotary.sliding_attention_inv_freq)
