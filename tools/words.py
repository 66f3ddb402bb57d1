"""Count the words of each page of the documentation as a reader sees them: code, tables and the reference included.

``python tools/words.py`` builds the pages as text (extra ``docs``) and prints a line for each, the longest first.
The sources of the example programs are counted too, but not those of the package's modules (`_modules/`).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def words(text: str) -> int:
    """Return the number of words in a text: what spaces separate, if it has a letter or a digit."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


def pages(docs: Path) -> dict[str, int]:
    """Return the words of each page, by its name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "text")
        options = f"-q -b text -d {folder}/doctrees"
        command = [sys.executable, "-m", "sphinx", *options.split(), docs, out]
        subprocess.run(command, check=True)  # noqa: S603  # nothing of it comes from elsewhere
        files = [file for file in out.rglob("*.txt") if "_modules" not in file.parts]
        return {str(file.relative_to(out).with_suffix("")): words(file.read_text("utf-8")) for file in files}


if __name__ == "__main__":
    counts = pages(ROOT / "docs")
    for page, count in sorted(counts.items(), key=lambda row: -row[1]):
        print(f"{count:7,}  {page}")
    print(f"{sum(counts.values()):7,}  in all")
