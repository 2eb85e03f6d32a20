"""Before anything leaves the project: whether a file that would be packed holds what looks like a credential."""

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
    """What looks like a credential, and where it stands; of its value only as much as gives nothing away."""

    file: str
    line: int
    kind: str
    shown: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.kind} {self.shown}"


def refuse_credentials(
    sources: Mapping[str, Path], allowed: Sequence[str], tell: Callable[[str], None] = lambda _: None
) -> None:
    """Refuse files that hold what looks like a credential, unless the file or `kind:KIND` is allowed by name."""
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
            hint=f"Take it out and revoke it, or pack it with --allow {refused[0].file} or --allow "
            f"{KIND}{refused[0].kind}. Nothing was written.",
        )
    if credentials:
        tell(
            f"Packed by --allow: {counted(len(credentials), 'text')} that look like credentials, such "
            f"as {credentials[0]}."
        )


def find_credentials(sources: Mapping[str, Path]) -> list[Credential]:
    """Everything in these files that looks like a credential, file by file. Files of any size are read in blocks."""
    credentials = []
    for name, path in sorted(sources.items()):
        with open_regular(path) as file:
            credentials += [
                Credential(name, line, each.kind, masked(each.kind, secret)) for line, each, secret in scan(file)
            ]
    return credentials
