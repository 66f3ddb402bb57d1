"""The table of errors agrees with its script, and table scripts write files only with ``--write``."""

import re

import pytest

pytest.importorskip("mpmath", reason="mpmath is not installed")

import precision_table as precision

BY_MAGNITUDE, OTHERS = map(precision.rows_in, precision.PAGE.read_text(encoding="utf-8").split("\n**Other"))
COLUMNS = {"131 072": 2**17, "2³¹ − 1": 2**31 - 1}
FACTOR = 1.5  # between machines, whose cosines differ; torch's float32 and float64 cosines are a factor of 2 apart


def documented(way):
    """Return the errors of a way in the columns above, as documented; empty if the table has no such row."""
    found = dict(zip(BY_MAGNITUDE["largest error"], BY_MAGNITUDE.get(way.name, ()), strict=False))
    return [float(found[column]) for column in COLUMNS if column in found]


def measured(way):
    """Return the errors of a way in the columns above, as measured."""
    return [precision.error_of(way, "int32", precision.BASE, magnitude) for magnitude in COLUMNS.values()]


def agree(found, expected):
    """Whether errors agree within FACTOR."""
    return all(a < FACTOR * b and b < FACTOR * a for a, b in zip(found, expected, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", [*precision.INSTALLABLE, "others"])
def test_the_table_agrees_with_the_measurements(name):
    if name == "others":
        ways = [*precision.other_ways()]
    elif lib := precision.installed(name):
        ways = [way for way in precision.our_ways(name, lib) if not re.search("jit|compile", way.name)]
    else:
        pytest.skip(f"{name} is not installed")
    known = [way for way in ways if documented(way)]
    if not known:
        pytest.skip(f"the table has no {name}")
    for way in known:
        assert agree(measured(way), documented(way)), (way.name, measured(way))
        if way.ours and way.float64:
            found = precision.error_of(way, "int32", precision.BASE, 2**24, "float64")  # the largest of its column
            assert agree([found], [float(OTHERS[way.name][-1])]), (way.name, found)


# --- functions of all scripts ---------------------------------------------------------------------------------------
