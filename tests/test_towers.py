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
from rope_any.config import _data, _towers
from rope_any.config._models import MODELS
from rope_any.config._part import Fact
from rope_any.config._towers import AXES, LAYOUTS, PARTS, REFUSED, TOWERS, UNROTATED, Size, Tower, canonical, grid

torch = pytest.importorskip("torch", reason="the peers run on torch")
transformers = pytest.importorskip("transformers", minversion="5.20", reason="the peers are models of transformers")
FOLDER = Path(transformers.__file__).parent / "models"
ATOL = (
    2e-5  # transformers' tables are float32: angles of up to 30 radians have errors of 2e-6, and a few roundings follow
)
HEADS = 3
ROTATED = ("q", "k", "query", "key", "x")  # names of the rotated arguments in functions of transformers


class Part:
    """A tower's own config, as the config readers take it."""

    def __init__(self, model_type, **keys):
        """Store the keys of a vision config."""
        self.keys, self.model_type = json.loads(json.dumps(keys)), model_type
        self.default = f"default of {model_type}"

    def name(self, *keys):
        """Return the full name of a key."""
        return ".".join(("vision_config", *keys))

    def get(self, key):
        """Return the value of a key with its source, or None."""
        value = self.keys.get(key)
        return None if value is None else Fact(value, self.name(key))


class Passes(torch.nn.Module):
    """Replacement for the patch embedding: returns its input."""

    def forward(self, x, *_, **__):
        """Return x."""
        return x


class RotationRecorded(Exception):  # noqa: N818
    """Ends a run when the rotation was recorded."""


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Run torch in one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def modeling(folder):
    """Return the modeling module of a folder of transformers."""
    return importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")


def config_class(model_type):
    """Return the class of a config; some parts of larger configs are not in the table of all."""
    folder = next(iter(p for p in PEERS if p == model_type), None)
    module = importlib.import_module(f"transformers.models.{PEERS[folder][0]}.configuration_{PEERS[folder][0]}")
    found = [c for c in vars(module).values() if isinstance(c, type) and getattr(c, "model_type", None) == model_type]
    return found[0]


def uniform(*shape):
    """Return uniform random numbers between −1 and 1."""
    return torch.rand(*shape) * 2 - 1


def recipe(part):
    """Return the recipe of a tower, or the fact that it has no rotary."""
    (layers,) = canonical(part)
    return layers.unrotated or _towers.recipe(part, layers)


def rope_of(part):
    """Return our Rope for a tower."""
    found = recipe(part)
    blocks = found.facts["blocks"].value if "blocks" in found.facts else 1
    return ra.Rope(
        found.frequencies,
        pairing=found.pairing,
        attention_factor=found.attention_factor,
        start=found.start,
        blocks=blocks,
    )


def recorded_rotation(monkeypatch, module, function, run):
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

    monkeypatch.setattr(module, function, spy)
    with torch.no_grad(), contextlib.suppress(RotationRecorded):
        run()
    assert seen, f"{function} was not called"
    return seen


def assert_rotates(part, positions, pairs, *, before=0, after=0):
    """Compare our rotation with recorded ones; the model has numbers of class tokens before and after the patches."""
    at = torch.tensor(positions)
    at = torch.cat([at.new_zeros(before, at.shape[1]), at, at.new_zeros(after, at.shape[1])])
    rope = rope_of(part)
    for x, theirs in pairs:
        (axis,) = (i for i, n in enumerate(x.shape[:-1]) if n == len(at))
        ours = rope.apply(x, at, seq_axis=axis - x.ndim)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=ATOL)
        assert (ours - x).abs().max() > 0.1  # it rotates at all


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


NAMELESS = {"mistral_vision_encoder", "esmfold2_atom_encoder"}  # whose configs have no model_type
CLASS_TOKENS = {"inkling2_vision": (1, 0), "llama4_vision_model": (0, 1)}  # before and after the patches
# Further inputs of a model, on which its rotation does not depend.
OTHERS = {
    "qwen2_vl_vision": {"hidden_size": 24},
    "lfm3_vl_vision": {"layer_types": ["full_attention"]},
    "dots3_note_vision_encoder": {"mlp_layer_types": ["dense"]},
    "llama4_vision_model": {
        "projector_input_dim": 8,
        "projector_output_dim": 8,
        "vision_output_dim": 8,
        "intermediate_size": 96,
    },
}


