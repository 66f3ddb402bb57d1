"""
Compare two commits with asv; the exit code shows whether the second one is worse.

0: no case is worse. 1: some cases are worse, or no longer run. 2: the arguments are wrong. 3: nothing was measured.
The benchmarks of the working tree measure both commits, and cases that look worse once more. Results are not kept.
"""

# ruff: noqa: T201  # a command prints
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

FINE, WORSE, UNUSABLE, NOTHING = range(4)
HOME = Path(__file__).resolve().parent
SOME_CASE_FAILED = 2  # asv's exit code; the results contain the cases that were measured


class Figure(NamedTuple):
    """A figure of one case: the median of its samples, or a number that was measured once."""

    value: float
    samples: tuple[float, ...] = ()


class Verdict(NamedTuple):
    """The result of the comparison of two commits."""

    compared: int
    worse: dict[str, tuple[Figure, Figure]]
    lost: list[str]
    """Cases measured in the first commit, and failed or skipped in the second."""
    unmeasured: list[str]
    """Cases not measured in the first commit."""

    @property
    def code(self):
        """The exit code."""
        if not self.compared:
            return NOTHING
        return WORSE if self.worse or self.lost else FINE


def main(words=None):
    """Measure both commits, print the verdict, and return the exit code."""
    arguments = read_arguments(words)
    verdict = compare(arguments, arguments.bench)
    if verdict and verdict.worse:
        print(f"Worse so far: {len(verdict.worse)}; measured again, as a busy machine slows single cases.", flush=True)
        if again := compare(arguments, exactly(verdict.worse)):
            verdict = verdict._replace(worse={case: again.worse[case] for case in verdict.worse if case in again.worse})
    if verdict is None:
        print("NOTHING MEASURED: asv itself failed; it says why above.")
        return NOTHING
    report(verdict, arguments.factor)
    return verdict.code


def compare(arguments, bench):
    """Measure the cases of both commits that match `bench`, and return the verdict; None if asv failed."""
    commits = arguments.base, arguments.head
    with tempfile.TemporaryDirectory(prefix="rope-any-asv-") as folder:
        config = write_config(Path(folder))
        measure = measure_here if arguments.here else measure_in_environments
        if not measure(config, commits, bench):
            return None
        return judge(*(read_results(Path(folder) / "results", commit) for commit in commits), arguments.factor)


def exactly(cases):
    """Return a regular expression for these cases, whose names end with their environment."""
    return "|".join(sorted({f"^{re.escape(case.rpartition(' [')[0])}$" for case in cases}))


# --- arguments --------------------------------------------------------------------------------------------------------


def read_arguments(words):
    """Return the arguments of the command line, with full hashes; exit with 2 if they are wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="regressions.py"
    )
    parser.add_argument("base", metavar="BASE", type=commit, help="the commit to compare with")
    parser.add_argument("head", metavar="HEAD", type=commit, help="the commit in question")
    parser.add_argument(
        "--factor", type=factor, default=1.1, help="a figure is worse if it grows by more than this (default: 1.1)"
    )
    parser.add_argument("--bench", type=regex, help="only the cases that this matches, as in asv run")
    parser.add_argument(
        "--here",
        action="store_true",
        help="measure in this Python environment, instead of building those of the matrix",
    )
    arguments = parser.parse_args(words)
    if arguments.base == arguments.head:
        parser.error(f"BASE and HEAD are one commit, {arguments.base[:8]}")
    return arguments


def commit(name):
    """Return the full hash of a commit of this repository; refuse other names."""
    command = ["git", "-C", str(HOME), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        msg = f"no commit of this repository: {name!r}"
        raise argparse.ArgumentTypeError(msg)
    return found.stdout.strip()


def factor(text):
    """Return the argument as a number; refuse numbers that are not above 1."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1 < number < math.inf:
        msg = f"must be a number above 1; got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return number


def regex(text):
    """Return the argument unchanged; refuse what is no regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        msg = f"no regular expression: {text!r} ({error})"
        raise argparse.ArgumentTypeError(msg) from error
    return text


# --- measuring --------------------------------------------------------------------------------------------------------


def write_config(folder):
    """Write asv's configuration with a new results folder, so that earlier results are not used."""
    lines = (HOME / "asv.conf.json").read_text(encoding="utf-8").splitlines()
    config = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    config |= {name: str((HOME / config[name]).resolve()) for name in ("repo", "benchmark_dir", "env_dir")}
    config |= {"results_dir": str(folder / "results"), "html_dir": str(folder / "html")}
    path = folder / "asv.conf.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def measure_in_environments(config, commits, bench):
    """Measure both commits alternately in environments that asv builds; return whether asv could."""
    hashes = config.with_name("commits")
    hashes.write_text("\n".join(commits), encoding="ascii")
    return asv_runs(config, f"HASHFILE:{hashes}", "--interleave-rounds", bench=bench)


