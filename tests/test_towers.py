"""
Vision towers of transformers: our recipes and grids compared with the models' own code, on random queries and keys.

If possible, a test runs a small random tower, replaces the queries and keys that its attention rotates by random ones,
and records the results: so the angles and the order of the tokens are those of the tower.
"""

import ast
import contextlib
import copy
import functools
import importlib
import json
import random
import re
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from newer import skip_if_absent

import rope_any as ra

torch = pytest.importorskip("torch", reason="the peers run on torch")
transformers = pytest.importorskip("transformers", minversion="5.20", reason="the peers are models of transformers")
pytestmark = pytest.mark.usefixtures("one_thread")
FOLDER = Path(transformers.__file__).parent / "models"
# Tables of transformers are float32: angles of up to 30 radians have errors of 2e-6, and a few roundings follow.
ATOL = 2e-5
HEADS = 3
ROTATED = ("q", "k", "query", "key", "x")  # names of the rotated arguments in functions of transformers


def tower_of(model_type, **keys):
    """Return a tower's own config, as a file has it."""
    return json.loads(json.dumps({"model_type": model_type, **keys}))


def within(model_type, path, keys):
    """Return a config with keys at the end of a path of objects."""
    return {"model_type": model_type} | functools.reduce(lambda inner, key: {key: inner}, reversed(path), keys)


def facts(model):
    """Return the facts about the rotation of a tower."""
    (one,) = ra.config.read(model).explain(part="vision")
    return one.facts


def grid(model, shape, part="vision"):
    """Return the positions of a grid as tuples, in the order of the tower's tokens."""
    return tuple(map(tuple, ra.config.read(model).positions(shape, part=part, like=np.empty(0)).tolist()))


class Passes(torch.nn.Module):
    """Replacement for the patch embedding: returns its input."""

    def forward(self, x, *_, **__):
        """Return x."""
        return x


class RotationRecorded(Exception):  # noqa: N818
    """Ends a run when the rotation was recorded."""


def modeling(folder):
    """Return the modeling module of a folder of transformers."""
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def config_class(model_type):
    """Return the class of a config; some parts of larger configs are not in the table of all."""
    folder = PEERS[model_type][0]
    module = importlib.import_module(f"transformers.models.{folder}.configuration_{folder}")
    return next(c for c in vars(module).values() if getattr(c, "model_type", None) == model_type)


def configs_of(name, keys, **few):
    """Return the config of a tower as its class has it, with few further keys, and as a file has it."""
    return config_class(name)(**few, **copy.deepcopy(keys)), tower_of(name, **keys)


def uniform(*shape):
    """Return uniform random numbers between −1 and 1."""
    return torch.rand(*shape) * 2 - 1


def recorded_rotation(module, function, run):
    """Return pairs (random queries or keys, the same rotated by the model) of a run of a model."""
    original, seen = getattr(module, function), []

    def spy(*args, **options):
        """Rotate random arrays in place of the given ones, record both, and stop the forward pass."""
        given = signature(original).bind(*args, **options)
        drawn = {name: uniform(*x.shape) for name, x in given.arguments.items() if name in ROTATED}
        xs, given.arguments = drawn.values(), given.arguments | drawn
        outs = original(*given.args, **given.kwargs)
        seen.extend(zip(xs, outs if isinstance(outs, tuple) else (outs,), strict=True))
        raise RotationRecorded

    with pytest.MonkeyPatch.context() as patch, torch.no_grad(), contextlib.suppress(RotationRecorded):
        patch.setattr(module, function, spy)
        run()
    assert seen, f"{function} was not called"
    return seen


def assert_rotates(model, positions, pairs, *, part="vision", before=0, after=0):
    """Compare our rotation with recorded ones; the model has numbers of class tokens before and after the patches."""
    at = ra.positions.unrotated(torch.tensor(positions), before=before, after=after, axes=len(positions[0]))
    rope = ra.Rope.from_config(model, part=part)
    for x, theirs in pairs:
        (axis,) = (i for i, n in enumerate(x.shape[:-1]) if n == len(at))
        ours = rope.apply(x, at, seq_axis=axis - x.ndim)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=ATOL)
        assert (ours - x).abs().max() > 0.1  # it rotates at all


def assert_close(rope, at, xs, rotated):
    """Compare arrays rotated by our Rope with what the model made of them."""
    for x, theirs in zip(xs, rotated, strict=True):
        np.testing.assert_allclose(rope.apply(x, at).numpy(), theirs.numpy(), rtol=0, atol=ATOL)


def packed(embed="patch_embed", **keys):
    """Return how to run a tower that takes patches of all images in one sequence."""

    def run(model, shape, width):
        """Run a model whose patches are packed in one row."""
        setattr(model, embed, Passes())
        model(uniform(int(np.prod(shape)), width), grid_thw=torch.tensor([shape]), **keys)

    return run


def pixels(model, shape, _):
    """Run a model on the pixels of an image."""
    model(uniform(1, 3, *(n * model.config.patch_size for n in shape[-2:])))


