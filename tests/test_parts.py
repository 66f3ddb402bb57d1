"""Parts of a model, by the public functions: their names, rotations, layers, positions and score scales."""

import functools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rope_any as ra
from rope_any import Rope, config
from rope_any.cli import app

YARN = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
DEEPSEEK = {"model_type": "deepseek_v32", "hidden_size": 7168, "num_attention_heads": 128, "num_hidden_layers": 3}
DEEPSEEK |= {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "index_head_dim": 128, "rope_scaling": YARN}
QWEN = {
    "model_type": "qwen3_vl",
    "text_config": {"model_type": "qwen3_vl_text", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 5e6},
    # as published, with the type of the whole model
    "vision_config": {"model_type": "qwen3_vl", "hidden_size": 1024, "num_heads": 16, "depth": 5},
}
THINKER = {"text_config": {"model_type": "qwen3_omni_moe_text", "head_dim": 128, "num_hidden_layers": 4}}
THINKER |= {"vision_config": {"model_type": "qwen3_omni_moe_vision_encoder", "hidden_size": 1152, "num_heads": 16}}
THINKER |= {"model_type": "qwen3_omni_moe_thinker", "audio_config": {"model_type": "qwen3_omni_moe_audio_encoder"}}
TALKER = {"text_config": {"model_type": "qwen3_omni_moe_talker_text", "head_dim": 128, "num_hidden_layers": 3}}
PREDICTOR = {"model_type": "qwen3_omni_moe_talker_code_predictor", "num_hidden_layers": 5}
TALKER |= {"code_predictor_config": PREDICTOR}
OMNI = {"model_type": "qwen3_omni_moe", "thinker_config": THINKER, "talker_config": TALKER}
OF_TALKER = ("talker_config.text_config", "talker_config.code_predictor_config")
FLUX = {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56]}
MISTRAL = {"dim": 64, "n_layers": 2, "head_dim": 32, "hidden_dim": 256, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-5}
MISTRAL |= {"vocab_size": 32768, "rope_theta": 1e6}
LLAVA = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "vit"}}
GLM5_TOWER = {"model_type": "glm5_next_vision"}
TOWERS, OF_TOWERS = {"vision_config": GLM5_TOWER}, ("vision_config", "talker_config.vision_config")
T5_GEMMA = {"model_type": "t5_gemma_module", "head_dim": 64}
SAM = {"vision_config": {"backbone_config": {"hidden_size": 1024}}}
LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}


def assert_refused(words, model, **options):
    """Check that a model is refused with these words."""
    with pytest.raises((TypeError, ValueError), match=words):
        Rope.from_config(model, **options)


def write_pipeline(folder, **components):
    """Write a pipeline of diffusers with the configs of its components; return its folder."""
    (folder / "model_index.json").write_text("{}", encoding="utf-8")
    for name, keys in components.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(keys), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"model_type": "llama", "head_dim": 64}, ("text",)),
        (DEEPSEEK, ("text", "indexer")),
        (QWEN, ("text", "vision")),
        (OMNI, ("text", "vision", *OF_TALKER)),
        (FLUX, ("transformer",)),
        (MISTRAL, ("text",)),
        ({"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 2}, ("vision",)),
        (LLAVA, ("text",)),
        ({"model_type": "mlcd_vision_model"}, ("vision",)),  # refused when it is read
        ({"model_type": "pe_video_encoder", "head_dim": 64}, ("vision",)),
        ({"_class_name": "DiTTransformer2DModel"}, ()),
        ({"model_type": "glm5_next", "vision_config": GLM5_TOWER}, ("vision",)),  # the text does not rotate
        ({"model_type": "new", "vision_config": GLM5_TOWER}, ("text", "vision")),  # the text is unknown
        ({"model_type": "new", **TOWERS, "talker_config": TOWERS}, ("text", *OF_TOWERS)),
        ({"model_type": "moshi", "depth_decoder_config": {"model_type": "moshi_depth"}}, ("text",)),
        ({"model_type": "t5gemma", "encoder": T5_GEMMA, "decoder": T5_GEMMA}, ("text", "encoder")),
        ({"model_type": "evolla", "protein_encoder_config": {}}, ("text", "protein_encoder_config")),
        ({"model_type": "sam3_tracker_video", **SAM}, ("vision", "vision_config.backbone_config")),
        ({"model_type": "blt", "patcher_config": {"model_type": "blt_patcher"}}, ("patcher_config",)),
        ({"talker_config": TALKER, "vision_config": {}, **QWEN}, ("text", "vision", *OF_TALKER)),  # in a fixed order
    ],
)
def test_parts_are_named(model, names):
    assert config.read(model).parts == names


