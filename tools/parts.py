"""
Print the parts of models with rotary other than the text, and refused parts, as tables: `parts_table.md`.

    python tools/parts.py                                  # prints the table
    python tools/parts.py --write                          # and writes parts_table.md
"""

from collections.abc import Iterable

import making

from rope_any.config import _diffusers, _indexers, _towers

PAGE = making.DOCS / "parts_table.md"


def grouped(rows: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Return the rows of a table in which names with the same cells share a row."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        found.setdefault(cells, []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in found.items()]


def number(value: float) -> str:
    """Return a number in groups of digits."""
    return f"{value:,.0f}".replace(",", " ")


def _base(base: object) -> str:
    """Return the cell for a base: a number, or a config key with its default."""
    key, default = getattr(base, "key", None), getattr(base, "default", base)
    text = number(default) if isinstance(default, float | int) else "none"
    return f"`{key}`, {text}" if key else text


AS_MAIN = "as the main attention"


def table() -> str:
    """Return the tables of towers, indexers and diffusers' transformers, and of refused parts."""
    towers = ((n, (row.pairing, _base(row.base), ", ".join(row.axes))) for n, row in _towers.TOWERS.items())
    indexers = (
        (n, ("–", "–", row.unrotated) if row.unrotated else (row.pairing, "last" if row.last else "first", AS_MAIN))
        for n, row in _indexers.INDEXERS.items()
    )
    classes = (
        (n, (row.pairing, _base(row.base), row.covers)) for n, row in {**_diffusers.CLASSES, **_diffusers.PARTS}.items()
    )
    refused = ((n, (why,)) for where in (_towers, _indexers, _diffusers) for n, why in where.REFUSED.items())
    return "\n".join(
        [
            "<!-- written by tools/parts.py; run it again rather than edit this file -->",
            "",
            "**Vision and audio towers** of transformers, by the `model_type` of their own config:",
            "",
            "| tower | pairing | base, if the config says none | axes of its positions |",
            "| --- | --- | --- | --- |",
            *grouped(towers),
            "",
            "**Indexers** of sparse attention, by the `model_type` of the text part:",
            "",
            "| model | pairing | features of the index head | frequencies |",
            "| --- | --- | --- | --- |",
            *grouped(indexers),
            "",
            "**Transformers of diffusers**, by `_class_name`:",
            "",
            "| class | pairing | base | which tokens rotate |",
            "| --- | --- | --- | --- |",
            *grouped(classes),
            "",
            "**Refused**, with the reason:",
            "",
            "| part | why no `Rope` expresses it |",
            "| --- | --- |",
            *grouped(refused),
        ]
    )


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(table(), PAGE, write=given.write)