def tokens(model, shape, _):
    """Run Inkling 2, which counts its grid in merged tokens."""
    merge, patch = model.config.spatial_merge_size, model.config.patch_size
    frames, rows, columns = shape[0], shape[1] // merge, shape[2] // merge
    x = uniform(frames * rows * columns, merge * patch, merge * patch, 3)
    model(x, torch.tensor([[frames, rows, columns]]))


def has_no_rotary(name):
    """Return whether a model type of transformers is read as one that never rotates."""
    try:
        (one,) = ra.config.read({"model_type": name}).explain()
    except ValueError:  # it is unknown, or has several kinds of layers
        return False
    own = transformers.CONFIG_MAPPING[name].model_type == name
    return own and one.facts == {"rotary": (None, f"{name} has no rotary embedding")}


UNROTATED = sorted(filter(has_no_rotary, transformers.CONFIG_MAPPING))
VISION = "apply_rotary_pos_emb_vision"
SMALL = {"patch_size": 2, "image_size": 16}
# folder, model, how to run it, further keys
PEERS = {
    "qwen2_vl_vision": ("qwen2_vl", "Qwen2VisionTransformerPretrainedModel", packed(), {}),
    "qwen2_5_vl_vision": ("qwen2_5_vl", "Qwen2_5_VisionTransformerPretrainedModel", packed(), {"window_size": 56}),
    "qwen2_5_omni_vision_encoder": ("qwen2_5_omni", "Qwen2_5OmniVisionEncoder", packed(), {"window_size": 60}),
    "exaone4_5_vision": ("exaone4_5", "Exaone4_5_VisionModel", packed(), {"window_size": 30, "patch_size": 5}),
    "qwen3_vl_vision": ("qwen3_vl", "Qwen3VLVisionModel", packed(), {}),
    "qwen3_vl_moe_vision": ("qwen3_vl_moe", "Qwen3VLMoeVisionModel", packed(), {}),
    "qwen3_5_vision": ("qwen3_5", "Qwen3_5VisionModel", packed(), {}),
    "qwen3_5_moe_vision": ("qwen3_5_moe", "Qwen3_5MoeVisionModel", packed(), {}),
    "qwen3_omni_moe_vision_encoder": ("qwen3_omni_moe", "Qwen3OmniMoeVisionEncoder", packed(), {}),
    "qwen4_exp_vision": ("qwen4_exp", "Qwen4ExpVisionModel", packed(), {}),
    "cohere_compass_vision": ("cohere_compass", "CohereCompassVisionModel", packed(), {}),
    "glm4v_vision": ("glm4v", "Glm4vVisionModel", packed(), {}),
    "glm4v_moe_vision": ("glm4v_moe", "Glm4vMoeVisionModel", packed(), {}),
    "glm_ocr_vision": ("glm_ocr", "GlmOcrVisionModel", packed(), {}),
    "glm5_next_vision": ("glm5_next", "Glm5NextVisionModel", packed(), {}),
    "ernie4_5_vl_moe_vision": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeVisionTransformerPretrainedModel", packed(), {}),
    "dots3_note_vision_encoder": ("dots3_note", "Dots3NoteVisionModel", packed(), {}),
    "lfm3_vl_vision": ("lfm3_vl", "Lfm3VlVisionModel", packed(), {}),
    "paddleocr_vl_vision": ("paddleocr_vl", "PaddleOCRVisionTransformer", packed("embeddings"), {}),
    "video_llama_3_vision": ("video_llama_3", "VideoLlama3VisionModel", packed("embeddings"), {}),
    "kimi_k25_vision": ("kimi_k25", "Kimi_K25VisionModel", packed(), {}),
    "inkling2_vision": ("inkling2", "Inkling2VisionModel", tokens, {"patch_size": 2}),
    "muse_glimmer_vision": ("muse_glimmer", "MuseGlimmerVisionModel", packed("patch_embedder"), {"pos_emb_height": 4}),
    "muse_spark_vision": ("muse_spark", "MuseSparkVisionModel", packed("patch_embedder"), {"pos_emb_height": 5}),
    "minimax_m3_vl_vision": ("minimax_m3_vl", "MiniMaxM3VLVisionModel", packed("embeddings"), {}),
    "step3p5_vision": ("step3p7", "Step3p7VisionModel", pixels, SMALL),
    "pixtral": ("pixtral", "PixtralVisionModel", pixels, SMALL),
    "llama4_vision_model": ("llama4", "Llama4VisionModel", pixels, SMALL),
    "gemma4_vision": ("gemma4", "Gemma4VisionEncoder", None, {}),
    "sam3_vit_model": ("sam3", "Sam3ViTLayer", None, {}),
    "dinov3_vit": ("dinov3_vit", "DINOv3ViTRopePositionEmbedding", None, {}),
    "sapiens2": ("sapiens2", "Sapiens2RopePositionEmbedding", None, {}),
    "eomt_dinov3": ("eomt_dinov3", "EomtDinov3RotaryEmbedding", None, {}),
    "sam2_video": ("sam2_video", "Sam2VideoMemoryAttention", None, {}),
    "edgetam_video": ("edgetam_video", "EdgeTamVideoMemoryAttention", None, {}),
    "sam3_tracker_video": ("sam3_tracker_video", "Sam3TrackerVideoMemoryAttention", None, {}),
}


