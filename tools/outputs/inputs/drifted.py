"""Two commands that should take the same options and do not."""

import click


@click.command()
@click.option("--rate", default=0.001, help="How fast it learns.")
@click.option("--examples", default=64, help="Per step.")
@click.option("--dropout", default=0.1, help="Share of units left out.")
@click.option("--save-every", default=100, help="Steps between checkpoints.")
@click.option("--tensorboard-dir", help="Where charts go.")
def train(**options: object) -> None: ...


@click.command()
@click.option("--rate", default=0.001, help="How fast it learns.")
@click.option("--examples", default=32, help="Per step.")
@click.option("--repeats", default=200, help="Steps to time.")
def bench(**options: object) -> None: ...


def measure(rate: float, repeats: int) -> None:
    """What `bench` calls."""
