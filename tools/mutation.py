"""
Mutation testing: check that some test fails when a line of the library is changed.

``python tools/mutation.py --sample 200 --seed 0`` makes 200 mutants: in each, one node of the syntax tree of a function
of a module of `SUBJECTS` is changed. Without ``--sample`` it makes all mutants. For each mutant it runs the tests of
the subject that call the function, quick ones first, until one fails. With ``--matrix`` it runs all of them, and lists
the test functions that no mutant needs, because another one fails too whenever they fail. Only tests with NumPy, or
with array-api-strict without float64, are run. The tests are collected once, and run once without a change. Each mutant
is tested in a fork of that process, in which the function's code object is replaced, so that all modules that imported
the function run it. (mutmut 3 wraps every function, and Numba cannot compile the wrappers.) A mutant of a function that
no test calls survives, unless the function is in `UNTESTED_HERE`; those are counted separately.

Changed are operators, comparisons, numbers, conditions, ``and`` and ``or``, strings and returned values. Not changed
are texts (strings with a space), empty strings, which stand for a name that nothing has, docstrings, ``strict=`` of
zip, types, defaults, decorators and what is outside of functions.
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


class Subject(NamedTuple):
    """Modules of the package, and patterns of the names of the files that test them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


SUBJECTS = {
    "core": Subject(
        (
            *("_align", "_frequencies", "_pairing", "_positions", "_table"),
            *("_rotate", "_rotation", "_host_rotation", "_fused_rotation", "_schedules"),
        ),
        (
            *("rotate", "rope", "table", "axes", "bending", "errors", "fused", "plans", "reposition", "schedules"),
            *("arrays", "constants", "fuzz", "gpus", "heads", "refusals", "seeds"),
        ),
    ),
    "config": Subject(
        (
            *("config._layers", "config._parameters", "config._parts", "config._recipe", "config._rotary_keys"),
            *("config._schemes", "config._text_part", "config._gguf", "config._grids", "config._params_json"),
        ),
        (
            *("config*", "whole_configs", "architectures", "parts", "forms", "errors", "fuzz", "indexers"),
            *("rotary_keys", "score", "towers"),
        ),
    ),
    "scaling": Subject(("scaling",), ("scaling", "testing", "config_forms", "errors", "fuzz")),
    "positions": Subject(
        (
            *("positions._attention_maps", "positions._grids", "positions._sequences", "positions._shards"),
            *("positions._streams", "_cumulative"),
        ),
        ("positions", "cumulative", "streams", "vision", "attention_maps", "errors", "fuzz"),
    ),
    "weights": Subject(("weights",), ("weights", "errors", "fuzz")),
    "layouts": Subject(("layouts",), ("layouts", "caches", "errors", "fuzz")),
}
# Functions for chunks, shards and gradients, which NumPy does not have.
UNTESTED_HERE = {
    f"_schedules.{name}"
    for name in ("_rotate_partitions", "_rotate_partition", "_plan_gradient", "_vjp", "_gradient_of_table")
}
UNTESTED_HERE |= {"_table._as_dtensor", "_fused_rotation._plan_kernel.<locals>.run"}
SECONDS = 900  # of CPU time for one mutant; more counts as an endless loop, which kills it
MIN_TESTS = 10  # if fewer tests call a function, all tests of its module are run

REPLACEMENTS: dict[type, type] = {
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


class Absent:
    """A finder of modules for which JAX and MLX are not installed: their threads can't be forked."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise an error if a module is of one of these libraries."""
        if name.partition(".")[0] in ("jax", "mlx"):
            raise ModuleNotFoundError(name)


class Mutant(NamedTuple):
    """One change: its module, function and line, its description, and the changed code object of the function."""

    module: str
    function: str
    line: int
    change: str
    code: CodeType


def changes(node: ast.AST) -> Iterator[Callable[[Any], Any]]:
    """Yield functions that change a copy of a node: in place, or by returning another node."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in REPLACEMENTS:
        yield lambda n: setattr(n, "op", REPLACEMENTS[type(n.op)]())
    if isinstance(node, ast.Compare):
        for i in range(len(node.ops)):
            yield lambda n, i=i: n.ops.__setitem__(i, REPLACEMENTS[type(n.ops[i])]())
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
        elif isinstance(node.value, str) and node.value and " " not in node.value:
            yield lambda n: ast.Constant(n.value + "x")


def is_excluded(node: ast.AST) -> bool:
    """Whether a node must not be changed: an error text, a docstring or the argument ``strict`` of a zip."""
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Name) and node.targets[0].id == "msg"
    if isinstance(node, ast.Expr):
        call = node.value
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "fail"
        return named or isinstance(call, ast.Constant)
    return isinstance(node, ast.JoinedStr | ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "strict")


def mutable_paths(node: ast.AST, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all nodes of a function that may be changed."""
    yield path
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "defaults", "kw_defaults"}:
            continue
        for step, child in (
            [((name, i), c) for i, c in enumerate(value)] if isinstance(value, list) else [((name,), value)]
        ):
            if isinstance(child, ast.AST) and not is_excluded(child):
                yield from mutable_paths(child, (*path, step))