# Classes whose table of frequencies is compared as a whole, and how our frequencies are scaled.
TABLES = dict.fromkeys(PEERS.keys() - {"llama4_vision_model", "dinov3_vit", "sapiens2"}, 1.0)
TABLES["eomt_dinov3"] = 2 * np.pi
CLASS_TOKENS = {"inkling2_vision": (1, 0), "llama4_vision_model": (0, 1)}  # before and after the patches
# Further inputs of a model, on which its rotation does not depend.
OTHERS = {
    "qwen2_vl_vision": {"hidden_size": 24},
    "lfm3_vl_vision": {"layer_types": ["full_attention"]},
    "dots3_note_vision_encoder": {"mlp_layer_types": ["dense"]},
    "llama4_vision_model": dict.fromkeys(("projector_input_dim", "projector_output_dim", "vision_output_dim"), 8)
    | {"intermediate_size": 96},
}


def drawn(name, seed):
    """Return the sizes of a small tower: the width of a head, the base, and the side of a block."""
    rng = random.Random(f"{name} {seed}")
    widths = (16, 20, 28) if name == "minimax_m3_vl_vision" else (10, 18, 32) if name == "pixtral" else (8, 20, 32)
    return rng.choice(widths), round(rng.uniform(20, 5000), 2), rng.choice((1, 2, 3))


# Towers that merge patches (as do those with `num_heads`), and towers of videos that do not merge.
MERGED = {"lfm3_vl_vision", "dots3_note_vision_encoder", "inkling2_vision", "minimax_m3_vl_vision"}
REFUSED = {"mlcd_vision_model", "qwen2_5_omni_dit", "musicflamingo", "efficientloftr", "lightglue", "vjepa2"}
REFUSED |= {"timm_wrapper"}
FRAMES = {"paddleocr_vl_vision", "video_llama_3_vision", "kimi_k25_vision", "muse_glimmer_vision", "muse_spark_vision"}


def keys_of(name, head, base, merge):
    """Return the keys of a small tower, as a file has them."""
    theirs = config_class(name)()
    width = "embed_dim" if name == "qwen2_vl_vision" else "hidden_size"
    heads = "num_heads" if hasattr(theirs, "num_heads") else "num_attention_heads"
    merged = {"spatial_merge_size": merge} if name in MERGED or "num_heads" in heads else {}
    return {width: HEADS * head, heads: HEADS, "rope_parameters": {"rope_theta": base}} | merged | PEERS[name][3]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer[2]])
def test_a_tower_rotates_like_its_model(name, seed):
    head, base, merge = drawn(name, seed)
    keys = keys_of(name, head, base, merge)
    torch.manual_seed(seed)
    few = {"num_hidden_layers": 1, "intermediate_size": 8} | OTHERS.get(name, {})
    if name == "dots3_note_vision_encoder":
        few |= {"adapter_in_dim": HEADS * head, "adapter_merge_size": merge}
    videos = name in FRAMES or ("spatial_merge_size" in keys and not name.startswith("glm4v"))
    shape = (2 if videos else 1, *((8, 8) if "llama4" in name else (6, 12) if seed else (12, 6)))
    compare_tower(name, *configs_of(name, keys, **few), shape)


def compare_tower(name, config, whole, shape, part="vision"):
    """Compare queries and keys of the first layer, in the order in which the tower has the tokens."""
    folder, model, run, _ = PEERS[name]
    model = getattr(modeling(folder), model)(config).eval()
    if name == "video_llama_3_vision":  # whose blocks are the caller's
        run = packed("embeddings", merge_sizes=torch.tensor([2]))
        with pytest.raises(ValueError, match="the caller chooses them"):
            grid(whole, shape)
        places = grid(tower_of("qwen2_vl_vision", spatial_merge_size=2), shape)
    else:
        places = grid(whole, shape, part)
    function = {"pixtral": "apply_rotary_pos_emb", "llama4_vision_model": "vision_apply_rotary_emb"}.get(name, VISION)
    width = config.embed_dim if name == "qwen2_vl_vision" else config.hidden_size
    pairs = recorded_rotation(modeling(folder), function, lambda: run(model, shape, width))
    before, after = CLASS_TOKENS.get(name, (0, 0))
    assert_rotates(whole, places, pairs, part=part, before=before, after=after)


# --- towers of which only the rotation is run -----------------------------------------------------------------


