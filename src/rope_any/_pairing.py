"""Pairings: which two features form a pair, "half" or "interleaved". Other orders are permutations of these."""

from typing import Any, Literal, TypeAlias

from rope_any._arrays import Library
from rope_any._checks import choice

Pairing: TypeAlias = Literal["half", "interleaved"]
"""``"half"`` rotates feature i with i + pairs, ``"interleaved"`` 2i with 2i + 1."""

Pairings: TypeAlias = tuple[Pairing, Pairing]
"""The pairing of what is not rotated yet, and that of what is rotated; mostly the same."""

# The axis of the two members when features are reshaped to (..., 2, pairs) or (..., pairs, 2).
MEMBER_AXIS = {"half": -2, "interleaved": -1}

_OTHER_NAMES = {
    "half": "half neox gptneox isneox halves splithalf halfsplit split blocked contiguous noninterleaved llamahf "
    "huggingface hf transformers",
    "interleaved": "interleaved interleave gptj everytwo adjacent consecutive evenodd norm normal meta llamameta "
    "traditional complex roformer",
}
"""Names of a pairing in other libraries, in lower-case letters, without "rotate" before and "style" after them."""


def as_pairing(value: object, name: str = "pairing") -> Pairing:
    """Return `value` if it is a pairing; otherwise raise an error that names the two pairings."""
    wanted = 'be "half" or "interleaved"'
    return choice(name, value, MEMBER_AXIS, wanted, _pairing_hint)  # type: ignore[return-value]  # a key is a Pairing


def as_pairings(pairing: object, out_pairing: object | None) -> Pairings:
    """Return a pairing and that of what is rotated, None for the same; raise as `as_pairing`."""
    first = as_pairing(pairing)
    return first, first if out_pairing is None else as_pairing(out_pairing, "out_pairing")


def _pairing_hint(value: object) -> str:
    """Return the pairing that another library's name (or flag, a bool) means, as an error's hint; "" if unknown."""
    if isinstance(value, bool):
        return 'is_neox_style=True of vLLM is "half", interleaved=True of flash-attention is "interleaved"'
    letters = "".join(c for c in str(value).lower() if c.isalpha()) if isinstance(value, str) else ""
    letters = letters.removeprefix("rotate").removesuffix("style")
    if letters == "llama":
        return 'Llama is "half" in a checkpoint of transformers, "interleaved" as Meta published it'
    return next((f'write "{own}"' for own, names in _OTHER_NAMES.items() if letters in names.split()), "")


def step_and_gap(pairing: Pairing, pairs: int) -> tuple[int, int]:
    """Return two distances in features: from a pair to the next, and from the first to the second member of a pair."""
    return (2, 1) if MEMBER_AXIS[pairing] == -1 else (1, pairs)


def members(pairing: Pairing, start: int, pairs: int) -> list[int]:
    """Return the indices of the features of `pairs` pairs from feature `start` on: first members, then second ones."""
    step, gap = step_and_gap(pairing, pairs)
    return [start + step * pair + member for member in (0, gap) for pair in range(pairs)]


def split(x: Any, pairing: Pairing) -> tuple[Any, Any]:
    """Return the first and the second members of the pairs that the features of x form, each ``(..., pairs)``."""
    if pairing == "interleaved":
        return x[..., ::2], x[..., 1::2]
    pairs = x.shape[-1] // 2
    return x[..., :pairs], x[..., pairs:]


def join(lib: Library, first: Any, second: Any, pairing: Pairing) -> Any:
    """Join first and second members, each ``(..., pairs)``, to features ``(..., 2 * pairs)`` in a pairing's order."""
    stacked = lib.stack([first, second], axis=MEMBER_AXIS[pairing])
    return lib.reshape_last_axes(stacked, 2, 2 * first.shape[-1])
