"""Writes `tests/public_names.json`: every name that people's programs may use, with its parameters and attributes.

    python tools/list_public_names.py

`tests/test_public_names.py` checks that all of them still work. Run this after adding a public name; a name that was
released leaves the file only when a deprecation has run out.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import fairtrial

TARGET = Path(__file__).resolve().parent.parent / "tests" / "public_names.json"

MODULES = ("fairtrial", "fairtrial.plugins", "fairtrial.testing")
"""Modules that say what is public in `__all__`."""

FOR_AUTHORS = {
    "fairtrial.core.options": ("LoopOptions", "Role", "TorchOptions", "option"),
    "fairtrial.core.scores": ("References",),
    "fairtrial.core.specs": ("Metric",),
    "fairtrial.core.training": ("Observer", "Trainable"),
    "fairtrial.recipes.data": ("load_data",),
}
"""Names of other modules that docs/ and examples/ tell authors of recipes, observers and launchers to import."""

CONSTRUCTED = frozenset({
    "Adjustment", "AnalysisChart", "BenchTerms", "BundleTerms", "Columns", "Constraints", "CostModel",
    "CostPerformanceAnalysis", "CostPoint", "ExecutionPolicy", "Exit", "GameCase", "ImportedRun", "Inference", "Intent",
    "LabConfig", "LabTerms", "LaunchTerms", "Method", "Metric", "Need", "OutputFormat", "ProfileTerms", "Question",
    "RecipeCase", "References", "Source", "StepSize", "Study", "SummaryOptions", "SummaryRule", "SummaryType",
})  # fmt: skip
"""Classes that programs make objects of; of all others, which are results, only attributes matter."""


def describe(name: str, value: Any) -> dict[str, Any]:
    """What a program may rely on: how it is called, and what a class or an object of it has."""
    known: dict[str, Any] = {"kind": "class" if inspect.isclass(value) else "function" if callable(value) else "value"}
    if callable(value) and (not inspect.isclass(value) or name in CONSTRUCTED):
        parameters = inspect.signature(value).parameters.values()
        known["parameters"] = [each.name for each in parameters if not each.name.startswith("_")]
    if inspect.isclass(value):
        known["attributes"] = sorted(
            name
            for name in {*dir(value), *getattr(value, "__annotations__", ()), *getattr(value, "model_fields", ())}
            if not name.startswith("_") and not hasattr(_pydantic_model(), name)
        )
    return known


def _pydantic_model() -> type:
    """What every pydantic model has is pydantic's to keep."""
    from pydantic import BaseModel

    return BaseModel


def list_names() -> dict[str, dict[str, Any]]:
    names = {module: importlib.import_module(module).__all__ for module in MODULES} | FOR_AUTHORS
    names["fairtrial"] = [*names["fairtrial"], *fairtrial._RENAMED]  # old names keep working
    return {
        module: {name: describe(name, getattr(importlib.import_module(module), name)) for name in sorted(each)}
        for module, each in names.items()
    }


def as_text(names: dict[str, dict[str, Any]]) -> str:
    """One name per line, so that a change of the file shows which ones changed."""
    modules = [
        f' "{module}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(known)}' for name, known in each.items()) + "\n }"
        for module, each in names.items()
    ]
    return "{\n" + ",\n".join(modules) + "\n}\n"


if __name__ == "__main__":
    TARGET.write_text(as_text(list_names()))
    print(TARGET)
