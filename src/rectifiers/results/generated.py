"""Files that are committed and made from records: written, or compared with what they would be."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rectifiers.runtime.errors import InputError
from rectifiers.runtime.files import write_text

END = "<!-- end -->"


def write_or_check(texts: Mapping[Path, str], check: bool, command: str) -> None:
    """Write the files, or with `check` compare them; `command` is what writes them.

    Raises:
        InputError: which names every file that has another text.
    """
    if check:
        refuse_stale(stale_files(texts), command)
    else:
        for path, text in texts.items():
            write_text(path, text)


def stale_files(texts: Mapping[Path, str], existing: Iterable[Path] = ()) -> list[Path]:
    """Return the files that do not have these texts, and the existing ones that are none of
    them."""
    changed = [p for p, text in texts.items() if not p.is_file() or p.read_text() != text]
    return [*changed, *sorted(set(existing) - texts.keys())]


def refuse_stale(stale: Iterable[Path], command: str) -> None:
    """Raise an InputError that names the files and the command, where there are any."""
    if named := ", ".join(map(str, stale)):
        raise InputError(f"not what the records say: {named}; run {command}")


def filled(document: str, name: str, text: str) -> str:
    """Return `document` with `text` between `<!-- name -->` and the next `<!-- end -->`."""
    pattern = f"(<!-- {re.escape(name)} -->\n).*?({END})"
    changed, count = re.subn(
        pattern, lambda match: match[1] + text + match[2], document, flags=re.S
    )
    if count != 1:
        raise InputError(
            f"a document has {count} blocks <!-- {name} --> with an {END}; give it one"
        )
    return changed
