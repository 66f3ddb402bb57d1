"""``rope-any inspect``, ``diff``: show the rotations of models with the sources of values, and compare two models."""

import cmath
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from rope_any._checks import shown
from rope_any._frequencies import Row, as_rows, sum_over_axes, tokens_per_turn
from rope_any._json import plain
from rope_any._rope import Rope
from rope_any.cli._common import AsJson, echo_json, name_of, show, table
from rope_any.cli._configs import (
    ConfigFile,
    Factor,
    LayerType,
    Length,
    PairingOf,
    PartOf,
    explained,
    explained_parts,
    heads,
    naming,
    reach,
    read_file,
    title,
)
from rope_any.config import Explanation, Fact

LONGEST = 80  # characters of a value
POSITIONS = tuple(4**n for n in range(11))  # 1 … 1 048 576


def inspect(
    file: ConfigFile,
    *,
    part: Annotated[
        str | None, typer.Option(help="Show one part of the model, such as vision.", show_default="all")
    ] = None,
    layer_type: LayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    factor: Factor = None,
    as_json: AsJson = False,
) -> None:
    """
    Show how a model rotates, and the source of each value.

    The overview has one row for each rotation. Then follow, for each part of the model, the values with their sources,
    the wavelengths of the pairs, the number of pairs that never complete a turn within the lengths that the rotation is
    for, and cautions: what was probably not meant, or other programs read in another way. The exit code is 2 if no part
    can be read.
    """
    config = read_file(file, pairing=pairing, factor=factor)
    explanations: dict[str, tuple[Explanation, ...] | str]
    if part is None and layer_type is None:
        explanations = explained_parts(file, config, sequence_length=sequence_length)
    else:
        with naming(file):
            found = config.explain(part=part, layer_type=layer_type, sequence_length=sequence_length)
        explanations = {part or "text": found}
    if as_json:
        echo_json([_record(one, name) for name, each in explanations.items() for one in _as_tuple(each)])
    else:
        _show_overview(explanations, heads(config))
        for name, each in explanations.items():
            show("")
            if isinstance(each, str):
                show(f"{name}: refused", bold=True)
                show(each)
            else:
                _show(each, name, "" if [*explanations] == ["text"] else f"{name}, ")
    if all(isinstance(each, str) for each in explanations.values()):
        raise typer.Exit(2)


def _as_tuple(explanations: tuple[Explanation, ...] | str) -> tuple[Explanation | str, ...]:
    """Return the explanations of a part, or the reason why it cannot be read, as a tuple."""
    return (explanations,) if isinstance(explanations, str) else explanations


def _show_overview(explanations: dict[str, tuple[Explanation, ...] | str], heads_of: dict[str, str]) -> None:
    """Print a table with a row for each rotation, or for the error text of a refused part; columns may be left out."""
    rows = [
        _summary(one, name, heads_of.get(name, "")) for name, each in explanations.items() for one in _as_tuple(each)
    ]
    names = [name for name in OVERVIEW if any(row.get(name) for row in rows)]
    show(table(*names, rows=[[row.get(name, "") for name in names] for row in rows]))


OVERVIEW = ("part", "layers", "rotates", "heads q / k", "pairing", "axes", "base", "scheme", "tokens")


def _summary(explanation: Explanation | str, part: str, heads_of: str) -> dict[str, str]:
    """Return a row of the overview, text by column, with head counts `heads_of`; "refused" if passed an error text."""
    if isinstance(explanation, str):
        return {"part": part, "rotates": "refused"}
    count = "all" if explanation.layers is None else len(explanation.layers)
    layers = f"{count} {explanation.layer_type or ''}".strip()
    if explanation.rope is None:
        return {"part": part, "layers": layers, "rotates": "no rotary", "heads q / k": heads_of}
    cells = {name: _short(fact.value) for name, fact in explanation.facts.items()}
    rotating = 2 * sum(n < math.inf for n in tokens_per_turn(explanation.rope.frequencies))
    factor = f" × {cells['factor']}" if cells.get("factor", "1") != "1" else ""
    axes = len(as_rows(explanation.rope.frequencies))
    tokens = reach(explanation).values()
    return {
        "part": part,
        "layers": layers,
        "rotates": f"{rotating} of {cells.get('head_dim', '–')}",
        "heads q / k": heads_of,
        "pairing": explanation.rope.pairing,
        "axes": str(axes) if axes > 1 else "",
        "base": cells.get("rope_theta", "–"),
        "scheme": cells.get("rope_type", "–") + factor,
        "tokens": f"{max(tokens):.0f}" if tokens else "",
    }


