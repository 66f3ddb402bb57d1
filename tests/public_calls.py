"""The public functions that take arrays, in typical calls: (function, *arrays of NumPy) by name."""

from rope_any.testing import calls

_ROWS = {name: (call.function, *call.arrays) for name, call in calls().items()}
READING = {name: row for name, row in _ROWS.items() if calls()[name].reads}
CALLS = {name: row for name, row in _ROWS.items() if name not in READING}
# Calls with numbers that are no arrays, or without a Rope: these are copied to the device each time
COPYING = {"rope(q, k, list)", "reposition, reals", "table, list of reals", "cos_sin"}
COPYING |= {"packed", "from_starts, list", "grid", "gather_order", "mrope", "mrope, audio"}
COPYING |= {"convert", "convert_state_dict", "pack, angles", "pack, mlx"}
ROPE, Q, K, P = CALLS["rope(q, k, array)"]
