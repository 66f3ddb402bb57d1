"""The command line: ``rope-any check``, ``verify``, ``rotate``, ``convert``, ``inspect``, ``diff`` and ``export``."""

import importlib
import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any

import numpy as np

from rope_any import Rope, __version__, _files, _safetensors, frequencies, onnx
from rope_any._array import Array, floating_dtype, namespace
from rope_any._engines import ENGINES, ROOTS, Engine, find, version
from rope_any._frequencies import shown
from rope_any._pairing import as_pairing
from rope_any.config import Explanation, drift, explain, wavelengths
from rope_any.testing import Case, cases, check_rotary
from rope_any.testing._check import TURN_BOUNDS
from rope_any.testing._exact import Sample, apart, exact
from rope_any.testing._exact import turned as exactly
from rope_any.weights import chosen, order_of

try:
    import mpmath  # noqa: F401  # by which check and verify judge
    import typer
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress
    from rich.table import Column
    from rich.table import Table as Grid
except ModuleNotFoundError as error:
    sys.exit(f'rope-any: {error.name} is missing; install the command line by: pip install "rope-any[cli]"')

# The job of `check`: the shapes and base of Llama-3.1-8B.
QUERY_HEADS, KEY_HEADS, HEAD_DIM, BASE, TOKENS, OFFSET = 32, 8, 128, 500_000.0, 4096, 131_072
DTYPES = ("float32", "bfloat16")
TABLE_BOUND = 1.2e-7  # the largest error of a table that is let pass
REPEATS = 5

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def _version(*, show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Rotary position embeddings (RoPE), exactly, on every array library."""
    if show:
        typer.echo(__version__)
        raise typer.Exit


# --- check ------------------------------------------------------------------------------------------------


@app.command()
def check() -> None:
    """
    Rotate the queries and keys of a Llama-3.1-8B on each library and device found, and show how exactly.

    The error is measured against 60-digit arithmetic, over all pairs, at positions of the job and others up to
    2³¹. Exits with 1 if it breaks a bound.
    """
    out = Console(width=max(Console().width, 88))
    rope = Rope(frequencies(HEAD_DIM, base=BASE), pairing="half")
    found = {name: module for name in ENGINES if (module := find(name)) is not None}
    places = [(name, *place) for name, module in found.items() for place in ENGINES[name].devices(module).items()]
    rows: list[tuple[str, ...]] = []
    broken = 0
    with _progress("check", 2 * len(places) + 2) as step:
        rng = np.random.default_rng(0)
        job = exact(np.sort(rng.choice(TOKENS, 80, replace=False)) + OFFSET, rope.frequencies)
        step("60-digit arithmetic")
        ends = np.asarray([0, 1, 2**31 - 1, -(2**31) + 1])
        far = exact(np.concatenate([ends, rng.integers(-(2**31) + 1, 2**31, 76)]), rope.frequencies)
        step("60-digit arithmetic")
        q, k = (
            rng.standard_normal((1, heads, TOKENS, HEAD_DIM), dtype=np.float32) for heads in (QUERY_HEADS, KEY_HEADS)
        )
        for name, label, device in places:
            for dtype in DTYPES:
                measured = _measure(ENGINES[name], found[name], device, dtype, rope, (q, k), job, far)
                if measured is not None:
                    figures, good = measured
                    rows.append((name, version(found[name]), label, dtype, *figures))
                    broken += not good
                step(f"{name} on {label}")
    heads = ("library", "version", "device", "dtype", "table err", "q, k err", "time", "x copy")
    grid = Grid(*(Column(head, no_wrap=True) for head in heads), box=None, padding=(0, 1, 0, 0))
    for row in rows:
        grid.add_row(*row)
    out.print(
        f"q (1, {QUERY_HEADS}, {TOKENS}, {HEAD_DIM}), k (1, {KEY_HEADS}, {TOKENS}, {HEAD_DIM}), base {BASE:.0f}, "
        f"from position {OFFSET}; errors against 60 digits over {2 * (far.cos.size + job.cos.size)} table entries"
    )
    out.print(grid)
    for name in ENGINES:
        if name not in {place for place, *_ in places}:
            why = "installed, but finds no GPU" if name in found else "not found"
            extra = ENGINES[name].extra
            out.print(f'{name}: {why} (extra {extra}: pip install "rope-any[{extra.split()[0]}]")', markup=False)
    if broken:
        bounds = {dtype: bound for dtype, bound in TURN_BOUNDS.items() if dtype in DTYPES}
        typer.echo(f"rope-any: a bound is broken: tables {TABLE_BOUND}, q and k {bounds}", err=True)
        raise typer.Exit(1)


def _measure(  # noqa: PLR0917  # what there is to a measurement, handed on by its one caller
    engine: Engine,
    module: Any,
    device: Any,
    dtype: str,
    rope: Rope,
    job_qk: tuple[np.ndarray[Any, Any], ...],
    job: Sample,
    far: Sample,
) -> tuple[tuple[str, ...], bool] | None:
    """Do the job in one dtype on one device: figures, and whether the bounds hold; None without that dtype."""
    arrays = [engine.put(module, x, device) for x in job_qk]
    xp = namespace(x=arrays[0])
    if not hasattr(xp, dtype):
        return None
    q, k = (xp.astype(x, getattr(xp, dtype)) for x in arrays)
    given = [engine.get(module, xp.astype(x, xp.float32)) for x in (q, k)]
    table_error = float(np.max([_table_error(engine, module, device, rope, sample) for sample in (job, far)]))
    turned = [engine.get(module, xp.astype(x, xp.float32)) for x in rope(q, k, OFFSET)]
    turn_error = float(np.max([_turn_error(x, y, job) for x, y in zip(given, turned, strict=True)]))
    table = rope.table(range(OFFSET, OFFSET + TOKENS), like=q)
    ours, copy = _times(
        lambda: [engine.wait(module, x) for x in rope(q, k, table)],
        lambda: [engine.wait(module, engine.copy(module, x)) for x in (q, k)],
    )
    good = table_error <= TABLE_BOUND and turn_error <= TURN_BOUNDS[dtype]
    figures = f"{table_error:.1e}", f"{turn_error:.1e}", f"{1e3 * ours:.1f} ms", f"{ours / copy:.1f}"
    return figures, good


def _table_error(engine: Engine, module: Any, device: Any, rope: Rope, sample: Sample) -> float:
    positions = engine.put(module, sample.positions.astype(np.int32), device)
    cos, sin = (engine.get(module, part).astype(np.float64) for part in rope.table(positions))
    return float(np.max(np.abs([cos - sample.cos, sin - sample.sin])))  # which a nan comes through


def _turn_error(x: np.ndarray[Any, Any], turned: np.ndarray[Any, Any], sample: Sample) -> float:
    """Return the largest distance of a turned pair from where it should be, relative to its length."""
    before, after = (part[0][:, sample.positions - OFFSET] for part in (x, turned))
    return float(apart(after, exactly(before, sample, "half"), "half", start=0, pairs=HEAD_DIM // 2).max())


def _times(*jobs: Callable[[], object]) -> list[float]:
    """Return the median time of each job in seconds, taken in turn after an untimed round."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(REPEATS + 1):
        for job, times in zip(jobs, seconds, strict=True):
            begin = perf_counter()
            job()
            times.append(perf_counter() - begin)
    return [median(times[1:]) for times in seconds]


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a bar on the terminal; call what it gives when a step is done, or several."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, steps=1: bar.update(task, advance=steps, description=escape(done))


# --- verify -----------------------------------------------------------------------------------------------


@app.command()
def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:FUNCTION", help="function(x, positions) returns x, turned.", show_default=False),
    ],
    *,
    pairing: Annotated[str, typer.Option(help="half or interleaved: as it should turn.")],
    head_dim: Annotated[int | None, typer.Option(help="How many features a head has: 128.", show_default=False)] = None,
    rotary_dim: Annotated[int | None, typer.Option(help="How many features turn; all by default.")] = None,
    start: Annotated[int | None, typer.Option(help="The first feature that turns: 0.", show_default=False)] = None,
    base: Annotated[float | None, typer.Option(help="Also called rope_theta: 10 000.", show_default=False)] = None,
    attention_factor: Annotated[
        float | None, typer.Option(help="Multiplies cosines and sines: 1.", show_default=False)
    ] = None,
    longest: Annotated[int | None, typer.Option(help="The last position: 2³¹ − 1.", show_default=False)] = None,
    case: Annotated[str | None, typer.Option(help="One of the vectors, in place of all these.")] = None,
    library: Annotated[str, typer.Option(help="What x is made by: numpy, torch, jax, ...")] = "numpy",
    dtype: Annotated[str, typer.Option(help="Of x: float32, bfloat16, ...")] = "float32",
    as_json: AsJson = False,
) -> None:
    """
    Run a rotary of any library against 60-digit arithmetic and the properties of a rotation.

    Shows its largest error by position, which property fails and what is probably wrong. Exits with 1 if it fails.
    """
    try:
        options: dict[str, Any] = {
            "head_dim": head_dim,
            "rotary_dim": rotary_dim,
            "start": start,
            "base": base,
            "attention_factor": attention_factor,
            "longest": longest,
            "case": None if case is None else _case(case),
        }
        with redirect_stdout(sys.stderr):  # what the function and its module print is no part of the report
            function, like = _function(target), _like(library, dtype)
            with Console(stderr=True).status(f"verifying {escape(target)}"):
                report = check_rotary(function, pairing=as_pairing(pairing), like=like, **options)
    except (TypeError, ValueError) as error:
        typer.echo(f"rope-any: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        found = {name: found._asdict() for name, found in report.properties.items()}
        texts = {name: {str(key): value for key, value in getattr(report, name).items()} for name in KEYED}
        _echo_json({"target": target, **report._asdict(), "properties": found, **texts})
    else:
        typer.echo(f"{target}: {report}")
    if not report:
        raise typer.Exit(1)


KEYED = ("errors", "refusals")  # by position, which JSON has no key for


def _function(target: str) -> Callable[..., Any]:
    """Return what a target names; modules are looked for where the command is run, too."""
    module, _, name = target.partition(":")
    if not module or not name:
        msg = f"MODULE:FUNCTION must be like package.module:function; got {shown(target)}"
        raise ValueError(msg)
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        msg = f"{module} can't be imported: {type(error).__name__}: {error}"
        raise ValueError(msg) from error
    for part in name.split("."):
        if not hasattr(found, part):
            msg = f"MODULE:FUNCTION must name what is there; got {shown(target)}, without {shown(part)}"
            raise ValueError(msg)
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]  # check_rotary says what it must be


