"""Every caution that Fairtrial can give, each with its remedy.

A caution is a warning; it never stops a run or an analysis. Each text is defined here once, so that every command
words the same warning in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any


@dataclass(frozen=True)
class Caution:
    """One warning from the closed list. `text` and `remedy` may contain `{fields}`, which the caller fills in.

    `{count:run was/runs were}` becomes `1 run was` or `2 runs were`.
    """

    code: str
    text: str
    remedy: str

    def fill(self, **fields: Any) -> dict[str, str]:
        counts = {name: _Count(value) if isinstance(value, Integral) else value for name, value in fields.items()}
        return {
            "code": self.code,
            "text": self.text.format(**counts),
            "remedy": self.remedy.format(**counts),
        }


class _Count(int):
    """A number that chooses between the two forms of what it counts, if a text has both."""

    def __format__(self, forms: str) -> str:
        one, separator, many = forms.partition("/")
        return f"{int(self):,} {one if self == 1 else many}" if separator else format(int(self), forms)


SYNTHETIC = Caution(
    "synthetic",
    "The recipe '{recipe}' generates its numbers instead of training: they say nothing about any real training.",
    "Use it only for tests and for developing plug-ins.",
)


def is_synthetic(cautions: Iterable[Mapping[str, str]]) -> bool:
    """Return whether these cautions say that the numbers were generated instead of trained."""
    return any(caution["code"] == SYNTHETIC.code for caution in cautions)


ONE_TEACHER = Caution(
    "one teacher",
    "All students learn from one teacher ({teacher}): differences do not cover variation between teachers.",
    "Repeat the study with another --teacher-seed.",
)
FEWER_LABELS = Caution(
    "fewer labels",
    "The teacher saw {teacher_labels} labels, the student {student_labels}: part of a gain may come from that.",
    "Give the student all labels with --labels 0.",
)
ONE_BASE = Caution(
    "one base model",
    "All runs start from one pre-trained model ({base}): differences do not cover variation between such models.",
    "Repeat the study with another --pretrain-seed.",
)
EPISODES_RESTARTED = Caution(
    "episodes restarted",
    "Replaying the episodes of {env} did not restore its state: the resumed run started new episodes.",
    "No action is needed, but an uninterrupted run would have produced different numbers.",
)
NO_GROUP_BASELINE = Caution(
    "no group baseline",
    "no group baseline: no policy gradient. A group of one sample has no other sample to compare it with.",
    "Pass --samples 2 or more to train the policy.",
)
ONE_STEP = Caution(
    "one step",
    "one step: no percentiles or intervals.",
    "Pass a larger --steps to get confidence intervals for the times.",
)
APART = Caution(
    "measured apart",
    "The profiles were measured one after the other, each in only one or two processes: the comparison assumes a "
    "spread of {spread} % between processes.",
    "Measure each profile three times under the same name; the spread is then estimated from the data.",
)
OTHER_SURROUNDINGS = Caution(
    "other surroundings",
    "The profiles differ in more than their settings: {what}.",
    "Measure both on one machine, with one version of the code.",
)
LAG_LIMITS_BUFFER = Caution(
    "lag limits the buffer",
    "buffer_depth {depth} acts like {lag}: a rollout that waits longer than policy_lag {lag} updates is too old.",
    "Raise --policy-lag to buffer more rollouts, or lower --buffer-depth.",
)
LOWER_QUALITY = Caution(
    "lower quality",
    "{what} falls from {a} to {b}: {change} on {n} positions.",
    "Check what the prompts of B leave out, or train with both and compare the returns with 'fairtrial analyze'.",
)
QUALITY_UNKNOWN = Caution(
    "quality unknown",
    "Legality and reward cannot be compared: {why}.",
    "Measure both profiles again with this version, from the same seed and game.",
)
INERT_OPTION = Caution(
    "inert option",
    "{option} has no effect here: {why}.",
    "Leave it out, or choose settings that use it.",
)
SEED_NOT_PASSED = Caution(
    "seed not passed",
    "No argument of the program contains {{seed}}, and the program did not read run.seed of fairtrial.run(): it "
    "never receives the seed.",
    "Add {{seed}} to the arguments, or use run.seed.",
)
SAME_OVER_SEEDS = Caution(
    "same over seeds",
    "The metric is identical for all seeds of {variant}: does your program use the seed?",
    "Seed every random number generator of the program with it. If {metric} cannot vary, use another metric.",
)
SHARED_FILE = Caution(
    "shared file",
    "All runs write their metrics to {file}, so they ran one at a time.",
    "Put {{run_dir}} or {{seed}} into --metrics to run them in parallel.",
)
REDACTED_VALUES = Caution(
    "redacted",
    "These values look like secrets or --secret names them, so Fairtrial recorded references instead of values: "
    "{names}. Anything that the program prints is still in its log.txt.",
    "No action is needed here; to resume on another machine, set {variables} there. Write {{env:NAME}} to name the "
    "variable yourself.",
)
REDACTED_CONFIG = Caution(
    "redacted config",
    "These config values look like secrets or were named as secrets, so Fairtrial redacted them: {names}. Anything "
    "that the program prints is still in its log.txt.",
    "No action is needed. Two configs that differ only in these values are the same variant.",
)
DIRTY_TREE = Caution(
    "dirty tree",
    "The working tree had uncommitted changes: the commit alone does not reproduce these runs.",
    "Commit first, or launch with --strict to make this an error.",
)
OTHER_COMMIT = Caution(
    "other commit",
    "{count:finished run was/finished runs were} kept although made at commit {then}, not {now}.",
    "Repeat them with --replace if the code changes between these commits matter.",
)
TORN_LINE = Caution(
    "torn line",
    "The last line of {file} was cut off when the run was killed; it was ignored.",
    "No action is needed: no complete line is lost, and a resumed run writes this line again.",
)
SERIES_DAMAGED = Caution(
    "damaged series",
    "The metrics of the run were damaged while it was interrupted ({problem}); it resumed from {where}.",
    "No action is needed: the damaged steps were trained and logged again. If you did not edit the file, check the "
    "disk.",
)
FEW_SEEDS = Caution(
    "few seeds",
    "{n:seed/seeds} per variant: the mean of so few runs is very noisy.",
    "Launch again with more --seeds; finished cells are kept.",
)
FINAL_PARTIAL = Caution(
    "incomplete arms",
    "The variants did not finish the same seeds; only the {n} shared seeds are compared.",
    "Launch again to fill missing cells; add --retry-failed to repeat failed ones. Diverged cells are results.",
)
OTHER_BEST_METRIC = Caution(
    "other best metric",
    "The best checkpoint was selected by {before} before this run was resumed, and by {now} since: the earlier best "
    "checkpoint was discarded.",
    "Start the run over if the whole run must be judged by one metric.",
)
NEVER_JUDGED = Caution(
    "no best checkpoint",
    "The metric that selects the best checkpoint, {metric}, was never evaluated; logged: {logged}.",
    "Pass one of the logged metrics as the best metric.",
)
METRIC_NOT_LOGGED = Caution(
    "metric not logged",
    "{count:completed run/completed runs} did not log {metric}; the means exclude them: {which}.",
    "Check what they logged with 'fairtrial runs show'.",
)
DIRECTION_UNKNOWN = Caution(
    "direction unknown",
    "It is not known whether a high or a low {metric} is better, so no variant is called better.",
    "Pass --direction max or --direction min.",
)
DIRECTION_AGAINST_NAME = Caution(
    "direction against the name",
    "For {metric}, {better} counts as better, because this direction {who}; the name suggests the opposite.",
    "If this is not what you want, pass {flag} {other}.",
)
DIRECTIONS_DIFFER = Caution(
    "recorded directions differ",
    "Some runs recorded the opposite direction for {metric}; all runs are judged by: {better}.",
    "Record the same direction in every run of a study.",
)
NOT_FINITE = Caution(
    "not finite",
    "The means exclude {count:completed run/completed runs} whose last value of {metric} is not finite.",
    "Inspect these runs: a NaN is a result, not missing data.",
)
ARMS_DIFFER = Caution(
    "arms differ in shape",
    "One arm is far noisier than the other. In simulations of this case, the rate of false verdicts reached 6–13 % "
    "with skewed noise and 6–28 % with collapsing runs; with normal noise it stayed below 6 %.",
    "Inspect the individual runs; --certify shows how far the coverage can fall.",
)
UNEQUAL_N = Caution(
    "unequal n",
    "The arms have {control} and {candidate} runs. With sample sizes this unequal, the rate of false verdicts exceeded "
    "6 % in simulations with skewed or bimodal noise (24 % with 3 against 15 runs).",
    "Add runs to the smaller arm until both have the same number.",
)
ONE_ARM = Caution(
    "one-arm interval",
    "In an interval for a single arm, skewed noise does not cancel out as it does in a difference of two arms: with "
    "log-normal noise, the coverage of 95 % intervals was 86 % at 5 runs, 89 % at 15 and 91 % at 30.",
    "Compare two arms, or run more seeds.",
)
KNOWN_SD_DOUBTED = Caution(
    "known sd too small",
    "The standard deviation of the runs is {sd}, more than the known value of {known} can explain: the interval is "
    "too narrow.",
    "Check --known-sd, or leave it out to estimate the noise from these runs.",
)
COVARIATE_NOT_USED = Caution(
    "planned adjustment not made",
    "The plan adjusts for {covariate}, but that was not possible: {reason}. The verdict is the unadjusted one.",
    "Report that the adjustment was planned and why it was not possible.",
)
COVARIATE_DIFFERS = Caution(
    "covariate differs between arms",
    "{covariate} differs between the arms by more than chance (p = {p}): the change seems to affect it, and the "
    "adjusted difference leaves out that part of the effect.",
    "Use a covariate that the change cannot affect, or use the unadjusted difference.",
)
COVARIATE_UNDATED = Caution(
    "covariate of unknown time",
    "It is not known when {covariate} was measured; a value from after the change would hide part of its effect.",
    "Pass the column of step numbers with --step-column, or make sure that the value is from before the first step.",
)
BOOTSTRAP_FEW = Caution(
    "bootstrap at few seeds",
    "A {method} bootstrap resamples only {n} values here and has a false-positive rate of 14 to 48 %: its interval is "
    "shown next to the verdict, but the verdict comes from the default method.",
    "Use studentized, the bootstrap that keeps its error rate with few runs.",
)
LOST_RUNS = Caution(
    "lost runs",
    "{control:run/runs} of {first} and {candidate} of {second} ended without a valid number. Quality is judged on the "
    "runs that finished, and a variant that loses more runs than the control is neither better nor equivalent.",
    "Find out why they were lost; --failure-value scores each lost run with a value of your choice.",
)
MISSING_RUNS = Caution(
    "missing runs",
    "{count:planned run does/planned runs do} not exist yet or did not finish, and cannot be scored.",
    "Launch the study again to complete the missing runs.",
)
REMOVED_RUNS = Caution(
    "removed runs",
    "{count:run was/runs were} made and then removed: {runs}. A result without all runs may be biased "
    "by that selection.",
    "Report why they were removed, or launch the study again to repeat them.",
)
DAMAGED_RUNS = Caution(
    "damaged runs",
    "{count:run is/runs are} damaged and not scored: {runs}. The result might differ with all runs.",
    "Check what can be repaired: fairtrial doctor --damage.",
)
LOOKS_DAMAGED = Caution(
    "looks damaged",
    "{reason}: it is not known whether seeds were added after an earlier look.",
    "Restore looks.jsonl from a backup; see fairtrial doctor --damage.",
)
TOO_FEW_FOR_FAMILY = Caution(
    "too few seeds for this family",
    "With {n:seed/seeds}, {method} on pairwise tests has little power and an uncertain error rate.",
    "Use --family max-spread, which pools the noise of all arms, or run at least 5 seeds.",
)
POOLED_NOISE = Caution(
    "pooled noise",
    "Tukey's limit pools the noise of all arms, but some arms are far noisier than others: differences from the noisy "
    "arms look more certain than they are.",
    "Use --family max-spread, which uses the larger noise, or holm, which judges each pair separately.",
)
FAMILY_SEEDS = Caution(
    "family on shared seeds",
    "All arms are judged together on the {n:seed/seeds} that every arm completed; {left:run is/runs are} left out.",
    "Launch again to fill the missing cells.",
)
FEW_TASKS = Caution(
    "few tasks",
    "With {tasks:task/tasks}, the middle half of the scores contains only a few scores, and the tasks that they come "
    "from can change with the runs.",
    "Use the mean over tasks, or at least 20 tasks.",
)
SHARED_LUCK = Caution(
    "luck shared by tasks",
    "Runs that do well on one task do well on others: the stratified bootstrap treats them as independent, so its "
    "intervals are too narrow.",
    "Rely on the verdict: it is based on whole runs and stays valid here.",
)
MEDIAN_TASKS = Caution(
    "median over tasks",
    "A median over tasks depends on the one or two tasks in the middle, and with {runs:run/runs} it is uncertain which "
    "ones these are: the coverage of 95 % intervals was 90 to 98 % in simulations.",
    "Use the IQM or the mean over tasks, or at least 10 runs.",
)
NEAR_CERTAIN = Caution(
    "probability near its limit",
    "The probability of improvement is below 0.1 or above 0.9: with fewer than 20 runs and scores that correlate "
    "between tasks, the coverage of its 95 % intervals was as low as 90 % in simulations.",
    "Rely on the verdict on the difference.",
)
TASKS_LEFT_OUT = Caution(
    "tasks left out",
    "{count:task is/tasks are} left out because at least one variant has no run there: {tasks}.",
    "Run every variant on the same tasks, or select variants with --candidate.",
)
INCOMPLETE_GRID = Caution(
    "runs not on all tasks",
    "{count:run does/runs do} not cover every task and cannot be used. That does not count as a loss.",
    "Run the missing cells.",
)
RAW_SCORES = Caution(
    "raw scores",
    "{metric} is averaged over tasks although its meaning differs between tasks; these runs also recorded {better}.",
    "Use --metric {better}.",
)
TASK_SCALES = Caution(
    "tasks on different scales",
    "Scores of some tasks are more than ten times as large as those of others: they dominate the aggregate.",
    "Normalize the scores, or use the probability of improvement, which does not depend on scale.",
)
UNDECLARED = Caution(
    "undeclared difference",
    "The arms also differ in {what}: {values}. A difference in the results may come from that.",
    "Make the arms equal in everything except the change under test, or declare the difference in the variants.",
)
OTHER_PROCESSOR = Caution(
    "other processor",
    "{where}{control} ran on {control_kind}, {candidate} on {candidate_kind}. Kernels for different processors "
    "round differently, so the same code and seed give different numbers.",
    "Run both variants on the same kind of machine: launch there with --replace.",
)
MIXED_COMMITS = Caution(
    "mixed commits",
    "The runs of {variant} were made at {count} commits ({commits}): they do not all come from the same code.",
    "Check what changed with fairtrial doctor --since {oldest}; repeat the older runs with --replace if it matters.",
)
UNKNOWN_COMMIT = Caution(
    "unknown commit",
    "The commit of {count} of {all} runs is unknown: the code that produced them cannot be identified.",
    "Launch inside a git working tree.",
)
OTHER_SIZE = Caution(
    "other size",
    "{candidate} has {ratio} of the {what} of {control}: part of a difference may come from that.",
    "Match the sizes, or interpret the verdict as the effect of both changes together.",
)
SEEDS_AFTER_LOOK = Caution(
    "seeds added after looking",
    "Seeds were added after the first look at this comparison: the error rate is above the stated one.",
    "Launch a planned number of fresh seeds as a separate study, and judge only those.",
)
LOOKED_AT = Caution(
    "differences looked at",
    "The differences of study '{study}' have been looked at: adding seeds now would make its verdict exploratory.",
    "For a confirmatory verdict, launch a planned number of fresh seeds as a separate study, and judge only those.",
)
ANOTHER_QUESTION = Caution(
    "another question",
    "These runs were analyzed before with another question: the first was {first}. Asking several questions of the "
    "same runs raises the false-positive rate above the stated one.",
    "Report all questions, or ask this one of a planned number of fresh seeds.",
)
LOOK_NOT_NOTED = Caution(
    "look not noted",
    "The store is not writable, so this look at the comparison was not recorded.",
    "Analyze the study where its store is writable.",
)
STILL_MOVING = Caution(
    "still improving",
    "{variant} was still changing at the end of its runs: the ranking may differ with more steps.",
    "Train longer, or state that the verdict applies to this budget.",
)
DIFFERENT_ENDS = Caution(
    "different ends",
    "The variants end at different steps ({ends}): their last values compare different budgets.",
    "Train both for the same number of steps, or pass --summary.window.",
)
UNEVEN_LOGGING = Caution(
    "uneven logging",
    "The runs logged {metric} at different steps: {summary} uses one value per step that all of them logged, up to "
    "{steps} per run, and ignores the other values of {arms}.",
    "Log all runs at the same steps. If each logged value averages the steps since the last one, use --summary.type "
    "auc.",
)
DUPLICATE_SEEDS = Caution(
    "repeated attempts",
    "{count:repeated attempt was/repeated attempts were} left out: they do not count as additional seeds.",
    "No action is needed; pass --control-run-ids to compare specific runs.",
)
UNUSED_STREAM_SEED = Caution(
    "stream seed without effect",
    "stream_seed names {streams}, but this run drew no random numbers from it: the seed had no effect.",
    "Leave it out, or name one of the streams that the run used: {used}.",
)
EDGE_OF_GRID = Caution(
    "edge of grid",
    "The best {param}, {value}, is at the edge of the tried range: a better value may lie beyond it.",
    "Sweep a wider range: finished values are kept.",
)
BEST_OF_MANY = Caution(
    "best of many",
    "The best of {count} values was chosen by these same runs: its {metric} is probably too optimistic.",
    "Confirm it on fresh seeds and fresh data with --confirm {runs}.",
)
SELECTED_ON_REPORT = Caution(
    "selected on report data",
    "{metric} is measured on the data that verdicts are based on: a value chosen by it cannot be judged by it.",
    "Choose by a metric of the eval split, such as {instead}.",
)
REPORT_NOT_FRESH = Caution(
    "report data not fresh",
    "{recipe} has no additional report data for these options: the confirmation uses fresh seeds, but the same data.",
    "Interpret it as a confirmation on these data only.",
)
NOT_CONFIRMED = Caution(
    "not confirmed",
    "The confirmation failed: {why}.",
    "Inspect its runs, then run the same command again: finished runs are kept.",
)
LOST_VALUES = Caution(
    "lost runs in a sweep",
    "{count:run/runs} ended without a valid number; each is scored as the worst observed value when choosing the best: "
    "{which}.",
    "Inspect them: a value that loses runs is not a good choice.",
)
IDENTICAL_ROWS = Caution(
    "identical rows",
    "Removing {removed} did not change any number: the base does not use it, or it has no effect there.",
    "Choose a base that uses it, or leave it out.",
)
MATCHED_BY_TIME = Caution(
    "matched by time",
    "The baseline {name} got {steps} steps, about the training time of the slowest strategy here: on another machine "
    "the matching number of steps may differ.",
    "Use it to check whether longer training alone explains a gain.",
)
NOTHING_TO_MATCH = Caution(
    "nothing to match",
    "No strategy took longer than the baseline, so the baseline gets no additional steps.",
    "Interpret the comparison as one at equal time.",
)
DEAD_ARMS = Caution(
    "arms without a result",
    "No run of {names} ended with a valid number: there is nothing to compare.",
    "Inspect those runs; a failure is a result too.",
)
OLD_PRICES = Caution(
    "old prices",
    "The price of {card} is from {as_of}, {days} days ago: it may have changed.",
    "Pass a file with current prices with --prices.",
)
CONVERTED_HOURS = Caution(
    "converted hours",
    "Hours and cost on {card} are estimates. Basis: {basis}.",
    "Measure on that card before you decide a close case: a model that does not fully use a card does not reach its "
    "speed.",
)
NOT_FITTING = Caution(
    "does not fit",
    "Too large for the {memory} GB of {card} and therefore not on the frontier: {names}.",
    "Choose a card with more memory with --gpu.",
)
TIGHT_MEMORY = Caution(
    "tight memory",
    "{need} GB of {memory} GB: this figure does not include the memory of the framework itself.",
    "Try one step on that card first.",
)
NO_HOURS = Caution(
    "no hours",
    "{variant} is left out: it has no completed run that was timed separately.",
    "Inspect its runs. Runs that were trained together have no separate times; launch them one by one.",
)
LOST_AS_WORST = Caution(
    "lost runs in a choice",
    "{count:run/runs} ended without a valid {metric}; each is scored as the worst observed value.",
    "Inspect them: a configuration that loses runs costs more than its hours.",
)
FEW_FOR_CHOICE = Caution(
    "few seeds for a choice",
    "At least one configuration has only {runs}: noise estimates from so few runs are rough.",
    "Run more seeds of the configurations that matter.",
)
UNSURE_CONSTRAINT = Caution(
    "unsure constraint",
    "The mean meets {constraint}, but the probability that the constraint is met is only {percent} %.",
    "Run more seeds, or require more certainty with --confidence 0.9.",
)
CHOSEN_OF_MANY = Caution(
    "chosen of many",
    "The best of {count} feasible configurations was chosen by these same runs: its {metric} and its interval are "
    "probably too optimistic.",
    "Run the chosen configuration on fresh seeds before you rely on the figure.",
)
NO_CHANCE_KNOWN = Caution(
    "chance not known",
    "Without values per seed, the noise behind {constraint} of {name} is unknown: its mean meets the limit, but with "
    "unknown confidence.",
    "Provide values per seed.",
)
NOT_STEADY = Caution(
    "not steady",
    "{steps} steps were too few to reach a steady state and measure it: the figures have no intervals, or unreliable "
    "ones.",
    "Measure more steps with --max-batches.",
)
SHORT_TRAINING = Caution(
    "short training",
    "Only {taken} of the {asked} requested steps were measured: the training has {steps} steps.",
    "Train longer with --steps, or leave it out.",
)
NEAR_TIMER = Caution(
    "near the timer",
    "{phases}: these phases take less than {times} times as long as the timing itself; the figures are upper limits.",
    "Treat these phases as small.",
)
BENCH_DIVERGED = Caution(
    "diverged while measured",
    "The training diverged during the measurement: {reason}. Only the steps before that were timed.",
    "Measure with settings that do not diverge.",
)
PUSHED_ASIDE = Caution(
    "pushed aside",
    "The scheduler preempted this process {times} times in {steps} steps: other processes were using this machine, so "
    "the measured times are too long.",
    "Measure when the machine is idle, or interleave both sides with --ab.",
)
TWO_SESSIONS = Caution(
    "two sessions",
    "The baseline was measured at another time: the ratio includes any change of the machine since then.",
    "If both can run now, interleave them with --ab; `fairtrial doctor --aa` shows this machine's noise.",
)
OTHER_VERSIONS = Caution(
    "other versions",
    "The baseline was measured with other versions: {versions}.",
    "Interpret the ratio as including the effect of these versions.",
)
RATE_NOT_APPLIED = Caution(
    "rate not applied",
    "The first update does not scale with the learning rate as it should: the optimizer does not seem to receive "
    "{rates}.",
    "Check how the recipe uses learning_rate.",
)
SHORT_RATES = Caution(
    "short runs",
    "Losses after {steps} steps show which rates diverge (end above their initial loss), not which give the best final "
    "result.",
    "Choose with `fairtrial sweep {recipe} --param learning_rate=…`, which trains to the end.",
)
WEIGHTS_OF_NOW = Caution(
    "noise of these weights",
    "The noise scale belongs to the weights after {steps} steps; it usually grows during training.",
    "Measure again later in training with a larger --max-batches.",
)
NOT_A_LINE = Caution(
    "not a line",
    "Step times deviate by up to {percent} % from a fixed cost plus a cost per example: the knee is a rough estimate.",
    "Choose batch sizes that are closer together.",
)
SIZE_NOT_MEASURED = Caution(
    "size not measured",
    "Batch size {size} was not measured: {reason}.",
    "Leave it out, or free memory for it.",
)
CHANGES_LEFT_OUT = Caution(
    "changes left out",
    "The working tree has changes that are in neither revision.",
    "Commit them to include them in the measurement.",
)
REGISTERED = Caution(
    "registered",
    "Study '{study}' is registered ({registration}), and this is not the registered analysis.",
    "Run the registered analysis: fairtrial analyze --plan REGISTRATION.",
)
NOT_BEFORE_ITS_TIME = Caution(
    "not before its time",
    "{missing} of {planned} registered runs do not exist yet, so means and differences are not shown: the registration "
    "does not include a comparison before all runs are complete.",
    "Run the rest, then: fairtrial analyze --plan REGISTRATION.",
)
INERT_LIMIT = Caution(
    "inert limit",
    "A memory limit of {limit} GB has no effect: no card here has more than {memory} GB.",
    "Leave it out, or choose a larger card.",
)
FEW_RUNS_IN_TABLE = Caution(
    "few runs in a table",
    "{n:run/runs} per arm: with so few runs, the true standard deviation is between {low} and {high} times the printed "
    "one (95 % interval), and true differences below {size} standard deviations are likely to be missed.{error}",
    "Ask the authors for the values of the individual runs, or for more runs.",
)
ROUNDED_VALUES = Caution(
    "rounded values",
    "{pair}: the verdict depends on digits that the table does not show; within rounding it may be {verdicts}.",
    "Ask the authors for one more digit of the mean and of the spread.",
)
INTERVAL_READ_AS_T = Caution(
    "interval read as t",
    "Standard deviations are computed from the printed intervals, interpreted as {level} % t intervals of the mean. If "
    "the authors used the normal quantile, the standard deviation of {n} runs is {factor} times as large{consequence}.",
    "Find out how the intervals were computed, or ask the authors for standard deviations.",
)
IMPOSSIBLE_VALUE = Caution(
    "impossible value",
    "{finding}",
    "Compare the row with its source: a digit, the number of runs or the unit may be wrong.",
)
DOUBTFUL_VALUE = Caution(
    "doubtful value",
    "{finding}",
    "Find out what the column contains before you rely on the verdict.",
)

ALL = {caution.code: caution for caution in list(globals().values()) if isinstance(caution, Caution)}