def drawn(name, seed):
    """Return the sizes of a small tower: the width of a head, the base, and the side of a block."""
    rng = random.Random(f"{name} {seed}")
    widths = (16, 20, 28) if name == "minimax_m3_vl_vision" else (10, 18, 32) if name == "pixtral" else (8, 20, 32)
    return rng.choice(widths), round(rng.uniform(20, 5000), 2), rng.choice((1, 2, 3))


def keys_of(name, head, base, merge):
    """Return the keys of a small tower, as a file has them."""
    tower = TOWERS[name]
    keys = {tower.width.keys[0]: HEADS * head, tower.heads.keys[0]: HEADS, "rope_parameters": {"rope_theta": base}}
    return keys | ({tower.merge.keys[0]: merge} if tower.merge else {}) | PEERS[name][3]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer[2]])
def test_a_tower_rotates_like_its_model(name, seed, monkeypatch):
    """Queries and keys of the first layer, in the order in which it has the tokens."""
    folder, model, run, _ = PEERS[name]
    head, base, merge = drawn(name, seed)
    keys = keys_of(name, head, base, merge)
    torch.manual_seed(seed)
    few = {"num_hidden_layers": 1, "intermediate_size": 8} | OTHERS.get(name, {})
    if name == "dots3_note_vision_encoder":
        few |= {"adapter_in_dim": HEADS * head, "adapter_merge_size": merge}
    tower = getattr(modeling(folder), model)(config_class(name)(**few, **copy.deepcopy(keys))).eval()
    part, row = Part(name, **keys), TOWERS[name]
    shape = (2 if row.frames else 1, *((8, 8) if row.image else (6, 12) if seed else (12, 6)))
    if name == "video_llama_3_vision":  # whose blocks are the caller's
        run = packed("embeddings", merge_sizes=torch.tensor([2]))
        assert grid(part, shape) is None
        places = grid(Part("qwen2_vl_vision", spatial_merge_size=2), shape)
    else:
        places = grid(part, shape)
    function = {"pixtral": "apply_rotary_pos_emb", "llama4_vision_model": "vision_apply_rotary_emb"}.get(name, VISION)
    pairs = recorded_rotation(monkeypatch, modeling(folder), function, lambda: run(tower, shape, HEADS * head))
    before, after = CLASS_TOKENS.get(name, (0, 0))
    assert_rotates(part, places, pairs, before=before, after=after)


@pytest.mark.parametrize("name", PEERS)
def test_layers_of_a_tower_are_counted_as_by_its_class(name):
    theirs = config_class(name)()
    count = getattr(theirs, "num_hidden_layers", None) or theirs.memory_attention_num_layers
    assert len(ra.config.layers(theirs, part="vision")) == count


# --- towers of which only the rotation is run -----------------------------------------------------------------


