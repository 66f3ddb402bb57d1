"""
Print the layouts of engines' rotary caches as a table: `layouts_table.md`.

    python tools/layouts.py                              # prints the table
    python tools/layouts.py --write                      # and writes layouts_table.md
"""

import making

from rope_any.layouts import LAYOUTS

WRITTEN = making.DOCS / "layouts_table.md"


def table() -> str:
    """Return the table."""
    rows = [
        "<!-- written by tools/layouts.py; run it again rather than edit this file -->",
        "",
        "| layout | holds | axes | dtypes | a row is for | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in LAYOUTS.items():
        held = ", ".join(row.parts) if row.holds == "cos and sin" else row.holds
        held = f"{held}, two arrays" if row.arrays == 2 else f"{held}, as complex numbers" if row.is_complex else held
        held = f"{held}, pairing {row.pairing}" if row.pairing else held
        axes = ", ".join(row.axes.split()).replace("*", " × ")
        rows.append(f"| `{name}` | {held} | ({axes}) | {', '.join(row.dtypes)} | {row.rows} | `{row.source}` |")
    return "\n".join(rows)


if __name__ == "__main__":
    given = making.parser(__doc__, WRITTEN).parse_args()
    making.show(table(), WRITTEN, write=given.write)
