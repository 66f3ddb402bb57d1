"""
Find the config keys around rotary that transformers and diffusers read, and that are not classified yet.

``python tools/rotary_keys.py`` parses their sources and imports none. `rotary_keys.toml` classifies each name that is
found in a library. A name is new if it is not in that file, and gone if it is only in that file. The program prints the
new and the gone names, and exits with 1 if there are any.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rope_any.config._rotary_keys import ROTARY

CLASSIFIED = Path(__file__).with_suffix(".toml")
FILES = {
    "transformers": ("models/*/configuration_*.py", "models/*/modeling_*.py", "modeling_rope_utils.py"),
    "diffusers": ("models/transformers/*.py", "models/embeddings.py"),
}
CLASSIFIED_IN = {"transformers": "5.24.0", "diffusers": "0.42.1"}
"""The versions whose names are all classified."""
CLASSES = {"expressed", "part", "attention", "irrelevant", "missing"}
"""Read by this library; the name of a part; about positions or attention; irrelevant; about the rotation, not read."""
ENGINES = "engines"
"""The section for names that only other engines read."""

# Names of code that makes tables, rotates, or numbers positions.
_CODE = re.compile(
    rf"{ROTARY.pattern}|rot_pos|_freqs|freqs_|inv_freq|yarn|mscale|PosEmbed$|EmbedND|Indexer|_position_ids$"
)
_NO_TABLES = re.compile(r"^_?(create|make|prepare)_\w*position_ids|relative|Sinus|SinePos|Learned|sincos")
_SCALE = re.compile(
    r"^(softmax_|attn_|attention_|qk_|query_|q_|score_)?(scale|scaling|temperature)$|norm_factor|_attn_scale"
)
_LAYERS = re.compile(r"(layer|block)s?_(block_)?types?$")
_SCORES = re.compile(r"Att(entio)?n|Indexer")
_HAS_ROTARY = re.compile(r"rope_|_rope|rotary|RoPE|Rope|Rotary")
_READERS = {"get", "pop", "setdefault"}


def every_node(tree: ast.AST) -> list[ast.AST]:
    """Return all nodes of a tree, as `ast.walk` in a third of the time."""
    found = [tree]
    for node in found:
        for name in node._fields:
            inner = getattr(node, name, None)
            if isinstance(inner, ast.AST):
                found.append(inner)
            elif isinstance(inner, list):
                found += [each for each in inner if isinstance(each, ast.AST)]
    return found


class Reads(NamedTuple):
    """What some code reads: keys of configs, and names of variables and attributes of self."""

    keys: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


@cache
def is_rotary_name(name: str) -> bool:
    """Whether a class, function or variable is about rotary by its name."""
    return bool(_CODE.search(name)) and not _NO_TABLES.search(name)


def last_name(node: ast.AST) -> str:
    """Return the last name of a dotted expression; empty for another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def string_of(node: ast.AST | None) -> str:
    """Return the value of a constant string; empty for another node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_config(node: ast.AST, *, own: bool) -> bool:
    """Whether an expression is a config: by its name, or `self` in a class that is one."""
    name = last_name(node)
    return name.lower().endswith(("config", "cfg")) or (own and name == "self")


def is_mapping(node: ast.AST, *, own: bool) -> bool:
    """Whether an expression is a mapping of rotary parameters, an entry of one, or the keywords of a config class."""
    name = last_name(node.value if isinstance(node, ast.Subscript) else node)
    mapping = ROTARY.search(name) and not name.endswith("_type")
    return bool(mapping) or name.endswith("config") or (own and name == "kwargs")


def key_read(node: ast.AST, *, own: bool) -> str:
    """Return the key that an expression reads from a config or from rotary parameters; empty if it reads none."""
    match node:
        case ast.Attribute(value, attr) if is_config(value, own=own):
            return attr
        case ast.Call(ast.Name("getattr" | "hasattr"), [value, key, *_]) if is_config(value, own=own):
            return string_of(key)
        case ast.Subscript(value, key) if is_mapping(value, own=own):
            return string_of(key)
        case ast.Call(ast.Attribute(value, reader), [key, *_]) if reader in _READERS and is_mapping(value, own=own):
            return string_of(key)
        case ast.Compare(key, [ast.In() | ast.NotIn()], [value]) if is_mapping(value, own=own):
            return string_of(key)
    return ""


def reads(*nodes: ast.AST, own: bool = False) -> Reads:
    """Return the keys and names that expressions read."""
    keys, names, called = set(), set(), set()
    for node in (inner for outer in nodes for inner in every_node(outer)):
        if isinstance(node, ast.Call):
            called.add(node.func)
        key = "" if node in called else key_read(node, own=own)
        if key:
            keys.add(key)
        elif isinstance(node, ast.Attribute) and last_name(node.value) == "self":
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return Reads(frozenset(keys), frozenset(names))


def nodes_about_rotary(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes of a tree that contain a name about rotary."""
    found: set[ast.AST] = set()
    for node in reversed(every_node(tree)):  # inner nodes first
        names = (last_name(node), getattr(node, "arg", None), getattr(node, "name", None))
        if any(isinstance(name, str) and is_rotary_name(name) for name in names) or not found.isdisjoint(
            ast.iter_child_nodes(node)
        ):
            found.add(node)
    return found