def _show(explanations: tuple[Explanation, ...], part: str, label: str) -> None:
    """Print the rotations of `part`: the first, then what differs from it in others; `label` begins each heading."""
    for number, one in enumerate(explanations):
        if number:
            show("")
        show(f"{label}{title(one)}: {one.rope or 'no rotary'}", bold=True)
        facts: dict[str, Fact] = dict(one.facts)
        if number:
            first = explanations[0].facts
            facts = {name: facts.get(name, Fact(None, "")) for name in [*first, *facts]}
            facts = {name: fact for name, fact in facts.items() if first.get(name) != fact}
        path = one.facts["model_type"].source.removesuffix("model_type") if "model_type" in one.facts else ""
        path = path if path.endswith(".") else ""  # of the part's sub-config: the prefix of most sources
        rows = ((name, _short(fact.value), fact.source.replace(path or "\0", "…")) for name, fact in facts.items())
        show(table("value", "", f"from (… is {path[:-1]})" if path else "from", rows=rows))
        if number:
            show(f"other values: as for {explanations[0].layer_type or title(explanations[0])}")
        if one.rope is not None:
            _show_wavelengths(one, one.rope, part)
        for caution in one.cautions if number == 0 else (each for each in one.cautions if each.layer_type):
            show(f"caution: {caution}")


def _show_wavelengths(explanation: Explanation, rope: Rope, part: str) -> None:
    """Print the wavelengths of a rotation by axis, and how many pairs never complete a turn within its lengths."""
    axes: dict[tuple[str, ...], list[str]] = {}
    rows = as_rows(rope.frequencies)
    for axis, row in enumerate(rows):
        axes.setdefault(_quartiles(row), []).append(str(axis))
    heads = ("pairs", "shortest", "25%", "50%", "75%", "longest")
    if len(rows) == 1:
        show("wavelengths in tokens")
        show(table(*heads, rows=axes))
    else:
        show("wavelengths in positions along each axis")
        show(table("axis", *heads, rows=((", ".join(names), *cells) for cells, names in axes.items())))
    tokens = tokens_per_turn(rope.frequencies)
    rotating = sum(n < math.inf for n in tokens)
    if rotating < len(tokens):
        show(f"{len(tokens) - rotating} of {len(tokens)} pairs don't rotate")
    for name, pairs in _unfinished(explanation).items():
        length = explanation.facts[name].value
        show(f"{pairs} of {rotating} pairs never complete a turn within {length:.0f} tokens ({name})")
    if part == "text" and not _unfinished(explanation):
        show("the config gives no context length, so pairs that never complete a turn are not listed")
    if "length" in explanation.facts:
        show("other lengths may have another rotation: see --sequence-length")


