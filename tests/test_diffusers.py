"""
diffusers: the rotation and the grid of each class, compared with the rotary code of the class on random arrays.

A class is constructed from a random config up to its rotary module, which computes a table. A function of the class
rotates random arrays by it. The results agree within the error of the table, whose angles may be in float32.
"""

import dataclasses
import functools
import importlib
import inspect
import json
import math
import pkgutil
import random
import re
import types
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from configs import rows_of

from rope_any import Rope, config

torch = pytest.importorskip("torch", reason="the peers run on torch")
diffusers = pytest.importorskip("diffusers", minversion="0.42", reason="the peers are models of diffusers 0.42")
embeddings = importlib.import_module("diffusers.models.embeddings")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:`FluxPosEmbed` is deprecated:FutureWarning"),
]


def grid(name, keys, shape):
    """Return the positions of a grid as tuples, or None if the config does not define them."""
    try:
        found = config.read({"_class_name": name, **keys}).positions(shape, like=np.empty(0))
    except ValueError as error:
        if "the caller chooses them" not in str(error):
            raise
        return None
    return list(map(tuple, found.tolist()))


class RotaryArguments(Exception):  # noqa: N818
    """Ends the constructor of a class when the arguments of its rotary module are known."""


def class_of(name):
    """Return a class of diffusers by name, from any module."""
    if hasattr(diffusers, name):
        return getattr(diffusers, name)
    return getattr(importlib.import_module("diffusers.models.condition_embedders"), name)


def module_of(name):
    """Return the module that a class is defined in."""
    return importlib.import_module(class_of(name).__module__)


def rotary_module(monkeypatch, name, rotary, keys, index=0):
    """Return the first rotary module that a class constructs, or that of an index, without the rest of the class."""
    module, calls = module_of(name), []
    rotary_class = getattr(module, rotary)

    def record(*args, **options):
        """Record the arguments of the rotary's constructor, and end that of the class when the index is reached."""
        calls.append((args, options))
        if len(calls) > index:
            raise RotaryArguments
        return torch.nn.Identity()

    with monkeypatch.context() as patch, torch.device("meta"):
        patch.setattr(module, rotary, record)
        with pytest.raises(RotaryArguments):
            class_of(name)(**keys)
    args, options = calls[index]
    return rotary_class(*args, **options)


def nested(function, name):
    """Return a function that is defined inside another one and closes over nothing."""
    code = next(c for c in function.__code__.co_consts if inspect.iscode(c) and c.co_name == name)
    return types.FunctionType(code, function.__globals__)


