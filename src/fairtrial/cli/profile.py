"""fairtrial profile"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fairtrial.cli._help import HelpfulGroup, HelpPage
from fairtrial.cli._output import Output, declared, with_output
from fairtrial.cli._progress import showing_progress
from fairtrial.cli._recipe_options import RecipeCommand, flags, given_values
from fairtrial.cli._signals import stopping
from fairtrial.cli._streams import output_kept_free
from fairtrial.core.errors import EXIT_CHECK, EXIT_OK
from fairtrial.core.options import LOOP_OPTIONS, not_benched
from fairtrial.core.registry import load_recipe
from fairtrial.core.specs import FIXED_SEEDS, MOST_SEED

if TYPE_CHECKING:
    from fairtrial.api.benchmarking.profile import Mode

MODES: dict[str, str] = {
    "rollout": "Profile rollouts only, on positions that depend only on the seed.",
    "trainer": "Profile training only, on rollouts that are generated before the measurement.",
    "e2e": "Profile rollouts and training together, with the buffer between them.",
}
OWN_OPTIONS: tuple[click.Parameter, ...] = (
    click.Option(["--steps"], type=click.IntRange(min=1), help="Number of steps.  [default: 10; with --smoke 1]"),
    click.Option(["--no-warmup"], is_flag=True, help="Measure from the first step on, without two warm-up steps."),
    click.Option(["--smoke"], is_flag=True, help="One step of 2 groups, 2 samples, horizon 1, compact prompts."),
    click.Option(["--profile-name"], metavar="NAME", help="Name of the snapshot.  [default: rollout, trainer or e2e]"),
    click.Option(["--seed"], type=click.IntRange(0, MOST_SEED), default=FIXED_SEEDS[0], show_default=True,
                 help="Random seed."),
)  # fmt: skip


class ProfileGroup(HelpfulGroup):
    """Three commands that measure, with the options of grpo, and three that work on saved measurements."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*MODES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _measuring(cmd_name) if cmd_name in MODES else super().get_command(ctx, cmd_name)


def _measuring(mode: str) -> click.Command:
    recipe = load_recipe("grpo")
    unused = {*not_benched(recipe.options), *LOOP_OPTIONS} - {"device", "threads"}
    unused |= {name for name in recipe.options.model_fields if "episode" in name}
    body = _body(mode)  # type: ignore[arg-type]
    return RecipeCommand(
        recipe,
        own=OWN_OPTIONS,
        name=mode,
        page=HelpPage(
            {"What to measure": "--steps --no-warmup --smoke --profile-name --seed"},
            (f"fairtrial profile {mode} --steps 20 --profile-name before", f"fairtrial profile {mode} --smoke"),
        ),
        params=[*flags(recipe, without=unused), *OWN_OPTIONS, *declared(body)],
        callback=body,
        help=MODES[mode],
    )


def _body(mode: Mode) -> Callable[..., Any]:
    @with_output
    def measure(out: Output, **given: Any) -> int:
        from fairtrial.api.benchmarking.profile import ProfileTerms, profile
        from fairtrial.cli._profile_text import show_profile

        out.name_store()
        with stopping() as should_stop, showing_progress(out, f"profile {mode}") as show, output_kept_free():
            terms = ProfileTerms(
                name=given["profile_name"], steps=given["steps"], warmup=not given["no_warmup"], smoke=given["smoke"],
                seed=given["seed"], store=out.store, show=show, should_stop=should_stop,
            )  # fmt: skip
            options = given_values(load_recipe("grpo").options, {**given, "steps": None})
            measured = out.command.answer(profile, mode, options, terms)
        document = measured.to_dict()
        out.give(document, document["work"], lambda console: show_profile(console, document))
        return EXIT_OK

    return measure


@click.group(
    "profile",
    cls=ProfileGroup,
    invoke_without_command=True,
    page=HelpPage(examples=("fairtrial profile e2e --profile-name before", "fairtrial profile diff before after")),
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Profile reinforcement learning on a language model.

    rollout, trainer and e2e take the options of train grpo. They save a snapshot, and a trace that opens in Perfetto.
    Refer to a snapshot by NAME, by NAME@NUMBER if there are several, or by its file.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("show", page=HelpPage(examples=("fairtrial profile show before",)))
@click.argument("name")
@with_output
def show_command(out: Output, name: str) -> int:
    """Show a snapshot: load, throughput, lag and buffer."""
    from fairtrial.api.benchmarking.profile_diff import load_profile
    from fairtrial.cli._profile_text import show_profile

    path, document = load_profile(name, out.store)
    document |= {"snapshot": str(path), "trace": str(path.parent / "trace")}
    out.command.add(document)
    out.give(document, document["work"], lambda console: show_profile(console, document))
    return EXIT_OK


@command.command("diff", page=HelpPage(examples=("fairtrial profile diff before after",)))
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option(
    "--margin",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Relative time difference that does not matter.",
)
@click.option(
    "--level",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence level of intervals.",
)
@with_output
def diff_command(out: Output, first: str, second: str, margin: float, level: float) -> int:
    """Test whether B takes less time than A for the same work."""
    from fairtrial.api.benchmarking.profile_diff import diff_profiles
    from fairtrial.cli._profile_text import show_diff

    profile_diff = out.command.answer(diff_profiles, first, second, store=out.store, margin=margin, level=level)
    out.give(profile_diff.to_dict(), profile_diff.rows(), lambda console: show_diff(console, profile_diff))
    return EXIT_OK


@command.command(
    "check",
    page=HelpPage(examples=("fairtrial profile check before 'policy_lag_steps.max<=max_policy_lag_steps'",)),
)
@click.argument("name", metavar="SNAPSHOT")
@click.argument("expressions", metavar="EXPRESSION…", nargs=-1, required=True)
@with_output
def check_command(out: Output, name: str, expressions: Sequence[str]) -> int:
    """Check that expressions are true for a snapshot. Exits with 3 if one is not.

    Names are those of the JSON document.
    """
    from fairtrial.api.benchmarking.profile_diff import check_profile
    from fairtrial.cli._profile_text import show_checks

    condition_results = check_profile(name, expressions, out.store)
    rows = [
        {"holds": each.holds, "expression": words, "left": each.left, "right": each.right, "sentence": each.text}
        for words, each in zip(expressions, condition_results, strict=True)
    ]
    document = {"schema": 1, "holds": all(each.holds for each in condition_results), "checks": rows}
    out.command.add(document)
    out.give(document, rows, lambda console: show_checks(console, condition_results))
    return EXIT_OK if document["holds"] else EXIT_CHECK
