"""
Measure commits with asv in this Python environment, and write its pages: a graph for each benchmark over the commits.

    python asv_benchmarks/pages.py main~5..main --output html
    python asv_benchmarks/pages.py HEAD --bench decode --quick --output html   # one commit, each case once
    python -m http.server --directory html                                     # then open http://localhost:8000

The benchmarks of the working tree measure all commits. Only the pages are kept.
"""

# ruff: noqa: T201  # a command prints
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from regressions import FINE, HOME, NOTHING, asv_runs, checked_out, commit, regex, write_config


def main(words=None):
    """Measure the commits, write the pages, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="pages.py"
    )
    parser.add_argument("commits", metavar="COMMIT|A..B", type=commits, help="one commit, or those after A up to B")
    parser.add_argument("--output", "-o", type=Path, required=True, help="the folder to write")
    parser.add_argument("--bench", type=regex, help="only the cases that this matches, as in asv run")
    parser.add_argument("--quick", action="store_true", help="run each case once")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="rope-any-asv-") as folder:
        config = write_config(Path(folder))
        keys = json.loads(config.read_text()) | {"html_dir": str(arguments.output.resolve())}
        config.write_text(json.dumps(keys | {"branches": arguments.commits[-1:]}))
        for number, one in enumerate(arguments.commits, 1):
            print(f"commit {number} of {len(arguments.commits)}: {one[:8]}", file=sys.stderr)
            options = ["--python=same", f"--set-commit-hash={one}", *(["--quick"] if arguments.quick else [])]
            with checked_out(one, Path(folder, one)) as source:
                if not asv_runs(config, *options, bench=arguments.bench, source=source):
                    return NOTHING
        subprocess.run([sys.executable, "-m", "asv", "publish", "--config", str(config)], check=True)
    print(f"{arguments.output / 'index.html'}: {len(arguments.commits)} commits")
    return FINE


def commits(text):
    """Return the full hashes of one commit, or of a range along first parents, oldest first."""
    if ".." not in text:
        return [commit(text)]
    base, _, head = text.partition("..")
    listed = ["git", "-C", str(HOME), "rev-list", "--reverse", "--first-parent", f"{commit(base)}..{commit(head)}"]
    found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    if not found:
        msg = f"no commits: {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return found


if __name__ == "__main__":
    sys.exit(main())
