"""``rope-any verify``: check any rotary function against 60-digit arithmetic, or an engine's cache against a config."""

import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import rope_any as ra  # ra.testing is imported on first use: it needs NumPy, which --help does not
from rope_any._arrays import Array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text
from rope_any._json import plain
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing, as_pairing
from rope_any.cli._common import AsJson, echo_json, load_array, name_of, status, tokens_option, unreadable
from rope_any.cli._configs import Factor, Length, OneLayerType, PartOf, read_file
from rope_any.cli._libraries import INSTALLABLE, devices, installed
from rope_any.layouts import LAYOUTS

if TYPE_CHECKING:
    from rope_any.testing import Case

TITLES = {package: title for title, (package, _) in INSTALLABLE.items()}
by_hand = partial(typer.Option, rich_help_panel="Options for a rotation without a config")
OF_CALL = "Options for a function"
of_call = partial(typer.Option, rich_help_panel=OF_CALL)
of_cache = partial(typer.Option, rich_help_panel="Options for a cache")


def verify(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(metavar="TARGET", help="A function of (x, positions): module:function or file.py:function."),
    ] = None,
    *,
    config: Annotated[
        Path | None,
        typer.Option(metavar="CONFIG", help="Compare with this config.json, or published:NAME.", show_default=False),
    ] = None,
    part: PartOf = None,
    layer_type: OneLayerType = None,
    sequence_length: Length = None,
    factor: Factor = None,
    pairing: Annotated[
        Pairing | None,
        typer.Option(help="Choose the pairing of an unknown model, or without a config.", show_default=False),
    ] = None,
    head_dim: Annotated[
        int | None, of_call(help="Set the number of features of a head.", show_default="the config's, or 128")
    ] = None,
    base: Annotated[
        float | None,
        by_hand(help="Set the base of the frequencies, or rope_theta.", show_default="10000"),
    ] = None,
    rotary_dim: Annotated[
        int | None, by_hand(help="Set the number of features that rotate.", show_default="all")
    ] = None,
    start: Annotated[int, by_hand(help="Set the first feature that rotates.")] = 0,
    attention_factor: Annotated[float, by_hand(help="Set the factor that multiplies cosines and sines.")] = 1,
    case: Annotated[
        str | None,
        by_hand(
            metavar="NAME",
            help="Take the rotation and the positions of this test vector.",
            autocompletion=lambda: list(ra.testing.cases()),
        ),
    ] = None,
    positions: Annotated[
        Path | None,
        of_call(
            metavar="FILE",
            help="Compare at these positions: .npy, or text with a line for each token, a number for each axis.",
        ),
    ] = None,
    longest: Annotated[
        int | None,
        tokens_option(help="Check positions up to this one.", show_default="2147483647", rich_help_panel=OF_CALL),
    ] = None,
    library: Annotated[
        str,
        of_call(
            metavar="NAME",
            help="Call the function with arrays of this library, such as torch.",
            autocompletion=lambda: list(TITLES),
        ),
    ] = "numpy",
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32", "float64"],
        of_call(help="Call the function with arrays of this dtype."),
    ] = "float32",
    shape: Annotated[
        Literal["bhsd", "bshd", "sbhd", "thd"],
        of_call(help="Order batch, heads, sequence and features of x so; thd packs the tokens of all rows."),
    ] = "bhsd",
    table: Annotated[
        str | None,
        of_call(
            metavar="NAME",
            help="Call it as function(x, cos, sin) or function(x, cache), with tables of this layout.",
            autocompletion=lambda: [name for name, one in LAYOUTS.items() if one.holds == "cos and sin"],
        ),
    ] = None,
    keys: Annotated[bool, of_call("--keys", help="Call it as function(q, k, positions).")] = False,
    in_place: Annotated[bool, of_call("--in-place", help="Expect that it writes into x.")] = False,
    rows: Annotated[bool, of_call("--rows", help="Give it positions (batch, seq) too.")] = False,
    gradient: Annotated[bool, of_call("--gradient", help="Check the gradient of x too.")] = False,
    cache: Annotated[
        list[Path] | None,
        of_cache(metavar="FILE", help="Check this .npy or .safetensors file; give two if sines are apart."),
    ] = None,
    layout: Annotated[
        str | None,
        of_cache(metavar="NAME", help="Name its layout, such as vllm.", autocompletion=lambda: list(LAYOUTS)),
    ] = None,
    tensor: Annotated[
        list[str] | None, of_cache(metavar="NAME", help="Read this tensor of a file that holds several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Check a rotary function, or the cos/sin cache of an engine.

    A function is compared with the rotation of a config, or that of the options, in 60-digit arithmetic at many
    positions, and with the properties of a rotation. A cache is compared with the rotation of a config, row by row, and
    its number of rows with the length in the config. The report names the probable mistake and what to change. The exit
    code is 1 if a check fails.
    """
    _require_options([name for name in ctx.params if ctx.get_parameter_source(name).name == "COMMANDLINE"])  # type: ignore[union-attr]  # of a parameter
    which: dict[str, Any] = {"part": part, "layer_type": layer_type, "sequence_length": sequence_length}
    if cache:
        from rope_any.cli._verify_cache import verify_cache

        which |= {"pairing": pairing, "factor": factor, "base": base, "tensors": tensor or []}
        if verify_cache(cache, str(layout), Path(str(config)), **which, as_json=as_json):
            return
        raise typer.Exit(1)
    places = None if positions is None else _positions(positions)
    right: Any
    if config is not None:
        right = read_file(config, pairing=pairing, factor=factor)
    elif case is not None:
        one = _case(case)
        f, head_dim = one.frequencies, one.x.shape[1]
        right = ra.Rope(f, pairing=as_pairing(pairing), start=one.start, attention_factor=one.attention_factor)
        places = one.positions if places is None and longest is None else places
    else:
        head_dim = 128 if head_dim is None else head_dim
        rotary_dim = head_dim - start if rotary_dim is None else rotary_dim
        f = ra.frequencies(rotary_dim, base=10_000.0 if base is None else base)
        right = ra.Rope(f, pairing=as_pairing(pairing), start=start, attention_factor=attention_factor)
    which |= {"head_dim": head_dim, "positions": places, "longest": longest, "shape": shape, "table": table}
    which |= {"keys": keys, "in_place": in_place, "rows": rows, "gradient": gradient}
    # keep output of the function and its module out of the report
    with redirect_stdout(sys.stderr), status(f"verifying {target}"):
        function, like = _function(str(target)), _like(library, dtype)
        report = ra.testing.check_rotary(function, right, like=like, **which)
    if as_json:
        echo_json({"target": target, **plain(report)})
    else:
        typer.echo(f"{target}: {report}")
    if not report:
        raise typer.Exit(1)


BY_HAND = ("head_dim", "base", "rotary_dim", "start", "attention_factor")
OF_CONFIG = ("pairing", "part", "layer_type", "sequence_length", "factor")
CALL = ("positions", "longest", "library", "dtype", "shape", "table", "keys", "in_place", "rows", "gradient")
FORMS = {
    "cache": ("beside `cache`", ("layout", "config"), ("tensor", "base", *OF_CONFIG)),
    "case": ("beside `case`", ("pairing",), ("target", *CALL)),
    "config": ("beside `config`", (), ("target", "head_dim", *OF_CONFIG, *CALL)),
    "pairing": ("without `config` or `cache`", (), ("target", *BY_HAND, *CALL)),
}
"""By the option that decides, the first of those that are given: its name in errors, what it needs, what it allows."""


def _require_options(given: list[str]) -> None:
    """Raise if an option is missing, or given beside one that has no use for it."""
    form = next((name for name in FORMS if name in given), None)
    if form != "cache" and "target" not in given:
        raise ArgumentTypeError("target", "be given, or `cache`", NOTHING)
    if form is None:
        raise ArgumentTypeError("config", "be given, or `pairing` for a rotation without a config", NOTHING)
    where, needed, allowed = FORMS[form]
    if lacking := [name for name in needed if name not in given]:
        raise ArgumentTypeError(lacking[0], f"be given {where}", NOTHING)
    if wrong := [name for name in given if name not in {form, *needed, *allowed, "as_json"}]:
        hint = "" if form == "pairing" else "leave out one of the two"
        raise ArgumentTypeError(wrong[0], f"not be given {where}", NOTHING, hint)


def _positions(file: Path) -> Any:
    """Return the positions in a .npy file, or in a text with a line for each token and a number for each axis."""
    import numpy as np

    if file.suffix == ".npy":
        return load_array(file)
    wanted = "be a .npy file, or a text of numbers, with a line for each token and a number for each axis"
    try:
        lines = file.read_text(encoding="utf-8").replace(",", " ").splitlines()
        rows = [[*map(float, line.split())] for line in lines if line.strip()]
    except OSError as error:
        raise unreadable(file, wanted, error) from None
    except ValueError:
        rows = []
    if len({*map(len, rows)}) != 1:  # none, or of several lengths
        raise ArgumentValueError("positions", wanted, Text(name_of(file)))
    whole = all(number.is_integer() for row in rows for number in row)
    found = np.asarray(rows, dtype=np.int64 if whole else np.float64)
    return found[:, 0] if len(rows[0]) == 1 else found


def _function(target: str) -> Callable[..., Any]:
    """Import the object that ``package.module:name`` or ``file.py:name`` names; raise if it can't be found."""
    module, _, name = target.rpartition(":")
    if not module or not name:
        raise ArgumentValueError("TARGET", "be like package.module:function or file.py:function", target)
    try:
        found: Any = _module(module)
    except (Exception, SystemExit) as error:
        msg = f"{module} can't be imported: {type(error).__name__}: {error}"
        raise ImportError(msg) from error
    for part in name.split("."):
        if not hasattr(found, part):
            inside = vars(found).items() if hasattr(found, "__dict__") else ()
            known = [each for each, value in inside if callable(value) and not each.startswith("_")]
            some = ("..., " if len(known) > 5 else "") + ", ".join(known[-5:])  # a file's imports come first
            hint = did_you_mean(part, known) or (some and f"it has {some}")
            raise ArgumentValueError("TARGET", "exist", target, f"there is no {part!r}{hint and '; '}{hint}")
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]  # checked by check_rotary


def _module(name: str) -> Any:
    """Import a module by its name or .py file; the current folder, or that of the file, stays first in ``sys.path``."""
    if not name.endswith(".py"):
        sys.path.insert(0, "")
        return importlib.import_module(name)
    path = Path(name)
    sys.path.insert(0, str(path.parent))
    spec: Any = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _like(library: str, dtype: str) -> Array:
    """Return an array ``(1,)`` on a library's first device; raise if the library is unknown, missing or finds none."""
    import numpy as np

    if library not in TITLES:
        raise ArgumentValueError("library", f"be one of {', '.join(TITLES)}", library, did_you_mean(library, TITLES))
    lib = installed(TITLES[library])
    places = [] if lib is None else [*devices(lib).values()]
    if lib is None or not places:
        extra = INSTALLABLE[TITLES[library]][1].split()
        hint = f'pip install "rope-any[{extra[0]}]" installs it' if lib is None and extra else ""
        raise ArgumentValueError("library", "be one that is installed, with its device", library, hint)
    like = places[0].put(np.zeros(1, dtype=np.float32))
    return lib.xp.astype(like, lib.floating_dtype(dtype))


def _case(name: str) -> "Case":
    """Return the test vector with this name; raise if there is none."""
    known = ra.testing.cases()
    if name not in known:
        raise ArgumentValueError("case", f"be one of {', '.join(known)}", name, did_you_mean(name, known))
    return known[name]
