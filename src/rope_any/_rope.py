"""Rope: the parameters of a rotary position embedding, and the calls that rotate queries and keys by it."""

from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from rope_any._align import (
    APPLY,
    Tokens,
    align_head_table,
    broadcaster,
    expand_and_shard_positions,
    expand_positions,
    positions_by_axis,
    query_tail,
    seq_axis_hint,
    tokens_of,
)
from rope_any._arrays import (
    Array,
    Library,
    State,
    X,
    _sharding,
    break_graph,
    find,
    is_array,
    known_difference,
    library,
    refuse_foreign,
    signature,
    type_name,
)
from rope_any._caches import PLANS, keep_plan, reposition_frequencies
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
from rope_any._pairing import Pairing, as_pairing
from rope_any._positions import Positions, as_position_array, stack_axes
from rope_any._rotate import plan_of, require_rotatable
from rope_any._rotation import BentTable, Plan, Rotation, Table, check_table, doubled_table_hint
from rope_any._table import (
    can_add_angles,
    consecutive_table,
    is_consecutive_table,
    table,
    table_of_array,
)

_Call: TypeAlias = tuple[tuple[str, ...], int, bool, bool, bool]
"""The checked options of a call: names of the arrays, `seq_axis`, `fused`, `inverse`, whether all is in float64."""


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
        pairs, factor = prepared.pairs, attention_factor(self.attention_factor)
        if blocks < 1 or pairs % blocks:
            raise ArgumentValueError("blocks", f"be positive and divide the number of pairs, {pairs}", blocks)
        fields = {
            "frequencies": frequencies,
            "pairing": as_pairing(self.pairing),
            "attention_factor": factor,
            "start": start,
            "blocks": blocks,
            "_prepared": prepared,
            "_plan_key": (self.pairing, start, blocks, pairs, prepared.axes, prepared.heads, factor == 1),
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
            ``params.json`` of Mistral or Meta; a config of DeepSeek's own code; or the metadata of a GGUF file as a
            dict.
        part : str, optional
            A part of the model, named as in `rope_any.config.parts`. The default is the text, else the only part that
            rotates, or the only such part outside the sub-configs.
        layer_type : str, optional
            The type of layers, if the config has several (``"full_attention"``, ...).
        sequence_length : int, optional
            The length of the sequence in tokens, by default the trained length, for the schemes that depend on it
            (dynamic, longrope, dynamic_yarn).
        pairing : {"half", "interleaved"}, optional
            Needed for an unknown ``model_type``, whose config must also give the base, the share of the head and the
            types of layers. For a known one it must agree.
        factor : float, optional
            The factor of Llama 3's scaling, required for Meta's ``params.json`` and GGUF metadata, which lack it: 8 for
            Llama 3.1, 32 for Llama 3.2 1B and 3B, and 1 for a GGUF file without the tensor ``rope_freqs.weight``.

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
        `rope_any.config.explain` gives the source of each number. torch.compile can't trace this call.

        Examples
        --------
        >>> ra.Rope.from_config({"model_type": "llama", "head_dim": 128, "rope_theta": 500_000.0})
        Rope(<64 frequencies from 1 to 2.45514e-06>, pairing='half')
        """
        from rope_any.config._parts import choose_part, part_readers, read_part
        from rope_any.config._recipe import make_rope

        break_graph("call Rope.from_config outside of the compiled function, once, and close over the Rope")
        one = choose_part(part_readers(config, pairing=pairing, factor=factor), part)
        return make_rope(read_part(one, layer_type=layer_type, sequence_length=sequence_length))

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
            Where to write the results: q and k themselves, or arrays like them. See `rotate`.
        fused : bool, optional
            Compile each rotation to one loop, and the table too if it is made here. See `rotate` and `cos_sin`.

        Returns
        -------
        tuple of array
            The rotated q and k, each of the shape, dtype, library and device of its input.

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
            As for `rotate`.
        fused : bool, optional
            As in a call of the Rope.

        Returns
        -------
        array
            The rotated x, of the same shape, dtype, library and device.

        Raises
        ------
        TypeError, ValueError
            As for `rotate`, and if the positions don't fit the tokens or `inverse` is given with a `BentTable`.
        """
        inverse = flag("inverse", inverse)
        if inverse and isinstance(positions, BentTable):
            raise ArgumentValueError("inverse", "be False for a BentTable, which is not a rotation", inverse)
        if _is_pair(positions):
            got = Text("a pair of tables, one for queries and one for keys")
            raise ArgumentValueError("positions", "be one table for one array", got)
        call = ("x",), integer("seq_axis", seq_axis), flag("fused", fused), inverse, False
        return self._rotate(call, (x,), positions, (out,))[0]  # type: ignore[no-any-return]  # as x

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
        if type(positions) is range and positions.step == 1 and dtype is None:
            key = signature((like,), self._plan_key, "table", fused)
            lib = None if key is None else PLANS.get(key)
            if lib is not None:
                count = max(positions.stop - positions.start, 0)
                return consecutive_table(lib, positions.start, count, self._prepared, factor, fused=fused)
        made = table(positions, self._prepared, attention_factor=factor, dtype=dtype, like=like, fused=fused)
        if key is not None and is_consecutive_table(made, positions, self._prepared, fused=fused):
            keep_plan(key, find(like))
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
            if isinstance(at, Table) or _is_pair(at):
                raise ArgumentTypeError(name, "be positions", Text("a table"))
            places += positions_by_axis(tokens, at, rope._prepared.axes, name=name)  # noqa: SLF001  # of a Rope
        move = reposition_frequencies(self._prepared, source._prepared)  # noqa: SLF001  # likewise
        factor = self.attention_factor / source.attention_factor
        wide = lib.dtype_name(keys.dtype) == "float32" and lib.has_float64_cosine and lib.has_float64(keys)
        dtype = lib.xp.float64 if wide else lib.compute_dtype(keys)
        made = table(stack_axes(lib, *places), move, attention_factor=factor, dtype=dtype, like=keys, lib=lib)
        call = ("keys",), axis, False, False, wide
        return self._rotate(call, (keys,), made, (out,), lib)[0]  # type: ignore[no-any-return]  # as keys

    def _rotate(
        self,
        call: _Call,
        xs: tuple[Array, ...],
        positions: Positions | Table | tuple[Table, Table] | None,
        outs: tuple[Array | None, ...],
        lib: Library | None = None,
    ) -> tuple[Array, ...]:
        """Rotate arrays `xs` by the cached plan for such a call; if there is none, check the arrays and make a plan."""
        arrays = xs if outs[0] is None else xs + outs
        positions_key: object = type(positions)
        if positions_key is Table:
            arrays = (*arrays, *positions)  # type: ignore[misc]  # a table is a tuple
        elif positions_key is not int and positions is not None:
            if isinstance(positions, Integral) and positions_key is not bool:
                positions, positions_key = int(positions), int  # NumPy's integers are numbers
            else:
                positions = _as_array(xs[-1], positions)
                arrays, positions_key = _key_parts(arrays, positions)
        key = signature(arrays, self._plan_key, positions_key, call)
        call_plan: _CallPlan | None = None if key is None else PLANS.get(key)
        if call_plan is None:
            call_plan, tables = self._new_plan(call, xs, positions, outs, lib)
            keep_plan(key, call_plan)
        elif call_plan.uses_given_table:
            return call_plan.run(xs, positions, outs)
        else:
            tables = self._tables(call_plan, call, xs, positions)
        return call_plan.run(xs, tables, outs)

    def _new_plan(
        self,
        call: _Call,
        xs: tuple[Array, ...],
        positions: Positions | Table | tuple[Table, Table] | None,
        outs: tuple[Array | None, ...],
        lib: Library | None,
    ) -> tuple["_CallPlan", Table | tuple[Table, Table]]:
        """Check the arrays of a call; return a plan for arrays like these, and the table or tables of this call."""
        names, axis, fused, inverse, wide = call
        lib = lib or _one_library(names, xs, positions, outs)
        tokens = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)]
        fewer_queries = len(tokens) == 2 and _has_fewer_queries(*tokens)
        like = _like_of_table(lib, xs)
        changes_table = fewer_queries or inverse or self._prepared.heads is not None
        adds = lib.compute_dtype(like) == lib.xp.float32 and can_add_angles(lib, like, range(1), self._prepared)
        is_span = positions is None or type(positions) is int
        is_span = is_span or (type(positions) is range and positions.step == 1 and len(positions) == tokens[-1].count)
        uses_given_table = isinstance(positions, Table) and not changes_table
        adds = adds and is_span and not changes_table
        on_host = not fused and self._reads_array(lib, positions)
        facts = lib, fewer_queries, uses_given_table, adds, lib.compute_dtype(like) if on_host else None
        tables = self._tables(_CallPlan(*facts), call, xs, positions)
        rotation = Rotation(lib, self.pairing, self.start, inverse, fused, self.blocks, wide)
        each_table = _as_pair(tables)[: len(xs)]
        broadcasters, widths = [], tuple([x.shape[-1] for x in xs])
        given_positions = positions if _is_pair(positions) else (positions,) * len(xs)
        calls = list(zip(tokens, each_table, outs, given_positions, strict=True))
        if fewer_queries:
            calls.reverse()  # so that an error about positions names the keys
        for each, given, out, at in calls:
            if isinstance(positions, tuple):
                self._require_table_fits(lib, given)
            broadcasters.append(broadcaster(each, tuple(given.cos.shape[:-1]), at, self._prepared.axes))
            require_rotatable(rotation, each.x, given, out, name=each.name, widths=widths)
        if fewer_queries:
            broadcasters.reverse()
        plan = plan_of(rotation, dict(zip(names, xs, strict=True)), each_table, outs, broadcasters)
        return _CallPlan(*facts, plan), tables

    def _reads_array(self, lib: Library, positions: object) -> bool:
        """Whether `table_of_array` makes the table of these positions, which are a checked array in CPU memory."""
        if self._prepared.heads is not None or not is_array(positions) or positions.ndim == 0:
            return False
        is_known = lib.is_integer(positions) or lib.dtype_name(positions.dtype) in ("float32", "float64")
        return is_known and lib.state(positions) is State.HOST

    def _require_table_fits(self, lib: Library, made_table: Table) -> None:
        """Raise unless cos and sin are floating-point arrays of one shape, with as many pairs as this Rope."""
        check_table(lib, *made_table)
        if made_table.cos.shape[-1] != (pairs := self._prepared.pairs):
            wanted = f"be of shape (..., {pairs}) if they are a table"
            hints = doubled_table_hint(made_table, pairs), "make it by the table() of this Rope"
            raise ArgumentValueError(
                "positions", wanted, tuple(made_table.cos.shape), "; else ".join(filter(None, hints))
            )

    def _tables(
        self,
        call_plan: "_CallPlan",
        call: _Call,
        xs: tuple[Array, ...],
        positions: Positions | Table | tuple[Table, Table] | None,
    ) -> Table | tuple[Table, Table]:
        """
        Return the table of a call, or a pair for q and k: those given, unchecked, or made from positions.

        Fewer queries than keys get the last rows; for `inverse` it is divided by the square of the attention factor; if
        each head has frequencies, it gets the heads and axes of the arrays.
        """
        names, axis, fused, inverse, _ = call
        if call_plan.adds_angles:
            first: Any = positions.start if isinstance(positions, range) else positions or 0  # None or an int
            count = xs[0].shape[axis]
            return consecutive_table(call_plan.lib, first, count, self._prepared, self.attention_factor, fused=fused)
        lib, fewer_queries, *_ = call_plan
        tables: Table | tuple[Table, Table]
        if call_plan.array_dtype is not None:
            factor = self.attention_factor
            tables = table_of_array(lib, positions, self._prepared, factor, call_plan.array_dtype)
        elif isinstance(positions, Table):
            tables = positions
        elif _is_pair(positions):
            tables = positions[0] if positions[0] is positions[1] else positions
        else:
            tokens = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)]
            tables = self._make_table(tokens, positions, like=_like_of_table(lib, xs), fused=fused)
        if fewer_queries:
            (q_table, k_table), queries, keys = _as_pair(tables), *(x.shape[axis] for x in xs)
            tables = Table(*(query_tail(part, queries, keys, axis=-2) for part in q_table)), k_table
        if inverse and self.attention_factor != 1:
            # (A R)⁻¹ = Rᵀ / A, and the table holds A R; `apply` has one array and one table
            tables = Table(*(part / self.attention_factor**2 for part in _as_pair(tables)[0]))
        if (heads := self._prepared.heads) is not None:
            arrays = [tokens_of(lib, name, x, axis) for name, x in zip(names, xs, strict=True)]
            made = [align_head_table(one, given, heads) for one, given in zip(arrays, _as_pair(tables), strict=False)]
            tables = made[0] if len(made) == 1 else (made[0], made[1])
        return tables

    def _make_table(
        self, tokens: list[Tokens], positions: Positions | None, /, *, like: Array, fused: bool
    ) -> Table | tuple[Table, Table]:
        """Return a table for the last of `tokens`, float64 if `like` is, or float32; a pair if sharded q, k differ."""
        last, lib, axes, factor = tokens[-1], tokens[-1].lib, self._prepared.axes, self.attention_factor

        def table_for(tokens: Tokens, token_positions: Positions | None) -> Table:
            """Return the table of the tokens of one array at their positions."""
            each = expand_and_shard_positions(tokens, token_positions, axes)
            options: dict[str, Any] = {"fused": fused, "on_fallback": lambda _: None}  # the rotation warns
            return table(each, self._prepared, attention_factor=factor, like=like, lib=lib, **options)

        first, *others = tokens
        if others and lib.is_sharded(first.x):
            uneven = first.count != last.count or _sharding.placements(first.x) != _sharding.placements(last.x)
            if uneven:  # a process has other tokens of q than of k
                at = as_position_array(expand_positions(last, positions, axes), like=last.x, lib=lib)
                at = query_tail(at, first.count, last.count, axis=-1 if axes is None else -2)
                return table_for(first, at), table_for(last, positions)
        return table_for(last, positions)

    def _require_same_layout(self, source: object) -> "Rope":
        """Return `source`; raise unless it is a Rope that rotates the same pairs of features, for as many heads."""
        if not isinstance(source, Rope):
            raise no_rope("source", source)

        def layout(rope: Rope) -> str:
            """Return as text which pairs of features a Rope rotates, and for how many heads it has frequencies."""
            pairing, start, blocks, pairs, _, heads, *_ = rope._plan_key
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
    """What is cached for calls with arrays of some shapes: how to make their table, and how to rotate them."""

    lib: Library
    fewer_queries: bool
    """Whether there are fewer queries than keys."""
    uses_given_table: bool
    """Whether the call has one table, used unchanged."""
    adds_angles: bool
    """Whether `consecutive_table` makes the table: consecutive positions, arrays on a CPU."""
    array_dtype: Any = None
    """The dtype of the table if `table_of_array` makes it: of an array of positions on a CPU."""
    run: Plan = lambda *_: ()
    """Rotates the arrays."""