def is_module(value: ast.AST) -> bool:
    """Whether a value is a new layer of a model that is not about rotary, so that its arguments don't matter."""
    return (
        isinstance(value, ast.Call)
        and last_name(value.func)[:1].isupper()
        and not is_rotary_name(last_name(value.func))
    )


def assigned_names(node: ast.AST) -> list[str]:
    """Return the names that a statement assigns."""
    outer = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    return [
        last_name(inner) for target in outer for inner in every_node(target) if last_name(inner) not in ("", "self")
    ]


def registered(scope: ast.AST) -> set[str]:
    """Return the arguments of a constructor of diffusers that its config has as keys."""
    return {
        argument.arg
        for function in getattr(scope, "body", ())
        if any(last_name(decorator) == "register_to_config" for decorator in getattr(function, "decorator_list", ()))
        for argument in (*function.args.args, *function.args.kwonlyargs)
    } - {"self"}


def sinks(scope: ast.AST, rotary: set[ast.AST], *, own: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a class or function that are about rotary, positions, kinds of layers or the score scale."""
    scores = bool(_SCORES.search(getattr(scope, "name", "")))
    if is_rotary_name(getattr(scope, "name", "")):
        yield scope
    for node in every_node(scope):
        match node:
            case ast.FunctionDef(name) if is_rotary_name(name):
                yield from node.body
            case ast.If(test, body, orelse) if not rotary.isdisjoint([test, *body, *orelse]):
                yield test
            case ast.keyword(name, value) if scores and _SCALE.search(name or ""):
                yield value
            case ast.Return(value) | ast.Expr(value) if value and node in rotary:
                yield value
            case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.AugAssign(value=value) if value:
                named = (scores and any(map(_SCALE.search, assigned_names(node)))) or (
                    own and any(map(_LAYERS.search, assigned_names(node)))
                )
                if named or (node in rotary and not is_module(value)):
                    yield value


def keys_reaching_rotary(scope: ast.AST, *, own: bool) -> set[str]:
    """Return the keys that rotary code in a class or function reads, directly or through variables and attributes."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [reads(node, own=own) for node in sinks(scope, nodes_about_rotary(scope), own=own)]
    if not waiting:
        return found
    made: dict[str, list[Reads]] = {name: [Reads(frozenset([name]))] for name in registered(scope)}
    for node in every_node(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value and not is_module(node.value):
            for name in assigned_names(node):
                made.setdefault(name, []).append(reads(node.value, own=own))
    while waiting:
        read = waiting.pop()
        found |= read.keys
        waiting += [inner for name in read.names - seen for inner in made.get(name, ())]
        seen |= read.names
    return found


def declared_keys(tree: ast.AST) -> Iterator[str]:
    """Yield the fields, arguments and other names of keys of the config classes in a file."""
    for node in (inner for outer in every_node(tree) if isinstance(outer, ast.ClassDef) for inner in outer.body):
        match node:
            case ast.AnnAssign(ast.Name(name)):
                yield name
            case ast.Assign([ast.Name("attribute_map")], ast.Dict(keys, values)):
                yield from map(string_of, (*filter(None, keys), *values))
            case ast.FunctionDef("__init__"):
                yield from (argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))


def part_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of parts in the config classes of a file."""
    for node in every_node(tree):
        match node:
            case ast.Assign([ast.Name("sub_configs" | "sub_configs_defaults")], ast.Dict(keys)):
                yield from map(string_of, filter(None, keys))


def parameter_keys(tree: ast.AST) -> Iterator[str]:
    """Yield the keys of rotary parameters that are written as a dict, or declared as its type."""
    for node in every_node(tree):
        match node:
            case ast.ClassDef("RopeParameters"):
                yield from (last_name(inner.target) for inner in node.body if isinstance(inner, ast.AnnAssign))
            case ast.Assign(value=ast.AST() as value) | ast.AnnAssign(value=ast.AST() as value):
                named = any(map(ROTARY.search, assigned_names(node)))
                for inner in every_node(value) if named else ():
                    if isinstance(inner, ast.Dict):
                        yield from map(string_of, filter(None, inner.keys))


def keys_of(source: str, *, configures: bool, rotary: bool) -> set[str]:
    """
    Return the keys around rotary in one file, which defines classes of configs or of models.

    If `rotary` is False, the model has no rotary: then only names about rotary, and names of parts, are returned.
    """
    tree = ast.parse(source)
    scopes = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    owns = {scope: configures and isinstance(scope, ast.ClassDef) for scope in scopes}
    named = {scope: {*reads(scope, own=owns[scope]).keys, *registered(scope)} for scope in scopes}
    every = {*(declared_keys(tree) if configures else ())}.union(*named.values())
    found = {name for name in every if ROTARY.search(name)} | {*(part_names(tree) if configures else ())}
    for scope in scopes:
        if rotary and (configures or named[scope]):
            found |= {*parameter_keys(scope), *keys_reaching_rotary(scope, own=owns[scope])}
    return {name for name in found if name.isidentifier()}


def keys_in_library(library: str) -> dict[str, set[str]]:
    """Return each key around rotary in an installed library, with the models or files that contain it."""
    root = Path(next(iter(getattr(find_spec(library), "submodule_search_locations", None) or ())))
    models: dict[str, dict[Path, str]] = {}
    for file in sorted(file for pattern in FILES[library] for file in root.glob(pattern)):
        model = file.parent.name if file.match("models/*/*_*.py") and library == "transformers" else file.stem
        models.setdefault(model, {})[file] = file.read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for model, sources in models.items():
        rotary = any(map(_HAS_ROTARY.search, sources.values()))
        for file, source in sources.items():
            configures = file.name.startswith(("configuration_", "modeling_rope_utils"))
            if rotary or (configures and "sub_configs" in source) or "theta" in source:
                for key in keys_of(source, configures=configures, rotary=rotary):
                    found.setdefault(key, set()).add(model)
    return found


class Row(NamedTuple):
    """The classification of a name."""

    kind: str
    """One of `CLASSES`."""
    meaning: str


def read_classification(document: str) -> dict[str, dict[str, Row]]:
    """Return the classification in a TOML document, by library and name; exit if a name occurs twice."""
    found: dict[str, dict[str, Row]] = {}
    for library, kinds in tomllib.loads(document).items():
        rows = found.setdefault(library, {})
        for kind, meaning, name in ((k, s, name) for k in kinds for s in kinds[k] for name in kinds[k][s].split()):
            if kind not in CLASSES or name in rows:
                sys.exit(f"{CLASSIFIED.name}: {library}.{kind} must be a class, and {name} must occur once")
            rows[name] = Row(kind, meaning)
    return found


def differences(found: Mapping[str, Iterable[str]], known: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a line for each name that is found and not classified, or classified and not found."""
    lines = []
    for library, names in found.items():
        rows = {*known.get(library, ())}
        lines += [f"new in {library}: {name}" for name in sorted({*names} - rows)]
        lines += [f"gone from {library}: {name}" for name in sorted(rows - {*names})]
        lines += [
            f"{name}: {library} reads it, so it is not one of {ENGINES} alone"
            for name in sorted({*names} & {*known.get(ENGINES, ())})
        ]
    return lines


def main() -> None:
    """Print the new and the gone names; exit with 1 if there are any, or if a library is missing."""
    if missing := [library for library in FILES if find_spec(library) is None]:
        sys.exit(f"missing: {', '.join(missing)}")
    known = read_classification(CLASSIFIED.read_text(encoding="utf-8"))
    lines = differences({library: keys_in_library(library) for library in FILES}, known)
    print("\n".join(lines) or "every name is classified")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
