"""Config keys around rotary: those that the program finds in installed sources, and their classification."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import rotary_keys

import rope_any as ra
from rope_any import config

LIBRARIES = tuple(rotary_keys.FILES)
KNOWN = rotary_keys.read_classification(rotary_keys.CLASSIFIED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found():
    """Return the keys found in the installed libraries; skip if other versions were classified."""
    for library in LIBRARIES:
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
        if rotary_keys.CLASSIFIED_IN[library] != version(library):
            pytest.skip(f"{library} {version(library)} is not classified: the weekly run names what is new")
    return {library: rotary_keys.keys_in_library(library) for library in LIBRARIES}


# --- the installed libraries ------------------------------------------------------------------------------


@pytest.mark.long
def test_every_name_is_classified_and_found(found):
    assert not rotary_keys.differences(found, KNOWN)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rotary", "text"),
    [
        ("llama", "LlamaRotaryEmbedding", "LlamaConfig"),
        ("gemma3", "Gemma3RotaryEmbedding", "Gemma3TextConfig"),
        ("deepseek_v3", "DeepseekV3Attention", "DeepseekV3Config"),
        ("glm_moe_dsa", "GlmMoeDsaIndexer", "GlmMoeDsaConfig"),
        ("dinov3_vit", "DINOv3ViTRopePositionEmbedding", "DINOv3ViTConfig"),
    ],
)
def test_keys_that_a_constructor_reads_are_found(found, name, rotary, text, monkeypatch):
    models = pytest.importorskip(f"transformers.models.{name}.modeling_{name}", reason="torch is not installed")
    kind, read = getattr(models, text), set()
    given, plain = kind(), kind.__getattribute__

    def recorded(self, key):
        """Record the key, and read it."""
        if sys._getframe(1).f_code.co_filename == models.__file__:  # not what base classes of all models read
            read.add(key)
        return plain(self, key)

    monkeypatch.setattr(kind, "__getattribute__", recorded)
    getattr(models, rotary)(given, *([0] if "RotaryE" not in rotary and "Rope" not in rotary else []))
    monkeypatch.undo()
    beside = {"attention_dropout", "attention_bias", "standardize_rope_params"}  # projections, and a method
    assert read
    assert {key for key in read if not key.startswith("_")} - beside <= {*found["transformers"]}


# --- sources ----------------------------------------------------------------------------------------------

ATTENTION = """
class ToyAttention(nn.Module):
    def __init__(self, config, layer_idx):
        self.width = config.some_width
        self.rotary_width = int(self.width * config.some_share)
        self.on = getattr(config, "some_switch", True)
        self.scaling = config.some_scalar ** -0.5
        self.dense = nn.Linear(config.some_size, 4)
        self.other = config.some_other

    def forward(self, x, cos, sin):
        if self.on and self.config.some_tuning:
            x = apply_rotary_pos_emb(x, cos, sin)
        return self.dense(x) * self.other
"""
EMBEDDING = """
class ToyRotaryEmbedding(nn.Module):
    def __init__(self, config):
        self.config = config
        base = config.rope_parameters["some_base"] * config.rope_scaling.get("some_factor", 1)
        if "some_list" in config.rope_parameters:
            config.validate_rope()
"""
CONFIG = """
class ToyConfig(PreTrainedConfig):
    sub_configs_defaults = {"toy_config": Toy}
    attribute_map = {"rope_theta": "toy_theta"}
    rope_toy: float = 1.0
    vocab_size: int = 2

    def __post_init__(self, **kwargs):
        windows = kwargs.pop("some_windows", None)
        self.layer_types = ["a" if window else "b" for window in windows]
        self.rope_parameters = {"some_kind": 1}
"""
DIFFUSER = """
class ToyTransformer(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, some_heads=2, some_axes=(2, 2), some_channels=3):
        self.rope = ToyRotaryPosEmbed(some_axes, dim=some_heads)
        self.proj = nn.Linear(some_channels, 4)