def node_at(node: Any, path: tuple[Any, ...]) -> Any:
    """Return the descendant of a node at a path."""
    for name, *index in path:
        node = getattr(node, name)
        node = node[index[0]] if index else node
    return node


def replace_node(root: Any, path: tuple[Any, ...], node: ast.AST) -> None:
    """Replace the descendant of a node at a path."""
    *above, (name, *index) = path
    parent = node_at(root, tuple(above))
    if index:
        getattr(parent, name)[index[0]] = node
    else:
        setattr(parent, name, node)


def functions(tree: ast.Module) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the name and the path of each function and method of a module."""
    for i, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef):
            yield node.name, (("body", i),)
        if isinstance(node, ast.ClassDef):
            for j, inner in enumerate(node.body):
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", (("body", i), ("body", j))


def code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield all code objects inside a code object."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from code_objects(constant)


def file_of(module: str) -> Path:
    """Return the source file of a module."""
    return Path(rope_any.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")


def mutants(module: str) -> Iterator[Callable[[], Mutant]]:
    """Yield, for each mutant of a module, a function that makes it."""
    file = file_of(module)
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for name, path in functions(tree):
        for place in mutable_paths(node_at(tree, path)):
            if not place:
                continue
            for i in range(len(list(changes(node_at(tree, (*path, *place)))))):
                yield lambda place=(*path, *place), name=name, i=i: make_mutant(module, file, tree, name, place, i)


def make_mutant(module: str, file: Path, tree: ast.Module, name: str, place: tuple[Any, ...], i: int) -> Mutant:
    """Return the mutant of a module with the i-th change of one node."""
    changed = deepcopy(tree)
    node = node_at(changed, place)
    before = ast.unparse(node)
    new = list(changes(node))[i](node)
    if new is not None:
        replace_node(changed, place, new)
    after = ast.unparse(node_at(changed, place))
    compiled = compile(ast.fix_missing_locations(changed), str(file), "exec")
    code = next(code for code in code_objects(compiled) if code.co_qualname == name)
    first = lambda text: text.partition("\n")[0]  # noqa: E731
    return Mutant(module, name, node.lineno, f"{first(before)}  ->  {first(after)}", code)


def apply(mutant: Mutant) -> None:
    """Replace the code object of a function by the mutant's, for all modules that imported it."""
    target: Any = importlib.import_module(f"rope_any.{mutant.module}")
    for name in mutant.function.split("."):
        target = vars(target)[name]
    while not isinstance(target, FunctionType):
        target = target.fget if isinstance(target, property) else target.__wrapped__  # of a cache, or a static method
    target.__code__ = mutant.code


class Test(NamedTuple):
    """The duration in seconds of a test and the functions that it calls, from a run without a change."""

    seconds: float
    calls: set[str]
    """The functions that it calls, as ``module.function``."""


