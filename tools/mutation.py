"""
Mutation testing: check that some test fails when a line of the library is changed.

``python tools/mutation.py --sample 200 --seed 0`` changes one place at a time in the functions of `ROOMS`, and runs the
tests of the room that call the function, the quick ones first, until one fails: of those that need NumPy, or
array-api-strict without float64. Without ``--sample`` it changes every place. The tests are collected once and run once
without a change. Each mutant is a fork of that process, in which a function has been given other code, so that all who
have imported it run that. (mutmut 3 puts a layer around every function, which Numba doesn't compile.) Functions of
`BEYOND` that none of these tests calls are counted apart; others that none calls survive.

What is changed: an operator for its neighbour, a comparison for the other side or its end, a number for the next, a
condition for its opposite, ``and`` for ``or``, a string for another, a returned value for None. Not changed: texts of
errors, docstrings, ``strict=`` of zip, types, defaults, decorators, and what stands outside of functions.
"""

import argparse
import ast
import importlib
import os
import pickle
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import pytest

import rope_any

TESTS = Path(__file__).parent.parent / "tests"
# One library without float64 is included: its tables are made differently.
WITHOUT = ("torch", "cupy", "jax", "dask", "mlx", "device1", "no_x64")
CONFIG = ("test_config", "test_errors")
ROOMS = {
    "_align": ("test_rope", "test_errors", "test_reposition"),
    "_frequencies": ("test_table", "test_rope", "test_errors"),
    "_pairing": ("test_rotate", "test_rope", "test_errors", "test_fused"),
    "_positions": ("test_table", "test_positions", "test_errors", "test_reposition"),
    "_rotate": ("test_rotate", "test_rope", "test_errors", "test_fused", "test_axes"),
    "_schedules": ("test_rotate", "test_rope", "test_schedules", "test_errors", "test_fused", "test_axes"),
    "_table": ("test_table", "test_rope", "test_errors", "test_reposition", "test_bending", "test_axes"),
    "layouts": ("test_layouts",),
    "scaling": ("test_scaling", "test_testing", "test_errors"),
    "config._canonical": CONFIG,
    "config._part": CONFIG,
    "config._recipe": CONFIG,
    "config._schemes": CONFIG,
}
# For chunks, shards and gradients, which NumPy does not have.
BEYOND = {
    f"_schedules.{name}"
    for name in ("_rotate_without_gradient", "_rotate_partitions", "_rotate_partition", "_vjp", "_rotate_with_gradient")
}
BEYOND |= {"_table._as_dtensor"}
SECONDS = 900  # of CPU time for one mutant; more counts as an endless loop, which kills it
FEW = 10  # tests that call a function

NEIGHBOURS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


class Mutant(NamedTuple):
    """One change: its place, its description, and the changed code of the function."""

    room: str
    function: str
    line: int
    change: str
    code: CodeType


def changes(node: ast.AST) -> Iterator[Callable[[Any], Any]]:
    """Yield functions that change a node like this one, in place or into the one that they return."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in NEIGHBOURS:
        yield lambda n: setattr(n, "op", NEIGHBOURS[type(n.op)]())
    if isinstance(node, ast.Compare):
        for i in range(len(node.ops)):
            yield lambda n, i=i: n.ops.__setitem__(i, NEIGHBOURS[type(n.ops[i])]())
    if isinstance(node, ast.UnaryOp):
        yield lambda n: n.operand
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    if isinstance(node, ast.Return) and ast.unparse(node) not in {"return", "return None"}:
        yield lambda n: setattr(n, "value", ast.Constant(None))
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield lambda n: ast.Constant(not n.value)
        elif isinstance(node.value, int | float):
            yield lambda n: ast.Constant(n.value + 1)
        elif isinstance(node.value, str):
            yield lambda n: ast.Constant(n.value + "x")


def is_text(node: ast.AST) -> bool:
    """Whether a node is not mutated: an error text, a docstring or the strictness of a zip."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "msg"
    if isinstance(node, ast.Expr):
        call = node.value
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "fail"
        return named or isinstance(call, ast.Constant)
    return isinstance(node, ast.JoinedStr | ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "strict")


