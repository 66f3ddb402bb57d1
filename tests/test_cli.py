"""``rope-any``: help, errors, input and output of all commands; ``rotate``, ``check`` and ``published``."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock

import numpy as np
import oracle
import pytest
from commands import ROPE_ANY, output, process, refused, run, terminal, write_configs, write_safetensors

import rope_any as ra
from rope_any import cli

pytestmark = pytest.mark.thread_unsafe(reason="changes the working directory and starts processes")

DOCS = Path(__file__).parents[1] / "docs"
F = ra.frequencies(16, base=500_000.0)
PUBLISHED = ra.config.published()
LLAMA3 = PUBLISHED["meta-llama/Llama-3.1-8B"]
PLAIN = LLAMA3 | {"rope_scaling": None}


@pytest.fixture
def files(tmp_path, rng):
    """Return a folder with queries and keys of 6 tokens."""
    for name, heads in (("q", 4), ("k", 2)):
        np.save(tmp_path / f"{name}.npy", rng.uniform(-2, 2, (1, heads, 6, 16)).astype(np.float32))
    return tmp_path


def load(folder, name):
    """Return an array saved in a folder."""
    return np.load(folder / f"{name}.npy")


# --- help and examples ----------------------------------------------------------------------------------------

EXAMPLES = [example for commands in cli.COMMANDS.values() for examples in commands.values() for example in examples]
NAMES = [command.__name__ for commands in cli.COMMANDS.values() for command in commands]


def test_help_lists_commands_in_groups_with_an_example_each():
    shown = output("--help")
    assert output() == output("-h") == shown
    firsts = {group: [examples[0] for examples in commands.values()] for group, commands in cli.COMMANDS.items()}
    places = [shown.index(text) for group, examples in firsts.items() for text in (f"\n{group}:\n", *examples)]
    assert places == sorted(places)
    assert len(NAMES) == len(set(NAMES)) == len(re.findall(r"^  [a-z]+  ", shown, re.MULTILINE))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_command_has_sentences_and_placeholders_in_upper_case(name):
    shown = output(name, "--help")
    usage, *lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(rf"Usage: rope-any {name} \[OPTIONS\]( \[?[A-Z]+(:[A-Z]+)?(\.\.\.)?\]?)*", usage)
    arguments = [line.split()[0] for line in lines if re.match(r"  [A-Z:]+(\.\.\.)?  ", line)]
    assert re.sub(r"[][]", "", usage.split("[OPTIONS]")[1]).split() == arguments
    # an option has one of a few words, a placeholder in upper case, or no value
    kinds = [found[1] for line in lines if (found := re.match(r"  (?:-\w, )?--\S+ (\S+)", line))]
    assert kinds or name in {"check", "published"}
    assert [kind for kind in kinds if not re.fullmatch(r"[A-Z/|]+|[a-z0-9]+(\|[a-z0-9]+)+", kind)] == []
    params = cli.typer.main.get_command(cli.app).commands[name].params
    assert [param.name for param in params if not re.fullmatch(r"[A-Zq].* .*[^.]\.", param.help)] == []


@pytest.fixture
def page_files(files):
    """Return a folder with the files that commands on pages and in the help read."""
    llama = {"model_type": "llama", "head_dim": 128, "max_position_embeddings": 4096}
    write_configs(files, config=llama)
    write_configs(files / "mine", config=PLAIN)
    (files / "mine.py").write_text("import rope_any as ra\nrotary = ra.Rope(ra.frequencies(128), pairing='half').apply")
    table = ra.Rope.from_config(llama).table(range(4096), like=np.zeros(1, dtype=np.float32))
    np.save(files / "cache.npy", ra.layouts.pack(table, "vllm"))
    weights = "F32", (128, 4), bytes(4 * 128 * 4)
    tensors = {f"model.layers.{i}.self_attn.{x}_proj.weight": weights for i in range(2) for x in "qkv"}
    for file in (files / "in.safetensors", write_configs(files / "in") / "model.safetensors"):
        write_safetensors(file, **tensors)
    return files


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs_and_ends_the_help_of_its_command(example, page_files):
    if " export " in example:
        pytest.importorskip("ndonnx", reason="ndonnx is not installed")
    _, command, *args = example.split()
    if command != "check":  # which measures all libraries, and is run below
        output(command, *args, cwd=page_files)
    (examples,) = (found for group in cli.COMMANDS.values() for found in group.values() if example in found)
    shown = "".join(f"  {each}\n" for each in examples)
    assert output(command, "--help").endswith(f"\nExamples:\n{shown}")


BLOCK = re.compile(r"```console\n\$ (.+)\n((?:.*\n)*?)```")  # a command and its output


@pytest.mark.parametrize("name", ["command-line", "something-is-wrong", "check-your-own"])
def test_pages_show_the_output_of_commands(name, page_files):
    """Each output is the shown one, with any text in place of dots and any float32 error in place of another."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("```console") >= 2
    for command, shown in blocks:
        program, *args = command.split()
        if program == "cat":
            (page_files / args[0]).write_text(shown, encoding="utf-8")
            continue
        assert program == "rope-any"
        if args[0] == "export":
            pytest.importorskip("ndonnx", reason="ndonnx is not installed")
        done = run(*args, cwd=page_files)
        found, expected = (re.sub(r"\d\.\de-\d\d", "#", text) for text in (done.stdout + done.stderr, shown))
        assert re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), found, re.DOTALL), found
    if name == "command-line":
        assert {command for command in NAMES if f"\n### {command}\n" in page} == {*NAMES} - {"published"}


# --- wrong command lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspet", "no such command 'inspet'; did you mean 'inspect'"),
        ("banana", "no such command 'banana'"),
        ("version", "no such command 'version'; did you mean '--version'"),
        ("inspect a --jsn", "no such option: --jsn; did you mean --json"),
        ("inspect a --theta 5", "no such option: --theta"),
        ("inspect --config a", "no such option: --config; give CONFIG without --config"),
        ("export a -o b", "no such option: -o; give OUT without -o"),
        ("convert a b --target half", "no such option: --target; did you mean --to"),
        ("rotate a --rope_theta 5", "no such option: --rope_theta; did you mean --base"),
        ("rotate", "missing argument FILE"),
        ("rotate q.npy -o out", "missing option --pairing; choose from: half, interleaved"),
        ("rotate q --pairing neox -o out", "--pairing must be one of 'half', 'interleaved'; got 'neox'; write half"),
        ("rotate q.npy --pairing half -o", "option -o requires an argument"),
        ("inspect a --sequence-length 8X", "--sequence-length must be a number of tokens, such as 131072, 128K or 1M"),
        ("check more", "got unexpected extra argument(s) (more)"),
        ("inspect a --json=1", "option --json does not take a value"),
    ],
)
def test_wrong_command_lines_get_a_hint_in_one_line(args, message):
    command, said = args.split()[0], refused(*args.split())
    program = f"rope-any {command}" if command in NAMES else "rope-any"
    assert said.startswith(message) and said.endswith(f"; see {program} --help")
    assert ("did you mean" in said or "without" in said) == ("did you mean" in message or "without" in message)


def test_options_without_a_command_come_alone():
    assert refused("--json", "check") == "--json must come after a command, or with --version"
    for args, other in (("--show-completion zsh", "zsh"), ("--version --show-completion zsh", "--version")):
        words = "--show-completion must be the only word, and applies to the current shell"
        assert refused(*args.split()) == f"{words}; got {other!r}"


def test_version_is_printed():
    assert output("--version") == f"{ra.__version__}\n"
    assert json.loads(output("--version", "--json")) == {"version": ra.__version__}


@pytest.mark.parametrize(
    ("args", "file"),
    [
        ("inspect pairing", "pairing"),
        ("inspect layers.json", "layers.json: layer_types"),
        ("rotate base --pairing half --positions seq_axis.npy -o out", "seq_axis.npy"),
    ],
)
def test_files_named_like_parameters_keep_their_names(args, file, tmp_path):
    (tmp_path / "pairing").write_text("{")
    with (tmp_path / "base").open("wb") as target:
        np.save(target, np.ones((2, 8), dtype=np.float32))
    write_configs(tmp_path, layers=LLAMA3 | {"layer_types": 3})
    said = refused(*args.split(), cwd=tmp_path)
    assert said.startswith(f"{file} must be ")


# --- published configs, and standard input --------------------------------------------------------------------


def test_published_lists_the_configs_that_contain_a_word():
    assert len(output("published").splitlines()) == 1 + len(PUBLISHED)
    assert output("published", "qwen/*8b").splitlines()[1:] == ["Qwen/Qwen3-8B  qwen3"]
    assert output("published", "qwen3-8*").splitlines()[1:] == ["Qwen/Qwen3-8B  qwen3"]
    assert json.loads(output("published", "Qwen3-8B", "--json")) == {"Qwen/Qwen3-8B": PUBLISHED["Qwen/Qwen3-8B"]}
    assert refused("published", "qwen3-8c").startswith("PATTERN must be in the name of a config; got 'qwen3-8c'")


@pytest.mark.parametrize(
    "args",
    ["inspect -", "diff - published:qwen3-8b", "export - out.onnx", "plot - decay -o out.png"],
)
def test_a_config_may_come_from_standard_input(args, tmp_path):
    if "export" in args:
        pytest.importorskip("spox", reason="spox is not installed")
    said = output(*args.split(), stdin=json.dumps(PLAIN), cwd=tmp_path)
    assert "stdin" not in said and ("standard input" in said) == args.startswith(("diff", "plot"))


def test_an_array_may_come_from_standard_input(files):
    expected = ra.Rope(ra.frequencies(16), pairing="half").apply(load(files, "q"))
    args = "rotate - --pairing half -o out"
    output(*args.split(), stdin=(files / "q.npy").read_bytes(), cwd=files)
    np.testing.assert_array_equal(load(files / "out", "stdin"), expected)


@pytest.mark.parametrize(
    ("args", "data", "message"),
    [
        ("diff - -", b"{}", "- must be one file: standard input is read once; got 2"),
        ("inspect -", b"", "standard input must be a config.json; it is empty"),
        (
            "diff - published:qwen3-8b",
            b"404: Not Found",
            "standard input must be a config.json; it is no JSON: Extra data",
        ),
        ("inspect -", b"[]", "standard input must hold a JSON object; got list []"),
        ("inspect -", b'{"model_type": "nope"}', "standard input: model_type must be one whose rotation is known"),
    ],
)
def test_wrong_standard_input_is_refused_by_what_it_must_be(args, data, message, tmp_path):
    assert refused(*args.split(), stdin=data, cwd=tmp_path).startswith(message)


# --- rotate ---------------------------------------------------------------------------------------------------


def test_rotate_writes_q_and_k_of_other_positions(files):
    before = {path: path.read_bytes() for path in files.iterdir()}
    args = "rotate q.npy k.npy --base 500000 --pairing half --positions 131072 -o out/ --json"
    said = json.loads(output(*args.split(), cwd=files))
    for name, heads, record in zip("qk", (4, 2), said, strict=True):
        assert record == {"file": f"out/{name}.npy", "shape": [1, heads, 6, 16], "dtype": "float32"}
        expected = oracle.rotate(load(files, name), range(131_072, 131_078), F, pairing="half")
        np.testing.assert_allclose(load(files / "out", name), expected, atol=1.5e-6, rtol=0)
        assert load(files / "out", name).dtype == np.float32
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in (files / "out").iterdir()) == ["k.npy", "q.npy"]
    assert run(*args.split(), cwd=files).returncode == 2  # the results exist
    output(*args.split(), "--overwrite", cwd=files)


@pytest.mark.parametrize("positions", ["p.npy", "-"])
def test_rotate_reads_positions_from_a_file_or_standard_input(positions, files):
    p = np.asarray([5, -3, 0, 70_000, 2**31 - 1, 8])
    np.save(files / "p.npy", p)
    args = f"rotate k.npy --pairing interleaved --positions {positions} --rotary-dim 8 -o out"
    output(*args.split(), cwd=files, stdin=(files / "p.npy").read_bytes())
    expected = oracle.rotate(load(files, "k"), p, ra.frequencies(8), pairing="interleaved")
    np.testing.assert_allclose(load(files / "out", "k"), expected, atol=1.5e-6, rtol=0)


def test_rotate_takes_the_tail_of_q_other_axes_and_the_way_back(files):
    np.save(files / "q.npy", load(files, "q")[:, :, -2:])
    np.save(files / "packed.npy", np.moveaxis(load(files, "k")[0], 0, 1))  # (tokens, heads, dim)
    args = ["--pairing", "half", "--positions", 9, "-o"]
    output("rotate", "q.npy", "k.npy", *args, "rotated", cwd=files)
    output("rotate", "q.npy", "k.npy", *args, "../back", "--inverse", cwd=files / "rotated")
    for name in "qk":
        assert np.abs(load(files / "rotated", name) - load(files, name)).max() > 0.5
        np.testing.assert_allclose(load(files / "back", name), load(files, name), atol=1.5e-6, rtol=0)
    output("rotate", "packed.npy", "--seq-axis", -3, *args, "rotated", cwd=files)
    assert (np.moveaxis(load(files / "rotated", "packed"), 1, 0) == load(files / "rotated", "k")[0]).all()
    output("rotate", "k.npy", *args, "keys", cwd=files)
    assert (load(files / "keys", "k") == load(files / "rotated", "k")).all()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (". -o out", ". must be a .npy file of one array of numbers; Is a directory"),
        ("q.npy -o .", "q.npy must not exist"),
        ("q.npy q.npy", "overwrite each other"),
        ("q.npy k.npy q.npy", "FILE must be one array, or q and k; got 3 files"),
        ("q.npy --positions here", "--positions must be an integer or a .npy file; got 'here'"),
        ("q.npy -o text.npy", "--output must be a folder; got text.npy, the name of a file"),
        ("odd.npy", "odd.npy must have an even number of features, or --rotary-dim be given; got shape (3, 63)"),
        ("text.npy", "text.npy must be a .npy file of one array of numbers; np.save(name"),
        ("strings.npy", "got an array of str"),
        ("many.npz", "got an archive; np.save(name, array) writes one"),
    ],
)
def test_rotate_refuses_wrong_files_and_writes_none(args, message, files):
    np.save(files / "odd.npy", np.ones((3, 63), dtype=np.float32))
    np.save(files / "strings.npy", np.asarray(["half"]))
    np.savez(files / "many.npz", q=np.ones(3))
    contents = {"text.npy": b"not an array"}
    for name, data in contents.items():
        (files / name).write_bytes(data)
    before = sorted(files.rglob("*"))
    assert message in refused("rotate", "--pairing", "half", "-o", "out", *args.split(), cwd=files)
    assert sorted(files.rglob("*")) == before


# --- check ----------------------------------------------------------------------------------------------------

OTHERS = {"torch": "PyTorch", "jax": "JAX", "dask": "Dask", "mlx": "MLX", "array_api_strict": "array-api-strict"}
CHECK = """
import sys
sys.modules.update(dict.fromkeys({hidden}))  # so they can't be imported
import rope_any as ra
{change}
from rope_any import cli
cli.app(["check", *{options}])
"""


def check(folder, *options, change=""):
    """Run ``rope-any check`` after a change, with NumPy alone and a CuPy that prints and fails, in another process."""
    (folder / "cupy.py").write_text("print('no GPU here')\nraise ImportError")
    code = CHECK.format(hidden=[*OTHERS], change=change, options=options)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)


def test_check_measures_what_is_installed_and_names_the_rest(tmp_path):
    done = check(tmp_path)
    assert (done.returncode, done.stderr) == (0, "no GPU here\n")  # what libraries print is not in the report
    assert int(re.search(r"over (\d+) table\s+entries", done.stdout)[1]) >= 10_000
    _, heads, row, bounds, *missing = done.stdout.splitlines()
    assert " ".join(heads.split()) == "library version device dtype table err q, k err time x copy"
    assert row.split()[:4] == ["NumPy", np.__version__, "cpu", "float32"]
    table_error, rotation_error, milliseconds, _, copies = row.split()[4:]
    assert 1e-9 < float(table_error) <= 1.2e-7 and 1e-9 < float(rotation_error) <= 4e-7
    assert float(milliseconds) > 1 and float(copies) > 0.1
    assert bounds == "bounds: table err 1.2e-07; q, k err 4.0e-07 (float32), 4.2e-03 (bfloat16)"
    assert [line.partition(":")[0] for line in missing] == ["CuPy", *OTHERS.values()]
    assert missing[:2] == [
        'CuPy: not found (extra cupy-cuda12x or cupy-cuda13x: pip install "rope-any[cupy-cuda12x]")',
        'PyTorch: not found (extra torch: pip install "rope-any[torch]")',
    ]


def test_check_fails_if_a_table_has_nan(tmp_path):
    broken = "ra.Rope.table = lambda *args, **how: ra.Table(*(float('nan') * x for x in table(*args, **how)))"
    done = check(tmp_path, "--json", change=f"table = ra.Rope.table\n{broken}")
    report = json.loads(done.stdout)
    (row,) = report["measured"]
    assert (done.returncode, row["passed"], report["passed"], row["table_error"]) == (1, False, False, None)
    assert done.stderr.startswith("no GPU here\nrope-any: a bound is broken")
    assert 1e-9 < row["rotation_error"] < report["bounds"]["rotation_error"]["float32"] == 4e-7
    assert report["job"]["q"] == [1, 32, 4096, 128]
    assert report["not_measured"] == dict.fromkeys(["CuPy", *OTHERS.values()], "not found")


@pytest.mark.long
def test_check_measures_each_library_within_its_bounds():
    report = json.loads(output("check", "--json"))
    named = {row["library"] for row in report["measured"]} | {*report["not_measured"]}
    assert named == {"NumPy", "CuPy", *OTHERS.values()}
    for row in report["measured"]:
        assert 1e-9 < row["table_error"] <= 1.2e-7, row
        assert 1e-9 < row["rotation_error"] <= {"float32": 4e-7, "bfloat16": 4.2e-3}[row["dtype"]], row


# --- processes, pipes, terminals and shells -------------------------------------------------------------------


def test_the_module_is_the_command_also_on_a_terminal(tmp_path):
    write_configs(tmp_path, a=LLAMA3, b=PLAIN)
    args = "diff", "a.json", "b.json"
    done = process(*args, cwd=tmp_path, env=os.environ | {"FORCE_COLOR": "1"})  # which does not colour a pipe
    assert (done.returncode, done.stderr, done.stdout) == (0, "", output(*args, cwd=tmp_path))
    pty = pytest.importorskip("pty", reason="there are no pseudo-terminals here")
    parent, child = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"}
    subprocess.run([*ROPE_ANY, *args], stdin=child, stdout=child, stderr=child, env=variables, cwd=tmp_path, check=True)
    assert os.read(parent, 65536).decode().replace("\r\n", "\n") == terminal(*args, cwd=tmp_path)
    os.close(child)
    os.close(parent)
    assert process("inspet").stderr.endswith("; see rope-any --help\n")


def test_help_imports_only_what_it_needs():
    code = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, sep=' '))"
    code += "; from rope_any import cli; cli.app(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "rope_any.cli" in loaded
    assert loaded & {"mpmath", "numpy", "onnx", "rich", "torch", "jax"} == set()


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    code = "import sys; sys.modules['typer'] = None; import rope_any.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'rope-any: typer is missing; install the command line by: pip install "rope-any[cli]"\n'
    missing = ModuleType("rich.console")
    missing.__getattr__ = Mock(side_effect=ModuleNotFoundError("No module named 'rich'", name="rich"))
    monkeypatch.setitem(sys.modules, "rich.console", missing)
    wanted = 'the command line needs rich, which is missing; install it by: pip install "rope-any[cli]"'
    assert refused("inspect", "-", stdin=json.dumps(PLAIN)) == wanted


@pytest.mark.parametrize(
    ("args", "library", "progress"),
    [
        ("rotate k.npy --pairing half --overwrite -o out", "numpy", "rotating k.npy"),
        ("plot plain.json decay -o decay.png --overwrite", "matplotlib", "drawing decay"),
        ("export plain.json rope.onnx --overwrite", "onnx", "exporting plain.json"),
        ("verify slow.py:slow --pairing half --longest 9999", "numpy", "verifying slow.py:slow"),
    ],
)
def test_progress_is_shown_only_on_terminals(args, library, progress, files):
    pytest.importorskip(library, reason=f"{library} is not installed")
    write_configs(files, plain=PLAIN)
    (files / "slow.py").write_text("import rope_any as ra\nslow = ra.Rope(ra.frequencies(128), pairing='half').apply")
    on_terminal = terminal(*args.split(), cwd=files)
    shown = output(*args.split(), cwd=files)
    assert progress in on_terminal and progress not in shown
    assert shown.splitlines()[-1] in on_terminal


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
def test_a_pipe_that_closes_early_is_no_error(options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*ROPE_ANY, "inspect", "published:qwen3-8b", *options], **pipes) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 1


def test_ctrl_c_ends_quietly(tmp_path):
    (tmp_path / "slow.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(60)")
    handle = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # even if the parent process ignores it
    start = f"import signal; {handle}; from rope_any.cli import main; main()"
    args = [sys.executable, "-c", start, "verify", "slow:f", "--pairing", "half"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as done:
        assert done.stderr.readline() == "imported\n"
        done.send_signal(signal.SIGINT)
        assert (done.stdout.read(), done.stderr.read()) == ("", "")
    assert done.returncode == 130


BASH = """
set -e
eval "$(rope-any --show-completion)"
try() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _rope_any_completion "$1" "${@: -1}" "${@: -2:1}"
    echo "${COMPREPLY[*]}"
}
try rope-any in
try rope-any rotate k.npy --pairing ""
try rope-any verify --case ll
try rope-any inspect ./
_ROPE_ANY_COMPLETE=source_zsh rope-any | grep "^compdef"
"""


@pytest.mark.long
def test_completion_works_in_bash(tmp_path):
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    (tmp_path / "rope-any").write_text(f'#!/bin/sh\nexec {" ".join(ROPE_ANY)} "$@"\n')
    (tmp_path / "rope-any").chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", BASH], capture_output=True, text=True, check=False, env=os.environ | path)
    assert done.stderr == ""
    completed = ["inspect", "half interleaved", "llama3", ""]  # so bash completes file names
    assert done.stdout.splitlines() == [*completed, "compdef _rope_any_completion rope-any"]