def test_gemma4_rotates_like_its_model():
    head, base, _ = drawn("gemma4_vision", 0)
    keys = {"head_dim": 2 * head, "rope_parameters": {"rope_theta": base}}
    sizes = {"hidden_size": 24, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    config, whole = configs_of("gemma4_vision", keys | sizes, num_hidden_layers=1, intermediate_size=8)
    compare_gemma4(config, whole)
    assert facts(whole)["blocks"].value == 2


def compare_gemma4(config, whole):
    """Compare columns before rows, each in its half of the head, at the positions that the processor gives."""
    encoder, shape = modeling("gemma4").Gemma4VisionEncoder(config).eval(), (6, 12)
    pil = importlib.import_module("transformers.models.gemma4.image_processing_pil_gemma4")
    image = np.zeros((*(16 * n for n in shape), 3), np.uint8)
    made = pil.Gemma4ImageProcessorPil(do_resize=False)(image, return_tensors="pt")["image_position_ids"][0]
    made = made[made[:, 0] >= 0]  # others are padding
    places = grid(whole, shape)
    assert made.tolist() == [list(place) for place in places]
    x = uniform(1, 72, config.hidden_size)
    run = functools.partial(encoder, x, attention_mask=None, pixel_position_ids=made[None])
    assert_rotates(whole, places, recorded_rotation(modeling("gemma4"), "apply_multidimensional_rope", run))


@pytest.mark.parametrize("shape", [(8, 8), (4, 4)], ids=["global", "window"])
def test_sam3_rotates_like_its_model(shape):
    head, base, _ = drawn("sam3_vit_model", shape)
    keys = {"hidden_size": HEADS * head, "num_attention_heads": HEADS, "image_size": 40, "patch_size": 5}
    keys |= {"window_size": 4, "rope_parameters": {"rope_theta": base}}
    compare_sam3(*configs_of("sam3_vit_model", keys, intermediate_size=8), shape)


def compare_sam3(config, whole, shape, part="vision"):
    """Compare layers of windows, or layers whose grid is put onto that of a window."""
    window = config.window_size if shape == (config.window_size,) * 2 else 0
    peer, side = modeling("sam3"), config.image_size // config.patch_size
    layer = peer.Sam3ViTLayer(config, window_size=window).eval()
    run = functools.partial(layer, uniform(1, side, side, config.hidden_size))
    pairs = recorded_rotation(peer, "apply_rotary_pos_emb_2d", run)
    assert_rotates(whole, grid(whole, shape, part), pairs, part=part)


@pytest.mark.parametrize("name", ["dinov3_vit", "sapiens2", "eomt_dinov3"])
def test_dinov3_rotates_like_its_model(name):
    """Patches are at their centres; class and register tokens are not rotated."""
    folder, embedding, *_ = PEERS[name]
    head, base, _ = drawn(name, 0)
    given = {"rope_parameters": {"rope_theta": base}} if name == "eomt_dinov3" else {"rope_theta": base}
    keys = {"hidden_size": HEADS * head, "num_attention_heads": HEADS, "patch_size": 5, **given}
    peer, (config, part) = modeling(folder), configs_of(name, keys)
    qk = uniform(2, 2, HEADS, 5 + 6 * 11, head)
    theirs = peer.apply_rotary_pos_emb(*qk, *getattr(peer, embedding)(config).eval()(torch.zeros(1, 3, 30, 55)))
    assert_rotates(part, grid(part, (6, 11)), zip(qk, theirs, strict=True), before=5)


@pytest.mark.parametrize("name", ["sam2_video", "sam3_tracker_video", "edgetam_video"])
def test_memory_attention_rotates_like_its_model(name):
    keys = {"memory_attention_hidden_size": 120, "memory_attention_num_attention_heads": HEADS}
    keys |= {"memory_attention_downsample_rate": 2, "rope_parameters": {"rope_theta": drawn(name, 0)[1]}}
    keys |= {"memory_attention_rope_feat_sizes": [7, 4]}
    if name == "edgetam_video":
        keys["memory_attention_rope_k_sizes"] = [5, 3]
    compare_memory(name, *configs_of(name, keys, memory_attention_num_layers=1))


def compare_memory(name, config, whole, part="vision"):
    """Compare queries on one grid, and keys on that of each frame that is remembered; object pointers are on none."""
    folder, attention, *_ = PEERS[name]
    peer, at = modeling(folder), grid(whole, config.memory_attention_rope_feat_sizes[::-1], part)
    module, heads = getattr(peer, attention)(config).eval(), config.memory_attention_num_attention_heads
    width = config.memory_attention_hidden_size // config.memory_attention_downsample_rate // heads
    q = uniform(1, heads, len(at), width)
    table = module.rotary_emb(q, module.position_ids)
    if name == "edgetam_video":
        at_keys, rotate, repeats = grid(whole, (3, 5)), peer.apply_rotary_pos_emb_2d_cross_attn, 2
        table = (*table, *module.rotary_emb(q, module.position_ids_k))
    else:
        at_keys, rotate, repeats = at, peer.apply_rotary_pos_emb_2d, True
    k = uniform(1, heads, 2 * len(at_keys) + 2, width)
    rotated_q, rotated_k = rotate(q, k, *table, num_k_exclude_rope=2, repeat_freqs_k=repeats)
    assert_rotates(whole, at, [(q, rotated_q)], part=part)
    assert_rotates(whole, at_keys * 2, [(k, rotated_k)], part=part, after=2)


TYPES = {config_class(name): name for name in PEERS}
COMPARED = {}  # the Rope of each published tower that was compared, by its config


def compare_published(config, whole, part):
    """Compare the class of a tower, as a published config has it, with a part of the config: one layer, one image."""
    name, config, rope = TYPES[type(config)], copy.deepcopy(config), ra.Rope.from_config(whole, part=part)
    few = {"depth": 1, "num_hidden_layers": 1, "memory_attention_num_layers": 1, "deepstack_visual_indexes": []}
    few |= {} if name == "llama4_vision_model" else {"intermediate_size": 8, "out_hidden_size": 8}
    for key in few.keys() & dir(config):
        setattr(config, key, few[key])
    key = config.to_json_string()
    if COMPARED.setdefault(key, rope) is not rope:
        assert COMPARED[key] == rope
    elif name == "gemma4_vision":
        compare_gemma4(config, whole)
    elif name == "sam3_vit_model":
        compare_sam3(config, whole, (config.window_size,) * 2, part)
    elif PEERS[name][2] is None:
        compare_memory(name, config, whole, part)
    else:
        side = config.image_size // config.patch_size if name == "llama4_vision_model" else 0
        compare_tower(name, config, whole, (1, side or 6, side or 12), part)


# --- the tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_score_scales_equal_those_of_the_class(name):
    """The score scale equals the attribute of the attention class, if it has one."""
    folder, model, *_ = PEERS[name]
    lone = {"dinov3_vit": "DINOv3ViTAttention", "eomt_dinov3": "EomtDinov3Attention", "sapiens2": "Sapiens2Attention"}
    keys = {} if PEERS[name][2] is None else {"num_hidden_layers": 1} | OTHERS.get(name, {})
    config = config_class(name)(**keys)
    with torch.device("meta"):
        built = getattr(modeling(folder), lone.get(name, model))(config, *([0] if name == "sapiens2" else []))
    modules = [module for module in built.modules() if "Attention" in type(module).__name__]
    scales = {getattr(module, "scaling", getattr(module, "scale", None)) for module in modules} - {None}
    assert list(scales) == pytest.approx([ra.config.read(tower_of(name, **keys)).score_scale(part="vision")])


@pytest.mark.parametrize("name", PEERS)
def test_defaults_equal_those_of_the_class(name):
    """An empty config has the defaults of the class."""
    theirs, found = config_class(name)(), facts(tower_of(name))
    parameters = getattr(theirs, "rope_parameters", None) or {}
    assert found["rope_theta"] == (parameters.get("rope_theta") or theirs.rope_theta, f"default of {name}")
    prefix = "memory_attention_" if name.endswith("_video") else ""
    width = getattr(theirs, f"{prefix}hidden_size" if name != "qwen2_vl_vision" else "embed_dim")
    heads = next(n for n in ("num_heads", f"{prefix}num_attention_heads") if hasattr(theirs, n))
    head = width // getattr(theirs, heads) // getattr(theirs, "memory_attention_downsample_rate", 1)
    assert found["head_dim"].value == (getattr(theirs, "head_dim", None) or head)
    given = {key: theirs.to_dict()[key] for key in ("patch_size", "image_size", "spatial_merge_size") if key in theirs}
    rope = ra.Rope.from_config(tower_of(name), part="vision")
    assert ra.Rope.from_config(tower_of(name, **given), part="vision") == rope
    if name != "video_llama_3_vision":  # whose grids are the caller's
        shape = {"sam3_vit_model": (24, 24), "llama4_vision_model": (32, 32)}.get(name, (4, 8))
        assert grid(tower_of(name, **given), shape) == grid(tower_of(name), shape)
    assert len(rope.frequencies) == found["axes"].value
    count = getattr(theirs, "num_hidden_layers", None) or theirs.memory_attention_num_layers
    assert len(ra.config.read(theirs).layers(part="vision")) == count
    rows = [[f for f in row if f] for row in rope.frequencies]
    if name != "pixtral":
        assert rows[1:] == rows[:-1]  # the same for each axis
    if parameters and name in TABLES:
        names = re.compile(r".*(Vision|ViT|Dinov3).*RotaryEmbedding$")
        embedding = next(c for n, c in vars(modeling(PEERS[name][0])).items() if names.match(n))
        theirs = sorted(TABLES[name] * f for f in embedding(theirs).inv_freq.tolist())
        np.testing.assert_allclose(sorted([*rows[0], *rows[1]] if name == "pixtral" else rows[0]), theirs, rtol=1e-6)


def test_older_names_are_read():
    """Names of older files that a class reads."""
    for name, keys in {
        "dots3_note_vision_encoder": {"embed_dim": 96, "num_heads": 3},
        "step3p5_vision": {"width": 96, "heads": 3},
        "inkling2_vision": {"hidden_size": 96, "num_attention_heads": 3, "adapter_merge_size": 1},
        "qwen3_vl_vision": {"hidden_size": 96, "num_attention_heads": 3, "rope_theta": 77.0},
        "sam2_video": {"memory_attention_rope_theta": 77.0},
    }.items():
        others = {"adapter_in_dim": 96} if "dots3" in name else {}
        theirs, found = config_class(name)(**keys, **others), facts(tower_of(name, **keys))
        head = 256 if name == "sam2_video" else theirs.hidden_size // theirs.num_attention_heads
        assert found["head_dim"].value == head
        assert found["rope_theta"].value == theirs.rope_parameters["rope_theta"]
    assert config_class("inkling2_vision")(adapter_merge_size=1).spatial_merge_size == 1
    assert grid(tower_of("inkling2_vision", adapter_merge_size=1), (1, 2)) == ((1, 1), (1, 2))


def test_all_axial_configs_are_known():
    """Each class of transformers with an axial rope type is in one of the tables."""
    for file in sorted(FOLDER.glob("*/configuration_*.py")):
        for name, text in re.findall(r"\nclass (\w+)\(.*?\):(.*?)(?=\nclass |\Z)", file.read_text(), re.DOTALL):
            if 'default_rope_type = "axial"' in text:
                kind = re.search(r'    model_type(?:: str)? = "(.+)"', text)
                assert kind is None or kind[1] in {*PEERS, *REFUSED, *UNROTATED}, name


@functools.cache
def parsed(file):
    """Return the syntax tree of a file."""
    return ast.parse(file.read_text())


def folder_of(name):
    """Return the folder of a config, and what the names of its model's classes begin with."""
    auto = importlib.import_module("transformers.models.auto.configuration_auto")
    folder = auto.model_type_to_module_name(name)
    pattern = rf'class (\w+)Config\([^)]*\):(?:(?!\nclass ).)*?\n    model_type(?:: str)? = "{re.escape(name)}"\n'
    for file in [*FOLDER.glob(f"{folder}/configuration_*.py"), *FOLDER.glob("*/configuration_*.py")]:
        if found := re.search(pattern, file.read_text(), re.DOTALL):
            return file.parent, found[1]
    raise LookupError(name)


@pytest.mark.parametrize("name", UNROTATED)
def test_parts_without_rotary_have_no_rotary_in_their_source(name):
    """None of their classes mentions rotary embedding."""
    skip_if_absent(name)
    folder, stem = folder_of(name)
    for file in folder.glob("modeling_*.py"):
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and node.name.startswith(stem):
                body = [part for part in node.body if not isinstance(part, ast.Expr)]  # without its docstring
                source = "".join(map(ast.unparse, body))
                assert not re.search(r"rotary_emb|[Rr]otaryE|apply_rotary|freqs_ci|RoPE", source)
    assert len(UNROTATED) > 150


def parts_within(kind):
    """Yield the path to each part within a config class of transformers, and the class of the part."""
    for name, inner in (getattr(kind, "sub_configs", None) or {}).items():
        yield (name,), inner
        for path, innermost in parts_within(inner):
            yield (name, *path), innermost


def test_towers_of_larger_configs_are_those_of_their_class():
    """A tower within a config of transformers is read by the model_type that its class has by default."""
    seen = set()
    for outer, kind in transformers.CONFIG_MAPPING.items():
        for path, inner in parts_within(kind):
            if (name := getattr(inner, "model_type", "")) not in PEERS:
                continue
            whole = within(outer, path, {})
            parts = [part for part in ra.config.read(whole).parts if part not in ("text", "indexer")]
            if parts:
                found = [ra.Rope.from_config(whole, part=part) for part in parts]
                assert ra.Rope.from_config(tower_of(name), part="vision") in found, (outer, path)
                seen.add((outer, path))
    assert len(seen) > 25


# --- parts that only a larger config identifies ---------------------------------------------------------------


@pytest.mark.parametrize("path", ["atom_encoder", "structure_head.diffusion_module.atom_encoder"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"hidden_size": 256, "num_attention_heads": 4, "num_spatial_rope_pairs_per_axis": 3, "num_uid_rope_pairs": 7},
        {"spatial_rope_base_frequency": 7.5, "uid_rope_base_frequency": 500.0, "head_dim": 32},
    ],
)
def test_atom_encoders_rotate_like_their_model(path, keys):
    """Three axes of space and the number of a molecule, in pairs and with bases of their own."""
    theirs = modeling("esmfold2")
    kind = importlib.import_module("transformers.models.esmfold2.configuration_esmfold2").EsmFold2AtomEncoderConfig
    whole = within("esmfold2", path.split("."), keys)
    assert ra.config.read(whole).parts == (path,)
    rope, module = ra.Rope.from_config(whole), theirs.EsmFold2RotaryEmbedding(kind(**keys))
    space, molecule = uniform(1, 9, 3) * 20, torch.randint(0, 30, (1, 9))
    q, k = uniform(2, 1, HEADS, 9, kind(**keys).head_dim)
    rotated = theirs.apply_rotary_pos_emb(q, k, *module(space, molecule, torch.float32))
    at = torch.cat([space, molecule[..., None]], -1)
    assert_close(rope, at, (q, k), rotated)
    (explained,) = ra.config.read(whole).explain()
    assert explained.facts["axes"].value == 4 and len(explained.facts["rope_theta"].value) == 4
    with pytest.raises(ValueError, match="part must be one whose config defines the positions of a grid"):
        ra.config.read(whole).positions((2, 2), like=np.empty(0))
    with pytest.raises(ValueError, match="num_uid_rope_pairs must sum to at most half of the head, "):
        ra.Rope.from_config(within("esmfold2", path.split("."), keys | {"num_uid_rope_pairs": 4096}))


