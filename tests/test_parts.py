"""Parts of a model, by the public functions: their names, rotations, layers, positions and score scales."""

import contextlib
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rope_any as ra
from rope_any import Rope, config
from rope_any.cli import app

YARN = {
    "type": "yarn",
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
}
DEEPSEEK = {
    "model_type": "deepseek_v32",
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_hidden_layers": 3,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "index_head_dim": 128,
    "rope_scaling": YARN,
}
GLM = {
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 4,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "indexer_types": ["full", "shared", "shared", "full"],
    "indexer_rope_interleave": True,
    "rope_interleave": True,
    "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"},
}
QWEN = {
    "model_type": "qwen3_vl",
    "text_config": {"model_type": "qwen3_vl_text", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 5e6},
    "vision_config": {
        "model_type": "qwen3_vl",  # as published: the type of the whole model
        "hidden_size": 1024,
        "num_heads": 16,
        "depth": 5,
        "spatial_merge_size": 2,
    },
}
OMNI = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "model_type": "qwen3_omni_moe_thinker",
        "text_config": {"model_type": "qwen3_omni_moe_text", "head_dim": 128, "num_hidden_layers": 4},
        "vision_config": {"model_type": "qwen3_omni_moe_vision_encoder", "hidden_size": 1152, "num_heads": 16},
        "audio_config": {"model_type": "qwen3_omni_moe_audio_encoder"},
    },
    "talker_config": {
        "text_config": {"model_type": "qwen3_omni_moe_talker_text", "head_dim": 128, "num_hidden_layers": 3},
        "code_predictor_config": {"model_type": "qwen3_omni_moe_talker_code_predictor", "num_hidden_layers": 5},
    },
}
FLUX = {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56]}
MISTRAL = {"dim": 64, "n_layers": 2, "head_dim": 32, "hidden_dim": 256, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-5}
MISTRAL |= {"vocab_size": 32768, "rope_theta": 1e6}
META = {"dim": 128, "n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "vocab_size": 128256, "multiple_of": 1024}
META |= {"norm_eps": 1e-5, "rope_theta": 5e5, "use_scaled_rope": True}
LLAVA = {"model_type": "llava", "text_config": {"model_type": "llama"}, "vision_config": {"model_type": "vit"}}
GENAI = {"model": {"decoder": {"filename": "model.onnx", "session_options": {}}, "type": "llama"}}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ({"model_type": "llama", "head_dim": 64}, ("text",)),
        (DEEPSEEK, ("text", "indexer")),
        (GLM, ("text", "indexer")),
        (QWEN, ("text", "vision")),
        (
            OMNI,
            ("text", "vision", "talker_config.text_config", "talker_config.code_predictor_config"),
        ),
        (FLUX, ("transformer",)),
        (MISTRAL, ("text",)),
        ({"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 2}, ("vision",)),
        (LLAVA, ("text",)),
        ({"model_type": "mlcd_vision_model"}, ("vision",)),  # refused when it is read
    ],
)
def test_parts_are_named(model, names):
    assert config.parts(model) == names


def test_the_indexer_has_its_own_pairing_and_layers():
    text, indexer = (Rope.from_config(DEEPSEEK, part=part) for part in ("text", "indexer"))
    assert (text.pairing, indexer.pairing) == ("interleaved", "half")
    assert text.frequencies == indexer.frequencies and text.attention_factor == indexer.attention_factor
    assert config.layers(DEEPSEEK, part="indexer") == [indexer] * 3
    indexer = Rope.from_config(GLM, part="indexer")
    assert indexer == Rope.from_config(GLM) and indexer.pairing == "interleaved"
    assert config.layers(GLM, part="indexer") == [indexer, None, None, indexer]
    (explained,) = config.explain(GLM, part="indexer")
    assert explained.layers == (0, 3) and "indexer_rope_interleave" in explained.facts["pairing"].source
    with pytest.raises(ValueError, match="indexer_rope_interleave must agree with the indexer of glm_moe_dsa"):
        Rope.from_config(GLM | {"indexer_rope_interleave": False}, part="indexer")
    assert Rope.from_config(GLM | {"indexer_rope_interleave": False}) == indexer  # the text does not depend on it


def test_a_tower_has_layers_and_positions():
    tower = Rope.from_config(QWEN, part="vision")
    assert config.layers(QWEN, part="vision") == [tower] * 5
    at = config.positions(QWEN, (4, 4), part="vision", like=np.empty(0))
    assert at.shape == (16, 2) and at.dtype == np.int64
    assert at[:5].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]  # blocks of two by two
    x = np.ones((1, 2, 16, 64))
    assert tower.apply(x, at).shape == x.shape
    with pytest.raises(ValueError, match="num_hidden_layers must be given"):
        config.layers({"model_type": "pixtral", "hidden_size": 64, "num_attention_heads": 2})
    with pytest.raises(ValueError, match=r'part must be one whose config defines .*; write part="vision" for the'):
        config.positions(QWEN, (4, 4), like=np.empty(0))
    with pytest.raises(ValueError, match=r"layer_type must be one that the config has .it has none.; got 'x'"):
        Rope.from_config(QWEN, part="vision", layer_type="x")


