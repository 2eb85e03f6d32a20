"""Reproducible zip files: the same content gives the same bytes, and archives are checked before unpacking."""

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
"""Maximum size of an unpacked bundle, in bytes."""
MOST_FILES = 2_000_000
SUSPICIOUS_RATIO, SUSPICIOUS_FROM = 200, 256 << 20
"""Text compresses to a twentieth at best, so an archive that grows 200-fold beyond this size is a zip bomb."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of bytes done and the total."""


def quiet(_done: int, _total: int) -> None:
    """Ignore progress."""


def write_zip(path: Path, files: Mapping[str, Path], on_progress: ProgressCallback = quiet) -> None:
    """Write a zip with sorted names and a fixed time and mode, independent of when and where it is made."""
    with under_another_name(path) as unfinished:
        _write_zip(unfinished, files, on_progress)


@contextmanager
def under_another_name(path: Path) -> Iterator[Path]:
    """Yield a temporary path and rename it to `path` on success, so that `path` is never incomplete."""
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
    """Return every folder that contains one of the files. The crate describes folders, so the archive lists them."""
    return {f"{parent}/" for name in names for parent in PurePosixPath(name).parents if parent != PurePosixPath()}


def _folder(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.create_system, info.external_attr = 3, FOLDER_MODE << 16
    return info


def is_bundle(path: Path) -> bool:
    """Whether a path is a bundle, that is, an archive or a folder. A registration is a JSON file."""
    return path.is_dir() or path.suffix.lower() == ".zip" or _begins_like_a_zip(path)


def _begins_like_a_zip(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    except OSError:
        return False


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose entries have safe paths, links and sizes, or raise an error."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            refuse_unsafe(archive, path)
            yield archive
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, zlib.error, NotImplementedError) as error:
        raise UserError(
            f"{path} is not a complete zip file ({str(error).rstrip('.') or 'it is truncated'})",
            hint="It was truncated or damaged during transfer. Download it again.",
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def refuse_unsafe(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise an error for a zip that could write outside its folder or fill the disk, before anything is unpacked."""
    entries = archive.infolist()
    problems = [f"{path}: {message}" for info in entries if (message := _why_unsafe(info))]
    problems += [f"{path}: it contains {name!r} twice" for name in collisions(info.filename for info in entries)]
    problems += _why_too_large(entries, path)
    if problems:
        raise UserError(
            problems[0], problems=problems[1:5], hint="Nothing was unpacked. Fairtrial does not make such bundles."
        )


def _why_unsafe(info: zipfile.ZipInfo) -> str | None:
    name, mode = info.orig_filename, info.external_attr >> 16
    if why := why_unsafe(name.removesuffix("/")):
        return f"the name {name!r} {why}"
    if stat.S_ISLNK(mode):
        return f"{name!r} is a link"
    usual = (0, stat.S_IFDIR) if name.endswith("/") else (0, stat.S_IFREG)
    if stat.S_IFMT(mode) not in usual or (name.endswith("/") and info.file_size):
        return f"{name!r} is neither a regular file nor a folder"
    if info.flag_bits & 0x1:
        return f"{name!r} is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"{name!r} uses an unexpected compression method"
    return None


def _why_too_large(entries: Sequence[zipfile.ZipInfo], path: Path) -> list[str]:
    size, packed = sum(info.file_size for info in entries), sum(info.compress_size for info in entries)
    if len(entries) > MOST_FILES:
        return [f"{path} claims to contain {counted(len(entries), 'file')}, more than a bundle may have"]
    if size > LARGEST:
        return [f"{path} claims to contain {size / 1e9:,.0f} GB, more than a bundle may have"]
    if packed > path.stat().st_size:
        return [f"{path} has overlapping entries"]
    if size > SUSPICIOUS_FROM and size > SUSPICIOUS_RATIO * max(packed, 1):
        return [f"{path} would grow {size // max(packed, 1):,}-fold to {size / 1e9:,.1f} GB: it looks like a zip bomb"]
    return []


def unpack(archive: zipfile.ZipFile, folder: Path, on_progress: ProgressCallback = quiet) -> dict[str, tuple[int, str]]:
    """Unpack an archive that passed `refuse_unsafe`. Return the size and SHA-256 of every file."""
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
    """Return how the container differs from what Fairtrial writes, apart from file contents: times, order, comments."""
    entries = archive.infolist()
    problems = ["the archive has a comment"] if archive.comment else []
    if entries and min(info.header_offset for info in entries) != 0:
        problems.append("there is data before the first file of the archive")
    if [info.filename for info in entries] != sorted(info.filename for info in entries):
        problems.append("the files are not in the original order")
    names = {info.filename for info in entries}
    folders = folders_of(name for name in names if not name.endswith("/"))
    odd = sorted(folders ^ {name for name in names if name.endswith("/")})
    problems += [f"the folder {name} is {'missing' if name in folders else 'an extra one'}" for name in odd]
    for info in entries:
        mode = FOLDER_MODE if info.is_dir() else MODE
        usual = info.date_time == EPOCH and info.external_attr == mode << 16 and info.create_system == 3
        if not usual or info.comment or (info.extra and info.file_size < 1 << 31):
            problems.append(f"{info.filename}: the time, mode or comment of its entry was changed")
    return problems or _strange_bytes(archive)


def _strange_bytes(archive: zipfile.ZipFile) -> list[str]:
    """Return problems with bytes of the container that belong to no file. Unpacking never shows such bytes.

    An archive consists of a header and the compressed content of each entry, one after the other, then the directory,
    which repeats the headers, and an end record. Headers are compared with the directory.
    """
    file, problems, place = archive.fp, [], 0
    assert file is not None
    for info in archive.infolist():
        header = _header(info)
        file.seek(info.header_offset)
        if info.header_offset != place or file.read(len(header)) != header or _unusual(info):
            problems.append(f"{info.filename}: its header was changed")
        place = info.header_offset + len(header) + info.compress_size
    if archive.start_dir != place:
        problems.append("there is data between the last file of the archive and its directory")
    directory = sum(46 + len(_encoded(info)) + len(info.extra) for info in archive.infolist())
    end = archive.start_dir + directory
    file.seek(end)
    rest = file.read(1 << 10)
    large = len(archive.infolist()) > 0xFFFF or end > zipfile.ZIP64_LIMIT
    if len(rest) != (98 if large else 22) or (not large and rest != _end_record(archive, directory)):
        problems.append("there is data after the directory of the archive")
    return problems


def _encoded(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode()


def _unusual(info: zipfile.ZipInfo) -> bool:
    """Whether the directory entry has an unusual version, flag, disk number or content type."""
    flags = 0 if info.orig_filename.isascii() else 0x800
    version = 45 if info.extra else 20
    said = (info.create_version, info.extract_version, info.reserved, info.flag_bits, info.volume, info.internal_attr)
    return said != (version, version, 0, flags, 0, 0)


def _header(info: zipfile.ZipInfo) -> bytes:
    """Return the local header that Fairtrial writes before the content of a file."""
    return info.FileHeader(zip64=info.file_size * 1.05 > zipfile.ZIP64_LIMIT)


def _end_record(archive: zipfile.ZipFile, directory: int) -> bytes:
    count = len(archive.infolist())
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, directory, archive.start_dir, 0)
