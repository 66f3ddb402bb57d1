"""
The table of the models whose rotary embedding is known but refused, with the reason and the way out.

``python tools/refused_table.py --write`` writes docs/refused_table.md.
"""

import making

from rope_any.config.tables import diffusers, towers

PAGE = making.DOCS / "refused_table.md"
OTHERS = {
    "chatglm, the first one": (
        "each half of its heads has positions of its own: `Rope(ra.axes.axial(f, f), pairing='half', blocks=2)`, where "
        "f has the frequencies of half a head"
    ),
    "genai_config.json of ONNX Runtime": "it has no values of rotary embedding: the ONNX graph has the table",
}


def table() -> str:
    """Return the table in Markdown."""
    rows = {f"`{name}`": why for name, why in {**towers.REFUSED, **diffusers.REFUSED}.items()} | OTHERS
    lines = [("model", "why it is refused"), ("---", "---"), *rows.items()]
    return "\n".join(f"| {name} | {why} |" for name, why in lines)


if __name__ == "__main__":
    making.show(table(), PAGE, write=making.parser(__doc__, PAGE).parse_args().write)
