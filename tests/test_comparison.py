"""The comparison table equals the results of its probes, for each installed library."""

import re
from importlib.metadata import version

import numpy as np
import pytest

import rope_any as ra

pytest.importorskip("torch", reason="the probes run torch")

import comparison_table as comparison

TEXT = comparison.PAGE.read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("|")]
COLUMNS = [(topic, feature) for topic, probes in comparison.TOPICS.items() for feature in probes]
QUICK = [(topic, feature) for topic, feature in COLUMNS if feature not in comparison.SLOW]

# Warnings of other libraries are ignored; a probe would report them as failures.
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.thread_unsafe(reason="ast counts its depth for all threads, in Python 3.11"),
]

ERROR = r"\d\.\de[-+]\d\d"


def row_of(name):
    """Return the written cells of a library, by column."""
    cells = [cell for row in ROWS if row[0] == name for cell in row[1:]]
    return dict(zip(COLUMNS, cells, strict=True))


def are_close(found, expected, figure):
    """Whether two cells are equal, except that figures may differ by 50 %."""
    numbers = [re.findall(figure, cell) for cell in (found, expected)]
    words = [re.sub(figure, "#", cell) for cell in (found, expected)]
    return words[0] == words[1] and np.allclose(*(np.array(part, dtype=float) for part in numbers), rtol=0.5)


def differences(name, columns):
    """Return the cells that differ from the page; errors depend on the processor, lines of code on the version."""
    expected, lines = row_of(name), ("rope_any", "lines of code")
    found = {column: comparison.cell(name, column[1], comparison.TOPICS[column[0]][column[1]]) for column in columns}
    return {
        feature: (found[topic, feature], expected[topic, feature])
        for topic, feature in columns
        if not are_close(found[topic, feature], expected[topic, feature], r"\d+" if (name, feature) == lines else ERROR)
    }


@pytest.fixture(params=comparison.LIBRARIES)
def name(request):
    """Each library that is installed in the version of the table."""
    library = comparison.LIBRARIES[request.param]
    if not comparison.installed(library):
        pytest.skip(f"{request.param} is not installed")
    if (found := version(library.package)) != (tried := re.search(rf" {re.escape(request.param)} ([\w.]+)", TEXT)[1]):
        pytest.skip(f"the table is of {request.param} {tried}; {found} is installed")
    return request.param


@pytest.mark.long
def test_the_table_agrees_with_the_probes(name):
    assert differences(name, QUICK) == {}, f"python tools/comparison_table.py --only {name} --write"


@pytest.mark.slow
def test_the_rows_of_rope_any_agree_with_the_slow_probes():
    assert differences("rope_any", [column for column in COLUMNS if column not in QUICK]) == {}


def test_each_library_has_a_row_in_each_table():
    assert [row[0] for row in ROWS if row[0] in comparison.LIBRARIES] == [*comparison.LIBRARIES] * len(
        comparison.TOPICS
    )


WRONG = {
    "nothing": lambda _dim, **_: lambda x, _: x,
    "the other sign": lambda dim, **_: lambda x, p: ra.Rope(ra.frequencies(dim), pairing="half").apply(x, -p),
    "an error": lambda _dim, **_: lambda _x, _p: 1 / 0,
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_the_probes_detect_a_wrong_rotary(make):
    library = comparison.LIBRARIES["rope_any"]._replace(make=make)
    probes = {feature: probe for probes in comparison.TOPICS.values() for feature, probe in probes.items()}
    found = {feature: probes[feature]("another", library) for feature in ("pairings", "positions", "gradients", "vmap")}
    assert found == {"pairings": "", "positions": "no", "gradients": "no", "vmap": "no"}
    assert all(float(probes[feature]("another", library)) > 1 for feature in probes if feature.startswith("error"))


@pytest.mark.parametrize("feature", ["axes", "xPos"])
def test_the_probes_detect_tokens_that_are_not_rotated(feature, monkeypatch):
    unrotated = {"axes": lambda x, _rows, _columns: x, "xPos": lambda q, k, _: (q, k)}[feature]
    monkeypatch.setitem(comparison.FUNCTIONS, ("rope_any", feature), unrotated)
    probe = {"axes": comparison.several_axes, "xPos": comparison.xpos}[feature]
    assert probe("rope_any", comparison.LIBRARIES["rope_any"]) == "no"