SAPROT = ("SaProtConfig", "EvollaSaProtRotaryEmbedding", "EvollaSaProtSelfAttention")
CODE2WAV = ("Qwen3OmniMoeCode2WavConfig", "Qwen3OmniMoeRotaryEmbedding", "Qwen3OmniMoeCode2WavAttention")


@pytest.mark.parametrize(
    ("folder", "path", "names"),
    [("evolla", "protein_encoder_config", SAPROT), ("qwen3_omni_moe", "code2wav_config", CODE2WAV)],
)
@pytest.mark.parametrize("keys", [{}, {"hidden_size": 120, "num_attention_heads": 3}])
def test_sequence_parts_of_larger_configs_are_read(folder, path, names, keys):
    """Parts of one axis, whose configs have no model_type."""
    theirs, (kind, rotary, attention) = modeling(folder), names
    kind = getattr(importlib.import_module(f"transformers.models.{folder}.configuration_{folder}"), kind)
    base = {"rope_theta": 300.0}
    config = kind(**keys, **(base if folder == "evolla" else {"rope_parameters": base}))
    whole = {"model_type": folder, path: json.loads(json.dumps(config.to_dict()))}
    rope, width = ra.Rope.from_config(whole, part=path), config.hidden_size // config.num_attention_heads
    q, k = uniform(2, 1, HEADS, 9, width)
    at = torch.arange(9)
    rotated = theirs.apply_rotary_pos_emb(q, k, *getattr(theirs, rotary)(config)(q, at[None]))
    assert_close(rope, at, (q, k), rotated)
    assert ra.config.read(whole).score_scale(part=path) == getattr(theirs, attention)(config, layer_idx=0).scaling
    assert len(ra.config.read(whole).layers(part=path)) == config.num_hidden_layers
    assumed = {"model_type": folder, path: kind().to_dict()}
    assert ra.Rope.from_config({"model_type": folder, path: {}}, part=path) == ra.Rope.from_config(assumed, part=path)