def defaults(name):
    """Return the defaults of the constructor of a class."""
    parameters = inspect.signature(class_of(name).__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


# --- the table of each class -----------------------------------------------------------------------------------


def latents(c):
    """Return an empty latent, (batch, channels, frames, rows, columns), with the tokens of the case."""
    patch = c.config.get("patch_size", 1)
    p = list(patch) if isinstance(patch, tuple | list) else [c.config.get("patch_size_t") or 1, patch, patch]
    return torch.empty(1, 1, *(n * k for n, k in zip(c.shape, p if len(p) == 3 else [1, *p], strict=True)))


def kandinsky_table(c):
    """Return the table of Kandinsky 5."""
    places, scale = tuple(torch.arange(n) for n in c.shape), c.config["scale_factor"]
    if c.name == KANDINSKY_5:
        return c.rope((1, *c.shape), places, scale)[0].flatten(0, 2)
    return c.rope(places, scale).flatten(0, 2)


def joy_range_table(c):
    """Return the table of JoyImage Edit Plus for a range of positions."""
    method = class_of("JoyImageEditPlusTransformer3DModel")._get_rotary_pos_embed_for_range
    cos, sin = method(c.model, c.positions[0], [n + 1 for n in c.positions[-1]])
    return cos[None], sin[None]


def ltx_table(c):
    """Return the table of LTX, whose positions are coordinates in pixels and seconds."""
    sizes = torch.tensor([20.0, 2048.0, 2048.0], dtype=torch.float64)
    coordinates = ((c.ids.T[None] + 1) / 2 * sizes[:, None]).float()
    return c.rope(torch.empty(1, 1), video_coords=coordinates) if c.name == LTX else c.rope(coordinates)


def pipeline_tables(pipeline, c, *batch):
    """Return the rotary tables that a pipeline computes for a grid."""
    stub = SimpleNamespace(transformer=c.model, vae_scale_factor_spatial=8)
    patches = [c.config.get("patch_size_t") or 1, *[8 * c.config["patch_size"]] * 2]
    frames, rows, columns = (n * k for n, k in zip(c.shape, patches, strict=True))
    return pipeline._prepare_rotary_positional_embeddings(stub, *batch, rows, columns, frames, CPU)


def hunyuan_dit_table(c):
    """Return the table of the pipeline, with its function for the crop."""
    pipeline = importlib.import_module("diffusers.pipelines.hunyuandit.pipeline_hunyuandit")
    lengths = c.shape[1:]
    crop = pipeline.get_resize_crop_region_for_grid(lengths, 512 // 8 // c.config["patch_size"])
    return embeddings.get_2d_rotary_pos_embed(c.config["attention_head_dim"], crop, lengths)


def stable_audio_table(c):
    """Return the table of Stable Audio."""
    dim = c.config["attention_head_dim"] // 2
    return embeddings.get_1d_rotary_pos_embed(dim, len(c.ids), use_real=True, repeat_interleave_real=False)


def ace_table(c):
    """Return the table of ACE-Step."""
    sizes = (len(c.ids), c.config["head_dim"], c.config["rope_theta"])
    return module_of(c.name)._ace_step_rotary_freqs(*sizes, "cpu", torch.float32)


# The table of a case, by what its rotary module takes, or by its name if no other takes that.
of = SimpleNamespace(
    ids=lambda c: c.rope(c.ids),
    batched_ids=lambda c: c.rope(c.ids[None]),
    ids_then_batched=lambda c: c.rope(c.ids)[None],
    row=lambda c: c.rope(torch.empty(1, len(c.ids))),
    length=lambda c: c.rope(len(c.ids), CPU),
    hidden_states=lambda c: c.rope(torch.empty(1), torch.arange(len(c.ids))[None]),
    shape=lambda c: c.rope(c.shape),
    video=lambda c: c.rope(latents(c)),
    image=lambda c: c.rope(latents(c)[:, :, 0]),
    image_or_video=lambda c: (of.image if len(c.rope.rope_dim) == 2 else of.video)(c),
    allegro=lambda c: pipeline_tables(diffusers.AllegroPipeline, c, 1),
    cogvideox=lambda c: pipeline_tables(diffusers.CogVideoXPipeline, c),
    consisid=lambda c: pipeline_tables(importlib.import_module(CONSISID).ConsisIDPipeline, c),
    qwen=lambda c: c.rope([c.shape], max_txt_seq_len=1)[0],
    qwen_21=lambda c: torch.cat([table[c.ids[:, axis]] for axis, table in enumerate(c.rope.freqs)], dim=-1),
    any_flow=lambda c: c.rope({"total_frames": c.shape[0], "full_frame_shape": c.shape[1:]}, CPU)["query"],
    lumina=lambda c: c.rope._get_freqs_cis(c.ids[None]),
    cosmos_3=lambda c: c.rope(c.ids.T[:, None], CPU, torch.float32),
    joy=lambda c: class_of(JOY).get_rotary_pos_embed(c.model.config, list(c.shape))[0],
    animate=lambda c: (torch.tensor([c.shape]), class_of(c.name)._rope_freqs(c.model, (0, 0, 0), CPU)),
    # only of all positions of a shape
    frames=lambda c: c.rope(torch.arange(c.shape[0]), *(n * c.config["patch_size"] for n in c.shape[1:]), "cpu"),
    far=lambda c: c.rope._forward_full_frame(*c.shape, CPU).flatten(0, 2)[None, None],
    helios=lambda c: c.rope(torch.arange(c.shape[0])[None], *c.shape[1:], CPU).flatten(2).transpose(1, 2),
)
FROM_SHAPE = {of.frames, of.far, of.helios, joy_range_table}


# --- the rotation of each class, of x (batch, heads, seq, dim) by a table, with the functions of its module ---------


def by_function(name, module=None, *, spread=False, **options):
    """Return a rotation by a function of a module, by default that of the class; its table may be several arguments."""
    return lambda x, table, own: getattr(module or own, name)(x, *(table if spread else [table]), **options)


def tokens_first(rotate):
    """Return a rotation by one of (batch, seq, heads, dim)."""
    return lambda x, table, module: rotate(x.transpose(1, 2), table, module).transpose(1, 2)


def of_tokens(*args, **options):
    """Return a rotation by a function, with tokens first."""
    return tokens_first(by_function(*args, **options))


def by_nested_function(processor, name="apply_rotary_emb"):
    """Return a rotation by a function inside a processor of the module, with tokens first."""

    def rotate(x, table, module):
        """Return x rotated by the function."""
        function = nested(getattr(module, processor).__call__, name)
        return function(x, *(table if isinstance(table, tuple) else [table]))

    return tokens_first(rotate)


def by_function_of_two(name):
    """Return a rotation by a function of q and k of the module, with tokens first."""
    return tokens_first(lambda x, table, module: getattr(module, name)(x, x, table)[0])


def by_rotate_half(x, table, module):
    """Return x·cos + rotate_half(x)·sin with the function of the module."""
    return x * table[0] + module._rotate_half(x) * table[1]


def flat(rotate):
    """Return a rotation by one of (batch, seq, width)."""
    return lambda x, table, module: rotate(x[:, 0], table, module)[:, None]


def sana(x, table, module):
    """Rotate as SANA does: features before tokens."""
    return module._apply_rotary_emb(x.transpose(2, 3), table).transpose(2, 3)


def stable_audio(x, table, _):
    """Rotate the first features as Stable Audio does."""
    processor = importlib.import_module("diffusers.models.attention_processor").StableAudioAttnProcessor2_0
    return processor.apply_partial_rotary_emb(None, x, table)


def ltx2(x, table, _):
    """Rotate as LTX 2 does: in halves or interleaved, by the axes of the table."""
    module = module_of(LTX2)
    return (module.apply_split_rotary_emb if table[0].ndim == 4 else module.apply_interleaved_rotary_emb)(x, table)


def like(name, rotate):
    """Return the rotation of a class by the function of the module of another class."""
    return lambda x, table, _: rotate(x, table, module_of(name))


# --- the classes ------------------------------------------------------------------------------------------------

CPU = torch.device("cpu")
FLUX = "FluxTransformer2DModel"
JOY, QWEN, WAN = "JoyImageEditTransformer3DModel", "QwenImageTransformer2DModel", "WanTransformer3DModel"
KANDINSKY_5, KANDINSKY_6 = "Kandinsky5Transformer3DModel", "Kandinsky6Transformer3DModel"
LTX, LTX2, REFINER = "LTXVideoTransformer3DModel", "LTX2VideoTransformer3DModel", "SanaWMLTX2RefinerTransformer3DModel"
COGVIDEOX, HIDREAM = "CogVideoXTransformer3DModel", "HiDreamImageTransformer2DModel"
CONSISID = "diffusers.pipelines.consisid.pipeline_consisid"
interleaved = by_function("apply_rotary_emb", embeddings)
halves = by_function("apply_rotary_emb", embeddings, use_real_unbind_dim=-2)
allegro = by_function("apply_rotary_emb_allegro", embeddings, spread=True)
lumina = of_tokens("apply_rotary_emb", embeddings, use_real=False)
wan = by_nested_function("WanAttnProcessor")
qwen = of_tokens("apply_rotary_emb_qwen", use_real=False)
nucleus = of_tokens("_apply_rotary_emb_nucleus", use_real=False)
sky_reels = by_nested_function("SkyReelsV2AttnProcessor")
sana_video = by_nested_function("SanaLinearAttnProcessor3_0")
kandinsky_5 = by_nested_function("Kandinsky5AttnProcessor", "apply_rotary")
partial_music = of_tokens("_apply_partial_rotary_emb")
anima = by_function("_apply_rotary_pos_emb", spread=True)
# The rotary class (None if there is none), its table, and the rotation.
CASES = {
    **dict.fromkeys([FLUX, "FluxControlNetModel", "ChromaTransformer2DModel"], ("FluxPosEmbed", of.ids, interleaved)),
    "OvisImageTransformer2DModel": ("OvisImagePosEmbed", of.ids, interleaved),
    "LongCatImageTransformer2DModel": ("LongCatImagePosEmbed", of.ids, interleaved),
    "BriaTransformer2DModel": ("BriaEmbedND", of.ids, interleaved),
    "BriaFiboTransformer2DModel": ("BriaFiboEmbedND", of.ids, interleaved),
    "BriaFibo2Transformer2DModel": ("RopeEmbedder", of.ids_then_batched, by_nested_function("BriaFibo2AttnProcessor")),
    "Flux2Transformer2DModel": ("Flux2PosEmbed", of.ids, interleaved),
    "Flux3Transformer2DModel": ("Flux3PosEmbed", of.ids, interleaved),
    QWEN: ("QwenEmbedRope", of.qwen, qwen),
    "QwenImageControlNetModel": ("QwenEmbedRope", of.qwen, like(QWEN, qwen)),
    "QwenImage21Transformer2DModel": ("QwenImage21Rope", of.qwen_21, qwen),
    "NucleusMoEImageTransformer2DModel": ("NucleusMoEEmbedRope", of.qwen, nucleus),
    HIDREAM: ("HiDreamImageEmbedND", of.batched_ids, by_function_of_two("apply_rope")),
    "HunyuanVideoTransformer3DModel": ("HunyuanVideoRotaryPosEmbed", of.video, interleaved),
    "HunyuanVideo15Transformer3DModel": ("HunyuanVideo15RotaryPosEmbed", of.video, interleaved),
    "HunyuanVideoFramepackTransformer3DModel": ("HunyuanVideoFramepackRotaryPosEmbed", of.frames, interleaved),
    "HunyuanImageTransformer2DModel": ("HunyuanImageRotaryPosEmbed", of.image_or_video, interleaved),
    "MotifVideoTransformer3DModel": ("MotifVideoRotaryPosEmbed", of.video, interleaved),
    **dict.fromkeys(["HunyuanDiT2DModel", "HunyuanDiT2DControlNetModel"], (None, hunyuan_dit_table, interleaved)),
    WAN: ("WanRotaryPosEmbed", of.video, wan),
    "WanVACETransformer3DModel": ("WanRotaryPosEmbed", of.video, like(WAN, wan)),
    "WanAnimateTransformer3DModel": ("WanRotaryPosEmbed", of.video, wan),
    "WanAnimate2Transformer3DModel": (None, of.animate, of_tokens("rope_apply", spread=True)),
    "SkyReelsV2Transformer3DModel": ("SkyReelsV2RotaryPosEmbed", of.video, sky_reels),
    "ChronoEditTransformer3DModel": ("ChronoEditRotaryPosEmbed", of.video, wan),
    "AnyFlowTransformer3DModel": ("AnyFlowRotaryPosEmbed", of.any_flow, by_function("apply_rotary_emb")),
    "AnyFlowFARTransformer3DModel": ("AnyFlowCausalRotaryPosEmbed", of.far, by_function("apply_rotary_emb")),
    "SanaVideoTransformer3DModel": ("WanRotaryPosEmbed", of.video, sana_video),
    "SanaWMTransformer3DModel": ("SanaWMRotaryPosEmbed", of.shape, sana),
    COGVIDEOX: (None, of.cogvideox, interleaved),
    "ConsisIDTransformer3DModel": (None, of.consisid, interleaved),
    "EasyAnimateTransformer3DModel": ("EasyAnimateRotaryPosEmbed", of.video, interleaved),
    "CogView4Transformer2DModel": ("CogView4RotaryPosEmbed", of.image, halves),
    "GlmImageTransformer2DModel": ("GlmImageRotaryPosEmbed", of.image, halves),
    "AllegroTransformer3DModel": (None, of.allegro, allegro),
    **dict.fromkeys(["CosmosTransformer3DModel", "CosmosControlNetModel"], ("CosmosRotaryPosEmbed", of.video, halves)),
    "Cosmos3OmniTransformer": ("Cosmos3VLTextRotaryEmbedding", of.cosmos_3, by_rotate_half),
    "Ideogram4Transformer2DModel": ("Ideogram4MRoPE", of.batched_ids, by_rotate_half),
    "Lumina2Transformer2DModel": ("Lumina2RotaryPosEmbed", of.lumina, lumina),
    "ZImageTransformer2DModel": ("RopeEmbedder", of.ids_then_batched, by_nested_function("ZSingleStreamAttnProcessor")),
    "Krea2Transformer2DModel": ("Krea2RotaryPosEmbed", of.ids, interleaved),
    KANDINSKY_5: ("Kandinsky5RoPE3D", kandinsky_table, kandinsky_5),
    KANDINSKY_6: ("Kandinsky6RoPE3D", kandinsky_table, of_tokens("apply_rotary")),
    "Kandinsky6SRTransformer3DModel": ("Kandinsky6SRRoPE3D", kandinsky_table, of_tokens("apply_rotary")),
    "OmniGenTransformer2DModel": ("OmniGenSuScaledRotaryEmbedding", of.hidden_states, halves),
    JOY: (None, of.joy, by_function_of_two("_apply_rotary_emb")),
    "JoyImageEditPlusTransformer3DModel": (None, joy_range_table, by_function_of_two("_apply_rotary_emb_batched")),
    "HeliosTransformer3DModel": ("HeliosRotaryPosEmbed", of.helios, of_tokens("apply_rotary_emb_transposed")),
    "MiniMaxH3Transformer3DModel": ("MiniMaxH3RotaryPosEmbed", of.ids, of_tokens("_apply_rotary_emb", spread=True)),
    "PRXTransformer2DModel": ("PRXEmbedND", of.batched_ids, by_function("apply_rope")),
    LTX: ("LTXVideoRotaryPosEmbed", ltx_table, flat(by_function("apply_rotary_emb"))),
    LTX2: ("LTX2AudioVideoRotaryPosEmbed", ltx_table, flat(ltx2)),
    REFINER: ("SanaWMLTX2AudioVideoRotaryPosEmbed", ltx_table, flat(ltx2)),
    "AceStepTransformer1DModel": (None, ace_table, halves),
    "StableAudioDiTModel": (None, stable_audio_table, stable_audio),
    "StableAudio3DiTModel": ("StableAudio3RotaryEmbedding", of.length, of_tokens("_apply_rotary_partial")),
    "LongCatAudioDiTTransformer": ("AudioDiTRotaryEmbedding", of.row, of_tokens("_apply_rotary_emb")),
    "MiniMaxMusic3Transformer1DModel": ("MiniMaxMusic3RotaryEmbedding", of.length, partial_music),
    "AnimaTextConditioner": ("AnimaRotaryEmbedding", of.hidden_states, anima),
}


def source_of(name, rotary):
    """Return the source of a class in the module of a model."""
    return inspect.getsource(getattr(module_of(name), rotary))


# Classes with float64 tables: the source of the rotary class says so, and angles are not rounded before.
FLOAT64 = {name for name, (rotary, *_) in CASES.items() if rotary and "float64" in source_of(name, rotary)}
FLOAT64 -= {"BriaFibo2Transformer2DModel", "ZImageTransformer2DModel", LTX2, REFINER}
FLOAT64 |= {"ChromaTransformer2DModel", "FluxControlNetModel"}  # the source is that of their parent
FLOAT64 |= {HIDREAM, "WanAnimate2Transformer3DModel"}


# --- random configs -------------------------------------------------------------------------------------------

# Keys of the width of a head; of two keys, the first is divided by the second. A class has the first that it knows.
HEAD_KEYS = [("attention_head_dim",), ("head_dim",), ("linear_head_dim",), ("dit_dim", "dit_heads")]
HEAD_KEYS += product(("model_dim", "hidden_size", "dim", "embed_dim"), ("num_attention_heads", "num_heads", "n_heads"))
AXES_KEYS = ("axes_dims_rope", "axes_dims", "rope_axes_dim", "rope_dim_list", "axes_dim_rope", "rope_dim", "axes_dim")
ALL_HEADS = {LTX, LTX2, REFINER}  # their frequencies rise over the pairs of all heads


def random_even(rng, least, most):
    """Return a random even number."""
    return 2 * rng.randint(least // 2, most // 2)


def random_head(name, rng):
    """Return a random width of a head, and the key that divides it among the axes."""
    known = defaults(name)
    if name == "MiniMaxH3Transformer3DModel":
        pairs = rng.randint(1, 6)
        return 6 * pairs + random_even(rng, 0, 8), {"rope_freq_dim": pairs}
    if name in ("Ideogram4Transformer2DModel", "Cosmos3OmniTransformer"):
        key = "mrope_section" if "mrope_section" in known else "rope_axes_dim"
        return random_even(rng, 24, 40), {key: [4, rng.randint(1, 4), rng.randint(1, 4)]}
    if name == "MiniMaxMusic3Transformer1DModel":
        size = random_even(rng, 2, 20)
        return size + random_even(rng, 0, 8), {"rotary_dim": size}
    key = next((key for key in AXES_KEYS if key in known and name != "CogView4Transformer2DModel"), None)
    if key is None:
        return (2 if name == "OmniGenTransformer2DModel" else 1) * random_even(rng, 12, 60), {}
    counts = {"HunyuanImageTransformer2DModel": rng.choice([2, 3]), HIDREAM: 3, "PRXTransformer2DModel": 2}
    count = counts.get(name) or len(known[key] or (0, 0, 0))
    sizes = [random_even(rng, 2, 20) for _ in range(count)]
    return sum(sizes), {key: sizes}


def random_config(name, rng):
    """Return a random config of a class: a width that divides among its axes is drawn until the reader accepts it."""
    for _ in range(100):
        dim, keys = random_head(name, rng)
        parameters = inspect.signature(class_of(name).__init__).parameters
        heads, head = rng.randint(1, 3), next((keys for keys in HEAD_KEYS if parameters.keys() >= set(keys)), None)
        if name in ALL_HEADS:
            keys |= {"num_attention_heads": heads, "attention_head_dim": random_even(rng, 8, 20)}
        elif head:
            keys |= {head[0]: dim} if len(head) == 1 else {head[0]: heads * dim, head[1]: heads}
        for key, value in defaults(name).items():
            if key in ("rope_theta", "theta", "rope_base") and isinstance(value, int | float):
                keys[key] = rng.choice([100, 256.0, 10_000] if name in ALL_HEADS else [100, 10_000, 500_000.0])
            if key.startswith("interpolation_scale_") and value:
                keys[key] = rng.uniform(1, 3)
            if key == "rope_scale" or (key == "scale_factor" and "Kandinsky" in name):
                keys[key] = [rng.uniform(1, 3) for _ in range(3)]
        keys |= required_keys(name, dim, rng, keys)
        try:
            Rope.from_config({"_class_name": name, **keys})
        except ValueError:
            continue
        return keys
    raise AssertionError(name)


def longrope_keys(dim, rng):
    """Return the keys of OmniGen's LongRoPE."""
    lists = {key: [rng.uniform(1, 4) for _ in range(dim // 2)] for key in ("short_factor", "long_factor")}
    lengths = {"original_max_position_embeddings": rng.choice([4, 4096]), "max_position_embeddings": 131_072}
    return {"rope_scaling": {"type": "su", **lists}, **lengths}


# Keys that a class or the reader needs if they are not the class's own, and keys that only this class has.
NEEDED_KEYS = {"axes_lens": [40, 40, 40], "patch_size": 2, "use_rotary_positional_embeddings": True}
DRAWN_KEYS = {
    KANDINSKY_5: lambda _, rng, *__: {"scale_factor": [rng.uniform(1, 3) for _ in range(3)]},
    HIDREAM: lambda *args: {"axes_dims_rope": [64, 32, 32]} | args[2],  # its default is too short for its forward
    "OmniGenTransformer2DModel": lambda dim, rng, _: longrope_keys(dim, rng),
    "HunyuanImageTransformer2DModel": lambda *args: {"patch_size": [1] * len(args[2].get("rope_axes_dim", "hw"))},
    "CogView4Transformer2DModel": lambda _, rng, *__: {"rope_axes_dim": [rng.randint(5, 300), rng.randint(5, 300)]},
    "ChronoEditTransformer3DModel": lambda _, rng, *__: {"rope_temporal_skip_len": rng.randint(2, 9)},
    "LTX2VideoTransformer3DModel": lambda _, rng, *__: {"rope_type": rng.choice(["split", "interleaved"])},
}


def required_keys(name, dim, rng, keys):
    """Return more keys that a class or the reader needs, and keys that only this class has."""
    known = defaults(name)
    needed = {key: NEEDED_KEYS[key] for key in NEEDED_KEYS.keys() & known if key == "axes_lens" or not known[key]}
    return needed | DRAWN_KEYS.get(name, lambda *_: {})(dim, rng, keys)


def default_keys(name):
    """Return the keys without which a default config cannot be read."""
    return required_keys(name, 96, random.Random(name), {})


def positions_of(rope, name, keys, shape, rng):
    """Return positions for a class: those of its grid, those of a shape, or random ones."""
    places = grid(name, keys, shape)
    if places is not None:
        return places
    if not isinstance(rope.frequencies[0], tuple):
        return [(p,) for p in range(math.prod(shape))]
    if CASES[name][1] in FROM_SHAPE:
        return list(product(*map(range, shape)))
    draw = functools.partial(rng.uniform, -1, 1) if name in ALL_HEADS else functools.partial(rng.randint, 0, 39)
    return [tuple(draw() for _ in rope.frequencies) for _ in range(math.prod(shape))]


def tolerance(name, angle, x):
    """Return how far a rotation may be from that of a class."""
    # Each float32 product has an error of 2⁻²⁴: a few in the frequency and the angle, and four in the rotation.
    error = 2**-8 if name == KANDINSKY_5 else (8 if name in FLOAT64 else 8 + 8 * angle) * 2**-24
    return error * float(x.abs().max())


def compare(monkeypatch, name, keys, shape, rng):
    """Check that the Rope and the class rotate an array equally, and that another pairing or base does not."""
    (rotary, table, rotate), length = CASES[name], math.prod(shape)
    (one,) = config.read({"_class_name": name, **keys}).explain(sequence_length=length, part="transformer")
    rope, places = one.rope, positions_of(one.rope, name, keys, shape, rng)
    arguments = {key: value for key, value in keys.items() if key in inspect.signature(class_of(name)).parameters}
    module = None if rotary is None else rotary_module(monkeypatch, name, rotary, arguments)
    width, heads = one.facts["head_dim"].value, 1 if name in ALL_HEADS else 2
    torch.manual_seed(rng.randint(0, 2**31))
    x = torch.randn(1, heads, len(places), width)
    at, whole = torch.tensor(places), defaults(name) | keys
    model = SimpleNamespace(config=SimpleNamespace(**whole), rope_freqs_cache={})
    c = SimpleNamespace(name=name, config=whole, model=model, shape=shape, positions=places, ids=at, rope=module)
    expected = rotate(x, table(c), module_of(name))
    rows = rows_of(rope)
    positions = (at if len(rows) > 1 else at[:, 0]).double()
    angle = max(abs(f * p) for place in places for row, p in zip(rows, place, strict=True) for f in row)
    limit = tolerance(name, angle, x) * rope.attention_factor

    def largest_error(**changes):
        """Return the largest difference from diffusers with a changed Rope."""
        rotated = dataclasses.replace(rope, **changes).apply(x, positions)
        assert expected.shape == rotated.shape
        return float((expected.float() - rotated).abs().max())

    assert largest_error() <= limit
    other_pairing = {"half": "interleaved", "interleaved": "half"}[rope.pairing]
    faster = tuple(tuple(1.1 * f for f in row) for row in rows)
    assert not angle or largest_error(frequencies=faster if len(rows) > 1 else faster[0]) > limit
    assert len(rows[0]) == rope.blocks or not angle or largest_error(pairing=other_pairing) > limit


@pytest.mark.parametrize("name", CASES)
def test_random_configs_rotate_like_the_class(monkeypatch, name):
    rng = random.Random(name)
    for _ in range(3):
        keys = random_config(name, rng)
        shape = tuple(rng.randint(2, 5) for _ in range(3))
        try:
            grid(name, keys, shape)
        except ValueError:  # a class that makes images
            shape = (1, *shape[1:])
        compare(monkeypatch, name, keys, shape, rng)


@pytest.mark.parametrize("name", CASES)
def test_default_configs_rotate_like_the_class(monkeypatch, name):
    compare(monkeypatch, name, default_keys(name), (1, 3, 4), random.Random(name))


# Which of the rotary modules of a class rotate what, in the order of their construction.
FURTHER = {(LTX2, "audio"): [1], (LTX2, "cross"): [2, 3], (REFINER, "audio"): [1], (REFINER, "cross"): [2, 3]}
FURTHER |= {(KANDINSKY_5, "text"): [0], (KANDINSKY_6, "audio"): [0]}
FURTHER |= {(KANDINSKY_6, "text"): [1], (KANDINSKY_6, "audio_text"): [2]}
LTX_KEYS = {"num_layers": 1, "num_attention_heads": 2, "audio_num_attention_heads": 2}
LTX_KEYS |= {"attention_head_dim": 24, "audio_attention_head_dim": 16, "audio_cross_attention_dim": 32}
LTX_KEYS |= {"pos_embed_max_pos": 20, "audio_pos_embed_max_pos": 30}
KANDINSKY_KEYS = {"num_text_blocks": 1, "num_visual_blocks": 1, "axes_dims": [8, 4, 4], "model_dim": 32}
KANDINSKY_6_KEYS = KANDINSKY_KEYS | {"axes_dims_a": [4, 12, 8], "model_dim_a": 48}
KANDINSKY_6_KEYS |= {"audio_freqs_scaling": 1.7, "ca_rope": True}


@pytest.mark.parametrize(("name", "kind"), FURTHER)
@pytest.mark.parametrize("changes", [{}, {"rope_type": "split", "rope_theta": 100.0, "axes_dims_a": None}])
def test_further_rotations_equal_those_of_the_class(monkeypatch, name, kind, changes):
    keys = KANDINSKY_6_KEYS if "6" in name else KANDINSKY_KEYS if "Kandinsky" in name else LTX_KEYS
    keys = keys | {key: value for key, value in changes.items() if key in defaults(name)}
    whole, part = {"_class_name": name, **default_keys(name), **keys}, f"transformer.{kind}"
    parts = {f"transformer.{other}" for one, other in FURTHER if one == name}
    assert set(config.read(whole).parts) == {"transformer"} | parts
    (one,) = config.read(whole).explain(part=part)
    with pytest.raises(ValueError, match="the caller chooses them"):
        config.read(whole).positions((2, 2), part=part, like=np.empty(0))
    width, rope, rotary = one.facts["head_dim"].value, one.rope, CASES[name][0].replace("RoPE3D", "RoPE1D")
    for index in FURTHER[name, kind]:
        table_of, x = rotary_module(monkeypatch, name, rotary, keys, index), torch.randn(1, 1, 9, width)
        if "Kandinsky" in name:
            positions = torch.arange(9)
            expected = CASES[name][2](x, table_of(positions), module_of(name))
        else:
            positions = torch.rand(9, dtype=torch.float64) * 2 - 1
            expected = flat(ltx2)(x, table_of(((positions + 1) / 2 * 30).float()[None, None]), None)
        limit = tolerance(name, max(rope.frequencies) * float(positions.abs().max()), x)
        assert float((rope.apply(x, positions) - expected).abs().max()) <= limit
        assert float((x - expected).abs().max()) > 10 * limit


def test_further_rotations_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="audio_cross_attention_dim must agree with audio_num_attention_heads · audio"):
        Rope.from_config({"_class_name": LTX2, **LTX_KEYS, "audio_cross_attention_dim": 48}, part="transformer.cross")
    odd = {"_class_name": KANDINSKY_6, "axes_dims_a": [5, 12, 8]}
    with pytest.raises(ValueError, match="the head dimension must be even; got 25"):
        Rope.from_config(odd, part="transformer.audio")


CROPPED = [COGVIDEOX, "HunyuanDiT2DModel", "HunyuanDiT2DControlNetModel", "ConsisIDTransformer3DModel"]
CROPPED += ["EasyAnimateTransformer3DModel", "CogView4Transformer2DModel"]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 30, 45), (1, 7, 20), (1, 23, 5), (1, 34, 60)])
@pytest.mark.parametrize("name", CROPPED)
def test_a_grid_is_resized_like_that_of_the_class(monkeypatch, name, shape):
    rng = random.Random(str(shape))
    keys = random_config(name, rng)
    frames = 1 if len(Rope.from_config({"_class_name": name, **keys}).frequencies) == 2 else 3
    compare(monkeypatch, name, keys, (frames, *shape[1:]), rng)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 8, 11), (2, 30, 45)])