def test_gemma4_rotates_like_its_model(monkeypatch):
    """Columns before rows, each in its half of the head, at the positions that the processor gives."""
    head, base, _ = drawn("gemma4_vision", 0)
    keys = {"head_dim": 2 * head, "rope_parameters": {"rope_theta": base}}
    sizes = {"hidden_size": 24, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    few = {"num_hidden_layers": 1, "intermediate_size": 8, **sizes}
    config = config_class("gemma4_vision")(**few, **copy.deepcopy(keys))
    encoder = modeling("gemma4").Gemma4VisionEncoder(config).eval()
    part, shape = Part("gemma4_vision", **sizes, **keys), (6, 12)
    pil = importlib.import_module("transformers.models.gemma4.image_processing_pil_gemma4")
    image = np.zeros((*(16 * n for n in shape), 3), np.uint8)
    made = pil.Gemma4ImageProcessorPil(do_resize=False)(image, return_tensors="pt")["image_position_ids"][0]
    made = made[made[:, 0] >= 0]  # others are padding
    places = grid(part, shape)
    assert made.tolist() == [list(place) for place in places]

    def run():
        """Run the encoder of Gemma 4."""
        encoder(uniform(1, 72, 24), attention_mask=None, pixel_position_ids=made[None])

    pairs = recorded_rotation(monkeypatch, modeling("gemma4"), "apply_multidimensional_rope", run)
    assert_rotates(part, places, pairs)
    assert recipe(part).facts["blocks"].value == 2


@pytest.mark.parametrize("shape", [(8, 8), (4, 4)], ids=["global", "window"])
def test_sam3_rotates_like_its_model(shape, monkeypatch):
    """Layers of windows, and layers whose grid is put onto that of a window."""
    head, base, _ = drawn("sam3_vit_model", shape)
    keys = {"hidden_size": HEADS * head, "num_attention_heads": HEADS, "image_size": 40, "patch_size": 5}
    keys |= {"window_size": 4, "rope_parameters": {"rope_theta": base}}
    peer, part = modeling("sam3"), Part("sam3_vit_model", **keys)
    config = config_class("sam3_vit_model")(intermediate_size=8, **copy.deepcopy(keys))
    layer = peer.Sam3ViTLayer(config, window_size=4 if shape == (4, 4) else 0).eval()
    pairs = recorded_rotation(
        monkeypatch, peer, "apply_rotary_pos_emb_2d", lambda: layer(uniform(1, 8, 8, HEADS * head))
    )
    assert_rotates(part, grid(part, shape), pairs)


@pytest.mark.parametrize("name", ["dinov3_vit", "sapiens2", "eomt_dinov3"])
def test_dinov3_rotates_like_its_model(name):
    """Patches are at their centres; class and register tokens are not rotated."""
    folder, embedding, *_ = PEERS[name]
    head, base, _ = drawn(name, 0)
    given = {"rope_parameters": {"rope_theta": base}} if name == "eomt_dinov3" else {"rope_theta": base}
    keys = {"hidden_size": HEADS * head, "num_attention_heads": HEADS, "patch_size": 5, **given}
    peer, part = modeling(folder), Part(name, **keys)
    embed = getattr(peer, embedding)(config_class(name)(**copy.deepcopy(keys))).eval()
    q, k = uniform(2, HEADS, 5 + 6 * 11, head), uniform(2, HEADS, 5 + 6 * 11, head)
    theirs = peer.apply_rotary_pos_emb(q, k, *embed(torch.zeros(1, 3, 30, 55)))
    assert_rotates(part, grid(part, (6, 11)), zip((q, k), theirs, strict=True), before=5)


@pytest.mark.parametrize("name", ["sam2_video", "sam3_tracker_video", "edgetam_video"])
def test_memory_attention_rotates_like_its_model(name):
    """Queries on one grid; keys on that of each frame that is remembered, and those of object pointers on none."""
    folder, attention, *_ = PEERS[name]
    _, base, _ = drawn(name, 0)
    keys = {"memory_attention_hidden_size": 120, "memory_attention_num_attention_heads": HEADS}
    keys |= {"memory_attention_downsample_rate": 2, "rope_parameters": {"rope_theta": base}}
    sizes = {"memory_attention_rope_feat_sizes": [7, 4]}
    if name == "edgetam_video":
        sizes["memory_attention_rope_k_sizes"] = [5, 3]
    peer, part, few = modeling(folder), Part(name, **keys, **sizes), {"memory_attention_num_layers": 1}
    config = config_class(name)(**few, **copy.deepcopy(keys), **sizes)
    columns, rows = config.memory_attention_rope_feat_sizes
    module = getattr(peer, attention)(config).eval()
    at, at_keys = grid(part, (rows, columns)), grid(part, (rows, columns))
    q = uniform(1, HEADS, len(at), 20)
    table = module.rotary_emb(q, module.position_ids)
    if name == "edgetam_video":
        at_keys = grid(part, (3, 5))
        k = uniform(1, HEADS, 2 * 15 + 2, 20)
        rotate, options = peer.apply_rotary_pos_emb_2d_cross_attn, {"repeat_freqs_k": 2}
        tables = (*table, *module.rotary_emb(q, module.position_ids_k))
    else:
        k = uniform(1, HEADS, 2 * len(at) + 2, 20)
        rotate, options, tables = peer.apply_rotary_pos_emb_2d, {"repeat_freqs_k": True}, table
    rotated_q, rotated_k = rotate(q, k, *tables, num_k_exclude_rope=2, **options)
    assert_rotates(part, at, [(q, rotated_q)])
    assert_rotates(part, at_keys * 2, [(k, rotated_k)], after=2)


# --- the tables -----------------------------------------------------------------------------------------------


def test_every_tower_has_a_peer():
    assert PEERS.keys() | NAMELESS == TOWERS.keys()


def test_entries_have_known_values_and_no_repetition():
    """The file has no repetition, and every value has a known meaning."""
    rows = TOWERS.values()
    assert {type(value) for row in rows for value in (row.width, row.heads)} == {Size}
    assert {row.layout for row in rows} == set(LAYOUTS)
    assert {row.rope_type for row in rows} == {"axial", "default"}
    assert {row.pairing for row in rows} == {"half", "interleaved"}
    for field, default in Tower._field_defaults.items():  # each field serves a tower, as a default does
        assert {getattr(row, field) for row in rows} > {default}, field


WIDE = {"width": Size(("w",), 8), "heads": Size(("h",), 1)}


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        (
            ({"names": "a b", **WIDE}, {"names": "b"}),
            ValueError,
            "entry b: names must not be those of an earlier entry; got b",
        ),
        (({"names": "a", "like": "b"},), ValueError, "entry a: there is no 'b'"),
        (({"names": "a c", "wide": 3},), TypeError, "entry a c: .*'wide'"),
        (({"names": "a", "width": {"keys": ("w",)}},), TypeError, "entry a: .*'default'"),
        (({"names": "a", "layout": "around"},), ValueError, "entry a: layout must be one of .*; got 'around'"),
        (({"names": "b", "layout": "alternating"}, {"names": "a", "like": "b"}), TypeError, "entry b: .*'width'"),
    ],
)
def test_wrong_entries_are_refused(entries, error, message, monkeypatch):
    monkeypatch.setattr(_data, "content", lambda file: {file: entries})
    with pytest.raises(error, match=f"x.toml, {message}"):
        len(_data.entries_by_name("x.toml", "x.toml", Tower, Size, lambda: {"layout": LAYOUTS}))


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
    assert list(scales) == pytest.approx([_towers.score(part := Part(name, **keys), *canonical(part)).value])