def _like(library: str, dtype: str) -> Array:
    """Return an array of a library and a dtype."""
    if library not in ROOTS:
        msg = f"library must be one of {', '.join(ROOTS)}; got {shown(library)}"
        raise ValueError(msg)
    module, engine = find(ROOTS[library]), ENGINES[ROOTS[library]]
    devices = {} if module is None else engine.devices(module)
    if not devices:
        msg = f"library must be one that is installed, with its device; got {library}"
        raise ValueError(msg)
    like = engine.put(module, np.zeros(1, dtype=np.float32), next(iter(devices.values())))
    xp = namespace(like=like)
    return xp.astype(like, floating_dtype(xp, dtype))


def _case(name: str) -> Case:
    known = cases()
    if name not in known:
        msg = f"case must be one of {', '.join(known)}; got {shown(name)}"
        raise ValueError(msg)
    return known[name]


# --- rotate -----------------------------------------------------------------------------------------------


@app.command()
def rotate(
    files: Annotated[
        list[Path],
        typer.Argument(help="q.npy and k.npy, or one array: (..., seq, head_dim).", show_default=False),
    ],
    *,
    pairing: Annotated[str, typer.Option(help="half or interleaved: as the model was trained.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results, under the same names.")],
    base: Annotated[float, typer.Option(help="Also called rope_theta.")] = 10_000.0,
    positions: Annotated[str, typer.Option(help="An offset, or a .npy file of positions of the (last) array.")] = "0",
    rotary_dim: Annotated[int | None, typer.Option(help="How many features turn; all by default.")] = None,
    seq_axis: Annotated[int, typer.Option(help="The axis along which tokens stand.")] = -2,
    inverse: Annotated[bool, typer.Option("--inverse", help="Turn backwards.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
) -> None:
    """Rotate queries and keys from .npy files."""
    try:
        targets = _targets(files, output, overwrite=overwrite)
        arrays = [_load(file) for file in files]
        dim = arrays[-1].shape[-1] if rotary_dim is None and arrays[-1].ndim else rotary_dim
        sign = -1 if inverse else 1
        turning = tuple(sign * f for f in frequencies(dim, base=base))  # type: ignore[arg-type]  # it says what is wrong
        rope = Rope(turning, pairing=pairing)  # type: ignore[arg-type]  # it says which there are
        with Console(stderr=True).status(f"rotating {', '.join(map(str, files))}"):
            where = _positions(positions)
            if len(arrays) == 1:
                turned: tuple[Array, ...] = (rope.apply(arrays[0], where, seq_axis=seq_axis),)
            else:
                q, k = arrays
                turned = rope(q, k, where, seq_axis=seq_axis)
            with _files.whole(targets, overwrite=overwrite) as parts:
                for part, array in zip(parts, turned, strict=True):
                    np.save(part, array)
    except (OSError, TypeError, ValueError) as error:
        typer.echo(f"rope-any: {error}", err=True)
        raise typer.Exit(2) from None
    for target, array in zip(targets, turned, strict=True):
        typer.echo(f"{target}: {array.shape} {array.dtype}")


def _targets(files: list[Path], output: Path, *, overwrite: bool) -> list[Path]:
    """Return where the results go, having made sure that nothing is lost there."""
    if len(files) > 2:
        msg = f"give one array, or q and k; got {len(files)} files"
        raise ValueError(msg)
    targets = [output / file.name for file in files]
    if len(set(targets)) < len(targets):
        msg = f"results would overwrite each other: both are called {targets[0].name}"
        raise ValueError(msg)
    _files.require_free(targets, overwrite=overwrite)
    return targets


def _load(file: Path) -> np.ndarray[Any, Any]:
    wanted = f"{file} must be a .npy file of one array of numbers"
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (EOFError, ValueError) as error:
        raise ValueError(wanted) from error
    if not isinstance(array, np.ndarray):
        msg = f"{wanted}; got an archive"
        raise TypeError(msg)
    return array


def _positions(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        pass
    if not text.endswith(".npy"):
        msg = f"positions must be an integer or a .npy file; got {text}"
        raise ValueError(msg)
    return np.asarray(_load(Path(text)))


# --- convert ----------------------------------------------------------------------------------------------


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            help="A .safetensors file, the .index.json of several, or the folder of either.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write; of an index or a folder, the folder.", show_default=False
        ),
    ],
    *,
    head_dim: Annotated[int, typer.Option(help="How many features a head has.")],
    of: Annotated[str, typer.Option("--from", help="half or interleaved: as the weights are.")],
    to: Annotated[str, typer.Option(help="half or interleaved: as they will be used.")],
    name: Annotated[
        list[str] | None, typer.Option(help="Pattern of names of query and key weights; may be repeated.")
    ] = None,
    axis: Annotated[
        int | None, typer.Option(help="The axis of the features in what --name matches; 0 by default.")
    ] = None,
    rotary_dim: Annotated[int | None, typer.Option(help="How many features turn; all by default.")] = None,
    start: Annotated[int, typer.Option(help="The first feature that turns.")] = 0,
    heads: Annotated[str, typer.Option(help="M/N: of N heads each only the first M.")] = "1/1",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that exist.")] = False,
    as_json: AsJson = False,
) -> None:
    """Reorder the query and key weights of a checkpoint for the other pairing."""
    try:
        order = order_of(
            head_dim,
            source=as_pairing(of, "--from"),
            target=as_pairing(to, "--to"),
            rotary_dim=rotary_dim,
            start=start,
            heads=_share(heads),
        )
        first = _safetensors.within(source)
        found = _safetensors.tensors(first)
        files = list(dict.fromkeys([*found, first]))  # with the index
        targets = [output] if files == [source] else [output / file.name for file in files]
        _files.require_apart(targets, files)
        _files.require_free(targets, overwrite=overwrite)
        shapes = {name: entry.shape for inside in found.values() for name, entry in inside.items()}
        axes = chosen(shapes, order, names=_names(name, axis))
        total = sum(file.stat().st_size for file in found)
        with _files.whole(targets, overwrite=overwrite) as parts, _progress("convert", total) as step:
            for file, part in zip(files, parts, strict=True):
                if file in found:
                    _safetensors.copy(file, part, axes=axes, order=order, step=step)
                else:
                    shutil.copyfile(file, part)
    except (OSError, TypeError, ValueError) as error:
        typer.echo(f"rope-any: {error}", err=True)
        raise typer.Exit(2) from None
    converted, left = ([name for name in shapes if (name in axes) is known] for known in (True, False))
    if as_json:
        _echo_json({"files": list(map(str, targets)), "converted": converted, "left": left})
        return
    grid = Grid(Column("tensors", overflow="fold"), Column("", justify="right"), "", box=None, padding=(0, 2, 0, 0))
    for names, what in ((converted, "converted"), (left, "left as it is")):
        for pattern, count in Counter(re.sub(r"\b\d+\b", "*", name) for name in names).items():
            grid.add_row(escape(pattern), str(count), what)
    _console().print(grid)
    typer.echo(f"{output}: {len(converted)} of {len(shapes)} tensors converted from {of} to {to}")


