"""Configs that `as_transformers` writes for the installed version of transformers, 4.57 or 5: its classes agree."""

from copy import deepcopy
from functools import cache
from importlib import import_module

import pytest
from configs import rows_of

from rope_any import config

REASON = "the configs are for the classes of transformers, which run on torch"
pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", minversion="4.57", reason=REASON)

from rotary_classes import VISION, config_class, in_source  # noqa: E402

MAJOR = int(transformers.__version__.split(".")[0])
FROM_2K = {"original_max_position_embeddings": 2048}
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "beta_fast": 16.0, **FROM_2K},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **FROM_2K},
    "longrope": {"short_factor": 1.5, "long_factor": 3.0, **FROM_2K},
    "longrope by a factor": {"short_factor": 1.5, "long_factor": 3.0, "factor": 7.0, **FROM_2K},
}
# Its older form, with the keys of the text outside of text_config, loses them in transformers 5, whatever their names.
# Files of VibeVoice and Qwen3-ASR are in the form of their own code. PhiMoE's factor is applied in its forward.
MISREAD = {(5, "zai-org/GLM-4.1V-9B-Thinking"), (5, "microsoft/VibeVoice-1.5B"), (5, "Qwen/Qwen3-ASR-0.6B")}
MISREAD |= {(5, "microsoft/Phi-3.5-MoE-instruct")}
ONLY_IN_5 = "google/gemma-4", "XiaomiMiMo/MiMo-V2-Flash"


@cache
def text_cases():
    """Return {name of the config class: case} of the rotary classes for text."""
    return {case.config: case for case, _ in in_source() if not VISION.search(case.rotary)}


def scaled(keys, kind):
    """Return a config with a scaling and three times the base, in all layers or one kind of them; None if refused."""
    read = config.read(keys)
    new = read.as_transformers()
    parameters = new["rope_parameters"]  # a KeyError if they are those of an inner part
    for one in read.explain():
        if one.rope is not None and one.layers != () and one.layer_type not in ("sliding_attention", "hybrid_sliding"):
            own = parameters if "rope_type" in parameters else parameters[one.layer_type]
            lists = {key: [x] * len(rows_of(one.rope)[0]) for key, x in SCALINGS[kind].items() if "_factor" in key[-7:]}
            own |= {"rope_type": kind.partition(" ")[0], **SCALINGS[kind], **(lists if "longrope" in kind else {})}
            own["rope_theta"] = 3 * (own.get("rope_theta") or 1e4)
            return new
    raise ValueError(keys)


def rotaries(case, made):
    """Return {layer type or None: (frequencies, attention factor)} of the rotary class, as its model builds it."""
    build = getattr(import_module(f"transformers.models.{case.module}"), case.rotary)
    local, full = deepcopy(made), deepcopy(made)
    options = {}
    if MAJOR == 4 and case.home.startswith("gemma3"):
        local.rope_theta, local.rope_scaling = made.rope_local_base_freq, {"rope_type": "default"}
    elif MAJOR == 4 and case.home.startswith("modernbert"):
        local.rope_theta, full.rope_theta = made.local_rope_theta, made.global_rope_theta
    elif MAJOR == 4 and case.home == "olmo3":
        options["rope_type"] = "default"
    else:
        rotary = build(made)
        names = [name for name, _ in rotary.named_buffers() if name.endswith("inv_freq") and "original" not in name]
        kinds = {name: name.removesuffix("inv_freq") for name in names}
        return {
            kind.removesuffix("_") or None: (getattr(rotary, name), getattr(rotary, f"{kind}attention_scaling", 1.0))
            for name, kind in kinds.items()
        }
    built = {"sliding_attention": build(local, **options), "full_attention": build(full)}
    return {kind: (one.inv_freq, one.attention_scaling) for kind, one in built.items()}


def agree(keys, case, made):
    """Return whether the rotary class makes the frequencies and factors of a config."""
    theirs = rotaries(case, made)
    for one in config.read(keys).explain():
        if one.rope is None or one.layers == ():
            continue
        frequencies, factor = theirs.get(one.layer_type) or theirs[None]
        ours = sorted(abs(sum(column)) for column in zip(*rows_of(one.rope), strict=True))
        if ours != pytest.approx(sorted(frequencies.flatten().tolist()), rel=1e-5, abs=0):
            return False
        if one.rope.attention_factor != pytest.approx(float(factor), rel=1e-6):
            return False
    return True


@pytest.mark.parametrize("kind", SCALINGS)
def test_the_classes_of_transformers_read_what_is_written_for_them(kind):
    wrong, right = [], 0
    for name, case in text_cases().items():
        try:
            default = config_class(case)()
            keys = scaled(default.to_dict() | {"model_type": default.model_type}, kind)
            written = config.read(keys).as_transformers(version=MAJOR)
            is_right = agree(keys, case, type(default).from_dict(deepcopy(written)))
        except Exception:  # noqa: BLE001, S112  # we refuse the scaling, or the class does, by many errors
            continue
        is_right &= config.read(written).layers() == config.read(keys).layers()
        right += is_right
        wrong += [] if is_right else [name]
    assert not wrong and right > (60 if MAJOR == 4 else 140)


@pytest.mark.parametrize("name", config.published())
def test_published_configs_are_read_as_before(name):
    read = config.read(f"published:{name}")
    versions = [5] if name.startswith(ONLY_IN_5) else [5, 4]
    for version in versions:
        written = read.as_transformers(version=version)
        ours, theirs = ({(one.rope, one.layers) for one in x.explain()} for x in (config.read(written), read))
        assert ours == theirs
    kind = written.get("model_type")
    if MAJOR in versions and kind in transformers.CONFIG_MAPPING:
        made = transformers.CONFIG_MAPPING[kind].from_dict(read.as_transformers(version=MAJOR)).get_text_config()
        case = text_cases().get(type(made).__name__)
        if case is not None and (MAJOR, name) not in MISREAD and rotaries(case, made):
            assert agree(f"published:{name}", case, made)


def test_what_transformers_4_cannot_say_is_refused():
    flat = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}
    kinds = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}
    assert config.read(flat | {"rope_parameters": kinds}).as_transformers(version=4) == flat | {"rope_theta": 1e6}
    parameters = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}
    llama = {"model_type": "deepseek_v2", "head_dim": 64, "use_mla": False, "qk_rope_head_dim": 0}
    older = config.read(llama | {"rope_parameters": parameters}).as_transformers(version=4)
    assert older["rope_scaling"] == {"rope_type": "linear", "factor": 2.0} and "rope_parameters" not in older
    two = kinds | {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(ValueError, match=r"^version must be 5 for this config; got 4; .* rope_theta 10000.0 for slid"):
        config.read(flat | {"rope_parameters": two}).as_transformers(version=4)
    with pytest.raises(ValueError, match="no key for the rope type proportional"):
        config.read(flat | {"rope_parameters": {"rope_type": "proportional"}}).as_transformers(version=4)
    for version in (3, 6, True):
        with pytest.raises((TypeError, ValueError), match=r"^version must be"):
            config.read(flat).as_transformers(version=version)