"""


@pytest.mark.parametrize(
    ("source", "configures", "names"),
    [
        (ATTENTION, False, "some_width some_share some_switch some_scalar some_tuning"),
        (EMBEDDING, False, "rope_parameters rope_scaling some_base some_factor some_list"),
        (CONFIG, True, "toy_config rope_parameters rope_theta toy_theta rope_toy some_windows some_kind"),
        (DIFFUSER, False, "some_heads some_axes"),
        ("", True, ""),
        ("x = config.rope_outside\n", False, ""),  # no class and no function
        ("def rope(config): return config[0], config[f'{config.a}'], getattr(config, name)", False, "a"),
        ("class Toy:\n    y = lambda config: config.mlp_size", False, ""),
    ],
)
def test_names_in_a_source_are_found(source, configures, names):
    found = rotary_keys.keys_of(source, configures=configures, rotary=True)
    assert found - {"layer_types"} == set(names.split())


def test_without_rotary_only_rotary_names_and_parts_are_found():
    assert rotary_keys.keys_of(CONFIG, configures=True, rotary=False) >= {"rope_toy", "toy_config"}
    assert "some_windows" not in rotary_keys.keys_of(CONFIG, configures=True, rotary=False)
    assert not rotary_keys.keys_of(ATTENTION, configures=False, rotary=False)


def test_a_new_key_in_the_source_of_a_model_is_found():
    spec = find_spec("transformers")
    if spec is None:
        pytest.skip("transformers is not installed")
    file = Path(spec.origin).parent / "models" / "llama" / "modeling_llama.py"
    source = file.read_text(encoding="utf-8")
    line = 'base = config.rope_parameters["rope_theta"]'
    assert line in source
    changed = source.replace(line, f'{line} * config.rope_parameters["new_factor"] * getattr(config, "new_number", 1)')
    old, new = (rotary_keys.keys_of(text, configures=False, rotary=True) for text in (source, changed))
    assert new - old == {"new_factor", "new_number"}


# --- the classification -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        '[toy.part]\n"a" = "x"\n[toy.irrelevant]\n"b" = "x"',
        '[toy.part]\n"a" = "x x"',
        '[toy.wrong]\n"a" = "x"',
    ],
)
def test_a_name_that_is_classified_twice_is_refused(document):
    with pytest.raises(SystemExit, match="must occur once"):
        rotary_keys.read_classification(document)


def test_new_and_removed_names_are_listed():
    known = {"toy": {"a": ..., "b": ...}, "engines": {"c": ..., "d": ...}}
    assert rotary_keys.differences({"toy": {"b": {"m"}, "c": {"m"}}}, known) == [
        "new in toy: c",
        "gone from toy: a",
        "c: toy reads it, so it is not one of engines alone",
    ]


@pytest.mark.parametrize(("changed", "status"), [(False, 0), (True, 1)])
def test_check_exits_with_a_status(changed, status, monkeypatch, capsys):
    name = "new_key" if changed else "rope_theta"
    monkeypatch.setattr(rotary_keys, "find_spec", lambda _: ...)
    monkeypatch.setattr(rotary_keys, "keys_in_library", lambda _: {name: {"toy"}})
    row = rotary_keys.Row("expressed", "")
    monkeypatch.setattr(
        rotary_keys,
        "read_classification",
        lambda _: {library: {"rope_theta": row} for library in LIBRARIES} | {"engines": {}},
    )
    with pytest.raises(SystemExit) as ended:
        rotary_keys.main()
    assert ended.value.code == status
    assert ("new in diffusers: new_key" in capsys.readouterr().out) == changed


def source_words():
    """Return the words in strings and data files of the reader of configs."""
    folder = Path(config.__file__).parent
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")]
    constants = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    constants |= {str(tomllib.loads(file.read_text(encoding="utf-8"))) for file in folder.glob("*.toml")}
    return {word for text in constants if isinstance(text, str) for word in re.findall(r"\w+", text)}


def test_expressed_names_are_in_the_source():
    words = source_words()
    expressed = {name.removeprefix("_") for name, row in KNOWN["transformers"].items() if row.kind == "expressed"}
    assert expressed <= words
    missing = {name for rows in KNOWN.values() for name, row in rows.items() if row.kind == "missing"}
    assert not missing & words, "it is read now"


def test_functions_named_for_a_key_exist():
    said = {row.meaning for rows in KNOWN.values() for row in rows.values()}
    names = {name for text in said for name in re.findall(r"`([\w.]+\.[\w.]+)`", text)}
    assert "positions.dual_chunk" in names
    for name in names:
        module, _, function = name.rpartition(".")
        assert callable(getattr(getattr(ra, module, None) or importlib.import_module(f"rope_any.{module}"), function))


def test_the_keys_of_the_page_are_read():
    page = (Path(__file__).parent.parent / "docs" / "config-keys.md").read_text(encoding="utf-8")
    rows = [row for row in page.partition("## GGUF")[0].splitlines() if row.startswith("| ")]
    keys = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(keys) > 80
    assert keys - source_words() == set()