def places(node: ast.AST, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all nodes of a function that may be changed."""
    yield path
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "defaults", "kw_defaults"}:
            continue
        for step, child in (
            [((name, i), c) for i, c in enumerate(value)] if isinstance(value, list) else [((name,), value)]
        ):
            if isinstance(child, ast.AST) and not is_text(child):
                yield from places(child, (*path, step))


def at(node: Any, path: tuple[Any, ...]) -> Any:
    """Return the descendant of a node at a path."""
    for name, *index in path:
        node = getattr(node, name)
        node = node[index[0]] if index else node
    return node


def put(root: Any, path: tuple[Any, ...], node: ast.AST) -> None:
    """Replace the descendant of a node at a path."""
    *above, (name, *index) = path
    parent = at(root, tuple(above))
    if index:
        getattr(parent, name)[index[0]] = node
    else:
        setattr(parent, name, node)


def functions(tree: ast.Module) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the names of functions and methods, and their paths."""
    for i, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef):
            yield node.name, (("body", i),)
        if isinstance(node, ast.ClassDef):
            for j, inner in enumerate(node.body):
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", (("body", i), ("body", j))


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield all code objects inside a code object."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes(constant)


def file_of(room: str) -> Path:
    """Return the source file of a room."""
    return Path(rope_any.__file__).parent.joinpath(*room.split(".")).with_suffix(".py")


def mutants(room: str) -> Iterator[Callable[[], Mutant]]:
    """Yield a function that makes each mutant of a room."""
    file = file_of(room)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for name, path in functions(tree):
        for place in places(at(tree, path)):
            if not place:
                continue
            for i in range(len(list(changes(at(tree, (*path, *place)))))):
                yield lambda place=(*path, *place), name=name, i=i: _made(room, file, tree, name, place, i)


def _made(room: str, file: Path, tree: ast.Module, name: str, place: tuple[Any, ...], i: int) -> Mutant:
    """Return the mutant of a room with the i-th change of one node."""
    changed = deepcopy(tree)
    node = at(changed, place)
    before = ast.unparse(node)
    new = list(changes(node))[i](node)
    if new is not None:
        put(changed, place, new)
    after = ast.unparse(at(changed, place))
    compiled = compile(ast.fix_missing_locations(changed), str(file), "exec")
    code = next(code for code in codes(compiled) if code.co_qualname == name)
    first = lambda text: text.partition("\n")[0]  # noqa: E731
    return Mutant(room, name, node.lineno, f"{first(before)}  ->  {first(after)}", code)


def apply(mutant: Mutant) -> None:
    """Replace the code of a function by a mutant's, for all modules that imported it."""
    target: Any = importlib.import_module(f"rope_any.{mutant.room}")
    for name in mutant.function.split("."):
        target = vars(target)[name]
    while not isinstance(target, FunctionType):
        target = target.fget if isinstance(target, property) else target.__wrapped__  # of a cache, or a static method
    target.__code__ = mutant.code


class Test(NamedTuple):
    """The duration of a test and the functions that it calls, from a run without a change."""

    seconds: float
    calls: set[str]
    """The functions that it calls, ``room.function``."""


