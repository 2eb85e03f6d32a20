"""A zip that is the same bytes for the same content, and that is looked at before anything of it is unpacked."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fairtrial.core.errors import UserError
from fairtrial.core.formatting import counted
from fairtrial.core.regular_files import open_regular
from fairtrial.core.untrusted import collisions, open_file, path_inside, why_unsafe

EPOCH = (1980, 1, 1, 0, 0, 0)
MODE, FOLDER_MODE = stat.S_IFREG | 0o644, stat.S_IFDIR | 0o755
PACKED_ALREADY = (".png", ".pdf", ".pt", ".zip", ".gz", ".parquet")
LEVEL = 6
CHUNK = 1 << 20
LARGEST = 64 << 30
"""Bytes that a bundle may have when it is unpacked."""
MOST_FILES = 2_000_000
SUSPICIOUS_RATIO, SUSPICIOUS_FROM = 200, 256 << 20
"""Text shrinks to a twentieth at best: what grows 200-fold and beyond this size was made to fill a disk."""

ProgressCallback = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


def quiet(_done: int, _total: int) -> None:
    """For those whom nobody watches."""


def write_zip(path: Path, files: Mapping[str, Path], on_progress: ProgressCallback = quiet) -> None:
    """Names in order, one time for all, one mode for all: nothing of when and where it was packed is left in it."""
    with under_another_name(path) as unfinished:
        _write_zip(unfinished, files, on_progress)


@contextmanager
def under_another_name(path: Path) -> Iterator[Path]:
    """Where to write what is to be at `path`: it is there when it is complete, and not at all otherwise."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.unlink(missing_ok=True)


def _write_zip(path: Path, files: Mapping[str, Path], on_progress: ProgressCallback) -> None:
    total, done = sum(file.stat().st_size for file in files.values()), 0
    with zipfile.ZipFile(path, "w", allowZip64=True) as archive:
        for name in sorted([*files, *folders_of(files)]):
            if name.endswith("/"):
                archive.writestr(_folder(name), b"")
                continue
            packed = PurePosixPath(name).suffix in PACKED_ALREADY
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            info._compresslevel = LEVEL  # type: ignore[attr-defined]
            info.create_system, info.external_attr = 3, MODE << 16
            info.file_size = files[name].stat().st_size
            with open_regular(files[name]) as source, archive.open(info, "w") as target:
                shutil.copyfileobj(source, target, CHUNK)
            done += info.file_size
            on_progress(done, total)


def folders_of(names: Iterable[str]) -> set[str]:
    """Every folder that files of these names lie in. The crate describes them, so the archive has them by name."""
    return {f"{parent}/" for name in names for parent in PurePosixPath(name).parents if parent != PurePosixPath()}


