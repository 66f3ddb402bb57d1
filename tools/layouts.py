"""
Print the layouts of engines' rotary caches as a table: `layouts_table.md`.

    python tools/layouts.py                              # prints the table
    python tools/layouts.py --write                      # and writes layouts_table.md
"""

import making

from rope_any.layouts import LAYOUTS

PAGE = making.DOCS / "layouts_table.md"


def table() -> str:
    """Return the table of layouts in Markdown."""
    rows = [
        "<!-- written by tools/layouts.py; run it again rather than edit this file -->",
        "",
        "| layout | holds | axes | dtypes | a row is for | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in LAYOUTS.items():
        content = ", ".join(row.parts) if row.holds == "cos and sin" else row.holds
        content = (
            f"{content}, two arrays"
            if row.arrays == 2
            else f"{content}, as complex numbers"
            if row.is_complex
            else content
        )
        content = f"{content}, pairing {row.pairing}" if row.pairing else content
        axes = ", ".join(row.axes.split()).replace("*", " × ")
        rows.append(f"| `{name}` | {content} | ({axes}) | {', '.join(row.dtypes)} | {row.rows} | `{row.source}` |")
    return "\n".join(rows)


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(table(), PAGE, write=given.write)