@pytest.mark.parametrize("name", PEERS)
def test_defaults_equal_those_of_the_class(name):
    """An empty config has the defaults of the class."""
    tower, config = TOWERS[name], config_class(name)()
    found, part = recipe(Part(name)), Part(name)
    base = config.rope_theta if not tower.objects else config.rope_parameters["rope_theta"]
    assert found.facts["rope_theta"] == (base, part.default)
    sizes = {size.keys[0]: size.default for size in tower if isinstance(size, Size)}
    assert {key: getattr(config, key) for key in sizes} == sizes
    width = getattr(config, tower.width.keys[0]), getattr(config, tower.heads.keys[0])
    rate = getattr(config, tower.divisor.keys[0]) if tower.divisor else 1
    assert found.facts["head_dim"].value == (config.head_dim if tower.head else width[0] // width[1] // rate)
    rows = [[f for f in row if f] for row in found.frequencies]
    if tower.layout != "one row":
        assert rows[1:] == rows[:-1]  # the same for each axis
    if tower.objects and name != "llama4_vision_model":
        embedding = next(
            c
            for n, c in vars(modeling(PEERS[name][0])).items()
            if isinstance(c, type) and n.endswith("RotaryEmbedding") and ("Vision" in n or "ViT" in n or "Dinov3" in n)
        )
        theirs = sorted(tower.scale * f for f in embedding(config).inv_freq.tolist())
        ours = sorted([*rows[0], *rows[1]] if tower.layout == "one row" else rows[0])
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


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
        config, found = config_class(name)(**keys, **others), recipe(Part(name, **keys))
        head = 256 if name == "sam2_video" else config.hidden_size // config.num_attention_heads
        assert found.facts["head_dim"].value == head
        assert found.facts["rope_theta"].value == config.rope_parameters["rope_theta"]
    assert config_class("inkling2_vision")(adapter_merge_size=1).spatial_merge_size == 1
    assert grid(Part("inkling2_vision", adapter_merge_size=1), (1, 2)) == ((1, 1), (1, 2))


def test_all_axial_configs_are_known():
    """Each class of transformers with an axial rope type is in one of the tables."""
    for file in sorted(FOLDER.glob("*/configuration_*.py")):
        for name, text in re.findall(r"\nclass (\w+)\(.*?\):(.*?)(?=\nclass |\Z)", file.read_text(), re.DOTALL):
            if 'default_rope_type = "axial"' in text:
                kind = re.search(r'    model_type(?:: str)? = "(.+)"', text)
                assert kind is None or kind[1] in {*TOWERS, *REFUSED, *UNROTATED}, name
    assert not TOWERS.keys() & (REFUSED.keys() | UNROTATED)
    assert not UNROTATED & (REFUSED.keys() | MODELS.keys())


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


@pytest.mark.parametrize("name", sorted(UNROTATED))
def test_parts_without_rotary_have_no_rotary_in_their_source(name):
    """None of their classes mentions rotary embedding."""
    skip_if_absent(name)
    folder, stem = folder_of(name)
    for file in folder.glob("modeling_*.py"):
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef) and node.name.startswith(stem):
                body = [part for part in node.body if not isinstance(part, ast.Expr)]  # without its docstring
                assert not re.search(
                    r"rotary_emb|[Rr]otaryE|apply_rotary|freqs_ci|RoPE", "".join(map(ast.unparse, body))
                )
    fact = recipe(Part(name))
    assert fact == (None, f"{name} has no rotary embedding")
    with pytest.raises(ValueError, match="must be that of a supported tower"):
        grid(Part(name), (2, 2))