# --- a part: its rotation, layers and positions ---------------------------------------------------------------


def test_a_tower_has_layers_and_positions():
    (explained,) = config.read(QWEN).explain(part="vision")
    assert explained.facts["model_type"] == ("qwen3_vl_vision", "vision_config of this model")
    tower = explained.rope
    assert config.read(QWEN).layers(part="vision") == [tower] * 5
    at = config.read(QWEN).positions((4, 4), part="vision", like=np.empty(0))
    assert at.shape == (16, 2) and at.dtype == np.int64
    assert at[:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]  # blocks of two by two
    x = np.ones((1, 2, 16, 64))
    assert tower.apply(x, at).shape == x.shape
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        config.read({"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 2}).layers()
    with pytest.raises(ValueError, match=r'part must be one whose config defines .*; write part="vision" for the'):
        config.read(QWEN).positions((4, 4), like=np.empty(0))


DEEP: list[object] = []
for _ in range(2000):
    DEEP = [DEEP]
NO_INDEXER = {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "index_topk": 4}
UNHEARD_OF = QWEN | {"vision_config": {"model_type": "unheard_of", "hidden_size": 64}}
ROTATING_SIGLIP = QWEN | {"vision_config": {"model_type": "siglip_vision_model", "rope_theta": 1e4}}
PIXTRAL = MISTRAL | {"vision_encoder": {"hidden_size": 64, "rope_theta": 1e4}}
GGUF = {"general.architecture": "llama", "llama.embedding_length": 4096, "llama.attention.head_count": 32}


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (NO_INDEXER, {"part": "indexer"}, "index_topk must not be given: .* deepseek_v3 has none"),
        (QWEN | {"vision_config": "x"}, {}, "vision_config must be an object or null"),
        ({"model_type": "llama4", "vision_config": {"model_type": DEEP}}, {}, "model_type must"),
        ({"_class_name": DEEP}, {}, "_class_name must be a name"),
        ({"_class_name": "DiTTransformer2DModel"}, {}, "got none: DiTTransformer2DModel has no rotary embedding"),
        ({"model_type": "moshi_depth"}, {}, "moshi_depth has no rotary embedding"),
        (QWEN, {"part": "vision", "pairing": "interleaved"}, "pairing must be 'half'"),
        (FLUX, {"pairing": "half"}, "pairing must be 'interleaved', according to _class_name Flux"),
        (FLUX, {"factor": 8.0}, "factor must be left out"),
        (QWEN, {"part": "vision", "layer_type": "x"}, "layer_type must be one that the config has .it has none"),
        (UNHEARD_OF, {"part": "vision"}, "vision_config.model_type must be one"),
        (
            ROTATING_SIGLIP,
            {"part": "vision"},
            "rope_theta must not be given for siglip_vision_model, which has no rotary",
        ),
        (PIXTRAL, {"part": "vision"}, "vision_encoder must have"),
        (LLAMA | {"no_rope_freq": 4}, {}, "no_rope_freq must be left out: .*it is of Megatron"),
        (LLAMA | {"mla_use_nope": True}, {}, "mla_use_nope must be False, the only supported value"),
        # names of another form of config
        (GGUF | {"rope_theta": 5.0}, {}, "rope_theta must not"),
        (GGUF | {"qwen2.rope.freq_base": 5.0}, {}, "qwen2.rope.freq_base must not"),
        (GGUF | {"rope_freqs.weight": "x"}, {}, r"rope_freqs\.weight must not .*layouts\.unpack\("),
        (GGUF | {"llama.rope.dimension_count": 127}, {}, r"llama\.rope\.dimension_count must be even"),
        (MISTRAL | {"model_type": "mistral"}, {}, "one form; got keys of several: model_type and mistral"),
        (FLUX | {"model_type": "llama"}, {}, "one form; got keys of several: _class_name and model_type"),
    ],
)
def test_parts_that_cannot_be_read_are_refused_with_a_reason(model, options, words):
    assert_refused(words, model, **options)


def test_a_tower_that_cannot_be_read_is_a_part_all_the_same():
    assert config.read(UNHEARD_OF).parts == config.read(PIXTRAL).parts == ("text", "vision")


