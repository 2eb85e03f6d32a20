"""Whatever a training keeps can be saved, and resuming gives back the same types and values, bit for bit."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairtrial
from fairtrial.core.errors import StoreError, UserError
from fairtrial.record.checkpoints import read_checkpoint, write_checkpoint
from fairtrial.record.store import Store

ARRAYS = {
    "float32": np.array([[1.5, -0.0, math.nan], [math.inf, 1e-45, 3.0]], dtype=np.float32),
    "int64": np.array([2**62, -1]),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "empty": np.zeros((0, 3)),
    "0-d": np.array(2.5),
    "text": np.array(["a", "bcd"]),
    "time": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "strided": np.arange(10)[::3],
    "scalar": np.float32(0.1),
    "float64 scalar": np.float64(0.1),
}


def through_a_file(tmp_path: Path, state: Any) -> Any:
    write_checkpoint(tmp_path / "step-1.pt", 1, state)
    return read_checkpoint(tmp_path / "step-1.pt").state


@pytest.mark.parametrize("kind", ARRAYS)
def test_an_array_comes_back_bit_for_bit(tmp_path: Path, kind: str) -> None:
    given = ARRAYS[kind]
    back = through_a_file(tmp_path, {"nested": [{"x": given}]})["nested"][0]["x"]
    assert type(back) is type(given) and back.dtype == given.dtype and back.shape == given.shape
    assert back.tobytes() == given.tobytes()


GENERATORS = {
    "PCG64": lambda: np.random.default_rng(3),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(3)),
    "Philox": lambda: np.random.Generator(np.random.Philox(3)),
    "RandomState": lambda: np.random.RandomState(3),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_numpy_generator_continues_where_it_was(tmp_path: Path, kind: str) -> None:
    generator: Any = GENERATORS[kind]()
    generator.normal(size=7)
    back = through_a_file(tmp_path, {"rng": generator})["rng"]
    assert type(back) is type(generator)
    assert back.normal(size=20).tolist() == generator.normal(size=20).tolist()


def test_generators_of_python_and_torch_and_their_states_continue(tmp_path: Path) -> None:
    own, theirs, numbers = random.Random(3), torch.Generator().manual_seed(3), np.random.default_rng(3)
    state = {
        "own": own, "own_state": own.getstate(), "torch": theirs, "torch_state": theirs.get_state(),
        "numpy_state": numbers.bit_generator.state, "legacy": np.random.RandomState(3).get_state(),
    }  # fmt: skip
    back = through_a_file(tmp_path, state)
    assert back["own_state"] == own.getstate() and back["own"].random() == own.random()
    assert torch.equal(back["torch_state"], state["torch_state"])
    assert torch.equal(torch.rand(3, generator=back["torch"]), torch.rand(3, generator=theirs))
    assert back["numpy_state"] == numbers.bit_generator.state
    assert isinstance(back["legacy"], tuple) and back["legacy"][1].tolist() == state["legacy"][1].tolist()  # type: ignore[index]


def test_a_module_and_its_optimizer_are_saved_as_their_states(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    back = through_a_file(tmp_path, {"model": model, "optimizer": optimizer})
    assert torch.equal(back["model"]["weight"], model.weight.detach())
    again = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())
    again.load_state_dict(back["optimizer"])
    assert torch.equal(again.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert list(through_a_file(tmp_path, model)) == ["weight", "bias"]


def test_everything_that_cannot_be_saved_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        write_checkpoint(tmp_path / "x.pt", 1, {"a": {"f": print}, "b": [np.array([object()])], "c": {1, 2}, "d": 1})
    assert [refused.value.message, *refused.value.problems] == [
        "this state cannot be saved: a.f is of type builtin_function_or_method",
        "this state cannot be saved: b[0] is an array of object; only arrays of numbers, text and times are saved",
        "this state cannot be saved: c is of type set",
    ]
    with pytest.raises(UserError, match="a state must be a dictionary or a torch module, not list"):
        write_checkpoint(tmp_path / "x.pt", 1, [1, 2])  # type: ignore[arg-type]
    assert not (tmp_path / "x.pt").exists()


@pytest.mark.parametrize(
    "value",
    [
        {"__fairtrial__": "os.system", "command": "true"},
        {"__fairtrial__": "numpy.ndarray", "dtype": "O", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"__fairtrial__": "numpy.ndarray", "dtype": "<f8", "shape": [99], "base64": "AAAAAAAAAAA="},
        {"__fairtrial__": "numpy.Generator", "state": {"bit_generator": "__loader__"}},
        {"__fairtrial__": ["list"]},
    ],
)
def test_an_encoded_value_from_elsewhere_is_checked(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "step-1.pt"
    path.write_text(json.dumps({"step": 1, "state": {"x": value}}))
    with pytest.raises(StoreError, match="checkpoint"):
        read_checkpoint(path)


def test_a_program_without_torch_saves_arrays_and_generators(tmp_path: Path) -> None:
    code = (
        "import sys, random, math, numpy as np, fairtrial\n"
        "with fairtrial.run(variant='v', store='s') as run:\n"
        "    rng = np.random.default_rng(1)\n"
        "    run.save(1, {'w': np.arange(3.0), 'rng': rng, 'py': random.getstate(), 'nan': math.nan, 'b': b'x', 2: (1,)})\n"
        "    back = run.resume().state\n"
        "    assert back['py'] == random.getstate() and back['w'].tolist() == [0, 1, 2] and math.isnan(back['nan'])\n"
        "    assert back['rng'].random() == rng.random() and back['b'] == b'x' and back[2] == (1,)\n"
        "    assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_training_with_numpy_resumes_identically(store: Store) -> None:
    def train(stop: int | None) -> list[float]:
        weights, rng, first = np.zeros(3, dtype=np.float32), np.random.default_rng(5), 1
        with fairtrial.run(variant=f"stop{stop}", store=store.root) as run:
            for step in range(first, 7):
                weights = weights + rng.normal(size=3).astype(np.float32)
                run.save(step, {"weights": weights, "rng": rng})
                if step == stop:
                    run.release()
                    break
        if stop is not None:
            with fairtrial.run(variant=f"stop{stop}", store=store.root) as run:
                saved = run.resume()
                assert saved is not None and saved.step == stop
                weights, rng = saved.state["weights"], saved.state["rng"]
                for _ in range(saved.step + 1, 7):
                    weights = weights + rng.normal(size=3).astype(np.float32)
        return [float(each) for each in weights]

    assert train(3) == train(None)