def test_positions_of_a_stream_are_returned():
    model = QWEN | {"image_token_id": 7, "video_token_id": 8, "vision_start_token_id": 5}
    ids = [[1, 5, 7, 7, 7, 7, 2]]
    at = config.positions(model, token_ids=ids, grids=[(1, 4, 4)], like=np.empty(0))
    assert at.tolist() == [
        [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 3, 2], [2, 3, 3], [4, 4, 4]],
    ]
    text = Rope.from_config(model)
    assert text.apply(np.ones((1, 2, 7, 128)), at).shape == (1, 2, 7, 128)
    with pytest.raises(ValueError, match="either shape or token_ids must be given"):
        config.positions(model, like=np.empty(0))
    with pytest.raises(ValueError, match="part must be text for token_ids; got 'vision'"):
        config.positions(model, token_ids=ids, grids=[(1, 4, 4)], part="vision", like=np.empty(0))
    with pytest.raises(TypeError, match="shape must be a tuple of integers; got int 4"):
        config.positions(model, 4, part="vision", like=np.empty(0))


def test_parts_that_cannot_be_read_are_refused_with_a_reason():
    llama = {"model_type": "llama", "head_dim": 64}
    with pytest.raises(
        ValueError, match="index_topk must not be given: it is a key of an indexer, and deepseek_v3 has none"
    ):
        Rope.from_config({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "index_topk": 4}, part="indexer")
    unknown = QWEN | {"vision_config": {"model_type": "moonvit", "hidden_size": 64}}
    assert config.parts(unknown) == ("text", "vision")
    with pytest.raises(ValueError, match=r"vision_config\.model_type must be one whose rotation is known; got 'moonv"):
        Rope.from_config(unknown, part="vision")
    for wrong, error in {"x": TypeError, (1,): TypeError}.items():
        with pytest.raises(error, match="vision_config must be an object or null"):
            config.parts(QWEN | {"vision_config": wrong})
    deep = []
    for _ in range(2000):
        deep = [deep]
    for keys in ({"model_type": "llama4", "vision_config": {"model_type": deep}}, {"_class_name": deep}):
        with pytest.raises((TypeError, ValueError)):
            Rope.from_config(keys)
    with pytest.raises(ValueError, match="config must be of one form; got keys of several: _class_name and model_type"):
        Rope.from_config(FLUX | llama)
    with pytest.raises(ValueError, match=r"pairing must be 'half', according to .*; got 'interleaved'"):
        Rope.from_config(QWEN, part="vision", pairing="interleaved")
    with pytest.raises(ValueError, match=r"pairing must be 'interleaved', according to _class_name Flux.*; got 'half'"):
        Rope.from_config(FLUX, pairing="half")
    with pytest.raises(ValueError, match="factor must be left out"):
        Rope.from_config(FLUX, factor=8.0)
    with pytest.raises(ValueError, match="sequence_length must be from 1"):
        Rope.from_config(QWEN, part="vision", sequence_length=-1)
    tower = MISTRAL | {"vision_encoder": {"hidden_size": 64, "rope_theta": 1e4}}
    assert config.parts(tower) == ("text", "vision")
    with pytest.raises(ValueError, match=r"vision_encoder must have .* or be read from a config"):
        Rope.from_config(tower, part="vision")
    glm = {"model_type": "glm5_next", "vision_config": {"model_type": "glm5_next_vision"}}
    assert config.parts(glm) == ("vision",)  # the text has no rotary embedding
    known = glm | {"model_type": "new"}
    assert config.parts(known) == ("text", "vision")  # the text is unknown
    assert Rope.from_config(known, part="vision").pairing == "half"


