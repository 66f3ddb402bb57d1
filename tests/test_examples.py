"""Each example does what it says."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rope_any as ra

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name):
    """Return an example as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found_by(name, arguments=""):
    """Return what the main() of an example returns in a process of its own, which may start others."""
    code = f"import json, {name}\nif __name__ == '__main__': print(json.dumps({name}.main({arguments}), default=float))"
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n{code}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


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


def test_sharded_torch():
    pytest.importorskip("torch.distributed.tensor", reason="torch is not installed")
    found = found_by("sharded_torch", "ranks=2")
    assert set(found) == {"batch", "heads", "seq"}
    for error, sent in found.values():
        assert error < 1e-6
        assert sent == 0


def test_context_parallel():
    pytest.importorskip("torch", reason="torch is not installed")
    assert found_by("context_parallel", "ranks=2") < 2e-6


def test_sharded_jax():
    pytest.importorskip("jax", reason="jax is not installed")
    found = found_by("sharded_jax")
    assert len(found) == 6
    for error, sent in found.values():
        assert error < 2e-6
        assert sent == []


def sharded_dask(tokens):
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    found = found_by("sharded_dask", f"tokens={tokens}")
    assert found["tasks"] < 8
    assert found["moved"] > 1
    assert found["error"] < 4e-6
    return found


def test_sharded_dask():
    sharded_dask(tokens=2**14)


@pytest.mark.slow
def test_sharded_dask_is_larger_than_its_workers():
    assert sharded_dask(tokens=2**19)["GiB"] == 2