def test_a_part_can_be_named_by_its_path():
    talker = "talker_config.text_config"
    assert len(config.read(OMNI).layers(part=talker)) == 3
    (explained,) = config.read(OMNI).explain(part=talker)
    assert explained.facts["head_dim"] == (128, f"{talker}.head_dim")
    predictor = Rope.from_config(OMNI, part="talker_config.code_predictor_config")
    assert predictor == Rope(ra.frequencies(128), pairing="half")


# --- components of a pipeline ---------------------------------------------------------------------------------


def test_a_pipeline_has_its_components_as_parts(tmp_path):
    files = {
        "transformer": FLUX,
        "text_encoder": {"model_type": "new_text_model", "hidden_size": 64},
        "text_encoder_2": {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 1},
        "vae": {"_class_name": "AutoencoderKL"},
    }
    write_pipeline(tmp_path, **files)
    assert config.read(tmp_path).parts == ("text_encoder", "text_encoder_2", "transformer")
    assert Rope.from_config(tmp_path, part="transformer") == Rope.from_config(FLUX)
    assert Rope.from_config(tmp_path, part="text_encoder_2") == Rope.from_config(files["text_encoder_2"])
    assert_refused("model_type must be one whose rotation is known", tmp_path, part="text_encoder")
    assert_refused("part must be given, since the config has several: one of text_encoder, ", tmp_path)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert shown.exit_code == 0 and "text_encoder: refused" in shown.stdout and "transformer, " in shown.stdout


@pytest.mark.parametrize("encoder", ["clip_text_model", "umt5", "siglip_vision_model"])
def test_the_only_component_that_rotates_is_the_default(encoder, tmp_path):
    write_pipeline(tmp_path, text_encoder={"model_type": encoder}, transformer=FLUX)
    assert config.read(tmp_path).parts == ("transformer",)
    assert Rope.from_config(tmp_path) == Rope.from_config(FLUX)
    (tmp_path / "text_encoder" / "config.json").write_text("{", encoding="utf-8")
    assert config.read(tmp_path).parts == ("text_encoder", "transformer")
    assert_refused(r"must be a config\.json; .*: line 1 column 2", tmp_path, part="text_encoder")


# --- inner configs and their parents --------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["yarn", "nope_layers", "freq_base", "ntk_alpha", "ROPE_THETA", "xpos", "inv_freq"])
def test_unknown_names_about_rotary_are_refused(key):
    assert_refused(f"{key} must be left out: it is an unknown name about rotary embedding", LLAMA | {key: 4})


def test_inner_models_are_parts_or_refused_by_name():
    inner = {"rope_theta": 5.0, "head_dim": 32}
    draft = {"model_type": "qwen3", "head_dim": 64, "draft_config": {"model_type": "qwen3", **inner}}
    assert config.read(draft).parts == ("text", "draft_config")
    assert Rope.from_config(draft, part="draft_config") == Rope(ra.frequencies(32, base=5.0), pairing="half")
    unknown = {"model_type": "qwen3", "head_dim": 64, "depth_config": {"model_type": "new_depth", **inner}}
    assert config.read(unknown).parts == ("text", "depth_config")
    assert_refused(r"depth_config\.model_type must be one whose rotation is known", unknown, part="depth_config")


# --- other forms of configs -----------------------------------------------------------------------------------


def test_a_folder_with_params_json_is_read(tmp_path):
    (tmp_path / "params.json").write_text(json.dumps(MISTRAL), encoding="utf-8")
    assert Rope.from_config(tmp_path) == Rope(ra.frequencies(32, base=1e6), pairing="interleaved")
    with pytest.raises(ValueError, match=r"config must be that of transformers; got mistral params\.json"):
        config.read(MISTRAL).as_transformers()


def test_factor_is_refused_where_the_file_decides(tmp_path):
    words = r"factor must be left out, except for Meta's params\.json"
    assert_refused(words, write_pipeline(tmp_path), factor=8.0)
    for other in (LLAMA, {"model_type": "siglip_vision_model"}):
        assert_refused(f"{words}.*scaling in rope_parameters", other, factor=8.0)
    for arch in ("qwen2", "mamba"):
        assert_refused(f"no model of architecture {arch} has", {"general.architecture": arch}, factor=8.0)
    assert_refused("the file has another scaling", GGUF | {"llama.rope.scaling.factor": 4.0}, factor=8.0)


# --- which parts a model has, and what is said of them --------------------------------------------------------


@pytest.mark.parametrize(("part", "error"), [("audio", ValueError), (3, TypeError)])
def test_missing_parts_are_refused(part, error):
    for method in (config.Config.rope, config.Config.layers, config.Config.explain, config.Config.score_scale):
        with pytest.raises(error, match=r"part must be one that the config has \(text, vision\)"):
            method(config.read(QWEN), part=part)


