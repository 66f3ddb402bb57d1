"""The command line: rotate, help, errors, pipes, terminals, shells and the pages; test_cli_*.py have other commands."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from commands import LLAMA3, ROPE_ANY, process, refused, run, terminal, write_config, write_safetensors

import rope_any as ra
from rope_any import cli

pytestmark = pytest.mark.thread_unsafe(reason="starts processes, and changes the working directory")

F = ra.frequencies(16, base=500_000.0)
PLAIN = LLAMA3 | {"rope_scaling": None}
DOCS = Path(__file__).parents[1] / "docs"
CONVERT = "--head-dim 8 --from half --to interleaved"


@pytest.fixture
def files(tmp_path, rng):
    """Return a folder with queries and keys of 6 tokens."""
    for name, heads in (("q", 4), ("k", 2)):
        np.save(tmp_path / f"{name}.npy", rng.uniform(-2, 2, (1, heads, 6, 16)).astype(np.float32))
    return tmp_path


@pytest.fixture
def configs(tmp_path):
    """Return a folder with a scaled and a plain config."""
    write_config(tmp_path, LLAMA3, "scaled.json")
    write_config(tmp_path, PLAIN, "plain.json")
    return tmp_path


def load(folder, name):
    """Return an array saved in a folder."""
    return np.load(folder / f"{name}.npy")


# --- rotate -----------------------------------------------------------------------------------------------------------


def test_rotate_accepts_an_offset(files):
    before = {path: path.read_bytes() for path in files.iterdir()}
    args = "rotate q.npy k.npy --base 500000 --pairing half --positions 131072 -o out/ --json"
    done = run(*args.split(), cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    for name in "qk":
        expected = oracle.rotate(load(files, name), range(131_072, 131_078), F, pairing="half")
        np.testing.assert_allclose(load(files / "out", name), expected, atol=1.5e-6, rtol=0)
        assert load(files / "out", name).dtype == np.float32
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in (files / "out").iterdir()) == ["k.npy", "q.npy"]
    expected = [{"file": f"out/{x}.npy", "shape": [1, n, 6, 16], "dtype": "float32"} for x, n in (("q", 4), ("k", 2))]
    assert json.loads(done.stdout) == expected


def test_rotate_reads_positions_from_a_file(files):
    p = np.asarray([5, -3, 0, 70_000, 2**31 - 1, 8])
    np.save(files / "p.npy", p)
    args = "rotate k.npy --pairing interleaved --positions p.npy --rotary-dim 8 -o out"
    done = run(*args.split(), cwd=files)
    assert done.returncode == 0, done.stderr
    expected = oracle.rotate(load(files, "k"), p, ra.frequencies(8), pairing="interleaved")
    np.testing.assert_allclose(load(files / "out", "k"), expected, atol=1.5e-6, rtol=0)


def test_rotate_accepts_inverse_and_a_query_tail(files):
    np.save(files / "q.npy", load(files, "q")[:, :, -2:])
    args = ["q.npy", "k.npy", "--pairing", "half", "--positions", 9]
    assert run("rotate", *args, "-o", "rotated", cwd=files).returncode == 0
    assert run("rotate", *args, "-o", "../back", "--inverse", cwd=files / "rotated").returncode == 0
    for name in "qk":
        assert np.abs(load(files / "rotated", name) - load(files, name)).max() > 0.5
        np.testing.assert_allclose(load(files / "back", name), load(files, name), atol=1.5e-6, rtol=0)
    np.save(files / "packed.npy", np.moveaxis(load(files, "k")[0], 0, 1))  # (tokens, heads, dim)
    args = ["packed.npy", "--pairing", "half", "--positions", 9, "--seq-axis", -3, "-o", "rotated"]
    assert run("rotate", *args, cwd=files).returncode == 0
    assert (np.moveaxis(load(files / "rotated", "packed"), 1, 0) == load(files / "rotated", "k")[0]).all()


def test_files_are_overwritten_only_on_request(files):
    args = ["rotate", "k.npy", "--pairing", "half", "--positions", 3, "-o", "out"]
    assert run(*args, cwd=files).returncode == 0
    assert "must not exist" in refused(*args, cwd=files)
    assert run(*args, "--overwrite", cwd=files).returncode == 0


# --- files and standard input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ("rotate none.npy -o out", "none.npy must be a .npy file of one array of numbers; there is no"),
        ("rotate q.npy -o .", "q.npy must not exist"),
        ("rotate q.npy q.npy -o out", "overwrite each other"),
        ("rotate q.npy k.npy q.npy -o out", "FILE must be one array, or q and k; got 3 files"),
        ("rotate q.npy --positions here -o out", "--positions must be an integer or a .npy file; got 'here'"),
        ("rotate q.npy --positions k.npy -o out", "--positions must be (seq,)"),
        ("rotate q.npy --base 0 -o out", "--base must be positive"),
        ("rotate q.npy --rotary-dim 18 -o out", "FILE must have"),
        ("rotate integers.npy -o out", "integers.npy must be floating-point"),
        ("rotate text.npy -o out", "text.npy must be a .npy file"),
        ("rotate many.npz -o out", "got an archive; np.save(name, array) writes one"),
        ("rotate half.pt -o out", "got a broken archive; np.save(name, array) writes one"),
        ("rotate cut.npy -o out", "got one that is cut off; np.save(name, array) writes one"),
        ("rotate cut_header.npy -o out", "got one that is cut off; np.save(name, array) writes one"),
        ("rotate empty.npy -o out", "got an empty file; np.save(name, array) writes one"),
        ("rotate pickle.npy -o out", "pickle.npy must be a .npy file"),
        ("rotate strings.npy -o out", "one array of numbers; got an array of str"),
        ("rotate odd.npy -o out", "features, or --rotary-dim be given; got shape (3, 63)"),
        ("rotate scalar.npy --rotary-dim 8 -o out", "got -2 for shape ()"),
        ("rotate q.npy -o text.npy", "--output must be a folder; got text.npy, the name of a file"),
        (f"convert cut.safetensors out {CONVERT}", "cut.safetensors must be a whole safetensors file; it is cut off"),
        (f"convert none out {CONVERT}", "none must be a .safetensors file, the index of several or a folder; there is"),
        ("convert a b --head-dim 8 --from half --to half", "--to must be the other pairing, not that of the weights"),
        ("export plain.json out.txt", "OUT must end in .onnx; got 'out.txt'"),
    ],
)
def test_errors_are_one_line_and_write_no_file(files, args, words):
    np.save(files / "integers.npy", np.ones((3, 16), dtype=int))
    np.save(files / "pickle.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    np.save(files / "strings.npy", np.asarray(["half"]))
    np.save(files / "scalar.npy", np.float32(1))
    np.save(files / "odd.npy", np.ones((3, 63), dtype=np.float32))
    np.savez(files / "many.npz", q=np.ones(3))
    (files / "text.npy").write_text("not an array")
    (files / "half.pt").write_bytes(b"PK\x03\x04")
    whole = (files / "q.npy").read_bytes()
    for name, length in (("cut", 200), ("cut_header", 20), ("empty", 0)):
        (files / f"{name}.npy").write_bytes(whole[:length])
    (files / "cut.safetensors").write_bytes((100).to_bytes(8, "little") + b'{"w": ')
    write_config(files, PLAIN, "plain.json")
    before = sorted(files.rglob("*"))
    args = args.split() + (["--pairing", "half"] if args.startswith("rotate") else [])
    assert words in refused(*args, cwd=files)
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspect layers.json", "layers.json: layer_types must be"),
        ("rotate must --base -1 --pairing half -o out", "--base must be positive and finite; got -1.0"),
        ("rotate shards --pairing half -o out", "shards must be a .npy file of one array of numbers; Is a directory"),
        ("convert 0 1 --head-dim 4 --from half --to interleaved", "0 must be a whole safetensors file"),
        ("convert shards out --head-dim 4 --from half --to interleaved", "shards/start must be a whole"),
        ("inspect ./pairing", "pairing must be"),
        ("convert lr=1,head_dim=64/m out --head-dim 4 --from half --to interleaved", "lr=1,head_dim=64/m must be"),
        ("inspect two  spaces", "two  spaces must be"),
    ],
)
def test_files_named_like_parameters_keep_their_names(args, message, tmp_path):
    for name in ("pairing", "0", "two  spaces", "lr=1,head_dim=64/m", "shards/start"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{")
    with (tmp_path / "must").open("wb") as file:
        np.save(file, np.ones((2, 8), dtype=np.float32))
    (tmp_path / "shards" / "model.safetensors.index.json").write_text('{"weight_map": {"w": "start"}}')
    gemma = {"model_type": "gemma3_text", "head_dim": 64, "num_hidden_layers": 6, "layer_types": 3}
    write_config(tmp_path, gemma, "layers.json")
    assert refused(*re.split(r"(?<! ) (?! )", args), cwd=tmp_path).startswith(message)


SMALL = json.dumps({"model_type": "llama", "head_dim": 8, "max_position_embeddings": 64})


@pytest.mark.parametrize(
    "args",
    ["inspect -", "diff - config.json", "advise - --length 128", "export - out.onnx", "plot - decay -o out.png"],
)
def test_a_config_may_come_from_standard_input(args, tmp_path):
    if "export" in args:
        pytest.importorskip("spox", reason="spox is not installed")
    (tmp_path / "config.json").write_text(SMALL)
    done = run(*args.split(), stdin=SMALL, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_array_may_come_from_standard_input(files):
    np.save(files / "p.npy", np.arange(6))
    args = ["--pairing", "half", "-o", "out"]
    assert run("rotate", "-", *args, stdin=(files / "k.npy").read_bytes(), cwd=files).returncode == 0
    args = ["--positions", "-", *args]
    assert run("rotate", "k.npy", *args, stdin=(files / "p.npy").read_bytes(), cwd=files).returncode == 0
    expected = ra.Rope(ra.frequencies(16), pairing="half").apply(load(files, "k"))
    np.testing.assert_array_equal(load(files / "out", "stdin"), expected)
    np.testing.assert_allclose(load(files / "out", "k"), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "data", "message"),
    [
        ("inspect -", b"", "standard input must be a config.json; it is empty\n"),
        ("inspect -", b"404: Not Found", "standard input must be a config.json; it is no JSON: Extra data"),
        ("advise - --length 8K", b"404: Not Found", "standard input must be a config.json; it is no JSON: Extra data"),
        ("inspect -", b"[]", "standard input must hold a JSON object; got list []\n"),
        ("inspect -", b"\x93NUMPY", "standard input must be a config.json; give the config.json beside the weights\n"),
        ("inspect -", b'{"model_type": "nope"}', "standard input: model_type must be one whose rotation is known"),
        ("diff - -", b"{}", "- must be one file: standard input is read once; got 2"),
        ("rotate - --pairing half -o out", b"404", "standard input must be a .npy file of one array of numbers; np."),
        (f"convert - out {CONVERT}", b"404", "standard input must be a whole safetensors file; it has no header\n"),
    ],
)
def test_wrong_standard_input_is_refused_by_what_it_must_be(args, data, message, tmp_path):
    assert refused(*args.split(), stdin=data, cwd=tmp_path).startswith(message)


# --- help, wrong commands and options ---------------------------------------------------------------------------------

EXAMPLES = [example for commands in cli.COMMANDS.values() for examples in commands.values() for example in examples]
NAMES = [command.__name__ for commands in cli.COMMANDS.values() for command in commands]


def test_help_lists_commands_in_groups_with_an_example_each():
    shown = run("--help").stdout
    assert run().stdout == run("-h").stdout == shown
    firsts = {group: [examples[0] for examples in commands.values()] for group, commands in cli.COMMANDS.items()}
    texts = [text for group, examples in firsts.items() for text in (f"\n{group}:\n", *examples)]
    places = [shown.index(text) for text in texts]
    assert places == sorted(places)
    assert len(NAMES) == len(set(NAMES)) == len(re.findall(r"^  [a-z]+  ", shown, re.MULTILINE))
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_help_of_a_command_has_placeholders_in_upper_case_and_sentences(name):
    shown = run(name, "--help").stdout
    usage, *lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(rf"Usage: rope-any {name} \[OPTIONS\]( \[?[A-Z]+(:[A-Z]+)?(\.\.\.)?\]?)*", usage)
    arguments = [line.split()[0] for line in lines if re.match(r"  [A-Z:]+(\.\.\.)?  ", line)]
    assert re.sub(r"[][]", "", usage.split("[OPTIONS]")[1]).split() == arguments
    # an option has one of a few words, a placeholder in upper case, or no value
    kinds = [found[1] for line in lines if (found := re.match(r"  (?:-\w, )?--\S+ (\S+)", line))]
    assert kinds or name in {"check", "published"}
    assert [kind for kind in kinds if not re.fullmatch(r"[A-Z/|]+|[a-z0-9]+(\|[a-z0-9]+)+", kind)] == []
    assert not re.search(r"[<>{}]|by default|default: \(", shown)
    for param in cli.typer.main.get_command(cli.app).commands[name].params:
        assert re.fullmatch(r"[A-Zq]\S* .*[^.]\.", param.help), param.name


@pytest.mark.long
@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs_and_ends_the_help_of_its_command(example, files, monkeypatch):
    if " export " in example:
        pytest.importorskip("ndonnx", reason="ndonnx is not installed")
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_config(files, PLAIN | {"head_dim": 16})
    table = ra.cos_sin(range(131_072), F, like=np.zeros(1, dtype=np.float32))
    np.save(files / "cache.npy", ra.layouts.pack(table, "vllm"))
    (files / "mine.py").write_text("import rope_any as ra\nrotary = ra.Rope(ra.frequencies(128), pairing='half').apply")
    (files / "in").mkdir()
    weight = np.zeros((128, 1), np.float16)
    write_safetensors(files / "in" / "model.safetensors", **{"layers.0.self_attn.q_proj.weight": ("F16", weight)})
    args = example.split()
    done = run(*args[1:], cwd=files)
    sys.modules.pop("mine", None)
    assert (done.returncode, done.stderr) == (0, ""), done
    (examples,) = (found for group in cli.COMMANDS.values() for found in group.values() if example in found)
    shown = "".join(f"  {each}\n" for each in examples)
    assert run(args[1], "--help").stdout.endswith(f"\nExamples:\n{shown}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("inspet", "no such command 'inspet'; did you mean 'inspect'; see rope-any --help"),
        ("banana", "no such command 'banana'; see rope-any --help"),
        ("version", "no such command 'version'; did you mean '--version'; see rope-any --help"),
        ("inspect a --jsn", "no such option: --jsn; did you mean --json; see rope-any inspect --help"),
        ("inspect a --pair half", "no such option: --pair; did you mean --pairing; see rope-any inspect --help"),
        ("inspect --config a", "no such option: --config; give CONFIG without --config; see rope-any inspect --help"),
        ("export a -o b", "no such option: -o; give OUT without -o; see rope-any export --help"),
        ("convert a b --source half", "no such option: --source; did you mean --from; see rope-any convert --help"),
        ("convert a b --target half", "no such option: --target; did you mean --to; see rope-any convert --help"),
        ("rotate a --rope_theta 5", "no such option: --rope_theta; did you mean --base; see rope-any rotate --help"),
        ("rotate a --offset 5", "no such option: --offset; did you mean --positions; see rope-any rotate --help"),
        ("inspect a --theta 5", "no such option: --theta; see rope-any inspect --help"),
        ("--nonsense", "no such option: --nonsense; see rope-any --help"),
        ("--json check", "--json must come after a command, or with --version"),
        ("rotate", "missing argument FILE; see rope-any rotate --help"),
        ("rotate q.npy -o out", "missing option --pairing; choose from: half, interleaved; see rope-any rotate --help"),
        ("rotate q.npy --pairing half -o", "option -o requires an argument; see rope-any rotate --help"),
        ("rotate q --pairing neox -o o", "--pairing must be one of 'half', 'interleaved'; got 'neox'; write half; see"),
        ("rotate a --pairing half -o b --base x", "--base must be a valid number; got 'x'; see rope-any rotate --help"),
        ("--show-completion zsh", "--show-completion must be the only word, and applies to the current shell; got 'zs"),
        ("check more --json", "got unexpected extra argument(s) (more); see rope-any check --help"),
        ("inspect a --json=1", "option --json does not take a value; see rope-any inspect --help"),
        ("inspect a --sequence-length 8X", "--sequence-length must be a number of tokens, such as 131072, 128K or 1M;"),
    ],
)
def test_wrong_command_lines_get_one_line(args, message):
    assert refused(*args.split()).startswith(message)


@pytest.mark.parametrize("args", ["advise plain.json --length", "plot plain.json decay -o a.svg --overwrite --length"])
def test_lengths_may_be_given_in_thousands(args, configs):
    write_config(configs, LLAMA3 | {"max_position_embeddings": 4096, "rope_scaling": None}, "plain.json")
    short, whole, other = (run(*args.split(), length, "--json", cwd=configs) for length in ("8K", 8192, 9000))
    assert (short.returncode, short.stdout) == (0, whole.stdout)
    assert "plot" in args or short.stdout != other.stdout


def test_version_is_printed():
    assert run("--version").stdout == f"{ra.__version__}\n"
    assert json.loads(run("--version", "--json").stdout) == {"version": ra.__version__}


MISSING = """
import sys

