"""Import time, each in a fresh interpreter."""


def timeraw_import():
    """Return the code to time: the import."""
    return "import rope_any"


def timeraw_import_after_numpy():
    """Return the code to time, and the setup that imports NumPy before it."""
    return "import rope_any", "import numpy"
