"""A trainer and its benchmark whose options no longer match: `fairtrial sync` shows the differences."""

import click


@click.command()
@click.option("--lr", default=0.001, help="Learning rate.")
@click.option("--batch-size", default=64, help="Examples per step.")
@click.option("--dropout", default=0.1, help="Share of units that are dropped.")
@click.option("--amp/--no-amp", default=False, help="Mixed precision.")
@click.option("--save-every", default=100, help="Checkpoint every N steps.")
@click.option("--tensorboard-dir", help="Where TensorBoard looks.")
@click.argument("data")
def train(**options: object) -> None:
    """Train a model."""


@click.command()
@click.option("--learning-rate", default=0.001, help="Learning rate.")
@click.option("--batch-size", default=32, help="Examples per step.")
@click.option("--amp/--no-amp", default=False, help="Mixed precision.")
@click.option("--max-batches", default=200, help="Steps to take.")
@click.argument("data")
def bench(**options: object) -> None:
    """Measure the training of a model."""


def measure(data: str, learning_rate: float, batch_size: int, max_batches: int) -> None:
    """The function that `bench` calls."""