@pytest.mark.parametrize("base", [1e4, 250.0])
def test_the_tower_of_a_params_json_is_paired_by_form(base):
    """What mistral-inference pairs side by side is in halves for transformers, whose converter permutes the weights."""
    tower = {"hidden_size": 3 * 40, "num_attention_heads": 3, "rope_theta": base, "image_size": 64, "patch_size": 8}
    text = {"dim": 64, "n_layers": 2, "head_dim": 32, "hidden_dim": 8, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-5}
    theirs = modeling("pixtral")
    config = config_class("pixtral")(hidden_size=120, num_attention_heads=3, rope_parameters={"rope_theta": base})
    x = uniform(1, HEADS, 12, 40)
    halves = x.unflatten(-1, (20, 2)).transpose(-1, -2).flatten(-2)  # as the weights are permuted
    for keys in ({"vision_encoder": tower}, {"multimodal": {"vision_encoder_args": tower}}):
        model = text | {"rope_theta": 1e6} | keys
        at = ra.config.read(model).positions((3, 4), part="vision", like=x)
        table = theirs.PixtralVisionRotaryEmbedding(config)(x, at)
        wanted, _ = theirs.apply_rotary_pos_emb(halves, halves, *(each[None] for each in table))
        rope = ra.Rope.from_config(model, part="vision")
        ours = rope.apply(x, at).unflatten(-1, (20, 2)).transpose(-1, -2).flatten(-2)
        np.testing.assert_allclose(ours.numpy(), wanted.numpy(), rtol=0, atol=ATOL)
        (explained,) = ra.config.read(model).explain(part="vision")
        assert re.fullmatch(r"(multimodal\.)?vision_encoder(_args)?\.rope_theta", explained.facts["rope_theta"].source)
    for key in ("hidden_size", "num_attention_heads", "rope_theta"):  # mistral-inference has no default of them
        with pytest.raises(ValueError, match=r"vision_encoder must have .* or be read from a config"):
            ra.Rope.from_config(text | {"vision_encoder": {**tower, key: None}, "rope_theta": 1e6}, part="vision")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_unsupported_towers_are_refused(name):
    part = "audio" if name == "musicflamingo" else "vision"
    for method in (ra.config.Config.rope, ra.config.Config.score_scale):
        with pytest.raises(ValueError, match=f"model_type must be one whose rotation a config gives; got '{name}'; .+"):
            method(ra.config.read(tower_of(name)), part=part)