class Loop:
    """A plugin of pytest that runs for each mutant the tests that call its function, the quick ones first."""

    def __init__(self, wanted: list[Callable[[], Mutant]], jobs: int) -> None:
        """Take the mutants to test, and the number of processes."""
        self.wanted, self.jobs, self.survivors, self.beyond = wanted, jobs, list[Mutant](), list[Mutant]()
        self.failed, self.tells, self.known = False, False, dict[str, Test]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Select the record of the test that starts."""
        self.test = self.known.setdefault(nodeid, Test(0.0, set()))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record the duration and the outcome of a phase of a test."""
        self.failed |= report.failed
        self.known[report.nodeid] = self.test = self.test._replace(seconds=self.test.seconds + report.duration)
        if self.tells and report.failed:
            print(report.nodeid, report.longreprtext, file=sys.__stdout__, flush=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of each mutant in forks; this replaces pytest's own loop."""
        self.learn(session.items)
        quick = sorted(session.items, key=lambda item: self.known[item.nodeid].seconds)
        called = set().union(*(test.calls for test in self.known.values()))
        running: dict[int, Mutant] = {}
        for mutant in (make() for make in self.wanted):
            name = f"{mutant.room}.{mutant.function}"
            if name not in called:
                (self.beyond if name in BEYOND else self.survivors).append(mutant)
                continue
            if len(running) == self.jobs:
                self.end(running)
            running[self.fork(lambda mutant=mutant: apply(mutant), self.tests(mutant, quick))] = mutant
        while running:
            self.end(running)
        return True

    def tests(self, mutant: Mutant, items: list[Any]) -> list[Any]:
        """Return the tests of a room that call a function; all of them for one whose results may be kept in a cache."""
        room = [item for item in items if item.path.stem in ROOMS[mutant.room]]
        calling = [item for item in room if f"{mutant.room}.{mutant.function}" in self.known[item.nodeid].calls]
        return calling if len(calling) >= FEW else room

    def learn(self, items: list[Any]) -> None:
        """Run the tests without a change; record the time of each and the functions that it calls."""
        files = {str(file_of(room)): room for room in ROOMS}

        def see(frame: FrameType, event: str, _: object) -> None:
            """Record the functions of the rooms that a test calls."""
            room = files.get(frame.f_code.co_filename)
            if room and event == "call":
                self.test.calls.add(f"{room}.{frame.f_code.co_qualname}")

        def prepare() -> None:
            """Start to print failures and to trace calls."""
            self.tells = True
            sys.settrace(see)

        with tempfile.TemporaryFile(buffering=0) as file:  # in a fork too: some tests start threads
            child = self.fork(prepare, items, lambda: pickle.dump(self.known, file))
            if os.waitpid(child, 0)[1]:
                pytest.exit("a test fails without a change", 2)
            file.seek(0)
            self.known = pickle.load(file)

    def fork(self, prepare: Callable[[], None], items: list[Any], done: Callable[[], None] = lambda: None) -> int:
        """Run tests in a fork until one fails; return the number of the fork."""
        child = os.fork()
        if not child:
            prepare()
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            for item, following in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            done()
            os._exit(self.failed)
        return child

    def end(self, running: dict[int, Mutant]) -> None:
        """Wait for the next fork to end, by a test that failed or by force, or with all tests passed."""
        child, status = os.wait()
        mutant = running.pop(child)
        if not status:
            self.survivors.append(mutant)
        print("killed" if status else "SURVIVED", said(mutant), file=sys.__stdout__, flush=True)


def said(mutant: Mutant) -> str:
    """Return a mutant as a line."""
    return f"{mutant.room}.py:{mutant.line} {mutant.function}: {mutant.change}"


def main() -> None:
    """Run the command line; exit with 1 if fewer than nine of ten mutants are killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="how many mutants, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at a time")
    asked = parser.parse_args()
    everything = [make for room in asked.rooms for make in mutants(room)]
    wanted = everything
    if asked.sample:
        wanted = random.Random(asked.seed).sample(everything, min(asked.sample, len(everything)))
    loop = Loop(wanted, asked.jobs)
    files = dict.fromkeys(str(TESTS / f"{file}.py") for room in asked.rooms for file in ROOMS[room])
    without = " and ".join(f"not {library}" for library in WITHOUT)
    status = pytest.main(["-q", "-q", "-s", "--no-header", "-p", "no:randomly", "-k", without, *files], plugins=[loop])
    if status:
        sys.exit(status)
    met = len(wanted) - len(loop.beyond)
    killed = met - len(loop.survivors)
    print(f"{killed} of {met} killed ({killed / max(met, 1):.1%}), of {len(everything)} that can be made")
    beyond = ", ".join(sorted({f"{mutant.room}.{mutant.function}" for mutant in loop.beyond}))
    print(f"{len(loop.beyond)} more are of functions that none of these tests calls: {beyond or 'none'}")
    for mutant in loop.survivors:
        print("survived:", said(mutant))
    sys.exit(killed < 0.9 * met)


if __name__ == "__main__":
    main()
