"""Config keys around rotary: those that the program finds in installed sources, and their classification."""

import ast
import inspect
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import rotary_keys

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
        ("dinov3_vit", "DINOv3ViTRopePositionEmbedding", "DINOv3ViTConfig"),
    ],
)
def test_keys_that_a_constructor_reads_are_found(found, name, rotary, text):
    models = pytest.importorskip(f"transformers.models.{name}.modeling_{name}", reason="torch is not installed")
    read = set()

    class Recorded(getattr(models, text)):
        """A config that records the keys that its model reads."""

        def __getattribute__(self, key):
            """Record the key, and read it."""
            if inspect.currentframe().f_back.f_code.co_filename == models.__file__:  # not base classes of all models
                read.add(key)
            return super().__getattribute__(key)

    getattr(models, rotary)(Recorded())
    assert read
    assert {key for key in read if not key.startswith("_")} - {"standardize_rope_params"} <= {*found["transformers"]}


# --- sources ----------------------------------------------------------------------------------------------


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
    ['[toy.part]\n"a" = "x"\n[toy.irrelevant]\n"b" = "x"', '[toy.part]\n"a" = "x x"', '[toy.wrong]\n"a" = "x"'],
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


def source_words():
    """Return the words in strings of the reader of configs."""
    folder = Path(config.__file__).parent
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py")]
    constants = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {word for text in constants if isinstance(text, str) for word in re.findall(r"\w+", text)}


def test_expressed_names_are_in_the_source():
    words = source_words()
    expressed = {name.removeprefix("_") for name, row in KNOWN["transformers"].items() if row.kind == "expressed"}
    assert expressed <= words
    missing = {name for rows in KNOWN.values() for name, row in rows.items() if row.kind == "missing"}
    assert not missing & words, "it is read now"


def test_the_keys_of_the_page_are_read():
    page = (Path(__file__).parent.parent / "docs" / "config-keys.md").read_text(encoding="utf-8")
    rows = [row for row in page.partition("## GGUF")[0].splitlines() if row.startswith("| ")]
    keys = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(keys) > 80
    assert keys - source_words() == set()
