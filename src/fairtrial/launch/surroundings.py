"""Internal helpers of the built-in launchers, which are not part of the plug-in API."""

from __future__ import annotations

from fairtrial.core.formatting import counted
from fairtrial.core.paths import SUBMITTED, is_url
from fairtrial.core.private_files import is_trusted_note
from fairtrial.jobs.mailbox import open_mailbox
from fairtrial.jobs.signals import ENDING
from fairtrial.version import __version__

__all__ = ["ENDING", "SUBMITTED", "__version__", "counted", "is_trusted_note", "is_url", "open_mailbox"]