@pytest.mark.parametrize(("outer", "path"), [(outer, path) for outer, paths in PARTS.items() for path in paths])
def test_parts_of_larger_configs_are_read(outer, path):
    skip_if_absent(outer)
    auto = importlib.import_module("transformers.models.auto.configuration_auto")
    config = kind = auto.CONFIG_MAPPING[outer]
    if outer == "gemma4":  # which has no tower unless it is given
        assert kind.sub_configs[path].model_type == PARTS[outer][path]
        return
    config = kind()
    for name in path.split("."):
        config = getattr(config, name)
    assert config.model_type in (PARTS[outer][path], "")


# --- parts that only a larger config identifies ---------------------------------------------------------------


@pytest.mark.parametrize("path", PARTS["esmfold2"])
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
    whole = {"model_type": "esmfold2"}
    inner = whole
    for name in path.split("."):
        inner[name] = {}
        inner = inner[name]
    inner |= keys
    assert ra.config.parts(whole) == (path,)
    rope, module = ra.Rope.from_config(whole), theirs.EsmFold2RotaryEmbedding(kind(**keys))
    space, molecule = uniform(1, 9, 3) * 20, torch.randint(0, 30, (1, 9))
    q, k = uniform(2, 1, HEADS, 9, kind(**keys).head_dim)
    rotated = theirs.apply_rotary_pos_emb(q, k, *module(space, molecule, torch.float32))
    at = torch.cat([space, molecule[..., None]], -1)
    for x, wanted in zip((q, k), rotated, strict=True):
        np.testing.assert_allclose(rope.apply(x, at).numpy(), wanted.numpy(), rtol=0, atol=ATOL)
    (explained,) = ra.config.explain(whole)
    assert explained.facts["axes"].value == 4 and len(explained.facts["rope_theta"].value) == 4
    with pytest.raises(ValueError, match="part must be one whose config defines the positions of a grid"):
        ra.config.positions(whole, (2, 2), like=np.empty(0))
    inner["num_uid_rope_pairs"] = 4096
    with pytest.raises(ValueError, match="num_uid_rope_pairs must sum to at most half of the head, "):
        ra.Rope.from_config(whole)


