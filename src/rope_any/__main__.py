"""Run the command line as ``python -m rope_any``."""

from rope_any.cli import main

if __name__ == "__main__":
    main()
