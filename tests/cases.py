"""Programs that run in processes of their own, and cases there that report their failures to pytest by name."""

import os
import subprocess
import sys
import traceback
from functools import partial


def python(*options, **variables):
    """Run Python in a separate process, with some environment variables; it must succeed; return what it prints."""
    command, environment = [sys.executable, *map(str, options)], os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def registry():
    """Return an empty dict of cases by name, and a decorator that adds a function to it, once for each argument."""
    cases = {}

    def case(*parameters):
        """Return a decorator that adds a function under its name, with each parameter or tuple of them."""

        def add(function):
            """Add the function, once for each parameter."""
            name = function.__name__.replace("_", " ")
            for parameter in parameters or [()]:
                arguments = (parameter,) if isinstance(parameter, str) else parameter
                cases[": ".join(filter(None, [name, ", ".join(arguments)]))] = partial(function, *arguments)
            return function

        return add

    return cases, case


def failures(cases):
    """Run cases; return the tracebacks of those that failed, by name."""
    failed = {}
    for name, run in cases.items():
        try:
            run()
        except Exception:  # noqa: BLE001  # reported by name
            failed[name] = traceback.format_exc()
    return failed