@pytest.mark.parametrize(
    ("folder", "path", "names"),
    [
        (
            "evolla",
            "protein_encoder_config",
            ("SaProtConfig", "EvollaSaProtRotaryEmbedding", "EvollaSaProtSelfAttention"),
        ),
        (
            "qwen3_omni_moe",
            "code2wav_config",
            ("Qwen3OmniMoeCode2WavConfig", "Qwen3OmniMoeRotaryEmbedding", "Qwen3OmniMoeCode2WavAttention"),
        ),
    ],
)
@pytest.mark.parametrize("keys", [{}, {"hidden_size": 120, "num_attention_heads": 3}])
def test_sequence_parts_of_larger_configs_are_read(folder, path, names, keys):
    """Parts of one axis, whose configs have no model_type."""
    theirs, (kind, rotary, attention) = modeling(folder), names
    kind = getattr(importlib.import_module(f"transformers.models.{folder}.configuration_{folder}"), kind)
    config = kind(
        **keys, **({"rope_theta": 300.0} if folder == "evolla" else {"rope_parameters": {"rope_theta": 300.0}})
    )
    whole = {"model_type": folder, path: json.loads(json.dumps(config.to_dict()))}
    rope, width = ra.Rope.from_config(whole, part=path), config.hidden_size // config.num_attention_heads
    q, k = uniform(2, 1, HEADS, 9, width)
    at = torch.arange(9)
    rotated = theirs.apply_rotary_pos_emb(q, k, *getattr(theirs, rotary)(config)(q, at[None]))
    for x, wanted in zip((q, k), rotated, strict=True):
        np.testing.assert_allclose(rope.apply(x, at).numpy(), wanted.numpy(), rtol=0, atol=ATOL)
    assert ra.config.score_scale(whole, part=path) == getattr(theirs, attention)(config, layer_idx=0).scaling
    assert len(ra.config.layers(whole, part=path)) == config.num_hidden_layers
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
        assert ra.config.parts(model) == ("text", "vision")
        at = ra.config.positions(model, (3, 4), part="vision", like=x)
        table = theirs.PixtralVisionRotaryEmbedding(config)(x, at)
        wanted, _ = theirs.apply_rotary_pos_emb(halves, halves, *(each[None] for each in table))
        rope = ra.Rope.from_config(model, part="vision")
        ours = rope.apply(x, at).unflatten(-1, (20, 2)).transpose(-1, -2).flatten(-2)
        np.testing.assert_allclose(ours.numpy(), wanted.numpy(), rtol=0, atol=ATOL)
        (explained,) = ra.config.explain(model, part="vision")
        assert re.fullmatch(r"(multimodal\.)?vision_encoder(_args)?\.rope_theta", explained.facts["rope_theta"].source)
    for key in ("hidden_size", "num_attention_heads", "rope_theta"):  # mistral-inference has no default of them
        with pytest.raises(ValueError, match=r"vision_encoder must have .* or be read from a config"):
            ra.Rope.from_config(text | {"vision_encoder": {**tower, key: None}, "rope_theta": 1e6}, part="vision")


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_towers_are_refused(name):
    for reads in (recipe, lambda part: grid(part, (2, 2))):
        message = f"model_type must be that of a supported tower; got '{name}'; {REFUSED[name]}"
        with pytest.raises(ValueError, match=re.escape(message)):
            reads(Part(name))


def test_reasons_of_refusals_are_true(monkeypatch):
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
    pairs = recorded_rotation(monkeypatch, omni, "apply_rotary_pos_emb", lambda: attention(uniform(1, 4, 24), table))
    assert [q.shape[1] for q, _ in pairs] == [1, 1]  # of three heads


# --- refusals -------------------------------------------------------------------------------------------------


QWEN = {"hidden_size": 96, "num_heads": 3}


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("bert", {}, "vision_config.model_type must be that of a supported tower; got 'bert'"),
        (None, {}, "vision_config.model_type must be that of a supported tower; got None"),
        (
            "qwen3_vl_vision",
            {"rope_parameters": {"rope_type": "yarn"}},
            "rope_type must be 'axial' here; got 'yarn'",
        ),
        (
            "qwen3_vl_vision",
            {"rope_scaling": {"type": "linear", "factor": 2}},
            "type must be 'axial' here; got 'linear'",
        ),
        ("qwen3_vl_vision", {"rope_parameters": {"factor": 2.0}}, "rope_parameters.factor must not be given"),
        ("qwen3_vl_vision", {"rope_parameters": {"rope_theta": 5}, "rope_theta": 6}, "must agree with"),
        ("qwen3_vl_vision", {"rope_parameters": {"rope_theta": -5}}, "rope_theta must be positive"),
        ("qwen3_vl_vision", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must not be given"),
        ("qwen3_vl_vision", {"mrope_section": [1, 2]}, "vision_config.mrope_section must not be given"),
        ("step3p5_vision", {"use_rope2d": False}, "use_rope2d must not be given"),
        ("dinov3_vit", {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters must not be given for dinov3_vit"),
        (
            "qwen3_vl_vision",
            {"hidden_size": 97, "num_heads": 3},
            "hidden_size must be a multiple of the 3 heads; got 97",
        ),
        ("qwen3_vl_vision", {"hidden_size": 66, "num_heads": 3}, "a multiple of 4; got 22"),
        ("qwen3_vl_vision", {**QWEN, "head_dim": 16}, "head_dim must agree with .*, 32; got 16"),
        ("qwen3_vl_vision", {**QWEN, "num_attention_heads": 4}, "num_attention_heads must agree with .*num_heads, 3"),
        (
            "lfm3_vl_vision",
            {"num_heads": 3},
            "num_heads must agree with vision_config.num_attention_heads, 16; got 3",
        ),
        (
            "step3p5_vision",
            {"hidden_size": 96, "width": 64},
            "width must agree with vision_config.hidden_size, 96; got 64",
        ),
        ("qwen3_vl_vision", {"hidden_size": 0, "num_heads": 3}, "hidden_size must be from 1 to 1048576; got 0"),
        ("qwen3_vl_vision", {"hidden_size": 2**40, "num_heads": 4}, "hidden_size must be from 1 to 1048576"),
        ("qwen3_vl_vision", {"hidden_size": 2**18, "num_heads": 1}, "a head dimension from 4 to 4096; got 262144"),
        (
            "minimax_m3_vl_vision",
            {"hidden_size": 5, "num_attention_heads": 1},
            "a head dimension from 6 to 4096; got 5",
        ),
        ("pixtral", {"hidden_size": 9, "num_attention_heads": 3}, "a multiple of 2; got 3"),
    ],
)
def test_contradictions_are_refused(name, keys, message):
    with pytest.raises(ValueError, match=message):
        recipe(Part(name, **keys))


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_parameters": [1]},
        {"rope_parameters": {"rope_theta": "1e4"}},
        {"hidden_size": "96"},
        {"num_heads": 3.5},
        {"num_heads": True},
        {"head_dim": [1]},
    ],
)
def test_values_of_wrong_types_are_refused(keys):
    with pytest.raises(TypeError, match=r"vision_config\."):
        recipe(Part("qwen3_vl_vision", **keys))