def _share(text: str) -> tuple[int, int]:
    if (found := re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)) is None:
        msg = f"--heads must be M/N, like 2/3; got {shown(text)}"
        raise ValueError(msg)
    return int(found[1]), int(found[2])


def _names(patterns: list[str] | None, axis: int | None) -> dict[str, int] | None:
    if axis is not None and not patterns:
        msg = f"--axis must come with --name; got {axis} alone"
        raise ValueError(msg)
    return dict.fromkeys(patterns, axis or 0) if patterns else None


# --- inspect, diff ----------------------------------------------------------------------------------------

ConfigFile = Annotated[Path, typer.Argument(help="config.json, or the folder that it is in.", show_default=False)]
LayerType = Annotated[str | None, typer.Option(help="One kind of layer; all by default.", show_default=False)]
Length = Annotated[int | None, typer.Option(help="Tokens, for schemes that depend on it.", show_default=False)]
PairingOf = Annotated[
    str | None, typer.Option("--pairing", help="Of a model_type that is not known.", show_default=False)
]
LONGEST = 80  # characters of a value
POSITIONS = tuple(4**n for n in range(11))  # 1 … 1 048 576


@app.command()
def inspect(
    file: ConfigFile,
    *,
    layer_type: LayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    as_json: AsJson = False,
) -> None:
    """Show the rotation of a model: each value, where it comes from, and the wavelengths."""
    told = _explained(file, layer_type, sequence_length, pairing)
    if as_json:
        _echo_json([_record(one) for one in told])
        return
    for one in told:
        out = _console()
        out.print(f"{_title(one)}: {one.rope or 'no rotary'}", markup=False, style="bold")
        grid = Grid(Column("value", no_wrap=True), "", Column("from", overflow="fold"), box=None, padding=(0, 2, 0, 0))
        for name, fact in one.facts.items():
            grid.add_row(name, _short(fact.value), fact.source)
        out.print(grid, markup=False)
        if one.rope is not None:
            tokens = sorted(wavelengths(one.rope))
            out.print(f"wavelengths in tokens: {' '.join(map(_tokens, tokens))}", markup=False)
            if not _unfinished(one):
                out.print("the config says no length, within which pairs might complete a turn")
            for name, pairs in _unfinished(one).items():
                length = one.facts[name].value
                out.print(f"{pairs} of {len(tokens)} pairs never complete a turn within {length:.0f} tokens ({name})")


