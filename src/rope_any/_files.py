"""Write files atomically: existing files are replaced when all new ones are complete, or not at all."""

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rope_any._checks import NOTHING, ArgumentValueError, Text


def require_replaceable(targets: list[Path], *, overwrite: bool) -> None:
    """Raise if a target exists (with `overwrite`: is not a regular file), or if the folder of all can't be made."""
    if not (place := _existing_ancestor(targets[0].parent)).is_dir():
        raise ArgumentValueError(place, "be a folder, to write to", Text("a file"))
    for target in targets:
        if target.exists() and not target.is_file():
            kind = Text("a directory" if target.is_dir() else "a device or a pipe")
            raise ArgumentValueError(target, "be a file that can be replaced", kind)
        if os.path.lexists(target) and not overwrite:
            raise ArgumentValueError(target, "not exist", NOTHING, "choose another place, or `overwrite`")


def require_not_source(targets: list[Path], sources: list[Path]) -> None:
    """Raise if a target is a source file, also under another name (a link)."""
    for target in targets:
        for source in sources:
            if target.exists() and target.samefile(source):
                got = Text(f"{target} for {source}")
                raise ArgumentValueError("OUT", "not be IN, which is never touched", got)


@contextmanager
def replace_together(targets: list[Path], *, overwrite: bool) -> Iterator[list[Path]]:
    """Yield a temporary path per target (in one folder) to write to; at exit move all there, or raise and move none."""
    folder = targets[0].parent
    with _exit_on_signal(), tempfile.TemporaryDirectory(dir=_existing_ancestor(folder), prefix=".rope-any-") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        old.mkdir()
        parts = [new / target.name for target in targets]
        yield parts
        require_replaceable(targets, overwrite=overwrite)  # again: writing may have taken long
        folder.mkdir(parents=True, exist_ok=True)
        aside = [(target, old / target.name) for target in targets if os.path.lexists(target)]
        _move([*aside, *zip(parts, targets, strict=True)])


def _move(moves: list[tuple[Path, Path]]) -> None:
    """Rename each path (old, new) in order; undo all if one fails. A file at a new path is lost, also if undone."""
    with ExitStack() as back:
        for old, new in moves:
            back.callback(_move_back, old, new)  # before the move: Ctrl-C may come right after it
            old.replace(new)
        back.pop_all()


def _move_back(old: Path, new: Path) -> None:
    """Undo a move from `old` to `new`; do nothing if `old` still exists, because the move did not happen."""
    if not os.path.lexists(old):
        new.replace(old)


@contextmanager
def _exit_on_signal() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit in this context, in the main thread, unless they have a handler."""

    def leave(number: int, _: object) -> None:
        """Handle a signal: ignore the next ones, and raise SystemExit with the status that a shell would report."""
        for one in caught:
            signal.signal(one, signal.SIG_IGN)  # a second signal would interrupt the cleanup
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    main = threading.current_thread() is threading.main_thread()  # only this one can set handlers
    caught = [one for one in numbers if main and signal.getsignal(one) == signal.SIG_DFL]  # nohup ignores SIGHUP
    for one in caught:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in caught:
            signal.signal(one, signal.SIG_DFL)


def _existing_ancestor(folder: Path) -> Path:
    """Return `folder` if it exists, else its nearest ancestor that exists; it may be a file."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())