def measure_here(config, commits, bench):
    """Measure both commits alternately in this environment; return whether asv could."""
    base, head = commits
    with ExitStack() as stack:
        sources = {commit: stack.enter_context(checked_out(commit, config.with_name(commit))) for commit in commits}
        for commit in (base, head, head, base):  # drift affects both
            options = ["--python=same", f"--set-commit-hash={commit}", "--attribute=rounds=1", "--append-samples"]
            if not asv_runs(config, *options, bench=bench, source=sources[commit]):
                return False
    return True


@contextmanager
def checked_out(commit, folder) -> Iterator[Path]:
    """Yield the sources of a commit, in a work tree that is removed afterwards."""
    git = ["git", "-C", str(HOME), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder / "src"
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def asv_runs(config, *options, bench, source=None):
    """Run asv; return whether it measured anything. If asv has no facts on the machine yet, it collects them first."""
    if not (Path.home() / ".asv-machine.json").exists():
        subprocess.run([sys.executable, "-m", "asv", "machine", "--yes", "--config", str(config)], check=True)
    command = [sys.executable, "-m", "asv", "run", "--config", str(config), "--launch-method=spawn", "--show-stderr"]
    command += ["--record-samples", *options, *([] if bench is None else ["--bench", bench])]
    # asv replaces PYTHONPATH by ASV_PYTHONPATH for benchmarks; their subprocesses get PYTHONPATH.
    paths = {} if source is None else {"PYTHONPATH": str(source), "ASV_PYTHONPATH": str(source)}
    code = subprocess.run(command, env=os.environ | paths, stdin=subprocess.DEVNULL, check=False).returncode
    return code in {0, SOME_CASE_FAILED}


# --- deciding ---------------------------------------------------------------------------------------------------------


def read_results(folder, commit):
    """Return the figures of a commit by case; None if a case failed or was skipped."""
    figures = {}
    for path in sorted(folder.glob(f"*/{commit[:8]}-*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        for name, row in data["results"].items():
            columns = dict(zip(data["result_columns"], row, strict=False))  # a row ends with its last value
            figures |= {f"{case} [{data['env_name']}]": figure for case, figure in figures_of(name, columns)}
    return figures


def figures_of(name, columns):
    """Yield (case, figure or None) for all cases of one benchmark."""
    cases = list(product(*(columns.get("params") or [])))
    values, samples = (columns.get(key) or [None] * len(cases) for key in ("result", "samples"))
    for case, value, sample in zip(cases, values, samples, strict=True):
        title = f"{name}({', '.join(case)})" if case else name
        is_measured = value is not None and not math.isnan(value)
        yield title, Figure(value, tuple(sample or ())) if is_measured else None


def judge(base, head, factor):
    """Return the verdict on the figures of two commits."""
    both = {case: (base[case], head[case]) for case in base if base[case] and head.get(case)}
    return Verdict(
        compared=len(both),
        worse={case: pair for case, pair in both.items() if is_worse(*pair, factor)},
        lost=[case for case in base if base[case] and not head.get(case)],
        unmeasured=sorted(case for case in base | head if not base.get(case)),
    )


def is_worse(base, head, factor):
    """Whether a figure grew by more than a factor, and significantly, if there are enough samples."""
    return head.value > factor * base.value and not may_be_chance(base.samples, head.samples)


def may_be_chance(base, head):
    """Whether two samples do not differ significantly by the Mann-Whitney test, which is robust to outliers."""
    pairs, rare = len(base) * len(head), 2.88  # standard deviations: by chance once in 500 cases
    deviation = math.sqrt(pairs * (len(base) + len(head) + 1) / 12)
    if pairs / 2 <= rare * deviation:
        return False  # too few samples for the test
    above = sum((b < h) + (b == h) / 2 for b, h in product(base, head))
    return above - pairs / 2 < rare * deviation


def report(verdict, factor):
    """Print the verdict."""
    for case, (base, head) in verdict.worse.items():
        ratio = head.value / base.value if base.value else math.inf
        print(f"WORSE  ×{ratio:.2f}  {base.value:.4g} → {head.value:.4g}  {case}")
    for case in verdict.lost:
        print(f"LOST   measured in BASE, failed or skipped in HEAD  {case}")
    print(f"{verdict.compared} cases compared; {len(verdict.unmeasured)} others not measured in BASE.")
    if verdict.code == NOTHING:
        print("NOTHING MEASURED in both commits: each case failed or was skipped, or a commit could not be built.")
    elif verdict.code == WORSE:
        print(f"REGRESSION: {len(verdict.worse)} worse by more than ×{factor:g}, {len(verdict.lost)} lost.")
    else:
        print(f"Nothing is worse by more than ×{factor:g}.")


if __name__ == "__main__":
    sys.exit(main())
