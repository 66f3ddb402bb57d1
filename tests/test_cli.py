"""The command line, run as a user would: in a process of its own."""

import re
import subprocess
import sys

import numpy as np
import oracle
import pytest

import rope_any as ra
from rope_any import cli

F = ra.frequencies(16, base=500_000.0)


def run(*words, cwd=None):
    """Return the finished process of ``rope-any words``."""
    code = "from rope_any.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, cwd=cwd, check=False
    )


@pytest.fixture
def files(tmp_path, rng):
    """Return a folder with queries and keys of 6 tokens, and nothing else there."""
    for name, heads in (("q", 4), ("k", 2)):
        np.save(tmp_path / f"{name}.npy", rng.uniform(-2, 2, (1, heads, 6, 16)).astype(np.float32))
    return tmp_path


def loaded(folder, name):
    return np.load(folder / f"{name}.npy")


def test_rotate_with_an_offset(files):
    before = {path: path.read_bytes() for path in files.iterdir()}
    done = run(
        *[
            "rotate",
            "q.npy",
            "k.npy",
            "--base",
            "500000",
            "--pairing",
            "half",
            "--positions",
            "131072",
            "-o",
            "out/",
        ],
        cwd=files,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in "qk":
        want = oracle.rotate(loaded(files, name), range(131_072, 131_078), F, pairing="half")
        np.testing.assert_allclose(loaded(files / "out", name), want, atol=1.5e-6, rtol=0)
        assert loaded(files / "out", name).dtype == np.float32
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before
    assert sorted(path.name for path in (files / "out").iterdir()) == ["k.npy", "q.npy"]


def test_rotate_with_positions_from_a_file(files):
    p = np.asarray([5, -3, 0, 70_000, 2**31 - 1, 8])
    np.save(files / "p.npy", p)
    done = run(
        "rotate",
        "k.npy",
        "--pairing",
        "interleaved",
        "--positions",
        "p.npy",
        "--rotary-dim",
        8,
        "-o",
        "out",
        cwd=files,
    )
    assert done.returncode == 0, done.stderr
    want = oracle.rotate(loaded(files, "k"), p, ra.frequencies(8), pairing="interleaved")
    np.testing.assert_allclose(loaded(files / "out", "k"), want, atol=1.5e-6, rtol=0)


def test_inverse_and_a_short_q(files):
    np.save(files / "q.npy", loaded(files, "q")[:, :, -2:])
    words = ["q.npy", "k.npy", "--pairing", "half", "--positions", 9]
    assert run("rotate", *words, "-o", "there", cwd=files).returncode == 0
    assert run("rotate", *words, "-o", "../back", "--inverse", cwd=files / "there").returncode == 0
    for name in "qk":
        assert np.abs(loaded(files / "there", name) - loaded(files, name)).max() > 0.5
        np.testing.assert_allclose(loaded(files / "back", name), loaded(files, name), atol=1.5e-6, rtol=0)
    np.save(files / "packed.npy", np.moveaxis(loaded(files, "k")[0], 0, 1))  # (tokens, heads, dim)
    words = ["packed.npy", "--pairing", "half", "--positions", 9, "--seq-axis", -3, "-o", "there"]
    assert run("rotate", *words, cwd=files).returncode == 0
    assert (np.moveaxis(loaded(files / "there", "packed"), 1, 0) == loaded(files / "there", "k")[0]).all()
    alone = run("rotate", "k.npy", "--pairing", "half", "--positions", 9, "-o", "alone", cwd=files)
    assert alone.returncode == 0
    assert (loaded(files / "alone", "k") == loaded(files / "there", "k")).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rotate q.npy --pairing neox -o out", 'pairing must be "half" or "interleaved"; got \'neox\''),
        ("rotate none.npy --pairing half -o out", "No such file"),
        ("rotate q.npy --pairing half -o .", "q.npy exists"),
        ("rotate q.npy q.npy --pairing half -o out", "overwrite each other"),
        ("rotate q.npy k.npy q.npy --pairing half -o out", "give one array, or q and k"),
        (
            "rotate q.npy --pairing half --positions here -o out",
            "positions must be an integer or a .npy file",
        ),
        ("rotate q.npy --pairing half --positions k.npy -o out", "positions must be (seq,)"),
        ("rotate q.npy --pairing half --base 0 -o out", "base must be positive"),
        ("rotate q.npy --pairing half --rotary-dim 18 -o out", "x must hold"),
        ("rotate words.npy --pairing half -o out", "x must be floating-point"),
        ("rotate text.npy --pairing half -o out", "text.npy"),
        ("rotate many.npz --pairing half -o out", "one array"),
        ("rotate pickle.npy --pairing half -o out", "pickle.npy"),
        ("rotate scalar.npy --pairing half -o out", "rotary_dim"),
        ("rotate q.npy --pairing half -o text.npy", "text.npy"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(files, words, message):
    np.save(files / "words.npy", np.ones((3, 16), dtype=int))
    np.save(files / "pickle.npy", np.asarray([{}], dtype=object), allow_pickle=True)
    np.save(files / "scalar.npy", np.float32(1))
    np.savez(files / "many.npz", q=np.ones(3))
    (files / "text.npy").write_text("not an array")
    before = sorted(files.rglob("*"))
    done = run(*words.split(), cwd=files)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("rope-any: ")
    assert done.stderr.count("\n") == 1
    assert sorted(files.rglob("*")) == before


def test_overwrite_only_when_asked(files):
    words = ["rotate", "k.npy", "--pairing", "half", "--positions", 3, "-o", "out"]
    assert run(*words, cwd=files).returncode == 0
    assert run(*words[:-1], "out", cwd=files).returncode == 2
    assert run(*words, "--overwrite", cwd=files).returncode == 0


def test_check_reports_each_library_and_holds_its_bounds():
    done = run("check")
    assert done.returncode == 0, done.stdout + done.stderr
    entries = int(re.search(r"over (\d+) table\s+entries", done.stdout)[1])
    assert entries >= 10_000
    rows = [line.split() for line in done.stdout.splitlines() if " float32 " in line]
    assert rows[0][:4] == ["NumPy", np.__version__, "cpu", "float32"]
    for row in rows:
        assert 1e-9 < float(row[4]) <= 1.2e-7, row
        assert 1e-9 < float(row[5]) <= 4e-7, row
    for name in cli.ENGINES:
        assert name in done.stdout


def test_check_says_what_is_missing_and_fails_on_a_broken_bound(monkeypatch, capsys):
    # NumPy alone, a quick job, and a rotation that is wrong by a little
    monkeypatch.setattr(cli, "find", lambda name: np if name == "NumPy" else None)
    monkeypatch.setattr(cli, "TOKENS", 100)
    cli.check()
    out = capsys.readouterr().out
    assert re.search(r'PyTorch: not found \(extra torch: pip install\s+"rope-any\[torch\]"\)', out)
    assert re.search(r'CuPy: not found .*"rope-any\[cupy-cuda12x\]"', out, re.DOTALL)
    for name, bound in (("TABLE_BOUND", 1e-9), ("TURN_BOUNDS", {"float32": 1e-9})):
        with monkeypatch.context() as tighter:
            tighter.setattr(cli, name, bound)
            with pytest.raises(cli.typer.Exit) as caught:
                cli.check()
        assert caught.value.exit_code == 1
        assert "a bound is broken" in capsys.readouterr().err


def test_a_table_of_nothing_is_no_good_table(monkeypatch, capsys):
    monkeypatch.setattr(cli, "find", lambda name: np if name == "NumPy" else None)
    monkeypatch.setattr(cli, "TOKENS", 100)
    table = ra.Rope.table

    def broken(self, positions, **options):
        cos, sin = table(self, positions, **options)
        return ra.Table(cos, sin * np.float32("nan"))

    monkeypatch.setattr(ra.Rope, "table", broken)
    with pytest.raises(cli.typer.Exit):
        cli.check()
    assert "nan" in capsys.readouterr().out


def test_version_and_help():
    assert run("--version").stdout.strip() == ra.__version__
    shown = run("--help")
    assert shown.returncode == 0
    assert all(verb in shown.stdout for verb in ("check", "rotate"))
    assert run("nonsense").returncode == 2


def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; import rope_any.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == 'rope-any: typer is missing; install the command line by: pip install "rope-any[cli]"'
