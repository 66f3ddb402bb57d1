"""Write files whole or not at all: old files stay as they are until all new ones are complete."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rope_any._checks import NOTHING, ArgumentValueError, Text


def require_free(targets: list[Path], *, overwrite: bool) -> None:
    """Say that nothing may stand where files of one folder are to go, or with `overwrite` nothing but files."""
    if not (place := _nearest(targets[0].parent)).is_dir():
        raise ArgumentValueError(place, "be a folder, to write to", Text("a file"))
    for target in targets:
        if target.exists() and not target.is_file():
            kind = Text("a directory" if target.is_dir() else "a device or a pipe")
            raise ArgumentValueError(target, "be a file that can be replaced", kind)
        if os.path.lexists(target) and not overwrite:
            raise ArgumentValueError(target, "not exist", NOTHING, "choose another place, or `overwrite`")


def require_apart(targets: list[Path], sources: list[Path]) -> None:
    """Say that nothing may be written over what is read, under any of its names."""
    for target in targets:
        for source in sources:
            if target.exists() and target.samefile(source):
                got = Text(f"{target} for {source}")
                raise ArgumentValueError("OUT", "not be IN, which is never touched", got)


@contextmanager
def whole(targets: list[Path], *, overwrite: bool) -> Iterator[list[Path]]:
    """Give files of one folder to write to, which take their places when all are whole; else all is as it was."""
    folder = targets[0].parent
    with _leaving(), tempfile.TemporaryDirectory(dir=_nearest(folder), prefix=".rope-any-") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        old.mkdir()
        parts = [new / target.name for target in targets]
        yield parts
        require_free(targets, overwrite=overwrite)  # the work took its time
        folder.mkdir(parents=True, exist_ok=True)
        aside = [(target, old / target.name) for target in targets if os.path.lexists(target)]
        _move([*aside, *zip(parts, targets, strict=True)])


def _move(moves: list[tuple[Path, Path]]) -> None:
    """Move files from place to place, all of them, or on any failure none."""
    with ExitStack() as back:
        for old, new in moves:
            back.callback(_move_back, old, new)  # before it is moved: Ctrl-C may come at once
            old.replace(new)
        back.pop_all()


def _move_back(old: Path, new: Path) -> None:
    if not os.path.lexists(old):
        new.replace(old)


@contextmanager
def _leaving() -> Iterator[None]:
    """Leave by an exception, which cleans up, where a signal would end the process at once."""

    def leave(number: int, _: object) -> None:
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # a second one would cut the cleaning short
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    main = threading.current_thread() is threading.main_thread()  # which alone may say what signals do
    caught = [one for one in numbers if main and signal.getsignal(one) == signal.SIG_DFL]  # nohup ignores SIGHUP
    for one in caught:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in caught:
            signal.signal(one, signal.SIG_DFL)


def _nearest(folder: Path) -> Path:
    """Return a folder, or the first above it that is there."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