def test_a_part_can_be_named_by_its_path():
    talker = "talker_config.text_config"
    assert len(config.layers(OMNI, part=talker)) == 3
    (explained,) = config.explain(OMNI, part=talker)
    assert explained.facts["head_dim"] == (128, f"{talker}.head_dim")
    assert Rope.from_config(OMNI, part="talker_config.code_predictor_config") == Rope(
        ra.frequencies(128), pairing="half"
    )


def test_parts_have_a_fixed_order_and_towers_name_the_source_of_their_type():
    swapped = {"talker_config": OMNI["talker_config"], "vision_config": QWEN["vision_config"], **QWEN}
    assert config.parts(swapped) == (
        "text",
        "vision",
        *(f"talker_config.{n}_config" for n in ("text", "code_predictor")),
    )
    (explained,) = config.explain(QWEN, part="vision")
    assert explained.facts["model_type"] == ("qwen3_vl_vision", "vision_config of this model")
    assert len(config.layers(FLUX | {"num_layers": 19, "num_single_layers": 38})) == 57


def test_a_diffusers_transformer_has_parts():
    rope = Rope.from_config(FLUX)
    assert rope.pairing == "interleaved" and len(rope.frequencies) == 3
    at = config.positions(FLUX, (1, 2, 2), like=np.empty(0))
    assert at.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    with pytest.raises(ValueError, match="ErnieImage"):
        Rope.from_config({"_class_name": "ErnieImageTransformer2DModel"})


def test_a_pipeline_has_its_components_as_parts(tmp_path):
    files = {
        "transformer": FLUX,
        "text_encoder": {"model_type": "new_text_model", "hidden_size": 64},
        "text_encoder_2": {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 1},
        "vae": {"_class_name": "AutoencoderKL"},
    }
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}', encoding="utf-8")
    for name, keys in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(keys), encoding="utf-8")
    assert config.parts(tmp_path) == ("text_encoder", "text_encoder_2", "transformer")
    assert Rope.from_config(tmp_path, part="transformer") == Rope.from_config(FLUX)
    assert Rope.from_config(tmp_path, part="text_encoder_2") == Rope.from_config(files["text_encoder_2"])
    with pytest.raises(ValueError, match="model_type must be one whose rotation is known"):
        Rope.from_config(tmp_path, part="text_encoder")
    with pytest.raises(ValueError, match="part must be given, since the config has several: one of text_encoder, "):
        Rope.from_config(tmp_path)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert shown.exit_code == 0 and "text_encoder: refused" in shown.stdout and "transformer, " in shown.stdout


@pytest.mark.parametrize("encoder", ["clip_text_model", "umt5", "siglip_vision_model"])
def test_the_only_component_that_rotates_is_the_default(encoder, tmp_path):
    (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
    for name, keys in {"text_encoder": {"model_type": encoder}, "transformer": FLUX}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(keys), encoding="utf-8")
    assert config.parts(tmp_path) == ("transformer",)
    assert Rope.from_config(tmp_path) == Rope.from_config(FLUX)
    (tmp_path / "text_encoder" / "config.json").write_text("{", encoding="utf-8")
    assert config.parts(tmp_path) == ("text_encoder", "transformer")
    with pytest.raises(ValueError, match=r"must be a config\.json; .*: line 1 column 2"):
        Rope.from_config(tmp_path, part="text_encoder")


