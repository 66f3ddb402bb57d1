"""``rope-any inspect``, ``diff``: show the rotations of models, where each value is from, and how far two differ."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rope_any._checks import shown
from rope_any.cli._common import AsJson, echo_json, plain, show, table
from rope_any.cli._configs import (
    ConfigFile,
    Factor,
    LayerType,
    Length,
    PairingOf,
    PartOf,
    explained,
    explained_parts,
    reach,
    title,
)
from rope_any.config import Explanation, drift, wavelengths

LONGEST = 80  # characters of a value
POSITIONS = tuple(4**n for n in range(11))  # 1 … 1 048 576


def inspect(
    file: ConfigFile,
    *,
    part: Annotated[str | None, typer.Option(help="One part of the model.", show_default="all")] = None,
    layer_type: LayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    as_json: AsJson = False,
) -> None:
    """
    Show the rotations of a model, and where each value is from.

    Part by part, with the wavelengths of the pairs, and how many never complete a turn within the lengths that it is
    for.
    """
    options: dict[str, Any] = {"sequence_length": sequence_length, "pairing": pairing, "factor": factor}
    if part is None and layer_type is None:
        told = explained_parts(file, **options)
    else:
        told = {part or "text": explained(file, part=part, layer_type=layer_type, **options)}
    if as_json:
        echo_json([_record(one, name) for name, each in told.items() if not isinstance(each, str) for one in each])
        return
    for name, each in told.items():
        if isinstance(each, str):
            show(f"{name}: refused", bold=True)
            show(each)
            continue
        if name != "text":
            show(f"part {name}", bold=True)
        _show(each)


def _show(told: tuple[Explanation, ...]) -> None:
    """Show the rotations of one part."""
    for one in told:
        show(f"{title(one)}: {one.rope or 'no rotary'}", bold=True)
        rows = ((name, _short(fact.value), fact.source) for name, fact in one.facts.items())
        show(table("value", "", "from", rows=rows))
        if one.rope is not None:
            tokens = sorted(wavelengths(one.rope))
            show(f"wavelengths in tokens: {' '.join(map(_tokens, tokens))}")
            if not _unfinished(one):
                show("the config says no length, within which pairs might complete a turn")
            for name, pairs in _unfinished(one).items():
                length = one.facts[name].value
                show(f"{pairs} of {len(tokens)} pairs never complete a turn within {length:.0f} tokens ({name})")
            if "length" in one.facts:
                show("longer sequences may turn otherwise: see --sequence-length")


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="config.json, or the folder that it is in.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    *,
    part: PartOf = None,
    layer_type: LayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    as_json: AsJson = False,
) -> None:
    """
    Show how the rotations of two models differ.

    Lists the values that differ, and the largest distance of their tables by position.
    """
    options: dict[str, Any] = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    pairs = _paired(*(explained(file, pairing=pairing, factor=factor, **options) for file in (a, b)))
    records = [_difference(*pair) for pair in pairs]
    if as_json:
        echo_json(records)
        return
    for (one, other), record in zip(pairs, records, strict=True):
        heading = " and ".join(dict.fromkeys(title(told) for told in (one, other) if told.facts))
        if not record["facts"] and record["drift"] is not None and not any(record["drift"].values()):
            show(f"{heading}: the same rotation", bold=True)
            continue
        show(heading, bold=True)
        if record["facts"]:
            rows = ((name, *map(_short, values)) for name, values in record["facts"].items())
            show(table("value", str(a), str(b), rows=rows))
        still = [str(file) for file, told in ((a, one), (b, other)) if told.rope is None]
        if still:
            show(f"no rotary here: {', '.join(still)}")
        elif record["drift"] is None:
            show("their tables can't be compared: they turn different numbers of pairs")
        else:
            rows = ((position, f"{apart:.2g}") for position, apart in record["drift"].items())
            show(table("position", "largest distance of their tables", rows=rows))


def _short(value: object) -> str:
    """Return a value on one line, a long list of numbers by its ends."""
    if value is None:
        return "–"
    if isinstance(value, tuple | list) and len(value) > 4 and all(map(_is_number, value)):
        return f"{len(value)} numbers from {min(value):.6g} to {max(value):.6g}"
    if isinstance(value, float):
        return f"{value:.10g}"
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        text = ""
    return text if text.isprintable() and 0 < len(text) <= LONGEST else shown(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # what a float can hold, so that it can be shown as one


def _tokens(n: float) -> str:
    return f"{n:.0f}" if 1000 <= n < 1e9 else f"{n:.3g}"


def _unfinished(one: Explanation) -> dict[str, int]:
    """Return how many pairs don't come round within the lengths that a rotation is for."""
    tokens = wavelengths(one.rope) if one.rope is not None else ()
    return {name: sum(n > length for n in tokens) for name, length in reach(one).items()}


def _record(one: Explanation, part: str) -> dict[str, Any]:
    """Return an explanation of a part as JSON has it."""
    rope = one.rope
    return {
        "part": part,
        "layer_type": one.layer_type,
        "layers": one.layers,
        "facts": {name: {"value": fact.value, "source": fact.source} for name, fact in one.facts.items()},
        "rope": rope
        and {
            "frequencies": rope.frequencies,
            "pairing": rope.pairing,
            "attention_factor": rope.attention_factor,
            "start": rope.start,
        },
        "wavelengths": rope and sorted(wavelengths(rope)),
        "pairs_without_a_turn": _unfinished(one),
    }


def _paired(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """Return what is to be compared: one rotation with each of the other config, layers of one type, or the same."""
    ours, theirs = ({one.layer_type: one for one in told} for told in (a, b))
    by_type = len(ours) == len(a) and len(theirs) == len(b)
    if len(a) == 1 or len(b) == 1 or not (by_type or all(one.layers is not None for one in (*a, *b))):
        return [(one, other) for one in a for other in b]
    if by_type:
        return [(ours.get(name, _NOTHING), theirs.get(name, _NOTHING)) for name in dict.fromkeys([*ours, *theirs])]
    return _by_layer(a, b)


_NOTHING = Explanation(None, None, {}, None)


def _by_layer(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """Return the rotations that meet in some layers, each pair as of these layers."""
    ours, theirs = ({i: one for one in told for i in one.layers or ()} for told in (a, b))
    met: list[tuple[tuple[int, ...], Explanation, Explanation]] = []
    for one in (*a, _NOTHING):
        for other in (*b, _NOTHING):
            layers = [
                i for i in {**ours, **theirs} if ours.get(i, _NOTHING) is one and theirs.get(i, _NOTHING) is other
            ]
            met += [(tuple(sorted(layers)), one, other)] if layers else []
    met.sort(key=lambda row: row[0])
    return [(one._replace(layers=layers), other._replace(layers=layers)) for layers, one, other in met]


def _difference(one: Explanation, other: Explanation) -> dict[str, Any]:
    """Return the values that differ, and the distance of the tables by position, or null for it."""
    names = [*one.facts, *(name for name in other.facts if name not in one.facts)]
    values = {
        name: [plain(told.facts[name].value) if name in told.facts else None for told in (one, other)] for name in names
    }
    a, b = one.rope, other.rope
    drifts = None
    if a is not None and b is not None and len(wavelengths(a)) == len(wavelengths(b)):
        drifts = {str(position): drift(a, b, position) for position in POSITIONS}
    return {
        "layer_types": [one.layer_type, other.layer_type],
        "layers": [one.layers, other.layers],
        "facts": {name: pair for name, pair in values.items() if pair[0] != pair[1]},
        "drift": drifts,
    }
