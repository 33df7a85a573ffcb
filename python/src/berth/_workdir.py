"""Archive of a local folder, by the rules of `berth run --workdir` (src/cli/workdir.ts)."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from ._built import WORKDIR_BYTES, WORKDIR_ENTRIES
from ._context import config_path

_MIB = 1024 * 1024
#: Files whose patterns leave other files out, in the syntax of Git. The later one has precedence.
_IGNORE_FILES = (".gitignore", ".berthignore")
#: Time of all files, so that equal files give equal bytes: 2000-01-01.
_FILE_TIME = 946_684_800
_HINT = "Leave it out with a .berthignore, which has the patterns of a .gitignore, or use a volume for data."


@dataclass(frozen=True)
class PackedFolder:
    """Archive, and the folder in the container that gets its files; None: the default."""

    sha256: str
    archive: bytes
    path: str | None


def pack_workdir(workdir: str | os.PathLike[str], most_bytes: int) -> PackedFolder:
    """
    Packs the folder of `DIR` or `DIR:/PATH`: all files that no ignore file leaves out, without `.git`. Raises ValueError if
    it is too large, or a link leads out of it.
    """
    found = re.fullmatch(r"(.+?)(?::(/[^:]*))?", os.fspath(workdir), re.DOTALL)
    if found is None:
        raise ValueError("workdir is not a folder: write DIR or DIR:/PATH.")
    root = os.path.abspath(found[1])
    entries = list(_entries(root, "", [], _own_folders(root)))
    if len(entries) > WORKDIR_ENTRIES:
        raise ValueError(f"workdir {found[1]} has {len(entries)} files; the limit is {WORKDIR_ENTRIES}. {_HINT}")
    packed = io.BytesIO()
    total = 0
    # A time in the header would make equal files differ.
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for entry in entries:
                total += _add(archive, root, entry)
                if total > WORKDIR_BYTES:
                    raise ValueError(
                        f"workdir {found[1]} is larger than {WORKDIR_BYTES // _MIB} MiB, which is the limit. {_HINT}"
                    )
                if packed.tell() > most_bytes:
                    break
    if packed.tell() > most_bytes:
        raise ValueError(
            f"workdir {found[1]} is larger, compressed, than {most_bytes // _MIB} MiB, which is the limit. {_HINT}"
        )
    content = packed.getvalue()
    return PackedFolder(hashlib.sha256(content).hexdigest(), content, found[2])


def _own_folders(root: str) -> set[str]:
    """Returns the relative paths of Berth's own folders, which have credentials: no archive has them."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folders = (str(config_path().parent), os.path.join(state, "berth"))
    real = os.path.realpath(root)
    return {os.path.relpath(os.path.realpath(one), real).replace(os.sep, "/") for one in folders}


def _entries(
    root: str, folder: str, above: list[tuple[str, GitIgnoreSpec]], without: set[str]
) -> Iterator[os.DirEntry[str]]:
    """Gives what is to be packed, in one order on all machines."""
    rules = [*above, *_rules(root, folder)]
    with os.scandir(os.path.join(root, folder)) as children:
        for child in sorted(children, key=lambda one: one.name):
            is_folder = child.is_dir(follow_symlinks=False)
            path = f"{folder}{child.name}"
            if child.name == ".git" or path in without:
                continue
            if _is_ignored(f"{path}/" if is_folder else path, rules):
                continue
            _require_utf8(path, path)
            if is_folder:
                yield child
                yield from _entries(root, f"{path}/", rules, without)
            elif child.is_symlink() or child.is_file():
                yield child


def _rules(root: str, folder: str) -> list[tuple[str, GitIgnoreSpec]]:
    lines: list[str] = []
    for name in _IGNORE_FILES:
        try:
            with open(os.path.join(root, folder, name), encoding="utf-8") as file:
                lines += file.read().splitlines()
        except OSError:
            continue
    return [(folder, GitIgnoreSpec.from_lines(lines))] if lines else []


def _is_ignored(path: str, rules: list[tuple[str, GitIgnoreSpec]]) -> bool:
    """Returns true if the rules leave a path out. Those of a deeper folder have precedence, as in Git."""
    for folder, patterns in reversed(rules):
        decision = patterns.check_file(path[len(folder) :]).include
        if decision is not None:
            return decision
    return False


def _add(archive: tarfile.TarFile, root: str, entry: os.DirEntry[str]) -> int:
    """Adds an entry to the archive. Returns the bytes of its content."""
    path = os.path.relpath(entry.path, root).replace(os.sep, "/")
    header = tarfile.TarInfo(path)
    # Other permissions, owners and times differ between checkouts of the same files.
    header.mtime = _FILE_TIME
    if entry.is_symlink():
        header.type, header.linkname = tarfile.SYMTYPE, _link_target(root, path, os.readlink(entry.path))
        archive.addfile(header)
        return 0
    if entry.is_dir():
        header.type, header.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(header)
        return 0
    with open(entry.path, "rb") as file:
        facts = os.fstat(file.fileno())
        header.size, header.mode = facts.st_size, 0o755 if facts.st_mode & 0o100 else 0o644
        archive.addfile(header, file)
    return header.size


def _link_target(root: str, path: str, target: str) -> str:
    """Returns the target of a link, relative to the link. Raises ValueError if it leads out of the folder."""
    _require_utf8(path, target)
    inner = target[len(root) :] if target.startswith(f"{root}/") else None
    folder = posixpath.dirname(f"/{path}")
    if inner is None and (
        target.startswith("/")
        or posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")[0] == ".."
    ):
        raise ValueError(
            f"workdir: {path} is a link to {target}, outside of the folder. Leave it out with a .berthignore."
        )
    return posixpath.relpath(inner or posixpath.join(folder, target), folder)


def _require_utf8(path: str, text: str) -> None:
    """Archives have names in UTF-8: Berth would read and write another file than this one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode(errors="replace")
        raise ValueError(
            f"workdir: a name of {shown} is not UTF-8. Rename the file, or leave it out with a .berthignore."
        ) from None
