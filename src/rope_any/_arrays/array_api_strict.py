"""array-api-strict: the array API standard alone; this record only adds that nothing traces it."""

import array_api_strict as xp

from rope_any._arrays._library import Library, State

LIBRARY = Library(
    name="array_api_strict",
    types=("array_api_strict.Array",),
    xp=xp,
    state=lambda *_: State.EAGER,
)