def _folder(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system, info.external_attr = 3, FOLDER_MODE << 16
    return info


def is_bundle(path: Path) -> bool:
    """Whether a path is meant as a bundle: an archive, or a folder. A registration is a JSON file."""
    return path.is_dir() or path.suffix.lower() == ".zip" or _begins_like_a_zip(path)


def _begins_like_a_zip(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip whose list of content may be trusted as far as paths, links and sizes go; else one sentence."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            refuse_unsafe(archive, path)
            yield archive
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise UserError(
            f"{path} is no whole zip file ({str(error).rstrip('.') or 'it ends too early'})",
            hint="It was cut off or damaged on its way: fetch it again.",
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def refuse_unsafe(archive: zipfile.ZipFile, path: Path) -> None:
    """Nothing is unpacked of a zip that could write elsewhere than into its folder, or fill the disk."""
    entries = archive.infolist()
    problems = [f"{path}: {message}" for info in entries if (message := _why_unsafe(info))]
    problems += [f"{path}: {name!r} is in it twice" for name in collisions(info.filename for info in entries)]
    problems += _why_too_large(entries, path)
    if problems:
        raise UserError(
            problems[0], problems=problems[1:5], hint="Nothing of it was unpacked. No bundle of Fairtrial is like this."
        )


def _why_unsafe(info: zipfile.ZipInfo) -> str | None:
    name, mode = info.orig_filename, info.external_attr >> 16
    if why := why_unsafe(name.removesuffix("/")):
        return f"the name {name!r} {why}"
    if stat.S_ISLNK(mode):
        return f"{name!r} is a link"
    usual = (0, stat.S_IFDIR) if name.endswith("/") else (0, stat.S_IFREG)
    if stat.S_IFMT(mode) not in usual or (name.endswith("/") and info.file_size):
        return f"{name!r} is neither an ordinary file nor a folder"
    if info.flag_bits & 0x1:
        return f"{name!r} is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"{name!r} is packed in a way that is not expected"
    return None


def _why_too_large(entries: Sequence[zipfile.ZipInfo], path: Path) -> list[str]:
    size, packed = sum(info.file_size for info in entries), sum(info.compress_size for info in entries)
    if len(entries) > MOST_FILES:
        return [f"{path} says that it holds {counted(len(entries), 'file')}"]
    if size > LARGEST:
        return [f"{path} says that it holds {size / 1e9:,.0f} GB, more than a bundle may"]
    if packed > path.stat().st_size:
        return [f"{path} has entries that lie over each other"]
    if size > SUSPICIOUS_FROM and size > SUSPICIOUS_RATIO * max(packed, 1):
        return [
            f"{path} would grow {size // max(packed, 1):,}-fold to {size / 1e9:,.1f} GB: it was made to fill a disk"
        ]
    return []


def unpack(archive: zipfile.ZipFile, folder: Path, on_progress: ProgressCallback = quiet) -> dict[str, tuple[int, str]]:
    """Every file of an archive that was found safe, with its size and SHA-256 as it was unpacked."""
    unpacked: dict[str, tuple[int, str]] = {}
    entries = [info for info in archive.infolist() if not info.is_dir()]
    total, done = sum(info.file_size for info in entries), 0
    for info in entries:
        target = path_inside(folder, info.filename, what="archive")
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(info) as source, target.open("xb") as file:
            digest, size = hashlib.sha256(), 0
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                file.write(chunk)
                size += len(chunk)
        unpacked[info.filename] = size, digest.hexdigest()
        done += size
        on_progress(done, total)
    return unpacked


def changed_container(archive: zipfile.ZipFile) -> list[str]:
    """What is not as Fairtrial packs it, though every file may be: times, order, comments, additions."""
    entries = archive.infolist()
    problems = ["the archive has a comment"] if archive.comment else []
    if entries and min(info.header_offset for info in entries) != 0:
        problems.append("something stands before the first file of the archive")
    if [info.filename for info in entries] != sorted(info.filename for info in entries):
        problems.append("the files are not in the order in which they were packed")
    names = {info.filename for info in entries}
    folders = folders_of(name for name in names if not name.endswith("/"))
    odd = sorted(folders ^ {name for name in names if name.endswith("/")})
    problems += [f"the folder {name} is {'missing' if name in folders else 'an addition'}" for name in odd]
    for info in entries:
        mode = FOLDER_MODE if info.is_dir() else MODE
        usual = info.date_time == EPOCH and info.external_attr == mode << 16 and info.create_system == 3
        if not usual or info.comment or (info.extra and info.file_size < 1 << 31):
            problems.append(f"{info.filename}: its entry has another time, mode or comment than it was packed with")
    return problems or _strange_bytes(archive)


def _strange_bytes(archive: zipfile.ZipFile) -> list[str]:
    """Bytes of the container that no file of it accounts for. What is unpacked never shows them.

    An archive is: a header and the packed content of each entry, one after the other; the directory, which repeats the
    headers; and its end record. Headers are compared with what the directory says of their entries.
    """
    file, problems, place = archive.fp, [], 0
    assert file is not None
    for info in archive.infolist():
        header = _header(info)
        file.seek(info.header_offset)
        if info.header_offset != place or file.read(len(header)) != header or _unusual(info):
            problems.append(f"{info.filename}: its header is not the one that it was packed with")
        place = info.header_offset + len(header) + info.compress_size
    if archive.start_dir != place:
        problems.append("something stands between the last file of the archive and its directory")
    directory = sum(46 + len(_encoded(info)) + len(info.extra) for info in archive.infolist())
    end = archive.start_dir + directory
    file.seek(end)
    rest = file.read(1 << 10)
    large = len(archive.infolist()) > 0xFFFF or end > zipfile.ZIP64_LIMIT
    if len(rest) != (98 if large else 22) or (not large and rest != _end_record(archive, directory)):
        problems.append("something stands behind the directory of the archive")
    return problems


def _encoded(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode()


def _unusual(info: zipfile.ZipInfo) -> bool:
    """What the directory says beyond what is unpacked: versions, flags, disks, kinds of content."""
    flags = 0 if info.orig_filename.isascii() else 0x800
    version = 45 if info.extra else 20
    said = (info.create_version, info.extract_version, info.reserved, info.flag_bits, info.volume, info.internal_attr)
    return said != (version, version, 0, flags, 0, 0)


def _header(info: zipfile.ZipInfo) -> bytes:
    """The header in front of a file's content, as it was written: the rest of it is in the directory."""
    return info.FileHeader(zip64=info.file_size * 1.05 > zipfile.ZIP64_LIMIT)


def _end_record(archive: zipfile.ZipFile, directory: int) -> bytes:
    count = len(archive.infolist())
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, directory, archive.start_dir, 0)