def test_reasons_of_refusals_are_true():
    """The reasons are true, as far as a few lines can test."""
    x = uniform(1, 1, 4, 8)
    rotated = modeling("vjepa2").rotate_queries_or_keys(x, torch.arange(1, 5))
    assert (rotated.norm(dim=-1) - x.norm(dim=-1)).abs().max() > 0.01  # no rotation
    sizes = {"hidden_size": 24, "num_attention_heads": HEADS, "num_hidden_layers": 1, "intermediate_size": 8}
    mlcd = modeling("mlcd").MLCDVisionModel(transformers.MLCDVisionConfig(**sizes))
    assert "class_pos_emb" in dict(mlcd.named_parameters())
    lightglue = modeling("lightglue").LightGluePositionalEncoder(transformers.LightGlueConfig())
    assert list(lightglue.parameters())
    omni = modeling("qwen2_5_omni")
    config = omni.Qwen2_5OmniDiTConfig(hidden_size=24, num_attention_heads=HEADS, head_dim=8)
    attention, table = omni.DiTAttention(config), (torch.ones(1, 4, 8), torch.zeros(1, 4, 8))
    pairs = recorded_rotation(omni, "apply_rotary_pos_emb", lambda: attention(uniform(1, 4, 24), table))
    assert [q.shape[1] for q, _ in pairs] == [1, 1]  # of three heads


