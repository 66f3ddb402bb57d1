"""
Run the torch cases of `test_sharded` on ranks: results on sharded and plain tensors agree, without communication.

``python tests/sharded_torch.py FOLDER RANKS...`` starts groups with these numbers of ranks, one group after the other.
It prints the tracebacks of the cases that failed, by group, rank and name, as JSON.
"""

import contextlib
import datetime as dt
import gc
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product
from pathlib import Path

import torch
import torch.distributed as dist
from cases import failures, registry
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

import rope_any as ra
from rope_any.integrations.torch import audit, refill

CASES, case = registry()
F = ra.frequencies(24)
ROPES = {
    "half": ra.Rope(F, pairing="half"),
    "interleaved": ra.Rope(F, pairing="interleaved"),
    "partial": ra.Rope(ra.frequencies(16), pairing="half", start=4, attention_factor=1.5),
    "partial, interleaved": ra.Rope(ra.frequencies(10), pairing="interleaved", start=6),
    "blocks": ra.Rope(F, pairing="half", blocks=3),
    "axes": ra.Rope((F, F[::-1]), pairing="interleaved"),
}
EVEN, UNEVEN, FEW = (2, 4, 8, 24), (3, 5, 7, 24), (1, 1, 3, 24)
BATCH, HEADS, SEQ, WHOLE = Shard(0), Shard(1), Shard(2), Replicate()
ONE_AXIS = {"batch": (BATCH,), "heads": (HEADS,), "seq": (SEQ,), "replicated": (WHOLE,)}
TWO_AXES = {
    "batch and heads": (BATCH, HEADS),
    "heads and seq": (HEADS, SEQ),
    "seq twice": (SEQ, SEQ),
    "seq in rows": (SEQ, WHOLE),
    "seq in columns": (WHOLE, SEQ),
}
LAYOUTS = {**ONE_AXIS, **TWO_AXES}


def joined(x, *placements, **options):
    """Return a DTensor with some placements, of which x is the part of this rank."""
    return DTensor.from_local(x, MESHES[len(placements)], placements, run_check=False, **options)


def put(x, *placements):
    """Return a DTensor with some placements, from a tensor that all ranks have."""
    return joined(x, *[WHOLE] * len(placements)).redistribute(placements=placements)