def test_a_model_without_text_needs_a_part():
    towers = {"model_type": "sam3", "vision_config": {"backbone_config": {"hidden_size": 64, "num_attention_heads": 2}}}
    assert config.read(towers, pairing="half").parts
    assert config.read(DEEPSEEK).score_scale() == pytest.approx(0.1352338, abs=5e-8)
    read = config.read(QWEN)
    assert read.score_scale(part="vision") == read.explain(part="vision")[0].facts["score_scale"].value
    with pytest.raises(ValueError, match="part must be the text or a tower: only their score scales are known"):
        config.read(DEEPSEEK).score_scale(part="indexer")


def test_parts_of_omni_models_need_no_model_type():
    head = {"head_dim": 128, "num_hidden_layers": 2}
    talker = {"text_config": head, "code_predictor_config": head}
    three = {"model_type": "qwen3_omni_moe", "talker_config": talker, "thinker_config": {"text_config": head}}
    assert config.read(three).parts == ("text", "talker_config.text_config", "talker_config.code_predictor_config")
    ropes = [Rope.from_config(three, part=part) for part in config.read(three).parts]
    assert [len(np.atleast_2d(rope.frequencies)) for rope in ropes] == [3, 3, 1]
    two = {"model_type": "qwen2_5_omni", "talker_config": head, "thinker_config": {"text_config": head}}
    assert config.read(two).parts == ("text", "talker_config")


def test_keys_that_are_not_of_the_rotation_are_reported():
    (explained,) = config.read(
        LLAMA | {"dual_chunk_attention_config": {"chunk_size": 8192}, "use_fope": True}
    ).explain()
    (ignored,) = config.read(LLAMA | {"position_embedding_type": "absolute", "alibi": True}).explain()
    assert ignored.facts["alibi"] == (True, "alibi; not read: this model has rotary embedding with any value")
    assert ignored.facts["position_embedding_type"].value == "absolute"
    chunks = explained.facts["dual_chunk_attention_config"].source
    assert chunks.endswith("; maps positions: rope_any.positions.dual_chunk")
    assert explained.facts["use_fope"].source == "use_fope; mixes the frequencies of the table: rope_any.bending.fope"
    (explained,) = config.read(LLAMA | {"model_type": "roformer", "rotary_value": True, "use_fope": False}).explain()
    assert explained.facts["rotary_value"] == (True, "rotary_value; rotates the values too: Rope.apply")
    assert "use_fope" not in explained.facts
    large = {"model_type": "mistral_large4_text", "qk_rope_head_dim": 64, "rope_parameters": {"rope_type": "default"}}
    for part in config.read(large).parts:
        assert config.read(large).explain(part=part)[0].facts["frequencies"].value.startswith("times exp(alpha)")


def test_inspect_shows_all_parts(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(QWEN | {"audio_config": {"model_type": "lightglue"}}), encoding="utf-8")
    shown = CliRunner().invoke(app, ["inspect", str(file)])
    assert shown.exit_code == 0
    assert shown.stdout.count("wavelengths in positions along each axis") == 2
    assert "vision, " in shown.stdout and "audio: refused" in shown.stdout and "lightglue" in shown.stdout
    one_part = CliRunner().invoke(app, ["inspect", str(file), "--part", "vision"])
    _, _, details = one_part.stdout.partition("\n\n")  # after the overview
    assert one_part.exit_code == 0 and details and details in shown.stdout
    records = json.loads(CliRunner().invoke(app, ["inspect", str(file), "--json"]).stdout)
    read = {record["part"]: record["refused"] is None for record in records}
    assert read == {"text": True, "vision": True, "audio": False}


def test_models_with_parts_of_other_names_are_read():
    phi = {"model_type": "phi4mm", "hidden_size": 3072, "num_attention_heads": 24, "partial_rotary_factor": 0.75}
    assert Rope.from_config(phi) == Rope.from_config(phi | {"model_type": "phi4_multimodal"})
    flamingo = {"model_type": "musicflamingo", "text_config": {"model_type": "qwen2", "head_dim": 64}}
    assert config.read(flamingo).parts == ("text", "audio")
    assert_refused("got 'musicflamingo'; it rotates hidden states by time stamps", flamingo, part="audio")