# --- refusals -------------------------------------------------------------------------------------------------


QWEN = {"hidden_size": 96, "num_heads": 3}


# Each kind of check once, and what would be another rotation if it were ignored.
WRONG = [
    ("qwen3_vl_vision", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type must be 'axial' here"),
    ("qwen3_vl_vision", {"rope_parameters": {"factor": 2.0}}, "rope_parameters.factor must not be given"),
    ("qwen3_vl_vision", {"rope_parameters": {"rope_theta": 5}, "rope_theta": 6}, "must agree with"),
    ("qwen3_vl_vision", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must not be given"),
    ("step3p5_vision", {"use_rope2d": False}, "use_rope2d must not be given"),
    ("dinov3_vit", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters must not be given for dinov3_vit"),
    ("qwen3_vl_vision", {"hidden_size": 97, "num_heads": 3}, "hidden_size must be a multiple of the 3 heads"),
    ("qwen3_vl_vision", {"hidden_size": 66, "num_heads": 3}, "a multiple of 4; got 22"),
    ("qwen3_vl_vision", {**QWEN, "head_dim": 16}, "head_dim must agree with .*, 32; got 16"),
    ("qwen3_vl_vision", {**QWEN, "num_attention_heads": 4}, "num_attention_heads must agree with .*num_heads, 3"),
    ("step3p5_vision", {"hidden_size": 96, "width": 64}, "width must agree with hidden_size, 96; got 64"),
    ("qwen3_vl_vision", {"hidden_size": 2**18, "num_heads": 1}, "a head dimension from 4 to 4096; got 262144"),
]


@pytest.mark.parametrize(("name", "keys", "message"), WRONG)
def test_contradictions_are_refused(name, keys, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ra.Rope.from_config(tower_of(name, **keys), part="vision")


def test_null_is_read_as_missing():
    nulls = tower_of("qwen3_vl_vision", rope_parameters={"factor": None}, rope_theta=None, head_dim=None)
    for model, name in ((nulls, "qwen3_vl_vision"), (tower_of("step3p5_vision", use_rope2d=True), "step3p5_vision")):
        assert ra.Rope.from_config(model, part="vision") == ra.Rope.from_config(tower_of(name), part="vision")


@pytest.mark.parametrize(
    ("name", "keys", "shape", "message"),
    [
        ("qwen3_vl_vision", {}, (3, 4), "multiples of 2 rows and columns for qwen3_vl_vision"),
        ("qwen3_vl_vision", {"spatial_merge_size": 0}, (2, 2), "spatial_merge_size must be from 1"),
        ("qwen2_5_vl_vision", {"window_size": 13}, (2, 2), "window_size must be at least one block"),
        ("pixtral", {}, (2, 4, 4), "that of one image: pixtral takes no videos; got 2 frames"),
        ("llama4_vision_model", {}, (4, 4), r"shape must be \(32, 32\) for llama4_vision_model"),
        ("sam3_vit_model", {}, (24, 72), r"shape must be \(72, 72\) or \(24, 24\)"),
        *(("qwen3_vl_vision", {}, shape, "shape must be") for shape in ((1, 1, 2, 2), (0, 2), (2**22, 2), (2.0, 2), 4)),
    ],
)
def test_wrong_grid_shapes_are_refused(name, keys, shape, message):
    with pytest.raises((TypeError, ValueError), match=message):
        grid(tower_of(name, **keys), shape)