def test_cogvideox_1_5_crops_the_base_grid(monkeypatch, shape):
    keys = random_config(COGVIDEOX, random.Random(1)) | {"patch_size_t": 2}
    compare(monkeypatch, COGVIDEOX, keys, shape, random.Random(2))
    with pytest.raises(ValueError, match=r"at most 30 rows and 45 columns; got \(31, 45\)"):
        grid(COGVIDEOX, keys, (1, 31, 45))
    with pytest.raises(ValueError, match=r"sample_height // patch_size must be from 1"):
        grid(COGVIDEOX, keys | {"sample_height": 1}, shape)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_chronoedit_skips_positions_between_two_frames(monkeypatch, frames):
    keys = {"attention_head_dim": 32, "rope_temporal_skip_len": 8}
    with pytest.raises(ValueError, match=r"head_dim 64, .* must have 3 items; got 0"):
        Rope.from_config({"_class_name": "ChronoEditTransformer3DModel", "attention_head_dim": 64})
    compare(monkeypatch, "ChronoEditTransformer3DModel", keys, (frames, 2, 3), random.Random(3))


@pytest.mark.parametrize("name", ["Flux", "Chroma", "OvisImage", "Bria", "BriaFibo", "Flux2", "Krea2"])
def test_a_grid_equals_that_of_the_pipeline(name):
    pipeline = getattr(diffusers, f"{name}Pipeline")
    if name == "Flux2":
        expected = pipeline._prepare_latent_ids(torch.empty(1, 1, 3, 4))[0]  # of diffusers: no public name has the grid
    elif name == "Krea2":
        expected = pipeline.prepare_position_ids(2, 3, 4, "cpu")[2:]
    else:
        expected = pipeline._prepare_latent_image_ids(1, 3, 4, "cpu", torch.float32).reshape(-1, 3)
    assert grid(f"{name}Transformer2DModel", {}, (3, 4)) == list(map(tuple, expected.tolist()))