class Loop:
    """A plugin of pytest: for each mutant, it runs the tests that call the function, quick ones first."""

    def __init__(self, wanted: list[tuple[str, Callable[[], Mutant]]], jobs: int, *, matrix: bool) -> None:
        """Take the mutants to test, each with its subject, the number of processes, and whether to run all tests."""
        self.wanted, self.jobs, self.matrix = wanted, jobs, matrix
        self.survivors, self.untested = list[Mutant](), list[Mutant]()
        self.killers = list[set[str]]()
        """The test functions that kill a mutant, for each mutant: the first of them, or all with `matrix`."""
        self.failed, self.verbose, self.records = set[str](), False, dict[str, Test]()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Select the record of the test that starts."""
        self.test = self.records.setdefault(nodeid, Test(0.0, set()))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Record the duration and the outcome of a phase of a test."""
        self.failed |= {function_of(report.nodeid)} if report.failed else set()
        self.records[report.nodeid] = self.test = self.test._replace(seconds=self.test.seconds + report.duration)
        if self.verbose and report.failed:
            print(report.nodeid, report.longreprtext, file=sys.__stdout__, flush=True)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests of each mutant in forks; this replaces pytest's own loop."""
        self.record_calls(session.items)
        quick = sorted(session.items, key=lambda item: self.records[item.nodeid].seconds)
        called = set().union(*(test.calls for test in self.records.values()))
        running: dict[int, tuple[Mutant, Any]] = {}
        for subject, make in self.wanted:
            mutant = make()
            name = f"{mutant.module}.{mutant.function}"
            if name in UNTESTED_HERE or name not in called:
                (self.untested if name in UNTESTED_HERE else self.survivors).append(mutant)
                continue
            if len(running) == self.jobs:
                self.end(running)
            file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 -- the end of the fork closes it
            done = lambda file=file: pickle.dump(self.failed, file)  # noqa: E731
            child = self.fork(lambda mutant=mutant: apply(mutant), self.tests(name, subject, quick), done)
            running[child] = mutant, file
        while running:
            self.end(running)
        return True

    def tests(self, name: str, subject: str, items: list[Any]) -> list[Any]:
        """Return a subject's tests that call a function; all of them if few do, as its results may be cached."""
        candidates = [item for item in items if item.path in files_of(subject)]
        calling = [item for item in candidates if name in self.records[item.nodeid].calls]
        return calling if len(calling) >= MIN_TESTS else candidates

    def record_calls(self, items: list[Any]) -> None:
        """Run the tests without a change; record the time of each and the functions that it calls."""
        files = {str(file_of(module)): module for subject in SUBJECTS.values() for module in subject.modules}

        def trace(frame: FrameType, event: str, _: object) -> None:
            """Record the functions of the subjects that a test calls."""
            module = files.get(frame.f_code.co_filename)
            if module and event == "call":
                self.test.calls.add(f"{module}.{frame.f_code.co_qualname}")

        def prepare() -> None:
            """Start to print failures and to trace calls."""
            self.verbose = True
            sys.settrace(trace)

        with tempfile.TemporaryFile(buffering=0) as file:  # in a fork, because some tests start threads
            child = self.fork(prepare, items, lambda: pickle.dump(self.records, file))
            if os.waitpid(child, 0)[1]:
                pytest.exit("a test fails without a change", 2)
            file.seek(0)
            self.records = pickle.load(file)

    def fork(self, prepare: Callable[[], None], items: list[Any], done: Callable[[], None]) -> int:
        """Run tests in a fork, with `matrix` all functions, else until one fails; return the fork's process id."""
        child = os.fork()
        if not child:
            prepare()
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            for item, following in zip(items, [*items[1:], None], strict=True):
                if function_of(item.nodeid) in self.failed:
                    continue  # further cases of a function that failed
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed and not self.matrix:
                    break
            done()
            os._exit(bool(self.failed))
        return child

    def end(self, running: dict[int, tuple[Mutant, Any]]) -> None:
        """Wait until a fork ends; its mutant is killed if a test failed or the fork was stopped, else it survived."""
        child, status = os.wait()
        mutant, file = running.pop(child)
        with file:
            file.seek(0)
            found = file.read()  # nothing, if the fork was stopped or its mutant left the process
            self.killers.append(pickle.loads(found) if found else set())
        if not status:
            self.survivors.append(mutant)
        print("killed" if status else "SURVIVED", description(mutant), file=sys.__stdout__, flush=True)

    def needless(self) -> set[str]:
        """Return the test functions that kill mutants, but none that no other function kills."""
        return set().union(*self.killers) - set().union(*(killers for killers in self.killers if len(killers) == 1))


def function_of(nodeid: str) -> str:
    """Return the file and name of the function of a test, without its parameters."""
    return Path(nodeid.partition("[")[0]).name


def files_of(subject: str) -> list[Path]:
    """Return the test files of a subject."""
    return [file for pattern in SUBJECTS[subject].tests for file in sorted(TESTS.glob(f"test_{pattern}.py"))]


def description(mutant: Mutant) -> str:
    """Return a mutant as one line of text."""
    return f"{mutant.module}.py:{mutant.line} {mutant.function}: {mutant.change}"


def main() -> None:
    """Run the command line; exit with 1 if fewer than nine of ten mutants are killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, help="how many mutants, drawn at random; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--jobs", type=int, default=2, help="how many mutants at a time")
    parser.add_argument("--matrix", action="store_true", help="run all tests of each mutant; list the needless ones")
    options = parser.parse_args()
    everything = [
        (name, make) for name in options.subjects for module in SUBJECTS[name].modules for make in mutants(module)
    ]
    wanted = everything
    if options.sample:
        wanted = random.Random(options.seed).sample(everything, min(options.sample, len(everything)))
    loop = Loop(wanted, options.jobs, matrix=options.matrix)
    files = dict.fromkeys(str(file) for name in options.subjects for file in files_of(name))
    sys.meta_path.insert(0, Absent())
    without = " and ".join(f"not {library}" for library in WITHOUT)
    status = pytest.main(["-q", "-q", "-s", "--no-header", "-p", "no:randomly", "-k", without, *files], plugins=[loop])
    if status:
        sys.exit(status)
    tested = len(wanted) - len(loop.untested)
    killed = tested - len(loop.survivors)
    print(f"{killed} of {tested} killed ({killed / max(tested, 1):.1%}), of {len(everything)} that can be made")
    untested = ", ".join(sorted({f"{mutant.module}.{mutant.function}" for mutant in loop.untested}))
    print(f"{len(loop.untested)} more are in functions that none of these tests calls: {untested or 'none'}")

    for mutant in loop.survivors:
        print("survived:", description(mutant))
    for name in sorted(loop.needless()) if options.matrix else ():
        print("needless:", name)
    sys.exit(killed < 0.9 * tested)


if __name__ == "__main__":
    main()
