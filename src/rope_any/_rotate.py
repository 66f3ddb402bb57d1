"""`rotate`: checks of its arrays, and plans, which cache the decisions for arrays of the same kind."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from rope_any._arrays import Array, X, _sharding, library, signature
from rope_any._arrays._memory import plan_outs, require_like
from rope_any._caches import PLANS, keep_plan
from rope_any._checks import ArgumentTypeError, ArgumentValueError, Text, flag, integer
from rope_any._pairing import Pairing, Pairings, as_pairings
from rope_any._rotation import Plan, Rotation, Table, check_table, doubled_table_hint, result_dtype
from rope_any._schedules import plan_rotation


def rotate(
    x: X,
    cos: Array,
    sin: Array,
    /,
    *,
    pairing: Pairing,
    out_pairing: Pairing | None = None,
    inverse: bool = False,
    start: int = 0,
    out: X | None = None,
    fused: bool = False,
) -> X:
    """
    Rotate pairs of features of x by the angles of a table.

    Parameters
    ----------
    x : array
        Queries or keys, ``(..., features)``, of dtype float16, bfloat16, float32 or float64.
    cos, sin : array
        A table ``(..., pairs)`` of the same library and device, whose leading axes broadcast to ``x.shape[:-1]``. The
        first ``2 * pairs`` features from `start` on rotate, and all others pass through.
    pairing : {"half", "interleaved"}
        Which features form a pair, as for `Rope`.
    out_pairing : {"half", "interleaved"}, optional
        The pairing in whose order the result is returned, by default `pairing`, as for `Rope`.
    inverse : bool, optional
        Rotate by (cos, −sin): the transpose, which is the inverse of a table without attention factor. It takes x in
        `out_pairing` and returns it in `pairing`.
    start : int, optional
        The first rotated feature.
    out : array, optional
        Where to write the result: x itself (in place), or an array of its shape that does not overlap it. That may have
        another floating-point dtype, to which products are rounded once. If an exception such as KeyboardInterrupt ends
        the call, a part of `out` is written. While torch records gradients, `out` must be x itself, like
        ``inplace=True`` of flash-attention; the table must not need gradients; and x must not be a leaf, a view of one,
        a DTensor, or a view that autograd lets nobody write, such as one by split, chunk or unbind.
    fused : bool, optional
        Compile the rotation to one loop, which takes seconds at the first call with a dtype: by Numba (the extra
        ``numba``) for NumPy and for torch on a CPU, else by torch.compile, jax.jit, mlx.compile or a CUDA kernel of
        CuPy. What cannot be compiled runs without it, with one RuntimeWarning.

    Returns
    -------
    array
        The rotated x: `out` if it is given, else a new array of the same shape, dtype, library and device. The memory
        order of a new array is not promised; `out` keeps its own.

    Raises
    ------
    TypeError
        If an argument is not a floating-point array of the library of x.
    ValueError
        If the shapes don't broadcast, the pairing is unknown or devices differ; or if `out` cannot be written, overlaps
        another argument in part, has 16 bits while x is float64, or is written in a way that autograd can't record
        while it records.

    Notes
    -----
    Each pair (a, b) becomes (a cos − b sin, b cos + a sin): Su et al., arXiv:2104.09864, equation 34. The products are
    float64 if x is float64, else float32.

    Examples
    --------
    >>> quarter_turn = np.asarray([0.0]), np.asarray([1.0])
    >>> print(ra.rotate(np.asarray([3.0, 4.0]), *quarter_turn, pairing="half"))
    [-4.  3.]
    """
    key = None
    of_text = type(pairing) is str and (out_pairing is None or type(out_pairing) is str)
    if of_text and type(start) is int and type(inverse) is type(fused) is bool:
        key = signature((x, cos, sin, out), pairing, out_pairing, start, inverse, fused)
    table = Table(cos, sin)
    plan = None if key is None else PLANS.get(key)
    if plan is None:
        pairings = as_pairings(pairing, out_pairing)
        how = pairings, integer("start", start), flag("inverse", inverse), flag("fused", fused)
        plan = keep_plan(key, _checked_plan(x, table, out, how))
    return plan((x,), table, (out,))[0]  # type: ignore[no-any-return]  # as x


def _checked_plan(x: Array, table: Table, out: Array | None, how: tuple[Pairings, int, bool, bool]) -> Plan:
    """Return the plan for arrays like those of a call; `how` are a `Rotation`'s fields after its library."""
    cos, sin = table
    lib = library(x=x, cos=cos, sin=sin, **({} if out is None else {"out": out}))
    if lib.is_integer(cos):
        hint = "write rotate(x, *cos_sin(positions, frequencies), pairing=...) if these are positions and frequencies"
        raise ArgumentTypeError("cos", "be floating-point", Text(lib.dtype_name(cos.dtype)), hint)
    check_table(lib, cos, sin)
    rotation = Rotation(lib, *how)
    require_rotatable(rotation, x, table, table_is_argument=True)
    batch, given = tuple(x.shape[:-1]), tuple(cos.shape[:-1])
    if not _broadcasts(given, batch):
        wanted = f"broadcast to {(*batch, cos.shape[-1])}, the shape of x with pairs for its features"
        shape = tuple(cos.shape)
        raise ArgumentValueError("cos and sin", wanted, shape, _reshape_hint(shape, batch))
    return plan_of(rotation, {"x": x}, (table,), (out,))