def test_a_standalone_audio_encoder_is_called_audio():
    encoder = {"model_type": "glmasr_encoder", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2}
    assert config.read(encoder).parts == ("audio",)
    codec = {"model_type": "neucodec", "hidden_size": 128, "num_attention_heads": 2}
    codec["semantic_model_config"] = {"model_type": "wav2vec2-bert", "position_embeddings_type": "rotary"}
    assert config.read(codec).parts == ("audio", "semantic_model_config")
    assert Rope.from_config(codec) == Rope.from_config(codec, part="audio")  # the other part is nested
    model = {"model_type": "glmasr", "text_config": {"model_type": "llama"}, "audio_config": encoder}
    assert config.read(model).parts == ("text", "audio")
    assert (
        Rope.from_config(encoder) == Rope.from_config(model, part="audio") and len(config.read(encoder).layers()) == 2
    )
    assert config.read(encoder).score_scale() == 0.125


def test_known_parts_of_an_unknown_model_are_read():
    text = {"model_type": "qwen3", "head_dim": 64}
    new = {"model_type": "brand_new_vl", "text_config": text}
    new["vision_config"] = QWEN["vision_config"] | {"model_type": "qwen3_vl_vision"}
    assert config.read(new).parts == ("text", "vision")
    assert Rope.from_config(new) == Rope.from_config(text)
    assert Rope.from_config(new, part="vision") == Rope.from_config(QWEN, part="vision")
    untyped = new | {"text_config": {"head_dim": 64}}
    assert config.read(untyped).parts == ("text", "vision")
    assert Rope.from_config(untyped, part="vision") == Rope.from_config(QWEN, part="vision")
    assert_refused(r"text_config\.model_type must be given, since it decides the rotation", untyped)
    wrong = {**OMNI, "talker_config": {"text_config": {**TALKER["text_config"], "rope_new": 3}}}
    assert Rope.from_config(wrong) == Rope.from_config(OMNI)
    assert_refused("rope_new must be left out", wrong, part="talker_config.text_config")


def test_a_component_can_have_several_rotations(tmp_path):
    ltx = {"_class_name": "LTX2VideoTransformer3DModel", "rope_type": "split"}
    assert config.read(ltx).parts == ("transformer", "transformer.audio", "transformer.cross")
    assert Rope.from_config(ltx) == Rope.from_config(ltx, part="transformer")  # the other parts are nested
    audio, cross = (Rope.from_config(ltx, part=f"transformer.{name}") for name in ("audio", "cross"))
    assert audio == cross != Rope.from_config(ltx)
    (explained,) = config.read(ltx).explain(part="transformer.audio")
    assert explained.facts["covers"].value.startswith("self-attention of audio tokens")
    write_pipeline(tmp_path, dit=ltx)
    assert config.read(tmp_path).parts == ("dit", "dit.audio", "dit.cross")
    assert Rope.from_config(tmp_path, part="dit.audio") == audio


# --- values that are no config --------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [LLAMA, QWEN, FLUX, MISTRAL, {"general.architecture": "llama"}])
@pytest.mark.parametrize("key", ["rope_parameters", "text_config", "vision_config", "other"])
def test_recursive_and_deeply_nested_configs_are_refused(keys, key):
    inside = dict(keys)
    inside[key] = {"x": inside}
    nested = functools.reduce(lambda inner, _: {key: inner}, range(10_000), {})
    for read in (config.read, Rope.from_config):
        with pytest.raises(ValueError, match=r"^config must not hold an object that contains itself$"):
            read(inside)
        with pytest.raises(ValueError, match=r"^config must hold objects at most 64 deep; got one nested too deeply$"):
            read(keys | nested)
    shared = {"x": {"y": 1}}
    assert config.read(LLAMA | {"one": shared, "two": shared}).parts == ("text",)


def test_numpy_numbers_are_accepted_as_values():
    keys = {"hidden_size": np.int64(64), "num_attention_heads": np.int32(2), "rope_theta": np.float32(5e5)}
    assert Rope.from_config(LLAMA | keys) == Rope.from_config(LLAMA | {"rope_theta": 5e5})


@pytest.mark.parametrize("count", [30_000_000, 2**62, 10**400, -5])
def test_impossible_numbers_of_blocks_are_ignored(count):
    flux = FLUX | {"num_layers": 2, "num_single_layers": count}
    assert config.read(flux).explain()[0].layers is None


def test_shared_objects_are_shown_by_their_type():
    shared = {}
    for _ in range(60):
        shared = {"a": shared, "b": shared}
    assert_refused(r"head_dim must be an integer; got dict$", {"model_type": "llama", "head_dim": shared})
