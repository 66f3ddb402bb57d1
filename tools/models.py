"""
Print the facts on each text model by its `model_type`, as a table: `models_table.md`.

    python tools/models.py                                 # prints the table
    python tools/models.py --write                         # and writes models_table.md
"""

import making
from parts import grouped, number

from rope_any.config._models import MODELS, Model

PAGE = making.DOCS / "models_table.md"


def _base(row: Model) -> str:
    """Return the cell for the base of a model, or for the bases of its kinds of layers."""
    if row.needs_parameters:
        return "none: `rope_parameters` must be given"
    if not row.layers:
        return number(row.base)
    return ", ".join(f"{number(layer.base)} (`{name}`)" for name, layer in row.layers.items())


def _share(row: Model) -> str:
    """Return the cell for the share of the head that rotates, or for the number of features if the default is one."""
    if row.rotary_dim is not None:
        return "by the config"
    return f"{row.sizes['rotary_dim']} features" if "rotary_dim" in row.sizes else f"{row.partial or 1:g}"


def table() -> str:
    """Return the tables of models and of those with another model as text part, and a list of those without rotary."""
    known = sorted(MODELS.items(), key=lambda item: item[0].lower())
    models = ((n, (row.pairing, _base(row), _share(row))) for n, row in known if row.rotary and not row.text)
    texts = ((n, (f"`{row.text}`",)) for n, row in known if row.rotary and row.text)
    without = (f"`{name}`" for name, row in known if not row.rotary)
    return "\n".join(
        [
            "<!-- written by tools/models.py; run it again rather than edit this file -->",
            "",
            "With `qk_rope_head_dim` in the config (MLA), a share of 1 is all of that slice, not of the whole head.",
            "",
            "| model | pairing | base, if the config says none | share of the head that rotates, likewise |",
            "| --- | --- | --- | --- |",
            *grouped(models),
            "",
            "**Models with a text part** that may leave out its own `model_type`:",
            "",
            "| model | its text part is |",
            "| --- | --- |",
            *grouped(texts),
            "",
            f"**Models without rotary embedding:** {', '.join(without)}.",
        ]
    )


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(table(), PAGE, write=given.write)
