"""Provide options and functions that the commands with a config share."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from rope_any._checks import ArgumentValueError, Text, inside
from rope_any._pairing import Pairing
from rope_any._rope import Rope
from rope_any.cli._common import tokens_option
from rope_any.config import Config, Explanation, read
from rope_any.config._config import readers_of
from rope_any.config._load import load, printed
from rope_any.config._part import HEADS
from rope_any.config._parts import PartReader, is_pipeline
from rope_any.config._recipe import LENGTH_KINDS, no_rotation

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A config.json, its folder, published:NAME, or - for standard input.")
]
LayerType = Annotated[
    str | None, typer.Option(help="Read one type of layer, such as full_attention.", show_default="all")
]
OneLayerType = Annotated[
    str | None, typer.Option(help="Choose a type of layer, such as full_attention.", show_default=False)
]
Length = Annotated[
    int | None,
    tokens_option(help="Set the length of the sequence; dynamic and longrope depend on it.", show_default=False),
]
PairingOf = Annotated[
    Pairing | None,
    typer.Option("--pairing", help="Give the pairing of a model whose model_type is unknown.", show_default=False),
]

PartOf = Annotated[
    str | None,
    typer.Option("--part", help="Choose a part of the model, such as vision.", show_default="text, or the only one"),
]
Factor = Annotated[
    float | None,
    typer.Option(
        help="Give the factor of Llama 3's scaling, which a params.json of Meta and GGUF metadata lack.",
        show_default=False,
    ),
]

KEY_HEADS = "num_key_value_heads"
HEAD_KEYS = {*HEADS, "num_heads", KEY_HEADS}
# A config with any of these has other numbers of heads in some layers, or counts key heads in another way.
OTHER_HEADS = re.compile(r".*(attention|key_value|kv)_heads|per_layer_config|block_configs|attention_other_setting")


def read_file(file: Path, *, pairing: Pairing | None, factor: float | None) -> Config:
    """Return the `Config` in a file or a folder; errors name it."""
    config = file if is_pipeline(file) else load(file)  # errors of these name it themselves
    with naming(file):
        return read(config, pairing=pairing, factor=factor)


def explained(
    file: Path, *, pairing: Pairing | None = None, factor: float | None = None, **options: Any
) -> tuple[Explanation, ...]:
    """Return what `Config.explain`, with these options, returns for a config file; errors name the file."""
    config = read_file(file, pairing=pairing, factor=factor)
    with naming(file):
        return config.explain(**options)


def explained_parts(file: Path, config: Config, **options: Any) -> dict[str, tuple[Explanation, ...] | str]:
    """Return for each part what `Config.explain` returns, or its error as text; raise that of the only part."""
    explanations: dict[str, tuple[Explanation, ...] | str] = {}
    for part in config.parts or [next(iter(readers_of(config)), "text")]:
        try:
            explanations[part] = config.explain(part=part, **options)
        except (TypeError, ValueError) as error:
            if part == "text" and len(config.parts) <= 1:
                raise inside(printed(file), error) from None
            explanations[part] = str(error)
    return explanations


def heads(config: Config) -> dict[str, str]:
    """Return by part the numbers of query and key heads in a config, as "32 / 8"; "" if unclear or for an indexer."""
    return {name: "" if name == "indexer" else _heads_of(one) for name, one in readers_of(config).items()}


def _heads_of(reader: PartReader) -> str:
    """Return a part's head counts, q / k: "32 / 8", "32 / 8, 1" by layer, "32 / 1" in MLA, "32"; "" if unclear."""
    keys: Mapping[str, Any] = reader.part.keys
    if any(keys[key] is not None and key not in HEAD_KEYS and OTHER_HEADS.fullmatch(key) for key in keys):
        return ""
    own = reader.part.model_value(HEADS[0])
    given = (keys.get(key) for key in (*HEADS, "num_heads"))
    queries = own.value if own is not None else next((value for value in given if value is not None), None)
    # Multi-head latent attention rotates one key for all heads.
    shared = 1 if keys.get("qk_rope_head_dim") is not None else keys.get(KEY_HEADS)
    texts = [text for count in (queries, shared) if (text := _count_text(count))]
    return " / ".join(texts) if _count_text(queries) else ""


def _count_text(count: object) -> str:
    """Return a number of heads as text, "48, 64" for a list by layer with these; "" if it is no positive number."""
    counts = dict.fromkeys(count) if isinstance(count, list) and all(type(n) is int for n in count) else [count]
    return ", ".join(str(n) for n in counts if type(n) is int and n > 0)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the file to a TypeError or ValueError raised in this context; other errors stay as they are."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise inside(printed(file), error) from None


def lengths(explanation: Explanation) -> dict[str, float]:
    """Return the lengths that a config gives, in tokens, by kind: "trained", "extended", "stated"."""
    return {kind: fact.value for kind in LENGTH_KINDS if (fact := explanation.facts.get(f"{kind}_length"))}


def reach(explanation: Explanation) -> dict[str, float]:
    """Return context lengths in tokens by name: "length" alone if given, else the config's ("trained_length" etc.)."""
    if length := explanation.facts.get("length"):
        return {"length": length.value}
    return {f"{kind}_length": tokens for kind, tokens in lengths(explanation).items()}


def title(explanation: Explanation) -> str:
    """
    Return a rotation's layer type and layer indices as text: ``full_attention (0-4, 6)``.

    Without indices it is the type alone; without both, "all layers" if `layers` is None, "no layer" if it is ().
    """
    if not explanation.layers:
        return explanation.layer_type or ("no layer" if explanation.layers == () else "all layers")
    starts = [i for i in explanation.layers if i - 1 not in explanation.layers]
    ends = [i for i in explanation.layers if i + 1 not in explanation.layers]
    runs = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    return f"{explanation.layer_type or 'layers'} ({runs})"


def only(file: Path, explanations: tuple[Explanation, ...]) -> tuple[Rope, int]:
    """Return the one rotation of a config file and its head_dim; raise if it has none, or several that differ."""
    found = {(one.rope, one.facts["head_dim"].value): title(one) for one in explanations if one.rope is not None}
    if not found:
        raise inside(printed(file), no_rotation(explanations[0].facts["rotary"].source))
    if len(found) > 1:
        got = f"several, of {'; '.join(found.values())}: choose by --layer-type"
        raise ArgumentValueError("the config", "have one rotation", Text(got))
    return next(iter(found))