def require_rotatable(
    rotation: Rotation,
    x: Array,
    table: Table,
    /,
    *,
    name: str = "x",
    table_is_argument: bool = False,
    widths: tuple[int, ...] = (),
) -> None:
    """
    Raise unless x, called `name`, is floating-point, has the features of the table's pairs, and is sharded if that is.

    The other axes of x and the table are not compared. `widths` are the head dimensions of q and k, for a hint.
    """
    (lib, _, start, *_), cos = rotation, table.cos
    lib.require_floating(name, x)
    if x.ndim == 0:
        raise ArgumentValueError(name, "have an axis of features", Text("a 0-d array"))
    pairs, features = cos.shape[-1], x.shape[-1]
    if pairs == 0 or start < 0 or start + 2 * pairs > features:
        wanted = f"have the {2 * pairs} features of {pairs} pairs" + (f" from `start`={start}" if start else "")
        hint = doubled_table_hint(table, (features - start) // 2) if table_is_argument else ""
        if not hint:
            axes = [axis for axis, n in enumerate(x.shape[:-1]) if n == 2 * pairs and not start]
            hints = [f"swapaxes({name}, {axis}, -1) if the features are along axis {axis}" for axis in axes[-1:]]
            if widths and widths[0] != widths[-1]:
                hints.append(f"q and k have {widths[0]} and {widths[-1]} features: rotate each alone if that is meant")
            elif 0 <= start < features - 1:
                fits = (features - start) // 2 * 2
                hints.append(f"`rotary_dim`={fits} would fit: frequencies({fits}), or a config with such heads")
            hint = "; ".join(hints)
        raise ArgumentValueError(name, wanted, Text(f"{features} features"), hint)
    if not _sharding.is_sharded(x) and any(map(_sharding.is_sharded, table)):
        wanted, got = "be sharded if its positions or its table are", Text("a plain array")
        raise ArgumentTypeError(name, wanted, got, "see DTensor.from_local")


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array of `shape` broadcasts to the shape `to`."""
    last = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n == m or n == 1 for n, m in last)  # noqa: PLR1714  # sizes may be symbols


def _reshape_hint(shape: tuple[int, ...], batch: tuple[int, ...]) -> str:
    """Return how to reshape a table of `shape` so that it broadcasts to `batch`, as the hint of an error; or ""."""
    *given, pairs = shape
    for axes in combinations(range(len(batch)), len(given)):
        if all(batch[axis] == n for axis, n in zip(axes, given, strict=True)):
            wide = (*(n if axis in axes else 1 for axis, n in enumerate(batch)), pairs)
            return f"reshape both to {wide}, or let Rope.apply do it"
    return ""


# --- plans ------------------------------------------------------------------------------------------------------------


def plan_of(
    rotation: Rotation,
    named: dict[str, Array],
    tables: tuple[Table, ...],
    outs: tuple[Array | None, ...],
    broadcasters: Sequence[Callable[[Table], Table] | None] = (None,),
    /,
) -> Plan:
    """
    Return a plan: a function ``(xs, table or tables, outs)`` that rotates arrays like the given ones.

    The xs and tables must be checked already. `broadcasters` has for each array None or a function that fits the axes
    of its table to it; the plan calls it. If there are outputs, they are checked here and in each run of the plan.
    """
    names, xs = tuple(named), tuple(named.values())
    has_one_table, writes = all(table is tables[0] for table in tables), outs[0] is not None
    if writes:
        require_like(rotation.lib, names, xs, outs)
        check = plan_outs(rotation.lib, names, xs, outs, tables[0] if has_one_table else (*tables[0], *tables[1]))
    wide_tables = tuple(
        [broadcast(table) if broadcast else table for broadcast, table in zip(broadcasters, tables, strict=True)]
    )
    kinds = [(x.dtype, x.ndim, result_dtype(x, out)) for x, out in zip(xs, outs, strict=True)]
    if has_one_table and all(kind == kinds[0] for kind in kinds):
        plan, broadcast = plan_rotation(rotation, xs, wide_tables[0], outs), broadcasters[0]
        run = (lambda xs, table, outs: plan(xs, broadcast(table), outs)) if broadcast else plan
    else:
        calls = zip(xs, wide_tables, outs, strict=True)
        each = [plan_rotation(rotation, (x,), table, (out,)) for x, table, out in calls]
        run = partial(_run_each, list(zip(each, broadcasters, strict=True)))
    if not writes:
        return run
    if has_one_table:
        return lambda xs, table, outs: run(check(xs, outs, table), table, outs)
    return lambda xs, tables, outs: run(check(xs, outs, (*tables[0], *tables[1])), tables, outs)


def _run_each(
    plans: list[tuple[Plan, Callable[[Table], Table] | None]],
    xs: tuple[Any, ...],
    tables: Table | tuple[Table, Table],
    outs: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Rotate each array by its own plan, and by its table or the only one."""
    by_array = (tables,) * len(xs) if isinstance(tables, Table) else tables
    calls = zip(plans, xs, by_array, outs, strict=True)
    return tuple([run((x,), fit(table) if fit else table, (out,))[0] for (run, fit), x, table, out in calls])