class Finder:
    def find_spec(name, *_):
        if name == "{0}":
            raise ModuleNotFoundError(name="{0}")

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("missing", "command", "message"),
    [
        ("typer", "--help", "typer is missing; install the command line by: pip install"),
        ("rich", "published", "the command line needs rich, which is missing; install it by: pip install"),
    ],
)
def test_a_missing_extra_is_reported_with_its_install_command(missing, command, message):
    code = MISSING.format(missing) + "from rope_any.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'rope-any: {message} "rope-any[cli]"\n'


# --- in processes, pipes, terminals and shells ------------------------------------------------------------------------


def test_the_module_is_the_command(configs):
    done = process("inspect", "scaled.json", "--json", cwd=configs)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("inspect", "scaled.json", "--json", cwd=configs).stdout
    assert process("inspet").stderr.endswith("; see rope-any --help\n")


def test_help_imports_only_what_it_needs():
    code = "import sys; from rope_any import cli; cli.app(['--help'], standalone_mode=True)"
    code = f"import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, sep=' ')); {code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "rope_any.cli" in loaded
    assert loaded & {"mpmath", "numpy", "onnx", "rich", "torch", "jax"} == set()


def test_a_terminal_gets_colours_and_wrapped_lines(configs):
    shown = terminal("inspect", "scaled.json", cwd=configs)
    assert "\x1b[1mall layers: Rope(" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b" not in plain
    piped = run("inspect", "scaled.json", cwd=configs).stdout
    assert "\x1b" not in piped
    assert max(map(len, piped.splitlines())) > 80
    assert plain.split() != piped.split()  # one long source is wrapped
    wide = terminal("inspect", "scaled.json", columns=1000, cwd=configs)
    assert [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", wide).splitlines()] == piped.splitlines()


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_follow_the_environment(variable, value, configs):
    args = ["diff", "scaled.json", "plain.json"]
    shown = terminal(*args, cwd=configs, env=os.environ | {variable: value})
    assert "rope_type" in shown and "\x1b" not in shown
    piped = process(*args, cwd=configs, env=os.environ | {"FORCE_COLOR": "1"})
    assert piped.stdout == run(*args, cwd=configs).stdout


@pytest.mark.parametrize(
    ("args", "library", "progress"),
    [
        ("rotate k.npy --pairing half --overwrite -o out", "numpy", "rotating k.npy"),
        pytest.param(
            "plot plain.json decay -o a.png --overwrite", "matplotlib", "drawing decay", marks=pytest.mark.long
        ),
        pytest.param("export plain.json a.onnx --overwrite", "onnx", "exporting plain.json", marks=pytest.mark.long),
        pytest.param("verify mine:slow --pairing half", "numpy", "verifying mine:slow", marks=pytest.mark.long),
    ],
)
def test_progress_is_shown_on_terminals_alone(args, library, progress, files):
    pytest.importorskip(library, reason=f"{library} is not installed")
    write_config(files, PLAIN, "plain.json")
    (files / "mine.py").write_text("import rope_any as ra\nslow = ra.Rope(ra.frequencies(128), pairing='half').apply")
    on_terminal = terminal(*args.split(), cwd=files)
    assert progress in on_terminal
    done = process(*args.split(), cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] in on_terminal and progress not in done.stdout


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_pipe_that_closes_early_is_no_error(options, configs):
    command = [*ROPE_ANY, "inspect", "scaled.json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=configs) as done:
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
try rope-any verify --library j
try rope-any export c.json o.onnx --dtype fl
try rope-any inspect ./
complete -p rope-any
_ROPE_ANY_COMPLETE=source_zsh rope-any | grep compdef
"""


@pytest.mark.long
def test_completion_works_in_bash(tmp_path):
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    (tmp_path / "rope-any").write_text(f'#!/bin/sh\nexec {" ".join(ROPE_ANY)} "$@"\n')
    (tmp_path / "rope-any").chmod(0o755)
    (tmp_path / "try.bash").write_text(BASH)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, tmp_path / "try.bash"], capture_output=True, text=True, check=False, env=os.environ | path
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "inspect",
        "half interleaved",
        "llama3",
        "jax",
        "float32 float16",
        "",  # so bash completes file names
        "complete -o default -F _rope_any_completion rope-any",
        "#compdef rope-any",
        "compdef _rope_any_completion rope-any",
    ]


# --- the pages --------------------------------------------------------------------------------------------------------

BLOCK = re.compile(r"```console\n\$ (.+)\n((?:.*\n)*?)```")  # a command and its output


@pytest.fixture
def page_files(files, monkeypatch):
    """Return a folder with the files that commands on pages read."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (files / "mine").mkdir()
    write_config(files / "mine", ra.config.published()["meta-llama/Llama-3.1-8B"] | {"rope_scaling": None})
    table = ra.cos_sin(range(4096), ra.frequencies(128), like=np.zeros(1, dtype=np.float32))
    np.save(files / "cache.npy", ra.layouts.pack(table, "vllm"))
    weights = np.zeros((16, 4), dtype=np.float32)
    names = [f"model.layers.{i}.self_attn.{x}_proj.weight" for i in range(2) for x in "qkv"]
    write_safetensors(files / "in.safetensors", **dict.fromkeys(names, ("F32", weights)))
    yield files
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("name", ["command-line", "something-is-wrong"])
def test_pages_show_the_output_of_commands(name, page_files):
    """Each output is the shown one, with any text in place of dots and any float32 error in place of another."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("```console") >= 4
    for command, shown in blocks:
        program, *args = command.split()
        if program == "cat":
            (page_files / args[0]).write_text(shown, encoding="utf-8")
            continue
        assert program == "rope-any"
        if args[0] == "export":
            pytest.importorskip("ndonnx", reason="ndonnx is not installed")
        done = run(*args, cwd=page_files)
        output, expected = (re.sub(r"\d\.\de-\d\d", "#", text) for text in (done.stdout + done.stderr, shown))
        assert re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), output, re.DOTALL), output
    if name == "command-line":
        assert {command for command in NAMES if f"\n### {command}\n" in page} == {*NAMES} - {"published"}