@app.command()
def diff(
    a: ConfigFile,
    b: ConfigFile,
    *,
    layer_type: LayerType = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between the rotations of two models, and how their tables drift apart with position."""
    pairs = _paired(*(_explained(file, layer_type, sequence_length, pairing) for file in (a, b)))
    records = [_difference(*pair) for pair in pairs]
    if as_json:
        _echo_json(records)
        return
    for (one, other), record in zip(pairs, records, strict=True):
        out = _console()
        title = " and ".join(dict.fromkeys(_title(told) for told in (one, other) if told.facts))
        if not record["facts"] and record["drift"] is not None and not any(record["drift"].values()):
            out.print(f"{title}: the same rotation", markup=False, style="bold")
            continue
        out.print(title, markup=False, style="bold")
        grid = Grid(Column("value", no_wrap=True), str(a), str(b), box=None, padding=(0, 2, 0, 0))
        for name, values in record["facts"].items():
            grid.add_row(name, *(_short(value) for value in values))
        if record["facts"]:
            out.print(grid, markup=False)
        still = [str(file) for file, told in ((a, one), (b, other)) if told.rope is None]
        if still:
            out.print(f"no rotary here: {', '.join(still)}", markup=False)
        elif record["drift"] is None:
            out.print("their tables can't be compared: they turn different numbers of pairs", markup=False)
        else:
            steps = "  ".join(f"{position}: {apart:.2g}" for position, apart in record["drift"].items())
            out.print(f"largest distance of their tables by position: {steps}", markup=False)


def _explained(
    file: Path, layer_type: str | None, sequence_length: int | None, pairing: Any
) -> tuple[Explanation, ...]:
    try:
        return explain(file, layer_type=layer_type, sequence_length=sequence_length, pairing=pairing)
    except (TypeError, ValueError) as error:
        name = str(file) if str(file).isprintable() else repr(str(file))
        typer.echo(f"rope-any: {name}: {error}", err=True)
        raise typer.Exit(2) from None


def _console() -> Console:
    return Console(width=max(Console().width, 88), highlight=False)


def _echo_json(records: Any) -> None:
    typer.echo(json.dumps(_plain(records), indent=2, allow_nan=False))


def _plain(value: Any, depth: int = 12) -> Any:
    """Return a value that JSON can hold: what is infinite or no number is null, and what is too deep a word."""
    if isinstance(value, dict | list | tuple) and not depth:
        return shown(value)
    if isinstance(value, dict):
        return {key: _plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, depth - 1) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _title(one: Explanation) -> str:
    """Return which layers it is about, runs of them as ``0-4``."""
    if not one.layers:
        return one.layer_type or ("no layer" if one.layers == () else "all layers")
    starts = [i for i in one.layers if i - 1 not in one.layers]
    ends = [i for i in one.layers if i + 1 not in one.layers]
    runs = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
    return f"{one.layer_type or 'layers'} ({runs})"


def _short(value: object) -> str:
    """Return a value on one line, a long list of numbers by its ends."""
    if isinstance(value, tuple | list) and len(value) > 4 and all(map(_is_number, value)):
        return f"{len(value)} numbers from {min(value):.6g} to {max(value):.6g}"
    if isinstance(value, float):
        return f"{value:.10g}"
    try:
        text = str(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of thousands of digits
        text = ""
    return text if text.isprintable() and 0 < len(text) <= LONGEST else shown(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300  # what a float can hold, so that it can be shown as one


def _tokens(n: float) -> str:
    return f"{n:.0f}" if 1000 <= n < 1e9 else f"{n:.3g}"


def _unfinished(one: Explanation) -> dict[str, int]:
    """Return how many pairs don't come round within the trained and the extended length."""
    lengths = {name: one.facts[name].value for name in ("trained_length", "extended_length") if name in one.facts}
    tokens = wavelengths(one.rope) if one.rope is not None else ()
    return {name: sum(n > length for n in tokens) for name, length in lengths.items()}


def _record(one: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON has it."""
    rope = one.rope
    return {
        "layer_type": one.layer_type,
        "layers": one.layers,
        "facts": {name: {"value": fact.value, "source": fact.source} for name, fact in one.facts.items()},
        "rope": rope
        and {
            "frequencies": rope.frequencies,
            "pairing": rope.pairing,
            "attention_factor": rope.attention_factor,
            "start": rope.start,
        },
        "wavelengths": rope and sorted(wavelengths(rope)),
        "pairs_without_a_turn": _unfinished(one),
    }


def _paired(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """Return what is to be compared: one rotation with each of the other config, layers of one type, or the same."""
    ours, theirs = ({one.layer_type: one for one in told} for told in (a, b))
    by_type = len(ours) == len(a) and len(theirs) == len(b)
    if len(a) == 1 or len(b) == 1 or not (by_type or all(one.layers is not None for one in (*a, *b))):
        return [(one, other) for one in a for other in b]
    if by_type:
        return [(ours.get(name, _NOTHING), theirs.get(name, _NOTHING)) for name in dict.fromkeys([*ours, *theirs])]
    return _by_layer(a, b)


_NOTHING = Explanation(None, None, {}, None)


def _by_layer(a: tuple[Explanation, ...], b: tuple[Explanation, ...]) -> list[tuple[Explanation, Explanation]]:
    """Return the rotations that meet in some layers, each pair as of these layers."""
    ours, theirs = ({i: one for one in told for i in one.layers or ()} for told in (a, b))
    met: list[tuple[tuple[int, ...], Explanation, Explanation]] = []
    for one in (*a, _NOTHING):
        for other in (*b, _NOTHING):
            layers = [
                i for i in {**ours, **theirs} if ours.get(i, _NOTHING) is one and theirs.get(i, _NOTHING) is other
            ]
            met += [(tuple(sorted(layers)), one, other)] if layers else []
    met.sort(key=lambda row: row[0])
    return [(one._replace(layers=layers), other._replace(layers=layers)) for layers, one, other in met]


def _difference(one: Explanation, other: Explanation) -> dict[str, Any]:
    """Return the values that differ, and the distance of the tables by position, or null for it."""
    names = [*one.facts, *(name for name in other.facts if name not in one.facts)]
    values = {
        name: [_plain(told.facts[name].value) if name in told.facts else None for told in (one, other)]
        for name in names
    }
    a, b = one.rope, other.rope
    drifts = None
    if a is not None and b is not None and len(wavelengths(a)) == len(wavelengths(b)):
        drifts = {str(position): drift(a, b, position) for position in POSITIONS}
    return {
        "layer_types": [one.layer_type, other.layer_type],
        "layers": [one.layers, other.layers],
        "facts": {name: pair for name, pair in values.items() if pair[0] != pair[1]},
        "drift": drifts,
    }


# --- export -----------------------------------------------------------------------------------------------


@app.command()
def export(
    file: ConfigFile,
    output: Annotated[Path, typer.Argument(metavar="OUT", help="The .onnx file to write.", show_default=False)],
    *,
    layer_type: Annotated[str | None, typer.Option(help="Which kind of layer.", show_default=False)] = None,
    sequence_length: Length = None,
    pairing: PairingOf = None,
    dtype: Annotated[str, typer.Option(help="Of queries and keys: float32, float16 or bfloat16.")] = "float32",
    operator_length: Annotated[
        int | None,
        typer.Option(help="Use the operator RotaryEmbedding, with a table for so many tokens.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the rotation of a model as an ONNX model."""
    told = _explained(file, layer_type, sequence_length, pairing)
    try:
        rope, head_dim = _only(told)
        _files.require_free([output], overwrite=overwrite)
        model = onnx.export(rope, head_dim=head_dim, dtype=dtype, operator_length=operator_length)  # type: ignore[arg-type]  # it says which there are
        with _files.whole([output], overwrite=overwrite) as (part,):
            part.write_bytes(model.SerializeToString())
    except (ModuleNotFoundError, OSError, TypeError, ValueError) as error:
        typer.echo(f"rope-any: {error}", err=True)
        raise typer.Exit(2) from None
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    opset = model.opset_import[0].version
    if as_json:
        _echo_json({"file": str(output), "opset": opset, "dtype": dtype, "shapes": shapes})
        return
    for name, shape in shapes.items():
        typer.echo(f"{name}: ({', '.join(map(str, shape))})")
    typer.echo(f"{output}: {rope}, {dtype}, opset {opset}")


def _only(told: tuple[Explanation, ...]) -> tuple[Rope, int]:
    """Return the one rotation of a config and the width of its head, or say why there is not one."""
    found = {(one.rope, one.facts["head_dim"].value): _title(one) for one in told if one.rope is not None}
    if len(found) != 1:
        got = f"several, of {'; '.join(found.values())}: choose by --layer-type" if found else "none"
        msg = f"the config must have one rotation; got {got}"
        raise ValueError(msg)
    return next(iter(found))


def main() -> None:
    """Run the command line."""
    app(prog_name="rope-any")
