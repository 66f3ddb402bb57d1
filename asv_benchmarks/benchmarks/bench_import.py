"""Import time, each in a fresh interpreter."""


def timeraw_import():
    """Return what to time: all of it."""
    return "import rope_any"


def timeraw_import_after_numpy():
    """Return what to time, and what before: the part that is not NumPy's."""
    return "import rope_any", "import numpy"