def _quartiles(row: Row) -> tuple[str, ...]:
    """Return six texts: how many pairs rotate; min, three quartiles and max of their wavelengths (``–`` if none)."""
    tokens = sorted(n for n in tokens_per_turn(row) if n < math.inf)
    return str(len(tokens)), *(_format_tokens(tokens[(len(tokens) - 1) * k // 4]) if tokens else "–" for k in range(5))


def diff(
    a: Annotated[
        Path,
        typer.Argument(metavar="A", help="A config.json, its folder, published:NAME, or - for standard input."),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="The config to compare with, given in the same way.")],
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

    The first table has the values that differ, the second the largest difference of their cosines and sines at some
    positions.
    """
    options: dict[str, Any] = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    pairs = _paired(*(explained(file, pairing=pairing, factor=factor, **options) for file in (a, b)))
    records = [_difference(*pair) for pair in pairs]
    if as_json:
        echo_json(records)
        return
    for (one, other), record in zip(pairs, records, strict=True):
        heading = " and ".join(dict.fromkeys(title(each) for each in (one, other) if each.facts))
        if not record["facts"] and record["drift"] is not None and not any(record["drift"].values()):
            show(f"{heading}: the same rotation", bold=True)
            continue
        show(heading, bold=True)
        if record["facts"]:
            rows = ((name, *map(_short, values)) for name, values in record["facts"].items())
            show(table("value", name_of(a), name_of(b), rows=rows))
        ropeless = [name_of(file) for file, each in ((a, one), (b, other)) if each.rope is None]
        if ropeless:
            show(f"no rotary here: {', '.join(ropeless)}")
        elif record["drift"] is None:
            show("their tables can't be compared: the numbers of pairs differ")
        else:
            rows = ((position, f"{difference:.2g}") for position, difference in record["drift"].items())
            show(table("position", "largest difference of their tables", rows=rows))


def _short(value: object) -> str:
    """Return a value as a line: None as ``–``, 5 or more numbers as count and range; long or unprintable by `shown`."""
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
    """Whether a value is an int or a float, small enough to be formatted as a float."""
    return type(value) in (int, float) and abs(value) < 1e300


def _format_tokens(n: float) -> str:
    """Return a wavelength in tokens as text: whole from 1000 to below 1e9 ("54410"), else 3 significant digits."""
    return f"{n:.0f}" if 1000 <= n < 1e9 else f"{n:.3g}"


def _unfinished(explanation: Explanation) -> dict[str, int]:
    """Return how many pairs rotate, but never complete a turn within each length of `reach`, by its name."""
    tokens = tokens_per_turn(explanation.rope.frequencies) if explanation.rope is not None else ()
    return {name: sum(length < n < math.inf for n in tokens) for name, length in reach(explanation).items()}


def _record(explanation: Explanation | str, part: str) -> dict[str, Any]:
    """Return an explanation as a dict for JSON; if it is a text, why the part can't be read, that is its "refused"."""
    refused = explanation if isinstance(explanation, str) else None
    explanation = _NOTHING if isinstance(explanation, str) else explanation
    rope = explanation.rope
    return {
        "part": part,
        "layer_type": explanation.layer_type,
        "layers": explanation.layers,
        "facts": {name: {"value": fact.value, "source": fact.source} for name, fact in explanation.facts.items()},
        "rope": rope
        and {
            "frequencies": rope.frequencies,
            "pairing": rope.pairing,
            "attention_factor": rope.attention_factor,
            "start": rope.start,
            "blocks": rope.blocks,
        },
        "wavelengths": rope and sorted(tokens_per_turn(rope.frequencies)),
        "pairs_without_a_turn": _unfinished(explanation),
        "cautions": list(map(str, explanation.cautions)),
        "refused": refused,
    }


def _paired(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """
    Return the pairs (of `a`, of `b`) to compare: by layer type if no model repeats one, else by common layers.

    All are paired with all if a model has one rotation, or if types repeat and layers are unknown. A type or layer of
    one model only is paired with `_NOTHING`.
    """
    ours, theirs = ({one.layer_type: one for one in each} for each in (a, b))
    by_type = len(ours) == len(a) and len(theirs) == len(b)
    if len(a) == 1 or len(b) == 1 or not (by_type or all(one.layers is not None for one in (*a, *b))):
        return [(one, other) for one in a for other in b]
    if by_type:
        return [(ours.get(name, _NOTHING), theirs.get(name, _NOTHING)) for name in dict.fromkeys([*ours, *theirs])]
    return _by_layer(a, b)


_NOTHING = Explanation(None, None, {}, None)


def _by_layer(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """Return pairs (of `a`, of `b`) that share layers, with these as `layers`; `_NOTHING` if one model lacks them."""
    ours, theirs = ({i: one for one in each for i in one.layers or ()} for each in (a, b))
    common: list[tuple[tuple[int, ...], Explanation, Explanation]] = []
    for one in (*a, _NOTHING):
        for other in (*b, _NOTHING):
            layers = [
                i for i in {**ours, **theirs} if ours.get(i, _NOTHING) is one and theirs.get(i, _NOTHING) is other
            ]
            common += [(tuple(sorted(layers)), one, other)] if layers else []
    common.sort(key=lambda row: row[0])
    return [(one._replace(layers=layers), other._replace(layers=layers)) for layers, one, other in common]


def _difference(one: Explanation, other: Explanation) -> dict[str, Any]:
    """
    Return as a dict the facts that differ, [one, other], and by position the largest difference of the two tables.

    The latter is None unless both rotate, with the same number of pairs.
    """
    names = [*one.facts, *(name for name in other.facts if name not in one.facts)]
    values = {
        name: [plain(each.facts[name].value) if name in each.facts else None for each in (one, other)] for name in names
    }
    a, b = one.rope, other.rope
    drifts = None
    if a is not None and b is not None and len(sum_over_axes(a.frequencies)) == len(sum_over_axes(b.frequencies)):
        drifts = {str(position): _drift(a, b, position) for position in POSITIONS}
    return {
        "layer_types": [one.layer_type, other.layer_type],
        "layers": [one.layers, other.layers],
        "facts": {name: pair for name, pair in values.items() if pair[0] != pair[1]},
        "drift": drifts,
    }


def _drift(a: Rope, b: Rope, position: int) -> float:
    """Return the largest distance between table entries of two rotations at one position, the same on all axes."""
    of_a, of_b = (
        [rope.attention_factor * cmath.exp(1j * position * f) for f in sum_over_axes(rope.frequencies)]
        for rope in (a, b)
    )
    return max(abs(x - y) for x, y in zip(of_a, of_b, strict=True))
