"""
The table that says by what each library and device is proved, from the list of libraries in the tests.

``python tools/proof_table.py --write`` writes docs/proof_table.md. It fails if a library of the tests has no row.
"""

import sys
from pathlib import Path

import making

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from conftest import LIBRARIES

PAGE = making.DOCS / "proof_table.md"
EACH = "every change"
STRICT = "array-api-strict", "four: also without float64, without 64 bits", EACH, "the array API standard alone"
# name in the tests -> (library, device, when its tests run, how)
ROWS = {
    "numpy": ("NumPy", "a CPU", EACH, ""),
    "torch-cpu": ("PyTorch", "a CPU", EACH, ""),
    "torch-sim": ("PyTorch", "a simulated device", EACH, "it refuses to mix devices, and counts copies and waits"),
    "torch-cuda": ("PyTorch", "CUDA", "27 November 2026", "on an H200; fake CUDA tensors in every change"),
    "jax": ("JAX", "a CPU", EACH, "exported for CUDA and TPUs, and not run there"),
    "jax-x64": ("JAX with 64 bits", "a CPU", EACH, ""),
    "dask": ("Dask", "a CPU", EACH, ""),
    "mlx": ("MLX", "a CPU with Linux", EACH, "never on Apple's GPUs"),
    "cupy (stand-in)": ("CuPy", "a stand-in", EACH, "names and signatures of CuPy 14.2; g++ compiles the kernels"),
    "cupy": ("CuPy", "CUDA", "27 November 2026", "on an H200"),
    "ndonnx": ("ndonnx", "ONNX Runtime on a CPU", EACH, "exported models, by tests of their own"),
    "array-api-strict": STRICT,
    "array-api-strict-device1": STRICT,
    "array-api-strict-no_float64": STRICT,
    "array-api-strict-no_x64": STRICT,
    "cubed": ("cubed", "a CPU", EACH, "79 of the 83 calls of `check_library`"),
    "dpnp": ("dpnp", "a CPU by OpenCL", "28 November 2026", "all calls of `check_library`"),
}


def table() -> str:
    """Return the table in Markdown."""
    if missing := LIBRARIES.keys() - ROWS:
        sys.exit(f"no row for {', '.join(missing)}")
    rows = [("library", "device", "its tests passed in", ""), ("---",) * 4, *dict.fromkeys(ROWS.values())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    making.show(table(), PAGE, write=making.parser(__doc__, PAGE).parse_args().write)
