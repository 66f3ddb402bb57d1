"""``rope-any verify``: check any rotary function against 60-digit arithmetic, or an engine's cache against a config."""

import importlib
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import rope_any as ra  # ra.testing is imported on first use: it needs NumPy, which --help does not
from rope_any._arrays import Array
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError
from rope_any._names import did_you_mean
from rope_any._pairing import Pairing, as_pairing
from rope_any.cli._common import AsJson, echo_json, status, tokens_option
from rope_any.cli._configs import Factor, OneLayerType, PartOf
from rope_any.cli._libraries import INSTALLABLE, devices, installed
from rope_any.layouts import LAYOUTS

if TYPE_CHECKING:
    from rope_any.testing import Case

TITLES = {package: title for title, (package, _) in INSTALLABLE.items()}


OF_BOTH, OF_FUNCTION, OF_CACHE = "Options", "Options for a function", "Options for a cache"


def verify(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET", help="A function of (x, positions): package.module:function or file.py:function."
        ),
    ] = None,
    *,
    pairing: Annotated[
        Pairing | None,
        typer.Option(
            help="Choose the right pairing; a function needs it, a cache only for an unknown model.",
            show_default=False,
        ),
    ] = None,
    head_dim: Annotated[
        int | None,
        typer.Option(help="Set the number of features of a head.", show_default="128", rich_help_panel=OF_FUNCTION),
    ] = None,
    rotary_dim: Annotated[
        int | None,
        typer.Option(help="Set the number of features that rotate.", show_default="all", rich_help_panel=OF_FUNCTION),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(help="Set the first feature that rotates.", show_default="0", rich_help_panel=OF_FUNCTION),
    ] = None,
    base: Annotated[
        float | None,
        typer.Option(help="Set the base of the frequencies, also called rope_theta.", show_default="10000"),
    ] = None,
    attention_factor: Annotated[
        float | None,
        typer.Option(
            help="Set the factor that multiplies cosines and sines.", show_default="1", rich_help_panel=OF_FUNCTION
        ),
    ] = None,
    longest: Annotated[
        int | None,
        tokens_option(help="Check positions up to this one.", show_default="2147483647", rich_help_panel=OF_FUNCTION),
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Compare with a test vector, in place of the options above but --pairing.",
            autocompletion=lambda: list(ra.testing.cases()),
            rich_help_panel=OF_FUNCTION,
        ),
    ] = None,
    library: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Call the function with arrays of this library, such as torch.",
            autocompletion=lambda: list(TITLES),
            rich_help_panel=OF_FUNCTION,
        ),
    ] = "numpy",
    dtype: Annotated[
        Literal["float16", "bfloat16", "float32", "float64"],
        typer.Option(help="Call the function with arrays of this dtype.", rich_help_panel=OF_FUNCTION),
    ] = "float32",
    keys: Annotated[
        bool, typer.Option("--keys", help="Call it as function(q, k, positions).", rich_help_panel=OF_FUNCTION)
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Expect that it writes into x.", rich_help_panel=OF_FUNCTION)
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Give it positions (batch, seq) too.", rich_help_panel=OF_FUNCTION)
    ] = False,
    gradient: Annotated[
        bool, typer.Option("--gradient", help="Check the gradient of x too.", rich_help_panel=OF_FUNCTION)
    ] = False,
    cache: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Check the cache in this .npy or .safetensors file; give two files if sines are apart.",
            rich_help_panel=OF_CACHE,
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name the layout of the cache, such as vllm.",
            autocompletion=lambda: list(LAYOUTS),
            rich_help_panel=OF_CACHE,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Compare the cache with this config.json, or published:NAME.",
            show_default=False,
            rich_help_panel=OF_CACHE,
        ),
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Read this tensor of a file that holds several.", rich_help_panel=OF_CACHE),
    ] = None,
    part: PartOf = None,
    layer_type: OneLayerType = None,
    sequence_length: Annotated[
        int | None,
        tokens_option(
            help="Expect a cache for sequences of this length.",
            show_default="the config's",
            rich_help_panel=OF_CACHE,
        ),
    ] = None,
    factor: Factor = None,
    as_json: AsJson = False,
) -> None:
    """
    Check a rotary function, or the cos/sin cache of an engine.

    A function is compared with 60-digit arithmetic at many positions, and with the properties of a rotation. A cache
    is compared with the rotation of a config, row by row, and its number of rows with the length in the config. The
    report names the probable mistake. The exit code is 1 if a check fails.
    """
    given = {name for name in ctx.params if ctx.get_parameter_source(name).name == "COMMANDLINE"}  # type: ignore[union-attr]  # of a parameter
    if cache:
        from rope_any.cli._verify_cache import verify_cache

        _require_options(given, ("layout", "config"), FOR_FUNCTION, "cache")
        of_config: dict[str, Any] = {"sequence_length": sequence_length, "pairing": pairing, "factor": factor}
        which: dict[str, Any] = {"part": part, "layer_type": layer_type, "base": base, "tensors": tensor or []}
        if verify_cache(cache, str(layout), Path(str(config)), **which, as_json=as_json, **of_config):
            return
        raise typer.Exit(1)
    _require_options(given, ("target", "pairing"), FOR_CACHE, "target")
    options: dict[str, Any] = {
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "start": start,
        "base": base,
        "attention_factor": attention_factor,
        "longest": longest,
        "case": None if case is None else _case(case),
        "keys": keys,
        "in_place": in_place,
        "rows": rows,
        "gradient": gradient,
    }
    # keep output of the function and its module out of the report
    with redirect_stdout(sys.stderr), status(f"verifying {target}"):
        function, like = _function(str(target)), _like(library, dtype)
        report = ra.testing.check_rotary(function, pairing=as_pairing(pairing), like=like, **options)
    if as_json:
        found = {name: found._asdict() for name, found in report.properties.items()}
        texts = {name: {str(key): value for key, value in getattr(report, name).items()} for name in KEYED}
        echo_json({"target": target, **report._asdict(), "properties": found, **texts})
    else:
        typer.echo(f"{target}: {report}")
    if not report:
        raise typer.Exit(1)


FOR_FUNCTION = (
    *("target", "head_dim", "rotary_dim", "start", "attention_factor", "longest", "case", "library", "dtype"),
    *("keys", "in_place", "rows", "gradient"),
)
FOR_CACHE = ("layout", "config", "tensor", "part", "layer_type", "sequence_length", "factor")


def _require_options(given: set[str], needed: tuple[str, ...], others: tuple[str, ...], kind: str) -> None:
    """Raise unless all `needed` options and no `others` are given; `kind` is "target" or "cache", for the error."""
    for name in needed:
        if name not in given:
            wanted = "be given, or `cache`" if name == "target" else f"be given for `{kind}`"
            raise ArgumentTypeError(name, wanted, NOTHING)
    if wrong := [name for name in others if name in given]:
        raise ArgumentTypeError(wrong[0], f"not be given for `{kind}`", NOTHING)


KEYED = ("errors", "refusals")  # dicts by position; JSON keys are text


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
