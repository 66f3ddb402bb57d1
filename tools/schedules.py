"""
Print the schedules of the rotation, in the order in which they are tried, as a table: `schedules_table.md`.

    python tools/schedules.py                              # prints the table
    python tools/schedules.py --write                      # and writes schedules_table.md
"""

import inspect

import making

from rope_any._schedules import SCHEDULES

PAGE = making.DOCS / "schedules_table.md"


def table() -> str:
    """Return the table of schedules in Markdown."""
    rows = [
        "<!-- written by tools/schedules.py; run it again rather than edit this file -->",
        "",
        "| arrays | what runs | function |",
        "| --- | --- | --- |",
    ]
    for schedule in SCHEDULES:
        how = (inspect.getdoc(schedule.run) or "").partition("\n")[0]
        rows.append(f"| {schedule.arrays} | {how} | `{schedule.run.__name__}` |")
    return "\n".join(rows)


if __name__ == "__main__":
    given = making.parser(__doc__, PAGE).parse_args()
    making.show(table(), PAGE, write=given.write)