# --- all classes are listed, and the others are refused -------------------------------------------------------


def models():
    """Return the names of the models in the files of transformers and control networks."""
    found = set()
    for folder in ("transformers", "controlnets"):
        package = importlib.import_module(f"diffusers.models.{folder}")
        for file in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{file.name}")
            for name, value in inspect.getmembers(module, inspect.isclass):
                if issubclass(value, diffusers.ModelMixin) and value.__module__ == module.__name__:
                    found.add(name)
    return {name for name in found if not name.startswith("_") and "Multi" not in name}


MODELS = models()


def refusal(name, **keys):
    """Return the message of the error for a config of a class."""
    with pytest.raises((TypeError, ValueError)) as caught:
        Rope.from_config({"_class_name": name, **keys})
    return str(caught.value)


def test_every_class_is_known():
    """A class is read, or refused with the reason; only unknown ones are to be made by hand."""
    reasons = {name: refusal(name) for name in MODELS if name not in CASES}
    assert not [name for name, reason in reasons.items() if "by hand" in reason]
    assert "by hand" in refusal("FluxTransformer9DModel")
    assert len(CASES) + len(reasons) == len(MODELS | CASES.keys())


@pytest.mark.parametrize("name", [name for name in sorted(MODELS) if name not in CASES])
def test_the_source_of_a_class_without_rotary_has_no_rotary(name):
    reason = refusal(name)
    if "has no rotary" in reason:
        (one,) = config.read({"_class_name": name}).explain()
        assert one.rope is None and config.read({"_class_name": name}).parts == ()
        assert not re.search(r"(?i)rotary|\brope\b|rope_", inspect.getsource(module_of(name)))
    else:
        assert re.search(f"_class_name must be .*; got '{name}'; .+", reason)
    with pytest.raises(ValueError, match=f"got '{name}'"):
        grid(name, {}, (2, 2))


