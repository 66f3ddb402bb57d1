"""Rope: the parameters of a rotary position embedding, and the calls that rotate queries and keys by it."""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple

from rope_any._align import APPLY, Tokens, broadcaster, given_positions, positions_by_axis, seq_axis_hint, tokens_of
from rope_any._arrays import (
    Array,
    Library,
    X,
    _sharding,
    find,
    is_array,
    known_difference,
    library,
    refuse_foreign,
    signature,
    type_name,
)
from rope_any._caches import PLANS, keep_plan, reposition_frequencies
from rope_any._call_tables import Call, Tables, TableSource, as_pair, table_source
from rope_any._checks import (
    ArgumentTypeError,
    ArgumentValueError,
    Text,
    attention_factor,
    flag,
    integer,
    keyword_hints,
    no_rope,
)
from rope_any._frequencies import LEARNED, Frequencies, PreparedFrequencies, as_frequencies, prepare
from rope_any._pairing import Pairing, as_pairings
from rope_any._positions import Positions, is_consecutive, stack_axes
from rope_any._rotate import plan_of, require_rotatable
from rope_any._rotation import BentTable, Plan, Rotation, Table, check_table, doubled_table_hint, is_table_pair
from rope_any._slots import plan_slots
from rope_any._table import has_fast_ranges, table, table_maker


