"""Search for credentials in the files of a bundle, before the bundle is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairtrial.core.errors import UserError, unknown
from fairtrial.core.formatting import counted
from fairtrial.core.regular_files import open_regular
from fairtrial.core.secrets import KIND_NAMES, masked, scan

KIND = "kind:"
MOST_LISTED = 20


@dataclass(frozen=True)
class Credential:
    """A text that looks like a credential, with its location. `shown` reveals only a harmless part of the value."""

    file: str
    line: int
    kind: str
    shown: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.kind} {self.shown}"


def refuse_credentials(
    sources: Mapping[str, Path], allowed: Sequence[str], tell: Callable[[str], None] = lambda _: None
) -> None:
    """Raise an error if a file contains a possible credential, unless the file or `kind:KIND` is allowed by name."""
    kinds = {name.removeprefix(KIND) for name in allowed if name.startswith(KIND)}
    for name in sorted(kinds - set(KIND_NAMES)):
        raise UserError(f"--allow: {unknown('kind', name, KIND_NAMES)}")
    files = {name for name in allowed if not name.startswith(KIND)}
    for name in sorted(files - set(sources)):
        raise UserError(f"--allow: {unknown('file of the bundle', name, sources)}")
    credentials = find_credentials(sources)
    refused = [each for each in credentials if each.file not in files and each.kind not in kinds]
    if refused:
        problems = [f"this looks like a credential: {each}" for each in refused[:MOST_LISTED]]
        if len(refused) > MOST_LISTED:
            problems.append(f"and {len(refused) - MOST_LISTED:,} more")
        raise UserError(
            problems[0],
            problems=problems[1:],
            hint=f"Remove it and revoke it, or include it with --allow {refused[0].file} or --allow "
            f"{KIND}{refused[0].kind}. Nothing was written.",
        )
    if credentials:
        tell(
            f"Included because of --allow: {counted(len(credentials), 'text')} that may be credentials, such "
            f"as {credentials[0]}."
        )


def find_credentials(sources: Mapping[str, Path]) -> list[Credential]:
    """Return everything in these files that looks like a credential, file by file. Files are read in blocks."""
    credentials = []
    for name, path in sorted(sources.items()):
        with open_regular(path) as file:
            credentials += [
                Credential(name, line, each.kind, masked(each.kind, secret)) for line, each, secret in scan(file)
            ]
    return credentials
