"""The table of errors agrees with its script, and table scripts write files only with ``--write``."""

import re
import sys

import pytest

pytest.importorskip("mpmath", reason="mpmath is not installed")

import making
import precision_table as precision

TABLES = precision.PAGE.read_text(encoding="utf-8").split("\n**")
COLUMNS = {"131 072": 2**17, "2³¹ − 1": 2**31 - 1}
FACTOR = 1.5  # between machines, whose cosines differ; torch's float32 and float64 cosines are a factor of 2 apart


def documented(way, table):
    """Return the errors of a way in the columns above, as documented; empty if the table has no such row."""
    head, *rows = (line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|"))
    found = dict(zip(head[1:], next((row[1:] for row in rows if row[0] == way.name), ()), strict=False))
    return [float(found[column]) for column in COLUMNS if column in found]


def measured(way, base, dtype):
    """Return the errors of a way in the columns above, as measured."""
    f = precision.ra.frequencies(precision.ROTARY_DIM, base=base)
    return [
        precision.largest_error(
            way.table(precision.sample_positions("int32", p), f, dtype), precision.exact_table("int32", p, f)
        )
        for p in COLUMNS.values()
    ]


def agree(found, expected):
    """Whether errors agree within FACTOR."""
    return all(a < FACTOR * b and b < FACTOR * a for a, b in zip(found, expected, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", [*precision.INSTALLABLE, "others"])
def test_the_table_agrees_with_the_measurements(name):
    if name == "others":
        ways = [*precision.other_ways()]
    elif lib := precision.installed(name):
        ways = [way for way in precision.our_ways(name, lib) if way.name.count(",") == 2]  # not compiled
    else:
        pytest.skip(f"{name} is not installed")
    known = [way for way in ways if documented(way, TABLES[1])]
    if not known:
        pytest.skip(f"the table has no {name}")
    for way in known:
        for table, dtype, applies in ((TABLES[1], "float32", True), (TABLES[4], "float64", way.ours and way.float64)):
            if applies:
                found, expected = measured(way, 10_000.0, dtype), documented(way, table)
                assert agree(found, expected), (way.name, dtype, found, expected)


@pytest.mark.long
def test_the_comparison_detects_an_inexact_table():
    (ours,) = precision.our_ways("NumPy", precision.installed("NumPy"))
    assert documented(ours, TABLES[1])
    assert agree([3.0e-8, 3.1e-8], [3.0e-8, 3.0e-8])
    assert not agree([3.0e-8, 3.1e-8], [3.0e-8, 6.5e-8])
    assert not agree([6.5e-8], [3.0e-8])
    assert not agree(
        measured(ours._replace(table=precision.narrow_numpy), 10_000.0, "float32"), documented(ours, TABLES[1])
    )


def test_the_order_of_the_tables():
    assert [re.match(r"(\w+) positions, (\w+) tables, base ([\d ]+)", table).groups() for table in TABLES[1:]] == [
        ("Integer", "float32", "10 000"),
        ("Integer", "float32", "500 000"),
        ("Real", "float32", "10 000"),
        ("Integer", "float64", "10 000"),
    ]


# --- functions of all scripts ---------------------------------------------------------------------------------------


def test_nothing_is_written_without_the_option(tmp_path, capsys):
    file = tmp_path / "table.md"
    making.show("| 1 |", file, write=False)
    assert not file.exists()
    making.show("| 1 |", file, write=True)
    assert file.read_text(encoding="utf-8") == "| 1 |\n"
    assert capsys.readouterr().out == "| 1 |\n| 1 |\n"


def test_a_missing_library_prevents_writing(monkeypatch, capsys):
    making.report_missing(set(), write=True)
    making.report_missing({"MLX", "JAX"}, write=False)
    assert capsys.readouterr().err == "missing: JAX, MLX\n"
    monkeypatch.setattr(precision, "installed", lambda name: None if name == "JAX" else name)
    monkeypatch.setattr(precision, "devices", lambda name, _: {} if name == "MLX" else {"cpu": None})
    monkeypatch.setattr(sys, "argv", ["precision_table.py", "--write"])
    with pytest.raises(SystemExit, match="missing: JAX, MLX; nothing is written without their rows"):
        precision.main()