@dataclass(frozen=True, repr=False)
class Rope:
    """
    A rotary position embedding: which pairs of features rotate, and by which angle per position.

    It holds Python numbers and no array, so it is hashable, comparable, and static under ``jax.jit`` and
    ``torch.compile``.

    Parameters
    ----------
    frequencies : tuple of float, or nested tuples of float
        Radians per position, ``(pairs,)``; with one row for each position axis, ``(axes, pairs)``; or with such rows
        for each head, or each group of consecutive heads, ``(heads, axes, pairs)``.
    pairing : {"half", "interleaved"}
        Which features form a pair: i and i + pairs, or 2i and 2i + 1, counted from `start`. The checkpoint decides it:
        "half" for Llama in transformers, "interleaved" for GPT-J and for Llama as Meta published it.
    out_pairing : {"half", "interleaved"}, optional
        The order in which rotated features are returned, if not that of `pairing`: the same features form pairs, but
        lie where this pairing has them. DeepSeek-V3 in transformers and the latent attention (MLA) of Megatron read
        "interleaved" and write "half". `apply` with ``inverse=True`` takes this order and returns that of `pairing`;
        `reposition` takes and returns this one.
    attention_factor : float, optional
        A factor of cosine and sine, as in YaRN and LongRoPE.
    start : int, optional
        The first rotated feature. Features before it and after the pairs pass through.
    blocks : int, optional
        The number of equal blocks of the rotated features within which pairs are formed, such as one for each axis in
        Gemma's vision tower.

    Raises
    ------
    TypeError
        If an argument has a wrong type; for learned frequencies, which are an array, use `cos_sin` and `rotate`.
    ValueError
        If the pairing is unknown, a number is not finite or out of range, rows differ in length, or `blocks` does not
        divide the number of pairs.

    Notes
    -----
    The methods accept these positions:

    - None (which is 0), an int or a 0-d integer array: the position of the first token, on every axis.
    - A range, a sequence or an array ``(seq,)`` or ``(batch, seq)``, in which each length is 1 or that of x. With
      frequencies of n rows, the shape is ``(seq, n)`` or ``(batch, seq, n)``.
    - A `Table` of such positions, which `table` makes once for all layers, or a `BentTable`.
    - For queries and keys, a pair of tables: that of the queries, then that of the keys.

    Tokens are along `seq_axis` of x, and the batch is the first other axis. Positions and tables may have more of the
    other axes of x, in order and before seq, such as ``(batch, heads, seq)``. Tables are float64 for float64 arrays,
    else float32. If each head has its own frequencies, heads are the last other axis of x, and each row serves n heads
    in succession if x has n times as many.

    Three mistakes raise no error if the shapes fit: tokens on another axis than `seq_axis` (``(batch, seq, heads,
    head_dim)`` needs ``seq_axis=-3``), an offset for each row as positions (use `positions.from_starts`), and heads
    that are not split, ``(batch, seq, heads * head_dim)``.

    Examples
    --------
    >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
    >>> rope
    Rope(<32 frequencies from 1 to 0.000133352>, pairing='half')
    >>> q, k = np.ones((1, 8, 10, 64)), np.ones((1, 2, 10, 64))
    >>> q, k = rope(q, k)
    >>> table = rope.table(np.arange(10), like=q)
    >>> q, k = rope(q, k, table)
    """

    frequencies: Frequencies
    _: KW_ONLY
    pairing: Pairing
    out_pairing: Pairing | None = None
    attention_factor: float = 1.0
    start: int = 0
    blocks: int = 1
    _prepared: PreparedFrequencies = field(init=False, compare=False)
    _plan_key: tuple[Any, ...] = field(init=False, compare=False)  # all fields that a plan depends on

    def __post_init__(self) -> None:
        """Check and convert the fields, and prepare the frequencies."""
        if is_array(self.frequencies) and (lib := find(self.frequencies)) is not None:
            raise ArgumentTypeError("frequencies", "be a tuple of floats", Text(f"an array of {lib.name}"), LEARNED)
        start = integer("start", self.start)
        if start < 0:
            raise ArgumentValueError("start", "not be negative", start)
        frequencies = as_frequencies(self.frequencies)
        prepared, blocks = prepare(frequencies), integer("blocks", self.blocks)
        pairings = as_pairings(self.pairing, self.out_pairing)
        pairs, factor = prepared.pairs, attention_factor(self.attention_factor)
        if blocks < 1 or pairs % blocks:
            raise ArgumentValueError("blocks", f"be positive and divide the number of pairs, {pairs}", blocks)
        fields = {
            "frequencies": frequencies,
            "pairing": pairings[0],
            "out_pairing": None if pairings[1] == pairings[0] else pairings[1],
            "attention_factor": factor,
            "start": start,
            "blocks": blocks,
            "_prepared": prepared,
            "_plan_key": (pairings, start, blocks, pairs, prepared.axes, prepared.heads, factor == 1),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Return the fields that are not defaults as text; of the frequencies only their number and range without 0."""
        prepared, rows = self._prepared, self._prepared.rows
        counts = {"heads": prepared.heads, "axes": prepared.axes}
        sizes = "".join(f"{count} {name} of " for name, count in counts.items() if count is not None)
        nonzero = sorted((f for row in rows for f in row if f), key=abs) or [0.0]
        slow, fast = nonzero[0], nonzero[-1]
        parts = [f"<{sizes}{prepared.pairs} frequencies from {fast:g} to {slow:g}>", f"pairing={self.pairing!r}"]
        if self.out_pairing is not None:
            parts.append(f"out_pairing={self.out_pairing!r}")
        if self.attention_factor != 1:
            parts.append(f"attention_factor={self.attention_factor!r}")
        if self.start:
            parts.append(f"start={self.start}")
        if self.blocks != 1:
            parts.append(f"blocks={self.blocks}")
        return f"Rope({', '.join(parts)})"

    @staticmethod
    def from_config(
        config: object,
        /,
        *,
        part: str | None = None,
        layer_type: str | None = None,
        sequence_length: int | None = None,
        pairing: Pairing | None = None,
        factor: float | None = None,
    ) -> "Rope":
        """
        Read the rotation of a model from its config.

        Parameters
        ----------
        config : dict, path or object with ``to_dict()``
            A ``config.json`` of transformers, current or older; the config of a diffusers transformer; a
            ``params.json`` of Mistral, Meta or ExecuTorch; a config of DeepSeek's own code; a GGUF file, or its
            metadata as a dict.
        part : str, optional
            A part of the model, one of `rope_any.config.Config.parts`. The default is the text, else the only part that
            rotates, or the only such part outside the sub-configs.
        layer_type : str, optional
            The type of layers, if the config has several (``"full_attention"``, ...).
        sequence_length : int, optional
            The length of the sequence in tokens, by default the trained length, for the schemes that depend on it
            (dynamic, longrope).
        pairing : {"half", "interleaved"}, optional
            Needed for an unknown ``model_type``, whose config must also give the base, the share of the head and the
            types of layers. For a known one it must agree.
        factor : float, optional
            The factor of Llama 3's scaling, required for Meta's ``params.json`` and for GGUF metadata without the file,
            which lack it: 8 for Llama 3.1, 32 for Llama 3.2 1B and 3B, 1 without the tensor ``rope_freqs.weight``.

        Returns
        -------
        Rope
            The rotation of the model, or of one type of its layers.

        Raises
        ------
        TypeError
            If a value has a wrong type.
        ValueError
            If a key is unknown, missing or contradicted, a value is out of range, the ``model_type`` is unknown, layers
            differ and no `layer_type` is given, or these layers have no rotary embedding.

        Notes
        -----
        If the attention keeps its rotary slice in a tensor of its own (MLA), the result is for that slice.
        It is short for ``rope_any.config.read(config).rope()``, which tells more of the config, such as the source of
        each number. torch.compile can't trace this call.

        Examples
        --------
        >>> ra.Rope.from_config({"model_type": "llama", "head_dim": 128, "rope_theta": 500_000.0})
        Rope(<64 frequencies from 1 to 2.45514e-06>, pairing='half')
        """
        from rope_any.config import read

        found = read(config, pairing=pairing, factor=factor)
        return found.rope(part=part, layer_type=layer_type, sequence_length=sequence_length)

    def __call__(
        self,
        q: X,
        k: X,
        /,
        positions: Positions | Table | tuple[Table, Table] | None = None,
        *,
        seq_axis: int = -2,
        out: tuple[X, X] | None = None,
        fused: bool = False,
    ) -> tuple[X, X]:
        """
        Rotate queries and keys.

        Parameters
        ----------
        q, k : array
            ``(batch, heads, seq, head_dim)``, or any axes with the tokens along `seq_axis` and the features along the
            last one. The numbers of heads may differ, and q may be shorter than k.
        positions : positions, Table or pair of Table, optional
            The positions of the keys, as in the notes of `Rope`; a shorter q takes the last of them, as in decoding
            with a cache. The first table of a pair has a row for each query, or for each key, of which the last are
            used.
        seq_axis : int, optional
            The axis of the tokens in q and in k.
        out : pair of arrays, optional
            Where to write the results: q and k themselves, or arrays of their shapes. See `rotate`.
        fused : bool, optional
            Compile each rotation to one loop; and the table too, if it is made here and can be compiled, else without a
            warning. See `rotate` and `cos_sin`.

        Returns
        -------
        tuple of array
            The rotated q and k: `out`, or of the shape, dtype, library and device of their inputs.

        Raises
        ------
        TypeError, ValueError
            As for `rotate`, and if the positions don't fit the tokens or q is longer than k.
        """
        if type(seq_axis) is not int or type(fused) is not bool:
            seq_axis, fused = integer("seq_axis", seq_axis), flag("fused", fused)
        return self._rotate(
            (("q", "k"), seq_axis, fused, False, False), (q, k), positions, _NO_OUTS if out is None else _outs(out)
        )

    def apply(
        self,
        x: X,
        /,
        positions: Positions | Table | None = None,
        *,
        seq_axis: int = -2,
        inverse: bool = False,
        out: X | None = None,
        slots: Array | None = None,
        fused: bool = False,
    ) -> X:
        """
        Rotate one array.

        Parameters
        ----------
        x : array
            ``(..., seq, features)``, or with the tokens along another axis.
        positions : positions or Table, optional
            The positions of the tokens.
        seq_axis : int, optional
            The axis of the tokens.
        inverse : bool, optional
            Undo the rotation: rotate by the negative angles, and divide by the attention factor.
        out : array, optional
            Where to write the result, as for `rotate`; with `slots`, the cache, which is then required.
        slots : array, optional
            The slot of each token: integers ``(seq,)`` or ``(batch, ..., seq)``, of the lengths of x. `out` is then a
            cache ``(slots, ...)`` or ``(blocks, slots of a block, ...)`` and the other axes of x; slot n of the latter
            is at ``divmod(n, slots of a block)``. Tokens with a negative slot are skipped.
        fused : bool, optional
            As in a call of the Rope.

        Returns
        -------
        array
            The rotated x, of the same shape, dtype, library and device, or `out`.

        Raises
        ------
        TypeError, ValueError
            As for `rotate`, and if the positions or slots don't fit or `inverse` is given with a `BentTable`.

        Notes
        -----
        `slots` are the ``slot_mapping`` of vLLM. One past the end is an error for NumPy, and for torch on a CPU that
        is not compiling; elsewhere slots are not read, and such tokens are skipped. What a slot that tokens share
        holds afterwards is undefined.
        """
        inverse = flag("inverse", inverse)
        if inverse and isinstance(positions, BentTable):
            raise ArgumentValueError("inverse", "be False for a BentTable, which is not a rotation", inverse)
        if is_table_pair(positions):
            got = Text("a pair of tables, one for queries and one for keys")
            raise ArgumentValueError("positions", "be one table for one array", got)
        call = ("x",), integer("seq_axis", seq_axis), flag("fused", fused), inverse, False
        if slots is not None and out is None:
            raise ArgumentTypeError("out", "be a cache if `slots` are given", Text(type_name(out)))
        outs = (out,) if slots is None else (out, slots)
        return self._rotate(call, (x,), positions, outs)[0]  # type: ignore[no-any-return]  # as x

    def table(
        self, positions: Positions, /, *, like: Array | None = None, dtype: Any = None, fused: bool = False
    ) -> Table:
        """
        Make the table of positions once, for use in every layer.

        Parameters
        ----------
        positions : array, int, range or sequence of numbers
            ``(seq,)`` or ``(batch, seq)``; with frequencies of n rows there is one more axis, of length n.
        like, dtype, fused : optional
            As for `cos_sin`. Positions that are not an array need `like`.

        Returns
        -------
        Table
            The pair ``(cos, sin)``, with the shapes that `cos_sin` returns.

        Raises
        ------
        TypeError, ValueError
            As for `cos_sin`.

        Notes
        -----
        torch.compile compiles again for each end of a `range`. If lengths or starts change from call to call, give
        ``torch.arange(n, n + tokens)`` or ``[n]`` instead.
        """
        fused, factor, key = flag("fused", fused), self.attention_factor, None
        if is_consecutive(positions) and dtype is None:
            key = signature((like,), self._plan_key, "table", fused)
            make = None if key is None else PLANS.get(key)
            if make is not None:
                return make(self._prepared, factor, positions)  # type: ignore[no-any-return]  # a table
        made = table(positions, self._prepared, attention_factor=factor, dtype=dtype, like=like, fused=fused)
        lib: Any = None if key is None else find(like)
        if lib is not None and has_fast_ranges(lib, made.cos, self._prepared, made.cos.dtype):
            keep_plan(key, table_maker(lib, made.cos, range(0), self._prepared, made.cos.dtype, fused=fused))
        return made

    def reposition(
        self,
        keys: X,
        old: Positions | None,
        new: Positions | None,
        /,
        *,
        source: "Rope | None" = None,
        seq_axis: int = -2,
        out: X | None = None,
    ) -> X:
        """
        Move cached keys from positions `old` to positions `new`, by one rotation.

        Parameters
        ----------
        keys : array
            Keys that `apply` has rotated at `old`: ``(..., seq, features)``, or with the tokens along another axis.
        old, new : positions
            The present and future positions of the tokens, of any sign and order.
        source : Rope, optional
            The Rope that rotated the keys at `old`, if it was another one. It must have the same pairing, start, blocks
            and number of pairs.
        seq_axis, out : optional
            As for `apply`.

        Returns
        -------
        array
            The keys at `new`, of the same shape, dtype, library and device.

        Raises
        ------
        TypeError
            As for `rotate`, and if `source` is no Rope or a position is a table.
        ValueError
            As for `rotate`, and if the positions don't fit the tokens or `source` does not match.

        Notes
        -----
        The keys are rotated by ``new · W − old · W_source`` and multiplied by ``A / A_source``, where W are frequencies
        and A attention factors, by a table as exact as that of `cos_sin`. Only the rounding of the keys adds up: n
        moves of float32 keys cost at most n · 2⁻²⁴ of a pair's length, or twice that without float64. Half-precision
        keys lose small rotations of slow pairs.

        Examples
        --------
        >>> rope = ra.Rope(ra.frequencies(64), pairing="half")
        >>> k = np.random.default_rng(0).standard_normal((1, 8, 10, 64))
        >>> moved = rope.reposition(rope.apply(k, 5), 5, 0)  # five tokens before are evicted
        >>> bool(np.max(np.abs(moved - rope.apply(k, 0))) < 1e-12)
        True
        """
        named = {name: at for name, at in (("old", old), ("new", new)) if is_array(at)}
        lib = library(keys=keys, **({} if out is None else {"out": out}), **named)
        axis, source = integer("seq_axis", seq_axis), self if source is None else self._require_same_layout(source)
        tokens, places = tokens_of(lib, "keys", keys, axis), []
        for rope, name, at in ((self, "new", new), (source, "old", old)):
            if isinstance(at, Table) or is_table_pair(at):
                raise ArgumentTypeError(name, "be positions", Text("a table"))
            places += positions_by_axis(tokens, at, rope._prepared.axes, name=name)  # noqa: SLF001  # of a Rope
        move = reposition_frequencies(self._prepared, source._prepared)  # noqa: SLF001  # likewise
        factor = self.attention_factor / source.attention_factor
        wide = lib.dtype_name(keys.dtype) == "float32" and lib.has_float64_cosine and lib.has_float64(keys)
        wide = wide and (out is None or out.dtype == keys.dtype)  # else they would be rounded twice
        dtype = lib.float64 if wide else lib.compute_dtype(keys)
        made = table(stack_axes(lib, *places), move, attention_factor=factor, dtype=dtype, like=keys, lib=lib)
        call = ("keys",), axis, False, False, wide
        pairing, kept = self._plan_key[0]
        rope = self if pairing == kept else replace(self, pairing=kept)
        moved: X = rope._rotate(call, (keys,), made, (out,))[0]  # noqa: SLF001  # of a Rope
        return moved

    def _rotate(
        self,
        call: Call,
        xs: tuple[Array, ...],
        positions: Positions | Table | tuple[Table, Table] | None,
        outs: tuple[Array | None, ...],
    ) -> tuple[Array, ...]:
        """Rotate arrays `xs` by the cached plan for such a call; if there is none, check the arrays and make a plan."""
        given, kind = positions, type(positions)
        if kind is not int and kind is not Table and kind is not type(xs[-1]):  # they stay as they are
            given = given_positions(positions, like=xs[-1])
            kind = type(given)
        arrays = xs if outs[0] is None else xs + outs
        if kind is not int:
            more, kind = _key_parts(given)
            arrays += more
        key = signature(arrays, self._plan_key, kind, call)
        plan: _CallPlan | None = None if key is None else PLANS.get(key)
        if plan is None:
            lib = _one_library(call[0], xs, positions, outs)
            plan, tables = self._new_plan(call, xs, given, outs, lib)
            keep_plan(key, plan)
        else:
            tables = plan.tables(self._prepared, self.attention_factor, xs, given)
        return plan.rotate(xs, tables, outs)

    def _new_plan(
        self, call: Call, xs: tuple[Array, ...], given: Any, outs: tuple[Array | None, ...], lib: Library
    ) -> tuple["_CallPlan", Tables]:
        """Check the arrays of a call; return a plan for arrays like these, and the table or tables of this call."""
        names, axis, fused, inverse, wide = call
        tokens = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)]
        fewer_queries = len(tokens) == 2 and _has_fewer_queries(*tokens)
        options = self._prepared, self.attention_factor
        source = table_source(call, tokens, given, *options, fewer_queries=fewer_queries)
        tables = source(*options, xs, given)
        rotation = Rotation(lib, self._plan_key[0], self.start, inverse, fused, self.blocks, wide)
        each_table = as_pair(tables)[: len(xs)]
        broadcasters: list[Any] = [None] * len(xs)
        widths = tuple([x.shape[-1] for x in xs])
        given_by_array = given if is_table_pair(given) else (given,) * len(xs)
        calls = list(enumerate(zip(tokens, each_table, given_by_array, strict=True)))
        if fewer_queries:
            calls.reverse()  # so that an error about positions names the keys
        for i, (each, made, at) in calls:
            if isinstance(given, tuple):
                self._require_table_fits(lib, made)
            broadcasters[i] = broadcaster(each, tuple(made.cos.shape[:-1]), at, self._prepared.axes)
            require_rotatable(rotation, each.x, made, name=each.name, widths=widths)
        if len(outs) > len(xs):
            plan = plan_slots(rotation, tokens[0], each_table[0], outs, broadcasters[0])
        else:
            plan = plan_of(rotation, dict(zip(names, xs, strict=True)), each_table, outs, broadcasters)
        return _CallPlan(source, plan), tables

    def _require_table_fits(self, lib: Library, made_table: Table) -> None:
        """Raise unless cos and sin are floating-point arrays of one shape, with as many pairs as this Rope."""
        check_table(lib, *made_table)
        if made_table.cos.shape[-1] != (pairs := self._prepared.pairs):
            wanted = f"be of shape (..., {pairs}) if they are a table"
            hints = doubled_table_hint(made_table, pairs), "make it by the table() of this Rope"
            raise ArgumentValueError(
                "positions", wanted, tuple(made_table.cos.shape), "; else ".join(filter(None, hints))
            )

    def _require_same_layout(self, source: object) -> "Rope":
        """Return `source`; raise unless it is a Rope that rotates the same pairs of features, for as many heads."""
        if not isinstance(source, Rope):
            raise no_rope("source", source)

        def layout(rope: Rope) -> str:
            """Return as text which pairs of features a Rope rotates, and for how many heads it has frequencies."""
            (_, pairing), start, blocks, pairs, _, heads, *_ = rope._plan_key
            of_heads = "" if heads is None else f", for {heads} heads"
            return f"{pairing} pairing of {pairs} pairs from {start} in {blocks} blocks{of_heads}"

        if layout(self) != layout(source):
            wanted = f"rotate the same pairs of features, {layout(self)}"
            raise ArgumentValueError("source", wanted, Text(layout(source)))
        return source


_OF_FREQUENCIES = dict.fromkeys(
    ("theta", "base", "rope_theta", "dim", "rotary_dim", "head_dim"),
    "write Rope(frequencies(rotary_dim, base=theta), pairing=...), or Rope.from_config(config)",
)
_PAIRINGS = 'write pairing="half" or pairing="interleaved", as the checkpoint was trained; Rope.from_config knows it'
Rope.__init__ = keyword_hints(_OF_FREQUENCIES | {"pairing": _PAIRINGS})(Rope.__init__)  # type: ignore[method-assign]


class _CallPlan(NamedTuple):
    """What is cached for calls with arrays of some shapes; it holds no array and no Rope."""

    tables: TableSource
    rotate: Plan


def _key_parts(given: Any) -> tuple[tuple[Array, ...], Any]:
    """
    Return the arrays of what `given_positions` returned, and the other facts on it that a plan's key needs.

    They are the type; for a range its length too; for a pair of tables, whether it is one table twice.
    """
    kind = type(given)
    if kind is Table:
        return given, kind
    if kind is range:
        return (), (range, given.stop - given.start)
    if is_table_pair(given):
        return (*given[0], *given[1]), given[0] is given[1]
    return given if isinstance(given, tuple) else (given,), kind


def _has_fewer_queries(q: Tokens, k: Tokens) -> bool:
    """Whether there are fewer queries than keys; raise if there are more. Two unknown lengths (None) count as equal."""
    queries, keys = q.count, k.count
    unknown = queries is None or keys is None
    # of two symbols that may be equal the last rows are right in both cases
    fewer = queries != keys if unknown else known_difference(queries, keys) != 0
    if fewer and (unknown or queries > keys):
        got = Text(f"{queries} queries for {keys} keys")
        raise ArgumentValueError("q", "not be longer than k", got, seq_axis_hint(q, k))
    return bool(fewer)


def _one_library(
    names: tuple[str, ...], xs: tuple[Array, ...], positions: object, outs: tuple[Array | None, ...]
) -> Library:
    """Return the library of a call's arrays; raise for several, a non-array, or if only one of q and k is sharded."""
    named = dict(zip(names, xs, strict=True))
    for name, x in named.items():
        if isinstance(x, tuple | list) and not isinstance(x, Table) and any(map(is_array, x)):
            raise ArgumentTypeError(name, "be one array", Text(type_name(x)), "write rope(q, k, positions)")
        refuse_foreign(name, x)
        if name == "k" and not is_array(x):
            hint = "write apply(q, positions) for q alone" if x is None else APPLY
            raise ArgumentTypeError(name, "be an array", Text(type_name(x)), hint)
    labels = [f"the out of {name}" for name in names] if len(names) > 1 else ["out", "slots"]
    written = dict(zip(labels, outs, strict=False))
    lib = library(
        **named, **{name: out for name, out in written.items() if out is not None}, **_named_arrays(positions)
    )
    sharded = [name for name, x in named.items() if _sharding.is_sharded(x)]
    if len(sharded) == 1 and len(named) == 2:
        (plain,) = named.keys() - sharded
        got = Text(f"a plain {plain} and a sharded {sharded[0]}")
        raise ArgumentTypeError("q and k", "both be sharded or both plain tensors", got)
    return lib


def _named_arrays(positions: object) -> dict[str, Array]:
    """Return {name in errors: array} of positions that are an array, a table or a pair of tables; {} for others."""
    if isinstance(positions, Table):
        return {"cos": positions.cos, "sin": positions.sin}
    if is_table_pair(positions):
        (c, s), (cos, sin) = positions
        return {"cos of the queries": c, "sin of the queries": s, "cos of the keys": cos, "sin of the keys": sin}
    return {"positions": positions} if is_array(positions) else {}


_NO_OUTS = None, None


def _outs(out: Any) -> tuple[Array, Array]:
    """Return `out`, for q and for k, as a tuple; raise unless it is a tuple or list of two that are not None."""
    if not isinstance(out, tuple | list) or len(out) != 2 or any(part is None for part in out):
        got, hint = Text(type_name(out)), "write out=(q, k) to rotate in place"
        raise ArgumentTypeError("out", "be a pair of arrays, for q and for k", got, hint)
    return out[0], out[1]