def _like_of_table(lib: Library, xs: tuple[Array, ...]) -> Array:
    """Return the array that gives a new table its dtype and device: the first if it is float64, else the last."""
    return xs[0] if lib.compute_dtype(xs[0]) == lib.xp.float64 else xs[-1]


def _as_pair(tables: Table | tuple[Table, Table]) -> tuple[Table, Table]:
    """Return (table of queries, table of keys); a single table is taken twice."""
    return (tables, tables) if isinstance(tables, Table) else tables


def _as_array(x: Array, positions: Any) -> Any:
    """Return a list of positions as an array, if x is in CPU memory and has a plan; else as they are."""
    if type(positions) is not list or signature((x,)) is None:
        return positions
    lib: Any = find(x)
    return as_position_array(positions, like=x, lib=lib) if lib.host is not None and lib.host.contains(x) else positions


def _key_parts(arrays: tuple[Array | None, ...], positions: object) -> tuple[tuple[Array | None, ...], object]:
    """
    Return `arrays` with those of `positions` appended, and the other facts on positions that a plan's key needs.

    They are the type; for a range (range, stop − start, step); for a pair of tables whether it is one table twice.
    """
    positions_key: object = type(positions)
    if positions_key is BentTable:
        return arrays + positions, positions_key  # type: ignore[operator]  # a table is a tuple
    if isinstance(positions, range):
        return arrays, (range, positions.stop - positions.start, positions.step)
    if _is_pair(positions):
        return (*arrays, *positions[0], *positions[1]), positions[0] is positions[1]
    return (*arrays, positions), positions_key


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
    written = {f"the out of {name}" if len(outs) > 1 else "out": out for name, out in zip(names, outs, strict=True)}
    lib = library(
        **named, **{name: out for name, out in written.items() if out is not None}, **_named_arrays(positions)
    )
    sharded = [name for name, x in named.items() if lib.is_sharded(x)]
    if len(sharded) == 1 and len(named) == 2:
        (plain,) = named.keys() - sharded
        got = Text(f"a plain {plain} and a sharded {sharded[0]}")
        raise ArgumentTypeError("q and k", "both be sharded or both plain tensors", got)
    return lib


def _is_pair(positions: object) -> TypeGuard[tuple[Table, Table]]:
    """Whether positions are a pair of tables, of queries and of keys."""
    return isinstance(positions, tuple) and len(positions) == 2 and all(isinstance(part, Table) for part in positions)


def _named_arrays(positions: object) -> dict[str, Array]:
    """Return {name in errors: array} of positions that are an array, a table or a pair of tables; {} for others."""
    if isinstance(positions, Table):
        return {"cos": positions.cos, "sin": positions.sin}
    if _is_pair(positions):
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
