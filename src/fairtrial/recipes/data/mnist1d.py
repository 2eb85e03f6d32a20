"""MNIST-1D, generated locally: 40-point signals in ten classes.

The published 4,000 training and 1,000 test examples are `train` and `report`. `eval` is a new sample from the same
distribution.
"""

from __future__ import annotations

from typing import Any

VERSION = 1
PUBLISHED_SEED = 42
EVAL_SEED = 20_261_115
EVAL_SIZE = 1000
FRESH_SEEDS = 2**31
"""First seed of freshly generated report data, far from the two seeds above. mnist1d accepts seeds below 2^32."""


def make() -> dict[str, Any]:
    return splits(PUBLISHED_SEED, EVAL_SEED)


def make_report(number: int) -> dict[str, Any]:
    return fresh_report(number)


def splits(seed: int, eval_seed: int, **changes: Any) -> dict[str, Any]:
    """Generate train and report data from `seed` and eval data from `eval_seed`, with `changes` to the settings."""
    published, fresh = generate(seed, **changes), generate(eval_seed, **changes)
    return {
        "train_x": published["x"],
        "train_y": published["y"],
        "eval_x": fresh["x"][:EVAL_SIZE],
        "eval_y": fresh["y"][:EVAL_SIZE],
        "report_x": published["x_test"],
        "report_y": published["y_test"],
    }


def fresh_report(number: int, **changes: Any) -> dict[str, Any]:
    """Generate new report data from the same distribution, which no run has been evaluated on."""
    fresh = generate(FRESH_SEEDS + number, **changes)
    return {"report_x": fresh["x_test"], "report_y": fresh["y_test"]}


def generate(seed: int, **changes: Any) -> dict[str, Any]:
    """Return what `mnist1d.data.make_dataset` returns for this seed, bit for bit, in a tenth of its time.

    The library also transforms the time axis of each example, builds each of its grids again, and reseeds the global
    generators. Here each example draws the same random numbers in the same order from a generator of its own.
    """
    import mnist1d.data
    import numpy

    settings = mnist1d.data.get_dataset_args()
    for name, value in changes.items():
        setattr(settings, name, value)
    templates = mnist1d.data.get_templates()
    generator = numpy.random.RandomState(seed)
    per_class = settings.num_samples // len(templates["y"])
    x = _examples(numpy.repeat(templates["x"], per_class, axis=0), settings, generator)
    shuffled = generator.permutation(len(x))
    x, y = x[shuffled], numpy.repeat(templates["y"], per_class)[shuffled]
    x = ((x - x.mean()) / x.std()).astype(numpy.float32)
    y = y.astype(numpy.int64)
    train = int(len(y) * settings.train_split)
    return {"x": x[:train], "x_test": x[train:], "y": y[:train], "y_test": y[train:]}


def _examples(templates: Any, settings: Any, generator: Any) -> Any:
    """Return one distorted signal per template: stretched, scaled, translated, with noise, sheared and subsampled."""
    import numpy
    from scipy.ndimage import gaussian_filter1d

    shortest, longest = settings.padding
    length = settings.template_len + longest
    lengths = range(settings.template_len + shortest, length + 1)
    grids = {each: numpy.linspace(0, 1, each) for each in (*lengths, settings.final_seq_length)}
    signals, slopes = numpy.empty((len(templates), length)), numpy.empty((len(templates), 1))
    noise, white_noise = numpy.empty_like(signals), numpy.empty_like(signals)
    for row, template in enumerate(templates):
        padded = numpy.zeros(lengths[int(generator.rand() * len(lengths))])
        padded[: len(template)] = template + 1e-8  # so that zeros of the template are not taken for padding
        signal = numpy.interp(grids[length], grids[len(padded)], padded)
        signal *= 1 + settings.scale_coeff * (generator.rand() - 0.5)
        signals[row] = numpy.roll(signal, generator.choice(settings.max_translation))
        noise[row] = generator.randn(length)
        white_noise[row] = generator.randn(length)
        slopes[row] = settings.shear_scale * (generator.rand() - 0.5)
    smooth_noise = gaussian_filter1d(settings.corr_noise_scale * noise, 2)
    signals = numpy.where(signals != 0, signals, smooth_noise) + settings.iid_noise_scale * white_noise
    signals -= slopes * numpy.linspace(-0.5, 0.5, length)
    final = grids[settings.final_seq_length]
    return numpy.stack([numpy.interp(final, grids[length], signal) for signal in signals])