@pytest.mark.parametrize("name", CASES)
def test_all_arguments_of_the_constructor_are_accepted_and_their_defaults_change_nothing(name):
    given = json.loads(json.dumps({key: value for key, value in defaults(name).items() if value is not None}))
    plain = {"_class_name": name, **default_keys(name)}
    assert Rope.from_config(given | plain) == Rope.from_config(plain)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] in {interleaved, halves}])
def test_the_pairing_is_in_the_code_of_the_class(name):
    source = inspect.getsource(module_of(name))
    if "apply_rotary_emb(" in source:
        assert ("use_real_unbind_dim=-2" in source) == (CASES[name][2] is halves)


def test_ernie_image_does_not_rotate():
    module = module_of("ErnieImageTransformer2DModel")
    table = module.ErnieImageEmbedND3(16, 256, (4, 6, 6))(torch.tensor([[[1.0, 2.0, 3.0]]]))
    x = torch.randn(1, 1, 1, 16, generator=torch.Generator().manual_seed(0))
    rotated = nested(module.ErnieImageSingleStreamAttnProcessor.__call__, "apply_rotary_emb")(x, table)
    assert abs(float(rotated.norm() / x.norm()) - 1) > 1e-3


def test_mochi_learns_its_frequencies():
    assert "pos_frequencies = nn.Parameter" in inspect.getsource(module_of("MochiTransformer3DModel"))


