"""
Queries sharded over a JAX mesh: the compiled program has no communication.

One CPU acts as eight devices. Positions are sharded like the tokens, so each device makes the
table of its own tokens. The mesh may leave shardings to the compiler (Auto) or have them in the
types (Explicit).

Needs JAX 0.5.3 or later.

    python examples/sharded_jax.py
"""

import os
import re
import sys
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get(
    "XLA_FLAGS", ""
)

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P
except ModuleNotFoundError as error:
    sys.exit(f"this example needs {error.name}, which is not installed")
except ImportError as error:
    sys.exit(f"this example needs JAX 0.5.3 or later: {error}")

import rope_any as ra

ROPE = ra.Rope(ra.frequencies(128, base=500_000.0), pairing="half")
SHARDED = {
    "batch": P("data", None, None, None),
    "heads": P(None, ("data", "model"), None, None),
    "batch and seq": P("data", None, "model", None),
}
SENDS = re.compile("all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter")


def rotate(mesh: Any, spec: Any) -> tuple[float, list[str]]:
    """
    Rotate a sharded array.

    Return the largest difference from one device, and the program's collectives.
    """
    whole = np.random.default_rng(0).standard_normal((4, 8, 64, 128), dtype=np.float32)
    x = jax.device_put(whole, NamedSharding(mesh, spec))
    positions = jax.device_put(np.arange(64), NamedSharding(mesh, P(spec[2])))
    program: Any = jax.jit(ROPE.apply).lower(x, positions).compile()
    rotated = program(x, positions)
    if not rotated.sharding.is_equivalent_to(x.sharding, x.ndim):
        msg = f"sharding was {x.sharding} and is {rotated.sharding}"
        raise RuntimeError(msg)
    error = np.abs(np.asarray(rotated) - np.asarray(ROPE.apply(jnp.asarray(whole)))).max()
    return float(error), SENDS.findall(program.as_text() or "")


def main() -> dict[str, tuple[float, list[str]]]:
    """Return the largest difference and the collectives for each mesh and sharding."""
    found: dict[str, tuple[float, list[str]]] = {}
    for kind in (AxisType.Auto, AxisType.Explicit):
        mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(kind, kind))
        with jax.set_mesh(mesh):
            found |= {
                f"{kind} mesh, sharded over {name}": rotate(mesh, spec)
                for name, spec in SHARDED.items()
            }
    return found


if __name__ == "__main__":
    for way, (difference, sent) in main().items():
        print(f"{way}: differs from one device by {difference:.1e}, sends {sent or 'nothing'}")
