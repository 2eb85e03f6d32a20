"""The whole table, in the order of the documents."""

from __future__ import annotations

from tests.documents import checkpoints, distillation, language, pipeline, specification, validator
from tests.documents.records import Item

ITEMS: list[Item] = sorted(
    [
        *validator.items(),
        *distillation.items(),
        *language.items(),
        *checkpoints.items(),
        *pipeline.items(),
        *specification.items(),
    ],
    key=lambda item: item.document,
)

SCRIPTS = {"research": distillation.WORKFLOW}