# Each kind of check once, and what would be another rotation if it were ignored.
TWO = {"rope_axes_dim": [24, 20, 20]}
WRONG = [
    (FLUX, {"axes_dims_rope": [16, 56]}, "axes_dims_rope must have 3 items"),
    (FLUX, {"axes_dims_rope": [16, 56, 54]}, "axes_dims_rope must sum to the head dimension, 128"),
    (FLUX, {"axes_dims_rope": [15, 57, 56]}, "axes_dims_rope must give each axis an even number of features"),
    (FLUX, {"axes_dims_rope": None}, f"axes_dims_rope must be given for {FLUX}; got null"),
    (FLUX, {"attention_head_dim": 0}, "attention_head_dim must be from 1 to"),
    (FLUX, {"rope_theta": 5e5}, f"rope_theta must not be given for {FLUX}, whose class does not read it"),
    (WAN, {"rope_scaling": {"type": "yarn"}}, "rope_scaling must not be given"),
    (COGVIDEOX, {}, "use_rotary_positional_embeddings must be True"),
    ("SanaWMTransformer3DModel", {"use_pe": False}, "use_pe must be True"),
    ("AllegroTransformer3DModel", {"interpolation_scale_t": 0}, "interpolation_scale_t must be positive"),
    (KANDINSKY_5, {}, f"scale_factor must be given for {KANDINSKY_5} (its pipelines choose"),
    ("Ideogram4Transformer2DModel", {"attention_head_dim": 64}, "be sections that fit into the head"),
    ("Cosmos3OmniTransformer", {"rope_scaling": {"factor": 2.0}}, "rope_scaling.factor must not be given"),
    ("Cosmos3OmniTransformer", {"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling.rope_type must be 'mrope' here"),
    ("Cosmos3OmniTransformer", {"rope_scaling": {"mrope_section": [20, 22, 22]}, **TWO}, "agree with rope_axes_dim"),
    ("OmniGenTransformer2DModel", {}, "rope_scaling.short_factor must be given"),
    (LTX2, {"rope_type": "half"}, "rope_type must be interleaved or split"),
    ("ZImageTransformer2DModel", {"n_heads": 7}, "dim must be a multiple of the 7 heads; got 3840"),
    ("MiniMaxH3Transformer3DModel", {"rope_freq_dim": 30}, "at most a sixth of the head dimension, 128"),
    ("FluxPipeline", {}, "; give the folder of the pipeline, or the config.json of its transformer"),
    ("FluxTransfomer2DModel", {}, "by hand: Rope(axes.axial(…), pairing=…); did you mean FluxTransformer2DModel?"),
    ("Transformer2DModel", {"rope_theta": 1e6}, "rope_theta must not be given for Transformer2DModel of diffusers"),
    (7, {}, "_class_name must be a name"),
]


@pytest.mark.parametrize(("name", "keys", "message"), WRONG)
def test_configs_that_the_class_cannot_use_are_refused(name, keys, message):
    assert message in refusal(name, **keys)


@pytest.mark.parametrize("shape", [(1,), (0, 2), (2.0, 2), 5, (2**12, 2**12), (2, 2, 2)])
def test_wrong_grids_are_refused(shape):
    assert grid(FLUX, {}, (1, 2, 1)) == [(0, 0, 0), (0, 1, 0)]  # an image has one frame
    with pytest.raises((TypeError, ValueError), match="shape must be"):
        grid(FLUX, {}, shape)


def test_no_positions_are_returned_if_the_pipeline_decides_them():
    assert grid("ZImageTransformer2DModel", {}, (2, 2)) is grid("StableAudioDiTModel", {}, (2, 2)) is None


def facts(name, **keys):
    """Return the facts of a class's main rotation."""
    return config.read({"_class_name": name, **keys}).explain(part="transformer")[0].facts


def test_each_number_has_its_source():
    flux = facts("Flux2Transformer2DModel", rope_theta=300)
    assert flux["rope_theta"] == (300, "rope_theta")
    assert flux["axes"] == ((32, 32, 32, 32), "default of Flux2Transformer2DModel")
    split = facts(LTX2, rope_type="split", num_attention_heads=4, attention_head_dim=16)
    assert split["blocks"] == (4, "num_attention_heads")
    assert "all heads side by side" in split["covers"].value
    assert len(config.read({"_class_name": FLUX, "num_layers": 2, "num_single_layers": 3}).layers()) == 5


@pytest.mark.parametrize(("length", "used"), [(4096, "short_factor"), (4097, "long_factor")])
def test_the_length_chooses_the_factors_of_omnigen(length, used):
    lists = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    omnigen = {"_class_name": "OmniGenTransformer2DModel", "rope_scaling": lists}
    assert config.read(omnigen).explain(sequence_length=length)[0].facts["factors"] == (used, f"rope_scaling.{used}")


def test_numpy_values_are_accepted():
    keys = {"axes_dims_rope": [np.int64(8), 4, 4, 4], "attention_head_dim": np.int32(20), "rope_theta": np.float32(100)}
    plain = {"axes_dims_rope": [8, 4, 4, 4], "attention_head_dim": 20, "rope_theta": 100.0}
    assert facts("Flux2Transformer2DModel", **keys) == facts("Flux2Transformer2DModel", **plain)
    assert grid(QWEN, {"use_layer3d_rope": np.bool_(True)}, (2, 2)) is None


def test_null_is_replaced_as_by_the_constructor():
    assert facts(JOY, rope_dim_list=None, hidden_size=72, num_attention_heads=3)["axes"].value == (8, 8, 8)
    assert facts("PRXTransformer2DModel", axes_dim=None)["axes"].value == (32, 32)
