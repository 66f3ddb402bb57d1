"""Each example does what it says."""

import importlib.util
from pathlib import Path

import rope_any as ra

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        name.removeprefix("test_") for name in globals() if (EXAMPLES / f"{name.removeprefix('test_')}.py").exists()
    }


def test_sliding_cache():
    example = load("sliding_cache")
    assert example.main(tokens=300) < 1e-5


def test_sliding_cache_would_notice_keys_that_stay(monkeypatch):
    monkeypatch.setattr(ra.Rope, "reposition", lambda _, keys, *__: keys)
    assert load("sliding_cache").main(tokens=80) > 1e-2