def test_null_is_read_as_missing():
    assert (
        recipe(Part("qwen3_vl_vision", rope_parameters={"factor": None}, rope_theta=None, head_dim=None))[:4]
        == recipe(Part("qwen3_vl_vision"))[:4]
    )
    assert recipe(Part("step3p5_vision", use_rope2d=True)) == recipe(Part("step3p5_vision"))


@pytest.mark.parametrize(
    ("name", "keys", "shape", "error", "message"),
    [
        ("qwen3_vl_vision", {}, (3, 4), ValueError, "multiples of 2 rows and columns for qwen3_vl_vision"),
        ("qwen3_vl_vision", {}, (4,), ValueError, "shape must be"),
        ("qwen3_vl_vision", {}, (), ValueError, "shape must be"),
        ("qwen3_vl_vision", {}, (1, 1, 2, 2), ValueError, "shape must be"),
        ("qwen3_vl_vision", {}, (0, 2), ValueError, "shape must be"),
        ("qwen3_vl_vision", {}, (2**20, 2), ValueError, "shape must be"),
        ("qwen3_vl_vision", {}, 4, TypeError, "shape must be"),
        ("qwen3_vl_vision", {}, (2.0, 2), TypeError, "shape must be"),
        ("qwen3_vl_vision", {"spatial_merge_size": 0}, (2, 2), ValueError, "spatial_merge_size must be from 1"),
        ("qwen2_5_vl_vision", {"window_size": 13}, (2, 2), ValueError, "window_size must be at least one block"),
        ("pixtral", {}, (2, 4, 4), ValueError, "that of one image: pixtral takes no videos; got 2 frames"),
        (
            "llama4_vision_model",
            {},
            (4, 4),
            ValueError,
            r"shape must be \(32, 32\) for llama4_vision_model; got \(4, 4\)",
        ),
        ("sam3_vit_model", {}, (24, 72), ValueError, r"shape must be \(72, 72\) or \(24, 24\)"),
        ("sam3_vit_model", {"image_size": [8, 8]}, (24, 24), TypeError, "image_size must be an integer"),
        ("video_llama_3_vision", {}, (2,), ValueError, "shape must be"),
    ],
)
def test_wrong_grid_shapes_are_refused(name, keys, shape, error, message):
    with pytest.raises(error, match=message):
        grid(Part(name, **keys), shape)


@pytest.mark.parametrize("name", [name for name, row in TOWERS.items() if not row.callers])
def test_grid_has_a_number_for_each_axis(name):
    row = TOWERS[name]
    shape = {"sam3_vit_model": (24, 24), "llama4_vision_model": (32, 32)}.get(name, (2, 4))
    places = grid(Part(name), shape)
    assert len(set(places)) == len(places) == np.prod(shape)
    assert {len(place) for place in places} == {len(row.axes)} == {recipe(Part(name)).facts["axes"].value}
    assert set(row.axes) <= set(AXES) and set(row.features) <= set(row.axes)
    if row.frames and row.axes != AXES:
        assert grid(Part(name), (2, *shape)) == places * 2
