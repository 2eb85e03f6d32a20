"""Small things that our own launchers know about stores, files and versions, and that no plug-in was found to need."""

from __future__ import annotations

from fairtrial.core.formatting import counted
from fairtrial.core.paths import SUBMITTED, is_url
from fairtrial.core.private_files import is_trusted_note
from fairtrial.jobs.mailbox import open_mailbox
from fairtrial.jobs.signals import ENDING
from fairtrial.version import __version__

__all__ = ["ENDING", "SUBMITTED", "__version__", "counted", "is_trusted_note", "is_url", "open_mailbox"]
