"""``rope-any convert``: checkpoints of one file or several, which a failure leaves as they were."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from commands import output, refused, run, write_safetensors

from rope_any import weights

pytestmark = pytest.mark.thread_unsafe(reason="changes the working directory and starts processes")

HALVES = {"source": "interleaved", "target": "half"}
OPTIONS = ["--head-dim", 4, "--from", "interleaved", "--to", "half"]
BITS = {"F4": 4, "F8_E4M3": 8, "F8_E8M0": 8, "BOOL": 8, "BF16": 16, "F16": 16, "F32": 32, "I64": 64, "C64": 64}


def random_tensor(rng, dtype, *shape):
    """Return the dtype, shape and random bytes of a tensor."""
    size = math.prod(shape) * BITS[dtype] // 8
    return dtype, shape, rng.integers(0, 2 if dtype == "BOOL" else 256, size, dtype=np.uint8).tobytes()


def read(file):
    """Return the metadata of a file, and its tensors as `write` takes them."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    metadata = header.pop("__metadata__", None)
    return metadata, {
        name: (entry["dtype"], tuple(entry["shape"]), data[start:][slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def layer(rng, dtype="BF16", i=0):
    """Return the random tensors of one layer, by name."""
    shapes = {"q_proj.weight": (16, 6), "k_proj.weight": (8, 6), "v_proj.weight": (8, 6), "q_proj.bias": (16,)}
    return {f"model.layers.{i}.self_attn.{name}": random_tensor(rng, dtype, *shape) for name, shape in shapes.items()}


def convert(*arguments):
    """Run ``rope-any convert`` for heads of four features, which must succeed; return its output."""
    return output("convert", *OPTIONS, *arguments)


def refusal(*arguments):
    """Run the command, which must be refused in one line; return the line."""
    return refused("convert", *OPTIONS, *arguments)


@pytest.fixture
def file(tmp_path, rng):
    """Return a file of one layer."""
    return write_safetensors(tmp_path / "in.safetensors", **layer(rng))


@pytest.fixture
def sharded(tmp_path, rng):
    """Return the index of a checkpoint of two files, one for each layer."""
    folder, names = tmp_path / "in", {}
    folder.mkdir()
    for i in range(2):
        part = layer(rng, i=i)
        names |= dict.fromkeys(part, write_safetensors(folder / f"model-{i}.safetensors", **part).name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return index


@pytest.mark.parametrize("dtype", BITS)
def test_a_file_of_any_dtype_is_converted(tmp_path, rng, dtype):
    before = {"embed.weight": random_tensor(rng, dtype, 5, 2), **layer(rng, dtype)}
    if dtype == "F4":  # its bias would have two features in a byte
        del before["model.layers.0.self_attn.q_proj.bias"]
    file = write_safetensors(tmp_path / "in.safetensors", {"format": "pt"}, **before)
    raw = file.read_bytes()
    convert(file, tmp_path / "out.safetensors")
    metadata, after = read(tmp_path / "out.safetensors")
    assert metadata == {"format": "pt"} and list(after) == list(before)
    for name, (kind, shape, data) in before.items():
        assert after[name][:2] == (kind, shape)
        rotated = name.endswith((".q_proj.weight", ".k_proj.weight", ".bias"))
        rows = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
        order = [4 * (i // 4) + (0, 2, 1, 3)[i % 4] for i in range(shape[0])]
        assert after[name][2] == (rows[order].tobytes() if rotated else data)
    assert file.read_bytes() == raw
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.safetensors", "out.safetensors"]


def test_safetensors_reads_the_written_files(tmp_path, rng):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    state = {name: rng.standard_normal(shape).astype("f4") for name, (_, shape, _) in layer(rng).items()}
    numpy.save_file(state, tmp_path / "in.safetensors", {"format": "np"})
    convert(tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    converted = numpy.load_file(tmp_path / "out.safetensors")
    for name, w in weights.convert_state_dict(state, 4, **HALVES).items():
        np.testing.assert_array_equal(converted[name], w)


def test_a_large_tensor_is_read_some_megabytes_at_a_time(tmp_path, rng):
    columns = 2**13 - 8  # so that no whole number of heads has 4 MiB
    large = {"l.0.q_proj.weight": random_tensor(rng, "BF16", 2**11, columns)}
    file, out = write_safetensors(tmp_path / "in.safetensors", **large), tmp_path / "out.safetensors"
    options = ("--head-dim", 64, "--overwrite")
    convert(file, out, *options)  # imports what the command needs, which is not counted
    tracemalloc.start()
    convert(file, out, *options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24
    [(dtype, shape, data)] = large.values()
    w = np.frombuffer(data, np.uint16).reshape(shape)
    converted = weights.convert(w, 64, **HALVES).tobytes()
    assert read(out)[1] == {"l.0.q_proj.weight": (dtype, shape, converted)}


def test_the_command_accepts_an_axis_and_a_fraction_of_heads(tmp_path, rng):
    before = {"h.0.qkv.kernel": random_tensor(rng, "BF16", 3, 24), "h.0.out.kernel": random_tensor(rng, "BF16", 8, 3)}
    file, out = write_safetensors(tmp_path / "in.safetensors", **before), tmp_path / "out.safetensors"
    text = convert(file, out, "--name", "*.qkv.kernel", "--axis", -1, "--heads", "2/3", "--json")
    assert json.loads(text) == {"files": [str(out)], "converted": ["h.0.qkv.kernel"], "left": ["h.0.out.kernel"]}
    w = np.frombuffer(before["h.0.qkv.kernel"][2], np.uint16).reshape(3, 24)
    options = {"axis": -1, "heads": (2, 3), **HALVES}
    assert read(out)[1]["h.0.qkv.kernel"][2] == weights.convert(w, 4, **options).tobytes()


def test_the_report_lists_converted_and_other_tensors(tmp_path, rng):
    file = write_safetensors(tmp_path / "in.safetensors", **layer(rng) | layer(rng, i=1))
    text = " ".join(convert(file, tmp_path / "out.safetensors").split())
    assert "model.layers.*.self_attn.q_proj.weight 2 converted" in text
    assert "model.layers.*.self_attn.v_proj.weight 2 left as it is" in text
    assert text.endswith("out.safetensors: 6 of 8 tensors converted from interleaved to half")


def contents(folder):
    """Return the bytes of the files in a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_checkpoint_of_several_files_is_converted(tmp_path, sharded):
    before, out = contents(sharded.parent), tmp_path / "new" / "out"
    convert(sharded, out, "--name", "*.1.*.[qk]_proj.*")  # only in one file
    assert contents(sharded.parent) == before
    assert dict(contents(out).items() - before.items()).keys() == {"model-1.safetensors"}
    assert contents(out).keys() == before.keys()
    assert "must not exist" in refusal(sharded, out)
    convert(sharded, out, "--overwrite")


def test_the_input_is_never_modified(tmp_path, file):
    before, link, hard_link = file.read_bytes(), tmp_path / "link", tmp_path / "hard link"
    link.symlink_to(file)
    os.link(file, hard_link)
    for out in (file, link, hard_link, tmp_path / ".." / tmp_path.name / file.name):
        assert "OUT must not be IN, which is never touched" in refusal(file, out, "--overwrite")
        assert file.read_bytes() == before


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left")])
def test_a_failed_conversion_leaves_no_files(tmp_path, sharded, monkeypatch, error):
    def copyfile(_, target):
        """Fail at the index, after the files of tensors."""
        assert len(list(target.parent.iterdir())) == 2
        raise error

    monkeypatch.setattr(shutil, "copyfile", copyfile)
    assert run("convert", *OPTIONS, sharded, tmp_path / "new" / "out").returncode
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("Device or resource busy")])
@pytest.mark.parametrize("at", range(6))  # three files are moved away, three are moved in
def test_a_failed_conversion_restores_replaced_files(tmp_path, sharded, monkeypatch, error, at):
    out = tmp_path / "out"
    out.mkdir()
    for file in sharded.parent.iterdir():
        (out / file.name).write_text(f"old {file.name}")
    before, count, replace = contents(out), itertools.count(), Path.replace

    def failing(self, target):
        """Fail at one of the renames."""
        fails = next(count) == at
        if not (fails and isinstance(error, OSError)):  # Ctrl-C arrives after the file was moved
            replace(self, target)
        if fails:
            raise error

    monkeypatch.setattr(Path, "replace", failing)
    assert run("convert", *OPTIONS, sharded, out, "--overwrite").returncode and next(count) > at
    assert contents(out) == before


def test_a_file_written_meanwhile_is_not_replaced(tmp_path, sharded, monkeypatch):
    written, copyfile = tmp_path / "out" / "model-1.safetensors", shutil.copyfile
    written.parent.mkdir()
    monkeypatch.setattr(shutil, "copyfile", lambda *files: (copyfile(*files), written.write_text("new")))
    assert "model-1.safetensors must not exist" in refusal(sharded, written.parent)
    assert contents(written.parent) == {written.name: b"new"}


ON_POSIX = pytest.mark.skipif(os.name != "posix", reason="elsewhere a signal ends a process, and no pipe has a name")
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@ON_POSIX
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.usefixtures("sharded")
def test_a_signal_leaves_no_files(tmp_path, number, ignored):
    """A process gets a signal while it writes. An ignored signal, as SIGHUP under nohup, stays ignored."""
    program = f"""
import os, shutil, signal, sys
from rope_any import cli
def signalled(call):
    return lambda *args, **options: os.kill(os.getpid(), {int(number)}) or call(*args, **options)
shutil.copyfile = signalled(shutil.copyfile)  # of the index, after the files of tensors
shutil.rmtree = signalled(shutil.rmtree)  # again, while it cleans up
signal.signal({int(number)}, signal.SIG_IGN if {ignored} else signal.SIG_DFL)  # whatever the test process does
sys.argv[1:] = "convert in out --head-dim=4 --from=half --to=interleaved".split()
cli.main()
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == (0 if ignored else 128 + number), result.stderr
    assert {path.name for path in tmp_path.iterdir()} == ({"in", "out"} if ignored else {"in"})


def test_signal_handlers_are_restored(tmp_path, file):
    is_main = threading.current_thread() is threading.main_thread()  # only this one can set handlers
    before = [signal.signal(number, signal.SIG_DFL) for number in SIGNALS if is_main]
    convert(file, tmp_path / "main")
    after = [signal.signal(*each) for each in zip(SIGNALS, before, strict=False)]
    assert after == [signal.SIG_DFL] * len(before)
    thread = threading.Thread(target=convert, args=(file, tmp_path / "thread"))
    thread.start()
    thread.join()
    assert (tmp_path / "thread").read_bytes() == (tmp_path / "main").read_bytes()


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize(
    ("got", "make"),
    [
        ("a directory", Path.mkdir),
        ("a directory", lambda path: path.symlink_to(path.parent.parent)),
        pytest.param("a device or a pipe", getattr(os, "mkfifo", None), marks=ON_POSIX),
    ],
)
def test_only_files_are_replaced(tmp_path, sharded, got, make, overwrite):
    last = tmp_path / "out" / "model-1.safetensors"
    last.parent.mkdir()
    make(last)
    before = last.lstat()
    assert refusal(sharded, last.parent, *overwrite).endswith(f"must be a file that can be replaced; got {got}")
    after = last.lstat()
    assert (after.st_mode, after.st_ino, after.st_mtime_ns) == (before.st_mode, before.st_ino, before.st_mtime_ns)
    assert list(last.parent.iterdir()) == [last]


def test_a_link_to_a_file_is_replaced_and_a_broken_link_counts_as_a_file(tmp_path, file):
    out = tmp_path / "out"
    for target in ("none", "some"):
        (tmp_path / "some").write_text("old")
        out.symlink_to(tmp_path / target)
        assert "must not exist" in refusal(file, out) and out.is_symlink()
        convert(file, out, "--overwrite")
        assert not out.is_symlink()
        assert (tmp_path / "some").read_text() == "old"
        out.unlink()


def test_a_file_is_refused_as_output_folder(tmp_path, sharded):
    (tmp_path / "file").write_text("old")
    for out in ("file", "file/below"):
        assert "must be a folder" in refusal(sharded, tmp_path / out, "--overwrite")
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_is_read_by_its_index_or_only_file(tmp_path, rng, sharded):
    alone = tmp_path / "alone"
    alone.mkdir()
    file = write_safetensors(alone / "model.safetensors", **layer(rng))
    for source in (sharded, file):
        convert(source.parent, tmp_path / "out", "--overwrite")
        assert (tmp_path / "out" / source.name).exists()
        assert "OUT must not be IN" in refusal(source.parent, source.parent, "--overwrite")
    assert read(tmp_path / "out" / file.name)[1].keys() == layer(rng).keys()
    file.rename(sharded.parent / file.name)
    for folder, got in ((alone, "neither"), (sharded.parent, "both")):
        assert refusal(folder, tmp_path / "new").endswith(f"model.safetensors.index.json; got {got}")


@pytest.mark.parametrize(
    ("listed", "got"),
    [
        ({"embed": "model-1.safetensors", "x": "model-0.safetensors"}, "'x' in model-0.safetensors, which isn't there"),
        ({"embed": "model-0.safetensors"}, "'embed' in model-0.safetensors, which isn't there"),
        ({}, "'embed' in model-1.safetensors, which it doesn't list"),
    ],
)
def test_an_index_that_does_not_match_its_files_is_refused(tmp_path, rng, sharded, listed, got):
    file = sharded.parent / "model-1.safetensors"
    write_safetensors(file, **read(file)[1], embed=random_tensor(rng, "F32", 2))
    index = json.loads(sharded.read_text())
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | listed}))
    assert refusal(sharded, tmp_path / "out").endswith(f"; got {got}")
    sharded.write_text(json.dumps({"weight_map": index["weight_map"] | {"embed": file.name}}))
    convert(sharded, tmp_path / "out")


NO_NAMES = [1, "../b", "..", ".", "", "b\0", "/b", "c/b"]


@pytest.mark.parametrize("names", [{}, [["a", "b"]], *({"a": name} for name in NO_NAMES)])
def test_an_invalid_index_is_refused(tmp_path, names):
    index = tmp_path / "index.json"
    for content in ("{", json.dumps({"weight_map": names})):
        index.write_text(content)
        assert "must be an index of safetensors files" in refusal(index, tmp_path / "out")


Q = {"dtype": "F16", "shape": [8, 6], "data_offsets": [0, 96]}
BROKEN = {
    "a list": [1],
    "negative": {"q": Q | {"shape": [-8, -6]}},
    "another shape": {"q": Q | {"shape": [8, 7]}},
    "another dtype": {"q": Q | {"dtype": "F32"}},
    "an unknown dtype": {"q": Q | {"dtype": "X"}},
    "a real shape": {"q": Q | {"shape": [8.0, 6]}},
    "no offsets": {"q": Q | {"data_offsets": []}},
    "a gap": {"q": Q | {"data_offsets": [1, 97]}},
    "overlapping": {"q": Q, "k": Q},
    "too short": {"q": Q, "k": Q | {"data_offsets": [96, 192]}},
    "too long": {},
    "an escape": {"q": Q, "\x1b[2J": {"dtype": "F16", "shape": [0], "data_offsets": [96, 96]}},
}


@pytest.mark.parametrize("name", ["empty", "zeros", "a header beyond the file", "no JSON", *BROKEN])
def test_broken_files_are_refused(tmp_path, name):
    file, head = tmp_path / "in.safetensors", json.dumps(BROKEN.get(name, {"q": Q})).encode()
    whole = len(head).to_bytes(8, "little") + head + bytes(96)
    broken = {"empty": b"", "zeros": bytes(100), "no JSON": whole.replace(b"{", b"!")}
    broken["a header beyond the file"] = (2**63).to_bytes(8, "little") + whole[8:]
    file.write_bytes(broken.get(name, whole))
    assert f"{file} must be a whole safetensors file; " in refusal(file, tmp_path / "out.safetensors", "--name", "q")
    assert list(tmp_path.iterdir()) == [file]


def test_weights_of_torch_are_refused_with_a_hint(tmp_path):
    (tmp_path / "m.bin").write_bytes(bytes(100))
    hint = "; safetensors.torch.save_file(torch.load(file), name) writes one"
    assert hint in refusal(tmp_path / "m.bin", tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--head-dim 6", "--head-dim must divide model.layers.0.self_attn.q_proj.weight along axis 0 into groups"),
        ("--head-dim 5", "--head-dim must leave an even number of features from --start 0 on; got 5"),
        ("--from hf", "--from must be one of 'half', 'interleaved'; got 'hf'; write half; see "),
        ("--name *.wq.weight", "--name must be patterns that match a tensor; got '*.wq.weight'"),
        ("--axis 1", "--axis must come with --name; got 1"),
        ("--heads 2", "--heads must be M/N, like 2/3, with M from 1 to N; got '2'"),
        ("--heads 3/2", "--heads must be M/N, like 2/3, with M from 1 to N; got '3/2'"),
    ],
)
def test_wrong_options_are_refused_in_one_sentence(tmp_path, file, options, message):
    assert refusal(file, tmp_path / "o", *options.split()).startswith(message)
    assert list(tmp_path.iterdir()) == [file]


def test_features_that_share_a_byte_are_refused(tmp_path, rng):
    file = write_safetensors(tmp_path / "in.safetensors", **{"l.0.q_proj.bias": random_tensor(rng, "F4", 8)})
    assert "q_proj.bias must have whole bytes for each feature" in refusal(file, tmp_path / "out.safetensors")
    assert list(tmp_path.iterdir()) == [file]
