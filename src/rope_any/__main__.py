"""``python -m rope_any``: the command line."""

from rope_any.cli import main

if __name__ == "__main__":
    main()