OUTER_KEYS = {
    "another base": {"rope_theta": 1e4},
    "another scaling": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    "another rotary_dim": {"rotary_dim": 3},
    "a misspelt name": {"rope_tetha": 1e4},
}


@pytest.mark.parametrize("outer", OUTER_KEYS.values(), ids=OUTER_KEYS)
def test_outer_keys_that_contradict_the_text_part_are_refused(outer):
    text = {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    model = {"model_type": "llava", "text_config": text}
    equal = {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert Rope.from_config(model | equal) == Rope.from_config(text)
    with pytest.raises(
        ValueError, match=f"{next(iter(outer))} must (agree with text_config, the|be in text_config: only that) part"
    ):
        Rope.from_config(model | outer)


@pytest.mark.parametrize("key", ["yarn", "nope_layers", "freq_base", "ntk_alpha", "ROPE_THETA", "xpos", "inv_freq"])
def test_unknown_names_about_rotary_are_refused(key):
    with pytest.raises(ValueError, match=f"{key} must be left out: it is an unknown name about rotary embedding"):
        Rope.from_config({"model_type": "llama", "head_dim": 64, key: 4})


def test_inner_models_are_parts_or_refused_by_name():
    inner = {"rope_theta": 5.0, "head_dim": 32}
    draft = {"model_type": "qwen3", "head_dim": 64, "draft_config": {"model_type": "qwen3", **inner}}
    assert config.parts(draft) == ("text", "draft_config")
    assert Rope.from_config(draft, part="draft_config") == Rope(ra.frequencies(32, base=5.0), pairing="half")
    unknown = {"model_type": "qwen3", "head_dim": 64, "depth_config": {"model_type": "new_depth", **inner}}
    assert config.parts(unknown) == ("text", "depth_config")
    with pytest.raises(
        ValueError, match=r"depth_config\.model_type must be one whose rotation is known; got 'new_depth'"
    ):
        Rope.from_config(unknown, part="depth_config")


GGUF = {"general.architecture": "llama", "llama.embedding_length": 4096, "llama.attention.head_count": 32}


@pytest.mark.parametrize("key", ["rope_theta", "rope_scaling", "rotary_dim", "qwen2.rope.freq_base"])
def test_gguf_metadata_with_names_of_another_form_is_refused(key):
    with pytest.raises(ValueError, match=f"{key} must not be given in GGUF metadata of architecture llama; got 5"):
        Rope.from_config(GGUF | {key: 5.0})


def test_a_tensor_among_gguf_metadata_is_refused_with_the_function_that_reads_it():
    with pytest.raises(ValueError, match=r"rope_freqs\.weight must not be given in GGUF metadata .*layouts\.unpack\("):
        Rope.from_config(GGUF | {"rope_freqs.weight": [1.0, 8.0]})


def test_gguf_metadata_with_an_odd_count_is_refused():
    with pytest.raises(ValueError, match=r"llama\.rope\.dimension_count must be even; got 127"):
        Rope.from_config(GGUF | {"llama.rope.dimension_count": 127})


def test_a_params_json_with_a_model_type_is_of_two_forms():
    with pytest.raises(ValueError, match=r"config must be of one form; got keys of several: model_type and mistral"):
        Rope.from_config(MISTRAL | {"model_type": "mistral"})


def test_mistral_and_meta_files_have_parts(tmp_path):
    (tmp_path / "params.json").write_text(json.dumps(MISTRAL), encoding="utf-8")
    rope = Rope.from_config(tmp_path)
    assert rope == Rope(ra.frequencies(32, base=1e6), pairing="interleaved")
    llama3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_length": 8192}
    scaled = ra.scaling.llama3(ra.frequencies(64, base=5e5), 8.0, **llama3)
    assert Rope.from_config(META, factor=8.0) == Rope(scaled, pairing="interleaved")
    assert config.layers(META, factor=8.0) == [Rope.from_config(META, factor=8.0)] * 2
    with pytest.raises(ValueError, match="factor must be given, since use_scaled_rope is true"):
        Rope.from_config(META)
    (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
    for other in ({"model_type": "llama", "head_dim": 64}, {"model_type": "siglip_vision_model"}, tmp_path):
        with pytest.raises(ValueError, match=r"factor must be left out, except for Meta's params\.json") as caught:
            Rope.from_config(other, factor=8.0)
        assert str(caught.value).endswith("scaling in rope_parameters") == (other is not tmp_path)
    for arch in ("qwen2", "mamba"):
        with pytest.raises(ValueError, match=f"factor must be left out: no model of architecture {arch} has Llama 3's"):
            Rope.from_config({"general.architecture": arch}, factor=8.0)
    linear = {"llama.rope.scaling.factor": 4.0}
    with pytest.raises(ValueError, match="factor must be left out: the file has another scaling"):
        Rope.from_config(GGUF | linear, factor=8.0)
    for keys in (MISTRAL, META):
        with pytest.raises(ValueError, match=r"config must be that of transformers; got m\w+ params\.json"):
            config.modernize(keys)
    with pytest.raises(ValueError, match="the ONNX graph has the table"):
        Rope.from_config(GENAI)


@pytest.mark.parametrize(
    ("part", "error", "message"),
    [
        ("audio", ValueError, r"part must be one that the config has \(text, vision\); got 'audio'"),
        (3, TypeError, r"part must be one that the config has \(text, vision\); got int 3"),
    ],
)
def test_missing_parts_are_refused(part, error, message):
    for function in (Rope.from_config, config.layers, config.explain, config.score_scale):
        with pytest.raises(error, match=message):
            function(QWEN, part=part)


def test_a_model_without_text_needs_a_part():
    towers = {"model_type": "sam3", "vision_config": {"backbone_config": {"hidden_size": 64, "num_attention_heads": 2}}}
    assert config.parts(towers, pairing="half")
    assert config.score_scale(DEEPSEEK) == pytest.approx(0.1352338, abs=5e-8)
    assert config.score_scale(QWEN, part="vision") == config.explain(QWEN, part="vision")[0].facts["score_scale"].value
    with pytest.raises(
        ValueError, match="part must be the text or a tower: only their score scales are known; got 'indexer'"
    ):
        config.score_scale(DEEPSEEK, part="indexer")


def test_a_class_of_diffusers_without_rotary_has_no_parts():
    assert config.parts({"_class_name": "DiTTransformer2DModel"}) == ()
    with pytest.raises(ValueError, match="got none: DiTTransformer2DModel has no rotary embedding"):
        Rope.from_config({"_class_name": "DiTTransformer2DModel"})
    with pytest.raises(TypeError, match="_class_name must be a name"):
        Rope.from_config({"_class_name": ["DiTTransformer2DModel"]})


def test_parts_of_omni_models_need_no_model_type():
    head = {"head_dim": 128, "num_hidden_layers": 2}
    talker = {"text_config": head, "code_predictor_config": head}
    three = {"model_type": "qwen3_omni_moe", "talker_config": talker, "thinker_config": {"text_config": head}}
    assert config.parts(three) == ("text", "talker_config.text_config", "talker_config.code_predictor_config")
    assert [len(np.atleast_2d(Rope.from_config(three, part=part).frequencies)) for part in config.parts(three)] == [
        3,
        3,
        1,
    ]
    two = {"model_type": "qwen2_5_omni", "talker_config": head, "thinker_config": {"text_config": head}}
    assert config.parts(two) == ("text", "talker_config")


def test_parameter_names_of_other_programs_are_refused_with_a_hint():
    llama = {"model_type": "llama", "head_dim": 64}
    for model_type, key, hint in (
        ("llama4_text", "nope_layer_interval", "did you mean no_rope_layer_interval"),
        ("llama", "no_rope_freq", "it is of Megatron"),
    ):
        with pytest.raises(ValueError, match=f"{key} must be left out: .*; got 4; {hint}"):
            Rope.from_config(llama | {"model_type": model_type, key: 4})
    with pytest.raises(ValueError, match="mla_use_nope must be False, the only supported value"):
        Rope.from_config(llama | {"mla_use_nope": True})
    (explained,) = config.explain(llama | {"dual_chunk_attention_config": {"chunk_size": 8192}, "use_fope": True})
    (ignored,) = config.explain(llama | {"position_embedding_type": "absolute", "alibi": True})
    assert ignored.facts["alibi"] == (True, "alibi; not read: this model has rotary embedding with any value")
    assert ignored.facts["position_embedding_type"].value == "absolute"
    assert explained.facts["dual_chunk_attention_config"].source.endswith(
        "; maps positions: rope_any.positions.dual_chunk"
    )
    assert explained.facts["use_fope"].source == "use_fope; mixes the frequencies of the table: rope_any.bending.fope"


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
    assert [(record["part"], record["refused"] is None) for record in records] == [
        ("text", True),
        ("vision", True),
        ("audio", False),
    ]


def test_parts_other_than_text_are_read():
    evolla = {"model_type": "evolla", "head_dim": 64, "protein_encoder_config": {"rope_theta": 500.0}}
    assert config.parts(evolla) == ("text", "protein_encoder_config")
    rope = Rope.from_config(evolla, part="protein_encoder_config")
    assert rope == Rope(ra.frequencies(64, base=500.0), pairing="half")
    wav = {"model_type": "qwen3_omni_moe", "thinker_config": OMNI["thinker_config"], "code2wav_config": {}}
    assert Rope.from_config(wav, part="code2wav_config") == Rope(ra.frequencies(64), pairing="half")
    moshi = {"model_type": "moshi", "head_dim": 64, "depth_decoder_config": {"model_type": "moshi_depth"}}
    assert config.parts(moshi) == ("text",)  # the depth decoder has no rotary embedding
    with pytest.raises(ValueError, match="moshi_depth has no rotary embedding"):
        Rope.from_config({"model_type": "moshi_depth"})
    phi = {"model_type": "phi4mm", "hidden_size": 3072, "num_attention_heads": 24, "partial_rotary_factor": 0.75}
    assert Rope.from_config(phi) == Rope.from_config(phi | {"model_type": "phi4_multimodal"})
    pair = {"model_type": "t5_gemma_module", "head_dim": 64}
    assert config.parts({"model_type": "t5gemma", "encoder": pair, "decoder": pair}) == ("text", "encoder")
    flamingo = {"model_type": "musicflamingo", "text_config": {"model_type": "qwen2", "head_dim": 64}}
    assert config.parts(flamingo) == ("text", "audio")
    with pytest.raises(ValueError, match="got 'musicflamingo'; it rotates hidden states by time stamps"):
        Rope.from_config(flamingo, part="audio")
    tracker = {"model_type": "sam3_tracker_video", "vision_config": {"backbone_config": {"hidden_size": 1024}}}
    assert config.parts(tracker) == ("vision", "vision_config.backbone_config")
    blt = {"model_type": "blt", "patcher_config": {"model_type": "blt_patcher", "head_dim": 64}}
    assert config.parts(blt) == ("patcher_config",)  # there is no text


def test_a_standalone_audio_encoder_is_called_audio():
    encoder = {"model_type": "glmasr_encoder", "hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2}
    assert config.parts(encoder) == ("audio",)
    codec = {"model_type": "neucodec", "hidden_size": 128, "num_attention_heads": 2}
    codec["semantic_model_config"] = {"model_type": "wav2vec2-bert", "position_embeddings_type": "rotary"}
    assert config.parts(codec) == ("audio", "semantic_model_config")
    assert Rope.from_config(codec) == Rope.from_config(codec, part="audio")  # the other part is nested
    model = {"model_type": "glmasr", "text_config": {"model_type": "llama"}, "audio_config": encoder}
    assert config.parts(model) == ("text", "audio")
    assert Rope.from_config(encoder) == Rope.from_config(model, part="audio") and len(config.layers(encoder)) == 2
    assert config.score_scale(encoder) == 0.125


def test_facts_other_than_the_rotation_are_reported():
    (explained,) = config.explain(
        {"model_type": "roformer", "hidden_size": 64, "num_attention_heads": 2, "rotary_value": True}
    )
    assert explained.facts["rotary_value"] == (True, "rotary_value; rotates the values too: Rope.apply")
    (explained,) = config.explain({"model_type": "llama", "head_dim": 64, "use_fope": False})
    assert "use_fope" not in explained.facts
    large = {"model_type": "mistral_large4_text", "qk_rope_head_dim": 64, "rope_parameters": {"rope_type": "default"}}
    for part in config.parts(large):
        assert config.explain(large, part=part)[0].facts["frequencies"].value.startswith("times exp(alpha)")


def test_a_standalone_video_tower_is_called_vision():
    assert config.parts({"model_type": "pe_video_encoder", "head_dim": 64}) == ("vision",)


def test_known_parts_of_an_unknown_model_are_read():
    text = {"model_type": "qwen3", "head_dim": 64}
    new = {"model_type": "brand_new_vl", "text_config": text}
    new["vision_config"] = QWEN["vision_config"] | {"model_type": "qwen3_vl_vision"}
    assert config.parts(new) == ("text", "vision")
    assert Rope.from_config(new) == Rope.from_config(text)
    assert Rope.from_config(new, part="vision") == Rope.from_config(QWEN, part="vision")
    untyped = new | {"text_config": {"head_dim": 64}}
    assert config.parts(untyped) == ("text", "vision")
    assert Rope.from_config(untyped, part="vision") == Rope.from_config(QWEN, part="vision")
    with pytest.raises(ValueError, match=r"text_config\.model_type must be given, since it decides the rotation"):
        Rope.from_config(untyped)
    untyped = new | {"vision_config": {"model_type": "brand_new_vision", "hidden_size": 64}}
    assert Rope.from_config(untyped) == Rope.from_config(text)
    with pytest.raises(ValueError, match=r"vision_config\.model_type must be one whose rotation is known"):
        Rope.from_config(untyped, part="vision")
    wrong = {**OMNI, "talker_config": {"text_config": {**OMNI["talker_config"]["text_config"], "rope_new": 3}}}
    assert Rope.from_config(wrong) == Rope.from_config(OMNI)
    with pytest.raises(
        ValueError, match="rope_new must be left out: it is an unknown name about rotary embedding; got 3"
    ):
        Rope.from_config(wrong, part="talker_config.text_config")


def test_a_component_can_have_several_rotations(tmp_path):
    ltx = {"_class_name": "LTX2VideoTransformer3DModel", "rope_type": "split"}
    assert config.parts(ltx) == ("transformer", "transformer.audio", "transformer.cross")
    assert Rope.from_config(ltx) == Rope.from_config(ltx, part="transformer")  # the other parts are nested
    audio, cross = (Rope.from_config(ltx, part=f"transformer.{name}") for name in ("audio", "cross"))
    assert audio == cross != Rope.from_config(ltx)
    (explained,) = config.explain(ltx, part="transformer.audio")
    assert explained.facts["covers"].value.startswith("self-attention of audio tokens")
    (tmp_path / "model_index.json").write_text("{}", encoding="utf-8")
    (tmp_path / "dit").mkdir()
    (tmp_path / "dit" / "config.json").write_text(json.dumps(ltx), encoding="utf-8")
    assert config.parts(tmp_path) == ("dit", "dit.audio", "dit.cross")
    assert Rope.from_config(tmp_path, part="dit.audio") == audio


def _nested(key, depth):
    """Return dicts nested to a depth."""
    inner = {}
    for _ in range(depth):
        inner = {key: inner}
    return inner


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}


@pytest.mark.parametrize("keys", [LLAMA, QWEN, FLUX, MISTRAL, {"general.architecture": "llama"}])
@pytest.mark.parametrize("key", ["rope_parameters", "text_config", "vision_config", "other"])
def test_recursive_and_deeply_nested_configs_are_refused(keys, key):
    inside = dict(keys)
    inside[key] = {"x": inside}
    for read in (config.parts, config.explain, Rope.from_config):
        with pytest.raises(ValueError, match=r"^config must not hold an object that contains itself$"):
            read(inside)
        with pytest.raises(ValueError, match=r"^config must hold objects at most 64 deep; got one nested too deeply$"):
            read(keys | _nested(key, 10_000))
    shared = {"x": {"y": 1}}
    assert config.parts(LLAMA | {"one": shared, "two": shared}) == ("text",)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (LLAMA | {"rope_theta": np.zeros(2)}, TypeError, "rope_theta must be a real number; got ndarray"),
        (LLAMA | {"rope_parameters": np.zeros(3)}, TypeError, "rope_parameters must be an object or null; got ndarray"),
        (LLAMA | {"layer_types": np.array(["x", "y"])}, TypeError, "layer_types must be a list of names; got ndarray"),
        (LLAMA | {"model_type": np.array("llama")}, TypeError, "model_type must be a name; got ndarray"),
        (
            {"model_type": "qwen2_vl_vision", "rope_scaling": {"rope_type": np.array(["x", "y"])}},
            TypeError,
            "rope_scaling.rope_type must be 'axial' here; got ndarray",
        ),
    ],
)
def test_array_values_are_refused(keys, error, message):
    for read in (config.explain, Rope.from_config):
        with pytest.raises(error, match=message) as caught:
            read(keys)
        assert "\n" not in str(caught.value)


def test_numpy_numbers_are_accepted_as_values():
    keys = {"hidden_size": np.int64(64), "num_attention_heads": np.int32(2), "rope_theta": np.float32(5e5)}
    assert Rope.from_config(LLAMA | keys) == Rope.from_config(LLAMA | {"rope_theta": 5e5})


WRONG_VALUES = {
    "sections": {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_scaling": {"mrope_section": [24, 20, 21]}},
    "a string": {"model_type": "qwen3_vl_text", "head_dim": 128, "rope_scaling": {"mrope_section": ["24", 20, 20]}},
    "an interval": {"model_type": "smollm3", "head_dim": 64, "no_rope_layer_interval": "4"},
    "a type in lists": {"model_type": [[["llama"]]]},
    "a type that is an array": {"model_type": np.array([1, 2])},
    "sizes in an array": {"model_type": "gemma4_text", "per_layer_config": np.array([1, 2])},
}


@pytest.mark.parametrize("name", WRONG_VALUES)
def test_wrong_values_are_refused_in_one_line(name):
    for function in (Rope.from_config, config.explain):
        with pytest.raises((TypeError, ValueError), match=r"\A[^\n]* must [^\n]*\Z"):
            function(WRONG_VALUES[name])
    with contextlib.suppress(TypeError, ValueError):  # parts may name one that cannot be read
        config.parts(WRONG_VALUES[name])


@pytest.mark.parametrize("count", [30_000_000, 2**62, 10**400, -5])
def test_impossible_numbers_of_blocks_are_ignored(count):
    flux = FLUX | {"num_layers": 2, "num_single_layers": count}
    assert config.explain(flux)[0].layers is None


def test_shared_objects_are_shown_by_their_type():
    shared = {}
    for _ in range(60):
        shared = {"a": shared, "b": shared}
    with pytest.raises(TypeError, match=r"head_dim must be an integer; got dict$"):
        Rope.from_config({"model_type": "llama", "head_dim": shared})
