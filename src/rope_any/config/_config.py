"""`Config`: what a config says of the rotations of a model, read once and asked for in several ways."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from rope_any._arrays import Array, break_graph
from rope_any._checks import NOTHING, ArgumentTypeError, ArgumentValueError, Text, integer
from rope_any._pairing import Pairing
from rope_any._positions import as_position_array
from rope_any._rope import Rope
from rope_any.config import _as_transformers, _explain
from rope_any.config._cautions import Caution, cautions
from rope_any.config._explain import Explanation
from rope_any.config._layers import common_value, groups_of_type, require_layers
from rope_any.config._load import is_name, load
from rope_any.config._parts import PartReader, choose_part, is_pipeline, part_readers, read_part, rotates
from rope_any.config._recipe import no_rotation, require_length, require_rotation
from rope_any.config._streams import stream
from rope_any.config.tables.words import WITHOUT_ATTENTION


def read(config: object, /, *, pairing: Pairing | None = None, factor: float | None = None) -> "Config":
    """
    Read the config of a model, once.

    Parameters
    ----------
    config : dict, path or object with ``to_dict()``
        A config in any form that `Rope.from_config` takes, or the folder of a diffusers pipeline.
    pairing, factor : optional
        As for `Rope.from_config`. Whether `pairing` is that of the model is checked when a part is asked for.

    Returns
    -------
    Config
        All that the config says of the rotations of the model.

    Raises
    ------
    TypeError, ValueError
        If it is no config, or nothing of it can be read. A part that can't be read beside others that can
        raises only when it is asked for.

    Examples
    --------
    >>> llama = {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 32, "rope_theta": 1e4}
    >>> config = ra.config.read(llama)
    >>> config
    Config of llama
      text, 32 layers: Rope(<64 frequencies from 1 to 0.000115478>, pairing='half')
    >>> config.rope() == ra.Rope.from_config(llama)
    True
    """
    break_graph("read configs outside of the compiled function, once, and close over the Rope")
    folder = Path(config) if isinstance(config, str | os.PathLike) and is_pipeline(Path(config)) else None
    keys = folder or load(config)
    readers = part_readers(keys, pairing=pairing, factor=factor)
    found = object.__new__(Config)
    for name, value in {"_source": keys, "_options": (pairing, factor), "_readers": readers}.items():
        object.__setattr__(found, name, value)
    return found


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Config:
    """
    The config of a model, as `read` returns it: its parts, and the rotations of their layers.

    It is immutable: what becomes of the object or the file that it was read from does not change it. In all methods,
    `part` is one of `parts`; without it they take the text, else the only part that rotates, or the only such part
    outside the sub-configs.

    Notes
    -----
    Each method raises a TypeError or a ValueError, with the key and what it must be, if the part that it reads is not
    known or a value of it is wrong.
    """

    _source: Mapping[str, Any] | Path
    """The config as a dict, or the path of the folder of a pipeline."""
    _options: tuple[Pairing | None, float | None]
    _readers: Mapping[str, PartReader]

    def __init__(self) -> None:
        """Raise, since `read` makes it."""
        msg = "a Config can't be made by itself: write rope_any.config.read(config)"
        raise TypeError(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what copies and pickles read again."""
        pairing, factor = self._options
        return partial(read, pairing=pairing, factor=factor), (self._source,)

    def __repr__(self) -> str:
        """Return a line for each rotation of each part; for a part that can't be read, the reason."""
        keys = {} if isinstance(self._source, Path) else self._source
        translated = (reader.part.model_type for reader in self._readers.values() if reader.part.form)
        names = (keys.get("model_type"), keys.get("_class_name"), *translated)
        name = next((f" of {name}" for name in names if is_name(name) and name), "")
        lines = [line for part in self.parts for line in self._lines(part)] or ["no rotary embedding"]
        return "\n  ".join([f"Config{name}", *lines, *(f"caution: {each}" for each in self.cautions)])

    def _lines(self, part: str) -> list[str]:
        """Return a line of text for each rotation of a part, or one with the reason why it can't be read."""
        try:
            explanations = self.explain(part=part)
        except (TypeError, ValueError) as error:
            return [f"{part}: refused: {error}"]
        return [f"{part}, {_named_layers(one)}: {one.rope or 'no rotary'}" for one in explanations]

    @property
    def parts(self) -> tuple[str, ...]:
        """
        The names of the parts that have rotary embedding.

        In order: ``text``; ``indexer`` (of sparse attention); ``vision``, ``audio``; ``transformer`` (of diffusers),
        and its other rotations as ``transformer.audio`` or the like. Other parts have the path of their sub-config,
        such as ``talker_config.code_predictor_config``, and those of a diffusers pipeline the name of a folder. A part
        that no `Rope` can express is included; methods that read it raise with the reason.

        Examples
        --------
        >>> ra.config.read({"model_type": "deepseek_v32", "qk_rope_head_dim": 64}).parts
        ('text', 'indexer')
        """
        return tuple(name for name, reader in self._readers.items() if rotates(reader))

    def rope(
        self, *, part: str | None = None, layer_type: str | None = None, sequence_length: int | None = None
    ) -> Rope:
        """
        Return the rotation of a part, or of one type of its layers.

        Parameters
        ----------
        part, layer_type, sequence_length : optional
            As for `Rope.from_config`.

        Returns
        -------
        Rope
            As that of `Rope.from_config`.

        Raises
        ------
        ValueError
            If layers differ and no `layer_type` is given, or these layers have no rotary embedding.
        """
        reader = choose_part(self._readers, part)
        made = read_part(reader, layer_type=layer_type, sequence_length=sequence_length)
        return require_rotation(made).rope

    def layers(self, *, part: str | None = None, sequence_length: int | None = None) -> list[Rope | None]:
        """
        Return the rotation of each layer.

        Parameters
        ----------
        part, sequence_length : optional
            As for `Rope.from_config`.

        Returns
        -------
        list of Rope or None
            One for each layer, in order; None for a layer that has no rotary embedding.

        Raises
        ------
        ValueError
            If the config does not give the number of layers, or the type of each layer.

        Examples
        --------
        >>> smol = {"model_type": "smollm3", "head_dim": 128, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]}
        >>> [rope is not None for rope in ra.config.read(smol).layers()]
        [True, True, True, False]
        """
        reader = choose_part(self._readers, part)
        length = require_length(sequence_length)
        found: dict[int, Rope | None] = {}
        for group in reader.layers():
            rope = None if group.unrotated else reader.recipe(group, length).rope
            if group.indices is None and group.unrotated:
                raise no_rotation(group.unrotated)
            if group.indices is None:
                require_layers(reader.part, group.counts)
            found |= dict.fromkeys(group.indices or (), rope)
        return [found[i] for i in sorted(found)]

    def explain(
        self, *, part: str | None = None, layer_type: str | None = None, sequence_length: int | None = None
    ) -> tuple[Explanation, ...]:
        """
        Return all rotations of a part, with the source of each value.

        Parameters
        ----------
        part, layer_type, sequence_length : optional
            As for `Rope.from_config`, but by default all types of layers.

        Returns
        -------
        tuple of Explanation
            One for each different rotation, by type of layers if types have their own parameters. If no layer of a type
            or of the part has rotary embedding, it has no `Rope`; other layers without it are left out.

        Examples
        --------
        >>> llama = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32}
        >>> (one,) = ra.config.read(llama).explain()
        >>> one.facts["rope_theta"]
        Fact(value=10000.0, source='default of llama')
        >>> one.facts["head_dim"]
        Fact(value=128, source='hidden_size // num_attention_heads')
        """
        reader = choose_part(self._readers, part)
        found = _explain.explain(reader, layer_type, require_length(sequence_length))
        of_part = [each for each in self.cautions if self._readers[each.part] is reader]
        return tuple(
            one._replace(cautions=tuple(each for each in of_part if each.layer_type in (None, one.layer_type)))
            for one in found
        )

    @cached_property
    def cautions(self) -> tuple[Caution, ...]:
        """
        What the config says that was probably not meant, or that not all programs read alike.

        For the text and parts like it: lengths that don't fit each other and the factor, a base that only the class
        gives, and what transformers 4, vLLM, SGLang or llama.cpp read in another way, and how far. `explain`,
        ``rope-any inspect`` and `rope_any.integrations.torch.audit` show them too.

        Examples
        --------
        >>> yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
        >>> qwen = {"model_type": "qwen2", "head_dim": 128, "rope_theta": 1e6, "rope_scaling": yarn}
        >>> one, _ = ra.config.read(qwen | {"max_position_embeddings": 32768}).cautions
        >>> one.meant
        'probably max_position_embeddings 131072, or factor 1'
        """
        return cautions(self._readers)

    def score_scale(self, *, part: str | None = None, layer_type: str | None = None) -> float:
        """
        Return the factor by which the model multiplies the product of rotated queries and keys, before the softmax.

        Parameters
        ----------
        part, layer_type : optional
            As for `Rope.from_config`. Indexers have no such scale, and that of diffusers' transformers is not known.

        Returns
        -------
        float
            In most models 1/√head_dim. It does not include the attention factor, which is in cos and sin.

        Raises
        ------
        ValueError
            If the scale is learned or not known, or layers differ in it and no `layer_type` is given.

        Examples
        --------
        >>> ra.config.read({"model_type": "llama", "head_dim": 64}).score_scale()
        0.125
        """
        reader = choose_part(self._readers, part)
        if reader.score is None:
            wanted = "be the text or a tower: only their score scales are known"
            raise ArgumentValueError("part", wanted, NOTHING if part is None else part)
        groups = reader.layers()
        if any(not group.unrotated for group in groups):  # then attention without rotary has a score scale too
            attends = [bool(group.values) and group.layer_type not in WITHOUT_ATTENTION for group in groups]
            groups = tuple(
                each._replace(unrotated=None) if yes else each for each, yes in zip(groups, attends, strict=True)
            )
        scale = common_value(reader.part, groups_of_type(groups, layer_type), reader.score, key=lambda fact: fact.value)
        if isinstance(scale, str):
            raise no_rotation(scale)
        return float(scale.value)

    def positions(
        self,
        shape: Sequence[int] | None = None,
        /,
        *,
        token_ids: Any = None,
        grids: Sequence[Any] = (),
        mask: Any = None,
        time_advances: bool = True,
        part: str | None = None,
        like: Array,
    ) -> Array:
        """
        Return the positions of a grid of tokens, or of a stream of text, images and videos, as the model numbers them.

        Give either `shape` (a grid) or `token_ids` (a stream).

        Parameters
        ----------
        shape : sequence of int, optional
            The tokens of a grid along each axis, (frames, rows, columns) or (rows, columns): patches for a vision
            tower.
        token_ids : array or nested sequence of int, optional
            The token ids of a stream, ``(batch, seq)``, on the host. Their values are read.
        grids : sequence, optional
            The images and videos of a stream in the order of its tokens, batch row by row: (frames, rows, columns) in
            patches, and for a video of Qwen2.5-VL or an Omni model the seconds between frames.
        mask : array or nested sequence, optional
            0 for padding, ``(batch, seq)``. Padding gets position 0.
        time_advances : bool, optional
            As for `rope_any.positions.mrope`.
        part : str, optional
            The tower or the transformer of a grid, as for `Rope.from_config`. A stream is always text.
        like : array
            Gives the library and the device.

        Returns
        -------
        array
            For a grid ``(tokens, axes)``, in the order of the model's tokens: integers if all are whole numbers. For a
            stream ``(batch, seq, 3)``, time, height, width: integers, but floats for Qwen3-Omni.

        Raises
        ------
        ValueError
            If the config does not define the positions of that part, the model's numbering of streams is not known, or
            grids don't fit the tokens.

        Examples
        --------
        >>> tower = {"embed_dim": 64, "num_heads": 2, "spatial_merge_size": 2}
        >>> config = ra.config.read({"model_type": "qwen2_vl", "vision_config": tower})
        >>> config.positions((2, 4), part="vision", like=np.empty(0))[:5].tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2]]
        """
        if (shape is None) == (token_ids is None):
            wanted = "be given: a grid or the tokens of a stream, not both"
            raise ArgumentValueError("either shape or token_ids", wanted)
        if shape is None:
            if part not in (None, "text"):
                raise ArgumentValueError("part", "be text for token_ids", part)
            whole = choose_part(self._readers, "text").whole
            return stream(whole, token_ids, grids, like=like, mask=mask, time_advances=time_advances)
        if not isinstance(shape, list | tuple):
            raise ArgumentTypeError("shape", "be a tuple of integers", shape)
        found = self._grid(tuple(shape), part)
        whole_numbers = all(float(p).is_integer() for token in found for p in token)
        lists = [[int(p) if whole_numbers else float(p) for p in token] for token in found]
        return as_position_array(lists, like=like)

    def _grid(self, shape: tuple[int, ...], part: str | None) -> tuple[tuple[float, ...], ...]:
        """Return the positions of the tokens of a grid, or raise if the config does not define them for this part."""
        reader = choose_part(self._readers, part)
        found = None if reader.grid is None else reader.grid(shape)
        if found is None:
            wanted = "be one whose config defines the positions of a grid"
            hint = "for this part, the caller chooses them: see rope_any.positions"
            if part is None and "vision" in self._readers:
                hint = 'write part="vision" for the patches of images'
            raise ArgumentValueError("part", wanted, NOTHING if part is None else part, hint)
        return found

    def as_transformers(self, *, version: int = 5) -> dict[str, Any]:
        """
        Return the config of a text model in the form of transformers 5, or in the older one of transformers 4.

        Parameters
        ----------
        version : {5, 4}, optional
            The form of 5 has all parameters in ``rope_parameters``, under today's names, by type of layer if layers
            differ. That of 4 has ``rope_scaling``, and the base and the share of the head outside of it, under the
            names of the model's own class.

        Returns
        -------
        dict
            A new config of the same rotation, with the model's defaults filled in. Other keys are unchanged, and so is
            a config without rotary embedding.

        Raises
        ------
        ValueError
            If the config is GGUF metadata, a params.json or not of a text model, if layers of one type differ, or if
            transformers 4 has no keys for the rotation.

        Examples
        --------
        >>> neox = ra.config.read({"model_type": "gpt_neox", "head_dim": 64, "rotary_pct": 0.5})
        >>> neox.as_transformers()["rope_parameters"]
        {'rope_type': 'default', 'rope_theta': 10000.0, 'partial_rotary_factor': 0.5}
        """
        if integer("version", version) not in (4, 5):
            raise ArgumentValueError("version", "be 5 or 4", version)
        if isinstance(self._source, Path):
            raise ArgumentValueError("config", "be that of a text model", Text("a pipeline of diffusers"))
        reader = choose_part(self._readers, None)
        new = load(_as_transformers.as_transformers(self._source, reader, version))  # a copy
        if version == 4:
            self._require_same_rotations(new)
        return new

    def _require_same_rotations(self, older: dict[str, Any]) -> None:
        """Raise unless the form of transformers 4, `older`, is read as the same rotations of the text."""
        expected, why = self._rotations(), "the older form means another rotation"
        try:
            found = read(older, pairing=self._options[0])._rotations()  # noqa: SLF001  # of a Config
        except (TypeError, ValueError) as error:
            found, why = set(), f"in the older form, {error}"
        if found != expected:
            raise _as_transformers.inexpressible(why)

    def _rotations(self) -> set[Rope | None]:
        """Return the rotations of all layers of the text."""
        return {one.rope for one in self.explain() if one.layers != ()}


def _named_layers(explanation: Explanation) -> str:
    """Return the type and the number of the layers with a rotation as text: "full_attention, 5 layers"."""
    count = "all" if explanation.layers is None else len(explanation.layers)
    text = f"{count} layer{'' if count == 1 else 's'}"
    return f"{explanation.layer_type}, {text}" if explanation.layer_type else text


def readers_of(config: Config, /) -> Mapping[str, PartReader]:
    """Return the readers of all parts by name, for other modules of the package."""
    return config._readers  # noqa: SLF001