def random(*shape, dtype=torch.float32):
    """Return random numbers, the same on each rank."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@contextlib.contextmanager
def no_communication():
    """Raise if anything is sent inside of the context."""
    with CommDebugMode() as sent:
        yield
    assert sent.get_total_counts() == 0, sent.get_comm_counts()


def quiet(function, *arguments, **options):
    """Return the result of a call; raise if it sends anything."""
    with no_communication():
        return function(*arguments, **options)


def agree(got, wanted, placements):
    """Compare a sharded result with a plain one: type, shape, dtype, placements and the local shard."""
    assert (type(got), got.shape, got.dtype) == (DTensor, wanted.shape, wanted.dtype)
    assert got.placements == placements
    own = put(wanted, *placements).to_local()
    tolerance = 16 * torch.finfo(own.dtype).eps  # torch rounds complex products of few elements differently
    torch.testing.assert_close(got.to_local(), own, rtol=tolerance, atol=tolerance)


def placements_along(placements, axes):
    """Return the placements of an array that has only some axes of x, if x has the given placements."""
    return tuple(Shard(axes.index(p.dim)) if p.is_shard() and p.dim in axes else Replicate() for p in placements)


def all_positions(rope, shape, placements, seq=2):
    """Yield each form of positions that a call accepts, and the same positions for a plain tensor."""
    batch, tokens = shape[0], shape[seq]
    count = 1 if isinstance(rope.frequencies[0], float) else len(rope.frequencies)
    ends = () if count == 1 else (count,)
    each = (torch.arange(tokens * count) * 7919 % 100_003).reshape(tokens, *ends)
    rows = each + 1000 * torch.arange(batch).reshape(batch, *([1] * each.ndim))
    here, there = placements_along(placements, (seq,)), placements_along(placements, (0, seq))
    table, like, replicated = rope.table(each), put(torch.ones(shape), *placements), [WHOLE] * len(placements)
    yield None, None
    for offset in (1000, torch.tensor(1000), put(torch.tensor(1000), *replicated)):
        yield offset, 1000
    for form in (each.tolist(), each, put(each, *replicated), put(each, *here)):
        yield form, each
    yield put(each.to(torch.float32) / 8, *here), each.to(torch.float32) / 8
    yield rows[:1], rows[:1]
    for form in (rows, put(rows, *there)):
        yield form, rows
    for form in (table, rope.table(put(each, *here)), *(rope.table(at, like=like) for at in (each, each.tolist()))):
        yield form, table
    yield rope.table(put(rows, *there)), rope.table(rows)


def compare(rope, shape, placements, *, seq=2, dtype=torch.float32, forms=(None,)):
    """Compare sharded and plain results for the forms of positions in a slice of `all_positions`."""
    whole = random(*shape, dtype=dtype)
    x = put(whole, *placements)
    for given, plain in islice(all_positions(rope, shape, placements, seq), *forms):
        options = {"seq_axis": seq, "inverse": given is plain}
        agree(quiet(rope.apply, x, given, **options), rope.apply(whole, plain, **options), placements)


@case(*(f"{rope}, {layout}" for rope, layout in product(ROPES, ("seq", "batch and heads", "heads and seq"))))
def recipe(name):
    """Compare each kind of Rope in some layouts; uneven shards are compared for all forms of positions."""
    rope, layout = name.rsplit(", ", 1)
    compare(ROPES[rope], UNEVEN, LAYOUTS[layout], forms=(1, None, 4))


# The Rope, the shape of x, its axis of tokens, and the slice of the forms of positions.
SHARDS = {
    "uneven": ("half", UNEVEN, 2, (None,)),
    "even": ("half", EVEN, 2, (1, None, 3)),
    "partly empty": ("interleaved", FEW, 2, (2, None, 3)),
    "tokens before heads": ("axes", (3, 7, 5, 24), 1, (None, None, 3)),
}


@case(*product(SHARDS, LAYOUTS))
def shards(kind, layout):
    """Compare shards of different, of equal and of no size, and those with tokens before heads."""
    rope, shape, seq, forms = SHARDS[kind]
    compare(ROPES[rope], shape, LAYOUTS[layout], seq=seq, forms=forms)


@case("bfloat16", "float16", "float64")
def dtypes(dtype):
    """Compare dtypes other than float32."""
    compare(ROPES["partial"], UNEVEN, (SEQ,), dtype=getattr(torch, dtype), forms=(1, None, 4))


@case(*LAYOUTS)
def tables_are_sharded_as_positions(layout):
    """Compare tables of sharded positions."""
    placements, rows = placements_along(LAYOUTS[layout], (0, 2)), torch.arange(21).reshape(3, 7)
    for table in (ROPES["half"].table, lambda p: ra.cos_sin(p, F), lambda p: ra.cos_sin(p, F, dtype=torch.float64)):
        for got, wanted in zip(quiet(table, put(rows, *placements)), table(rows), strict=True):
            agree(got, wanted, placements)  # so a process makes only the rows of its own tokens


@case()
def tables_like_a_sharded_tensor_are_replicated():
    """Compare tables of plain positions with a sharded `like`."""
    like = put(random(*UNEVEN), SEQ)
    for positions in (5, range(7), [1.5, 2.5], torch.arange(7)):
        wanted = ra.cos_sin(positions, F, like=random(1))
        for got, part in zip(quiet(ra.cos_sin, positions, F, like=like), wanted, strict=True):
            agree(got, part, (WHOLE,))


@case(*LAYOUTS)
def rotate(layout):
    """Compare `rotate` with plain and sharded tables of several shapes."""
    placements, whole = LAYOUTS[layout], random(*UNEVEN)
    for shape in ((7,), (3, 1, 7), (1, 5, 1), (3, 5, 7), ()):
        cos, sin = ra.cos_sin(torch.arange(torch.Size(shape).numel()).reshape(shape), F)
        axes = tuple(axis if n > 1 else -9 for axis, n in enumerate(shape, 3 - len(shape)))
        here = placements_along(placements, axes)
        wanted = ra.rotate(whole, cos, sin, pairing="half")
        for table in ((cos, sin), (put(cos, *here), put(sin, *here)), (cos, put(sin, *here))):
            agree(quiet(ra.rotate, put(whole, *placements), *table, pairing="half"), wanted, placements)


@case(*LAYOUTS)
def in_place(layout):
    """Compare x rotated in place, and into another sharded tensor."""
    placements, whole, rope = LAYOUTS[layout], random(*UNEVEN), ROPES["partial"]
    for source, out in ((x := put(whole.clone(), *placements), x), (put(whole, *placements), torch.empty_like(x))):
        memory = out.to_local().data_ptr()
        assert quiet(rope.apply, source, 9, out=out) is out
        assert out.to_local().data_ptr() == memory
        agree(out, rope.apply(whole, 9), placements)


@case()
def in_place_within_a_joint_projection():
    """Compare q and k rotated in place as slices of one sharded tensor."""
    rope, qkv = ROPES["interleaved"], random(3, 7, 3, 5, 24)
    joint = put(qkv.clone(), Shard(3))
    q, k, _ = joint.unbind(2)
    quiet(rope, q, k, out=(q, k), seq_axis=1)
    wanted = [*rope(qkv[:, :, 0], qkv[:, :, 1], seq_axis=1), qkv[:, :, 2]]
    agree(joint, torch.stack(wanted, dim=2), (Shard(3),))


@case()
def order_in_memory_is_kept():
    """Check that the result has the strides of x."""
    whole = random(3, 7, 5, 24).transpose(1, 2)
    x = joined(whole, WHOLE)
    got = ROPES["half"].apply(x)
    assert got.stride() == x.stride()
    assert got.to_local().stride() == whole.stride()


@case(*LAYOUTS)
def queries_and_keys(layout):
    """Compare q and k with different numbers of heads, and with replicated keys."""
    placements, rope = LAYOUTS[layout], ROPES["half"]
    q, k = random(3, 5, 7, 24), random(3, 4, 7, 24)  # both numbers of heads uneven somewhere
    rows = torch.arange(21).reshape(3, 7)
    for positions in (None, 5, rows, put(rows, *placements_along(placements, (0, 2)))):
        plain = rows if isinstance(positions, torch.Tensor) else positions
        for of_keys in (placements, (WHOLE,) * len(placements)):
            if of_keys != placements and isinstance(positions, DTensor) and any(placements_along(placements, (0, 2))):
                positions = rows  # noqa: PLW2901  # sharded ones would have to be sent
            got = quiet(rope, put(q, *placements), put(k, *of_keys), positions)
            for one, wanted, arranged in zip(got, rope(q, k, plain), (placements, of_keys), strict=True):
                agree(one, wanted, arranged)


@case(*LAYOUTS)
def queries_at_the_end_of_the_keys(layout):
    """Compare a query tail."""
    placements, rope = LAYOUTS[layout], ROPES["axes"]
    q, k = random(3, 5, 2, 24), random(3, 5, 7, 24)
    each = torch.arange(14).reshape(7, 2)
    replicated = [WHOLE] * len(placements)
    table = rope.table(each, like=put(q, *placements))
    for given in (None, 5, each.tolist(), each, put(each, *replicated), rope.table(each), table):
        plain = given if given is None or isinstance(given, int) else each
        for of_queries in (placements, replicated):
            got = quiet(rope, put(q, *of_queries), put(k, *placements), given)
            for one, wanted, arranged in zip(got, rope(q, k, plain), (of_queries, placements), strict=True):
                agree(one, wanted, tuple(arranged))
    pair = rope.table(each[-2:]), rope.table(each)
    agree(rope(put(q, *placements), put(k, *placements), pair)[0], rope(q, k, each)[0], placements)


@case(*LAYOUTS)
def reposition(layout):
    """Compare moved keys."""
    placements = LAYOUTS[layout]
    keys, tokens, here = random(*UNEVEN), torch.arange(7), placements_along(placements, (2,))
    for rope, source in ((ROPES["half"], None), (ROPES["interleaved"], ROPES["axes"])):
        places = torch.arange(14).reshape(7, 2) if source else tokens + 90
        wanted = rope.reposition(keys, places, tokens, source=source)
        for old, new in ((places, tokens), (put(places, *here), range(7)), (places.tolist(), put(tokens, *here))):
            x = put(keys.clone(), *placements)
            agree(quiet(rope.reposition, x, old, new, source=source), wanted, placements)
            agree(quiet(rope.reposition, x, old, new, source=source, out=x), wanted, placements)


@case(*LAYOUTS)
def gradients(layout):
    """Compare the gradient of x."""
    placements, weight = LAYOUTS[layout], random(*UNEVEN) ** 2
    for rope in (ROPES["half"], ROPES["blocks"], ROPES["partial, interleaved"]):
        whole = random(*UNEVEN).requires_grad_()
        (wanted,) = torch.autograd.grad(rope.apply(whole, 7), whole, weight)
        x = put(whole.detach(), *placements).requires_grad_()
        with no_communication():
            rope.apply(x, 7).backward(put(weight, *placements))
        agree(x.grad, wanted, placements)


def gathered(x):
    """Return a sharded or plain tensor as a plain one."""
    return x.full_tensor() if isinstance(x, DTensor) else x


@case(*LAYOUTS)
def gradients_of_a_learned_table(layout):
    """Compare the gradients of cosines and sines."""
    placements, whole, weight = LAYOUTS[layout], random(*UNEVEN), random(*UNEVEN) ** 2
    for shape in ((7,), (5, 1), (3, 1, 7)):
        angles = random(*shape, 12)
        plain = [part.requires_grad_() for part in (angles.cos(), angles.sin())]
        wanted = torch.autograd.grad(ra.rotate(whole, *plain, pairing="half"), plain, weight)
        for put_table in (lambda part: part, lambda part: put(part, *[WHOLE] * len(placements))):
            learned = [put_table(part.detach()).requires_grad_() for part in plain]
            rotated = ra.rotate(put(whole, *placements), *learned, pairing="half")
            found = torch.autograd.grad(rotated, learned, put(weight, *placements))
            torch.testing.assert_close([*map(gathered, found)], [*wanted])


@case("heads", "seq", "heads and seq", "seq in rows")  # frequencies are of heads, and positions of tokens
def gradients_of_learned_frequencies(layout):
    """Compare the gradient of frequencies."""
    placements, whole, weight = LAYOUTS[layout], random(*UNEVEN), random(*UNEVEN) ** 2
    for frequencies in (torch.tensor(F), torch.tensor([F, F[::-1]]), random(5, 2, 12)):
        axes = () if frequencies.ndim == 1 else (2,)
        positions = torch.arange(7 * (2 if axes else 1)).reshape(7, *axes)

        def rotated(x, positions, frequencies):
            """Return x rotated by a table of positions and frequencies."""
            return ra.rotate(x, *ra.cos_sin(positions, frequencies), pairing="half")

        plain = frequencies.clone().requires_grad_()
        result = rotated(whole, positions, plain)
        (wanted,) = torch.autograd.grad(result, plain, weight)
        here = put(positions, *placements_along(placements, (2,)))
        for at, sharded in product((here, positions), (False, True)):
            learned = put(frequencies, *[WHOLE] * len(placements)) if sharded else frequencies.clone()
            got = quiet(rotated, put(whole, *placements), at, learned.requires_grad_())
            agree(got, result.detach(), placements)
            (found,) = torch.autograd.grad(got, learned, put(weight, *placements))
            torch.testing.assert_close(gathered(found), wanted)


@case("heads and seq")
def compiled(layout):
    """Compare a call under torch.compile, and check that its graph sends nothing."""
    if dist.get_rank():
        return  # one rank is enough, because nothing is sent
    from torch._dynamo.backends.common import aot_autograd  # takes a second

    placements, whole, rope = LAYOUTS[layout], random(*UNEVEN), ROPES["partial"]
    x = put(whole, *placements)
    table = rope.table(put(torch.arange(7), *placements_along(placements, (2,))))
    graphs = []

    def kept(graph, _):
        """Record the code of a graph in place of compiling it."""
        graphs.append(graph.code)
        return graph.forward

    backend = aot_autograd(fw_compiler=kept)  # inductor compiles the same graph, in a minute
    rotated = torch.compile(lambda x, *given: [rope.apply(x, at) for at in given], fullgraph=True, backend=backend)
    by_table, by_number = rotated(x, table, 3)
    assert [code.count("c10d") for code in graphs] == [0]
    agree(by_table, rope.apply(whole), placements)
    agree(by_number, rope.apply(whole, 3), placements)


@case()
def communication_is_detected():
    """Check that communication is detected."""
    try:
        with no_communication():
            put(random(*UNEVEN), SEQ).full_tensor()
    except AssertionError:
        return
    raise AssertionError


@case()
def fused():
    """Compare a call with ``fused=True``."""
    if dist.get_rank() or dist.get_world_size() == 2:
        return  # once is enough: it takes seconds
    whole = random(*EVEN)
    got = ROPES["interleaved"].apply(put(whole, SEQ), 5, fused=True)  # under CommDebugMode torch would compile nothing
    agree(got, ROPES["interleaved"].apply(whole, 5), (SEQ,))


@case()
def lost_buffers_are_refilled_shard_by_shard():
    """Check that `refill` writes lost buffers on each rank, and `undo` restores them."""
    rope = ROPES["half"]
    cos, sin = rope.table(range(9), like=torch.empty(0))
    table = {"cos_sin_cache": torch.cat((cos, sin), -1), "freqs_cis": torch.complex(cos, sin)}
    whole = {"inv_freq": torch.tensor(F)} | table
    for placements in ((Shard(0),), (Replicate(),), (Shard(0), Shard(0)), (Replicate(), Shard(0))):
        model = torch.nn.Module()
        for name, x in whole.items():
            model.register_buffer(name, put(x.clone(), *placements), persistent=False)
        shards = [x.to_local() for x in model.buffers()]
        assert quiet(audit, model, rope)
        for shard in shards:
            shard.mul_(3)
        before = [shard.clone() for shard in shards]
        own, undo = quiet(audit, model, rope), quiet(refill, model, rope)
        # a rank may have no rows, or none that changed
        assert all(found.verdict == "right" for found in own) or undo.written
        assert quiet(audit, model, rope)
        for name, x in whole.items():
            agree(model.get_buffer(name), x, placements)
        assert [x.to_local().data_ptr() for x in model.buffers()] == [shard.data_ptr() for shard in shards]
        undo()
        assert all(map(torch.equal, shards, before))
        model.inv_freq = model.inv_freq.bfloat16()
        quiet(refill, model, rope)
        agree(model.inv_freq, whole["inv_freq"], placements)


class Rotary(torch.nn.Module):
    """A module whose class name marks its tensors as rotary."""


@case()
def lost_parameters_are_refilled_under_fsdp():
    """Check that `refill` writes lost buffers and parameters that FSDP has sharded."""
    rope, mesh = ROPES["half"], MESHES[1]
    for dtype in (torch.float32, torch.bfloat16):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), Rotary())
        model[1].register_buffer("inv_freq", torch.tensor(F))
        model[1].freqs = torch.nn.Parameter(torch.tensor(F), requires_grad=False)
        model = model.to(dtype)
        fully_shard(model, mesh=mesh)
        parameter = model[1].freqs
        assert type(parameter) is DTensor or isinstance(parameter.data, DTensor)
        if dtype == torch.float32:
            parameter.to_local().mul_(3)
            model[1].inv_freq.zero_()
        undo = refill(model, rope)
        assert "1.inv_freq" in undo.written
        assert torch.equal(model[1].inv_freq, torch.tensor(F))
        if dtype == torch.float32:
            assert audit(model, rope)
            agree(parameter.data, torch.tensor(F), (Shard(0),))
        else:
            assert [found.name for found in undo.left] == ["1.freqs"] * bool(parameter.to_local().numel())


X, AT, HALF, PARTIAL = random(3, 4, 8, 24), torch.arange(8), ROPES["half"], ROPES["partial"]
# the beginning of the error, and the call that raises it
REFUSED = {
    "x must not be sharded along its features": lambda: HALF.apply(put(X, Shard(3))),
    "x must be replicated or sharded by `Shard`": lambda: HALF.apply(joined(X, Partial())),
    "x and positions must be on one device mesh": lambda: HALF.apply(put(X, SEQ), put(AT, WHOLE, BATCH)),
    "q and k must be on one device mesh": lambda: HALF(put(X, SEQ), put(X, WHOLE, SEQ)),
    "x must be sharded if its positions or its table are": lambda: HALF.apply(X, put(AT, WHOLE)),
    "q and k must both be sharded or both plain tensors": lambda: HALF(X, put(X, SEQ)),
    "x must be sharded as torch's distribute_tensor does": lambda: HALF.apply(larger_first_shard()),
    "positions must be replicated or sharded as the array": lambda: HALF.apply(put(X, HEADS), put(AT, BATCH)),
    "positions must be replicated or sharded as the": lambda: HALF.apply(put(X, SEQ, SEQ), put(AT, WHOLE, BATCH)),
    "a table must be replicated or sharded as the array": lambda: HALF.apply(put(X, HEADS), HALF.table(put(AT, BATCH))),
    "positions must not be sharded along their last axis": lambda: ra.cos_sin(put(torch.ones(8, 2), Shard(1)), (F, F)),
    "positions must not be sharded along the tokens": lambda: HALF(put(X[:, :, :2], SEQ), put(X, SEQ), put(AT, BATCH)),
    "out must be sharded as x is": lambda: HALF.apply(put(X, SEQ), out=X),
    "out must be sharded as x is, ": lambda: HALF.apply(put(X, SEQ), out=put(X, HEADS)),
    "out must be x itself or not overlap it": lambda: PARTIAL.apply((x := put(X, SEQ))[..., 1:], out=x[..., :-1]),
    "out must be an array that can be written": lambda: HALF.apply(x := put(X, SEQ).requires_grad_() * 1, out=x),
}


def larger_first_shard():
    """Return x of which the first rank has five tokens, and the others three each."""
    shape = torch.Size((3, 4, 3 * dist.get_world_size() + 2, 24))
    return joined(X[:, :, : 3 if dist.get_rank() else 5], SEQ, shape=shape, stride=(1, 1, 1, 1))


@case(*REFUSED)
def refused(message):
    """Check that a wrong call raises its error, and sends nothing."""
    with no_communication():
        try:
            REFUSED[message]()
        except (ra.ArgumentTypeError, ra.ArgumentValueError) as error:
            assert str(error).startswith(message), error  # noqa: PT017  # pytest is not here
        else:
            raise AssertionError(message)


def cases_of(ranks):
    """Return the names of the cases for a number of ranks: 2 for meshes of one axis, 4 for two (and some of one)."""
    two_axes = {name for name in CASES if name.endswith(tuple(TWO_AXES))}
    one_axis = {name for name in CASES if name.endswith(tuple(ONE_AXIS))} - two_axes
    over_four = {name for name in one_axis if name.startswith(("shards: uneven", "shards: partly"))}
    return [name for name in CASES if name not in (two_axes if ranks == 2 else one_axis - over_four)]


def run_all(rank, ranks, folder):
    """Run the cases of a group as one rank; return the failures."""
    torch.set_num_threads(1)
    timeout = dt.timedelta(seconds=120)
    store = dist.FileStore(str(folder / f"store of {ranks}"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
    MESHES.update({1: init_device_mesh("cpu", (ranks,)), 2: init_device_mesh("cpu", (2, ranks // 2))})
    failed = failures({name: CASES[name] for name in cases_of(ranks)})
    dist.barrier()
    dist.destroy_process_group()
    return failed


def main(folder, *groups):
    """Run the cases in groups of ranks, forked if possible, so that torch is imported once."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    failed = {}
    gc.freeze()  # so that garbage collection skips the objects that forks share
    for ranks in map(int, groups):
        with ProcessPoolExecutor(ranks, context) as pool:  # a process for each rank, since each waits for the others
            failed[ranks] = [*pool.map(run_all, range(ranks), [ranks] * ranks, [Path(folder)] * ranks)]
    print(json.dumps(failed))


MESHES = {}

if __name__ == "__main__":
    main(*sys.argv[1:])
