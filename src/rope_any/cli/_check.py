"""``rope-any check``: measure the error and the time of rotations on each installed library and device."""

import sys
from contextlib import redirect_stdout
from typing import Any

import typer

from rope_any.cli._common import AsJson, echo_json, show, table
from rope_any.cli._libraries import INSTALLABLE


def check(*, as_json: AsJson = False) -> None:
    """
    Measure the error and the time of each installed library and device.

    Each library rotates the queries and keys of a Llama-3.1-8B. The error is measured against 60-digit arithmetic,
    over all pairs, at the positions of the job and at others up to 2³¹. The exit code is 1 if it breaks a bound.
    """
    from rope_any.cli import _measure  # needs NumPy, which --help does not

    with redirect_stdout(sys.stderr):  # keep output of libraries out of the report
        report = _measure.report()
    if as_json:
        echo_json(report)
    else:
        _print(report)
    if not report["passed"]:
        typer.echo(f"rope-any: a bound is broken: {report['bounds']}", err=True)
        raise typer.Exit(1)


def _print(report: dict[str, Any]) -> None:
    """Print the report of `_measure`: the job, a table of errors and times, the bounds, and what was not measured."""
    job = report["job"]
    show(
        f"q {job['q']}, k {job['k']}, base {job['base']:.0f}, from position {job['first_position']}; "
        f"errors against 60 digits over {report['table_entries']} table entries"
    )
    heads = ("library", "version", "device", "dtype", "table err", "q, k err", "time", "x copy")
    rows = (
        (
            *(row[name] for name in heads[:4]),
            *(f"{row[name]:.1e}" for name in ("table_error", "rotation_error")),
            f"{1e3 * row['seconds']:.1f} ms",
            f"{row['seconds'] / row['copy_seconds']:.1f}",
        )
        for row in report["measured"]
    )
    show(table(*heads, rows=rows, gap=1))
    bounds = report["bounds"]
    rotations = ", ".join(f"{bound:.1e} ({dtype})" for dtype, bound in bounds["rotation_error"].items())
    show(f"bounds: table err {bounds['table_error']:.1e}; q, k err {rotations}")
    for name, why in report["not_measured"].items():
        _, extra = INSTALLABLE[name]
        show(f'{name}: {why} (extra {extra}: pip install "rope-any[{extra.split()[0]}]")')
