"""Every caution that Fairtrial can give, each with its remedy.

A caution never stops anything. A run or a finding carries the codes of those it rests on; the text is
looked up here, so that the same thing is said with the same words everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Caution:
    """A closed kind of warning. `text` and `remedy` may hold `{fields}` that the place of use fills."""

    code: str
    text: str
    remedy: str

    def fill(self, **fields: Any) -> dict[str, str]:
        return {
            "code": self.code,
            "text": self.text.format(**fields),
            "remedy": self.remedy.format(**fields),
        }


SYNTHETIC = Caution(
    "synthetic",
    "The recipe '{recipe}' makes its numbers up: they say nothing about any training.",
    "Use it for tests and plug-ins only.",
)
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
    "{env} did not come out where it was when its episodes were played again: new ones were begun on resuming.",
    "Nothing to do, but a run that was not interrupted would have other numbers.",
)
NO_GROUP_BASELINE = Caution(
    "no group baseline",
    "no group baseline: no policy gradient. A group of one sample has nothing to be compared with.",
    "Take --samples 2 or more to learn something.",
)
ONE_STEP = Caution(
    "one step",
    "one step: no percentiles or intervals.",
    "Take more --steps to say how sure the times are.",
)
APART = Caution(
    "measured apart",
    "The profiles were measured one after the other, in a process or two each: a spread of {spread} % between "
    "processes is assumed.",
    "Measure each three times under its name; then the spread is known.",
)
OTHER_SURROUNDINGS = Caution(
    "other surroundings",
    "The profiles differ in more than their settings: {what}.",
    "Measure both on one machine, with one version of the code.",
)
LAG_LIMITS_BUFFER = Caution(
    "lag limits the buffer",
    "buffer_depth {depth} acts as {lag}: a rollout that waits for more than policy_lag {lag} updates would be too old.",
    "Raise --policy-lag to let more rollouts wait, or lower --buffer-depth.",
)
LOWER_QUALITY = Caution(
    "lower quality",
    "{what} falls from {a} to {b}: {change} on {n} positions.",
    "See what the prompts of B leave out, or train with both and compare the returns with analyze.",
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
    "No argument of the program holds {{seed}}, and the program did not read run.seed of fairtrial.run(): the seed "
    "does not reach it.",
    "Put {{seed}} among the arguments, or use run.seed.",
)
SAME_OVER_SEEDS = Caution(
    "same over seeds",
    "The metric does not vary over the seeds of {variant}: does the seed reach your program?",
    "Seed every random generator of the program with it. If {metric} cannot vary, judge by another metric.",
)
SHARED_FILE = Caution(
    "shared file",
    "All runs write their metrics to {file}, so they took turns.",
    "Put {{run_dir}} or {{seed}} into --metrics to run them side by side.",
)
REDACTED_VALUES = Caution(
    "redacted",
    "Recorded as references, because they look like secrets or --secret names them, not as values: {names}. What a "
    "program prints is in its log.txt all the same.",
    "Nothing to do; to resume elsewhere, set {variables} there. Write {{env:NAME}} to name the variable yourself.",
)
REDACTED_CONFIG = Caution(
    "redacted config",
    "Redacted in the config, because they look like secrets or were named so, not recorded as values: {names}. What a "
    "program prints is in its log.txt all the same.",
    "Nothing to do. Two configs that differ only in these values are the same variant.",
)
DIRTY_TREE = Caution(
    "dirty tree",
    "The working tree had uncommitted changes: the commit alone does not reproduce these runs.",
    "Commit first, or launch with --strict to refuse this.",
)
OTHER_COMMIT = Caution(
    "other commit",
    "{count} finished run(s) were kept that were made at commit {then}, not {now}.",
    "Repeat them with --replace if the code between matters.",
)
TORN_LINE = Caution(
    "torn line",
    "The last line of {file} was cut off when the run was killed; it was ignored.",
    "Nothing to do: no completed line is lost, and a resumed run writes it again.",
)
SERIES_DAMAGED = Caution(
    "damaged series",
    "While the run was interrupted its metrics were damaged ({problem}); it went on from {where}.",
    "Nothing to do: what was damaged was trained and logged again. Check the disk if you did not change the file.",
)
FEW_SEEDS = Caution(
    "few seeds",
    "{n} seeds per variant: means of so few runs move a lot.",
    "Launch again with more --seeds; finished cells are kept.",
)
FINAL_PARTIAL = Caution(
    "incomplete arms",
    "The variants do not have the same finished seeds; only the {n} shared ones are compared.",
    "Launch again to fill missing cells, with --retry-failed for failed ones; diverged ones are results.",
)
OTHER_BEST_METRIC = Caution(
    "other best metric",
    "The best checkpoint was chosen by {before} before this run was resumed, and by {now} since: the earlier one is "
    "forgotten.",
    "Start over, if both halves are to be judged by one metric.",
)
NEVER_JUDGED = Caution(
    "no best checkpoint",
    "The metric that selects the best checkpoint, {metric}, was never evaluated; logged: {logged}.",
    "Name one of those as the best metric.",
)
METRIC_NOT_LOGGED = Caution(
    "metric not logged",
    "{count} completed run(s) did not log {metric}; they are not in the means: {which}.",
    "Look at what they logged with 'fairtrial runs show'.",
)
DIRECTION_UNKNOWN = Caution(
    "direction unknown",
    "Nothing says whether a high or a low {metric} is better, so no variant is called better.",
    "Give --direction max or --direction min.",
)
DIRECTION_AGAINST_NAME = Caution(
    "direction against the name",
    "For {metric} {better} counts as better, because that {who}; its name suggests the opposite.",
    "If that is not meant, give {flag} {other}.",
)
DIRECTIONS_DIFFER = Caution(
    "recorded directions differ",
    "Some runs recorded the opposite direction for {metric}; all are judged by: {better}.",
    "Record the same direction in every run of a study.",
)
NOT_FINITE = Caution(
    "not finite",
    "{count} completed run(s) ended with a value of {metric} that is not finite; they are not in the means.",
    "Look at them: a NaN is a result, not a gap.",
)
ARMS_DIFFER = Caution(
    "arms differ in shape",
    "One arm is far noisier. False verdicts then reached 6–13 % in simulations with skewed noise and 6–28 % with "
    "collapsing runs; with normal noise they stayed below 6 %.",
    "Look at the single runs; --certify shows how far the coverage can fall.",
)
UNEQUAL_N = Caution(
    "unequal n",
    "The arms have {control} and {candidate} runs. With numbers as unequal as these, false verdicts exceeded 6 % in "
    "simulations with skewed or two-peaked noise (24 % at 3 against 15).",
    "Fill the smaller arm up to the same number of runs.",
)
ONE_ARM = Caution(
    "one-arm interval",
    "An interval for one arm alone has no partner to cancel skewed noise: with log-normal noise 95 % intervals covered "
    "86 % at 5 runs, 89 % at 15 and 91 % at 30.",
    "Judge differences between arms, or run more seeds.",
)
KNOWN_SD_DOUBTED = Caution(
    "known sd too small",
    "The runs vary with a standard deviation of {sd}, more than the known one of {known} explains: the interval is too "
    "narrow.",
    "Check --known-sd, or leave it out: the noise is then estimated from these runs.",
)
COVARIATE_NOT_USED = Caution(
    "planned adjustment not made",
    "The plan adjusts for {covariate}, and that was not possible: {reason}. The verdict is the one without it.",
    "Report both: that the adjustment was planned, and why it could not be made.",
)
COVARIATE_DIFFERS = Caution(
    "covariate differs between arms",
    "{covariate} differs between the arms by more than chance (p = {p}): the change seems to have reached it, and the "
    "adjusted difference leaves that part out.",
    "Use a covariate that the change cannot reach, or read the difference without the adjustment.",
)
COVARIATE_UNDATED = Caution(
    "covariate of unknown time",
    "Nothing says when {covariate} was measured; a value from after the change would hide part of its effect.",
    "Name the column that counts steps with --step-column, or make sure that it is from before the first step.",
)
BOOTSTRAP_FEW = Caution(
    "bootstrap at few seeds",
    "A {method} bootstrap of {n} runs knows only {n} values and errs in 14 to 48 % of studies without a difference: it "
    "is shown next to the verdict, which is that of the default method.",
    "Use studentized for a bootstrap that holds its level at few runs.",
)
LOST_RUNS = Caution(
    "lost runs",
    "{control} run(s) of {first} and {candidate} of {second} ended without a valid number. Quality is judged among the "
    "runs that finished, and a variant that loses more runs than the control is neither better nor equivalent.",
    "Find out why they were lost; --failure-value gives lost runs a number of your choice.",
)
MISSING_RUNS = Caution(
    "missing runs",
    "{count} planned run(s) are not there yet or were interrupted; they are not scored.",
    "Launch the study again: it fills what is missing.",
)
REMOVED_RUNS = Caution(
    "removed runs",
    "{count} run(s) were made and then removed: {runs}. A result without them may be one that was chosen.",
    "Say why they were removed, or launch the study again: it makes them anew.",
)
DAMAGED_RUNS = Caution(
    "damaged runs",
    "{count} run(s) are damaged and not scored: {runs}. This result may differ from the one with them.",
    "See what can be repaired: fairtrial doctor --damage.",
)
LOOKS_DAMAGED = Caution(
    "looks damaged",
    "{reason}: whether seeds were added after an earlier look is not known.",
    "Bring looks.jsonl back from a backup; see fairtrial doctor --damage.",
)
TOO_FEW_FOR_FAMILY = Caution(
    "too few seeds for this family",
    "With {n} seeds, {method} on tests pair by pair has little power and an uncertain error rate.",
    "Use --family max-spread, which pools the noise of all arms, or run at least 5 seeds.",
)
POOLED_NOISE = Caution(
    "pooled noise",
    "Tukey's limit pools the noise of all arms, and some scatter far more than others: differences from those look "
    "surer than they are.",
    "Use --family max-spread, which goes by the larger noise, or holm, which judges pair by pair.",
)
FAMILY_SEEDS = Caution(
    "family on shared seeds",
    "All arms are judged together on the {n} seeds that every one of them completed; {left} run(s) are left out.",
    "Fill the missing cells.",
)
FEW_TASKS = Caution(
    "few tasks",
    "The middle half of the scores of {tasks} task(s) is a handful of scores, and which tasks it comes from can change "
    "with the runs.",
    "Use the mean over tasks, or at least 20 tasks.",
)
SHARED_LUCK = Caution(
    "luck shared by tasks",
    "Runs that do well on one task do well on others: the stratified bootstrap treats them as independent, and its "
    "intervals are too narrow.",
    "Go by the verdict, which is by run and holds here.",
)
MEDIAN_TASKS = Caution(
    "median over tasks",
    "A median over tasks rests on one or two tasks in the middle, and with {runs} runs it is uncertain which ones: "
    "95 % intervals covered 90 to 98 % in simulations.",
    "Use the IQM or the mean over tasks, or at least 10 runs.",
)
NEAR_CERTAIN = Caution(
    "probability near its limit",
    "The probability of improvement is below 0.1 or above 0.9: with fewer than 20 runs and luck that tasks share, 95 % "
    "intervals there covered as little as 90 % in simulations.",
    "Go by the verdict on the difference.",
)
TASKS_LEFT_OUT = Caution(
    "tasks left out",
    "{count} task(s) are left out, because some variant has no run on them: {tasks}.",
    "Run every variant on the same tasks, or choose variants with --candidate.",
)
INCOMPLETE_GRID = Caution(
    "runs not on all tasks",
    "{count} run(s) were not run on every task and are left out. They do not count as lost.",
    "Run the missing cells.",
)
RAW_SCORES = Caution(
    "raw scores",
    "{metric} is averaged over tasks on which it means different things; these runs also have {better}.",
    "Use --metric {better}.",
)
TASK_SCALES = Caution(
    "tasks on different scales",
    "Scores of some tasks are more than ten times as large as those of others: they decide the aggregate.",
    "Normalize the scores, or read the probability of improvement, which knows no scale.",
)
UNDECLARED = Caution(
    "undeclared difference",
    "The arms also differ in {what}: {values}. A difference in results may come from that.",
    "Make both arms alike in all but the change on trial, or declare it in the variants.",
)
OTHER_PROCESSOR = Caution(
    "other processor",
    "{where}{control} ran on {control_kind}, {candidate} on {candidate_kind}. Kernels for different processors "
    "round differently, so that even equal code and seeds give other numbers.",
    "Run both variants on one kind of machine: launch there with --replace.",
)
MIXED_COMMITS = Caution(
    "mixed commits",
    "The runs of {variant} were made at {count} commits ({commits}): they do not all come from the same code.",
    "See what changed with fairtrial doctor --since {oldest}, and repeat the older runs with --replace if it matters.",
)
UNKNOWN_COMMIT = Caution(
    "unknown commit",
    "The commit of {count} of {all} runs is unknown: nobody can tell which code they were made with.",
    "Launch inside a git working tree.",
)
OTHER_SIZE = Caution(
    "other size",
    "{candidate} has {ratio} of the {what} of {control}: part of a difference may come from that.",
    "Match the sizes, or read the verdict as one about both changes.",
)
SEEDS_AFTER_LOOK = Caution(
    "seeds added after looking",
    "Seeds were added after this comparison was first looked at: the error rate is above the one stated.",
    "Launch a planned number of fresh seeds as a study of its own, and judge those alone.",
)
LOOKED_AT = Caution(
    "differences looked at",
    "The differences of study '{study}' were looked at: seeds added to it now would make its verdict exploratory.",
    "For a verdict launch a planned number of fresh seeds as a study of its own, and judge those alone.",
)
ANOTHER_QUESTION = Caution(
    "another question",
    "These runs were looked at before with another question: first asked for {first}. Among several questions one "
    "finds a difference by chance more often than stated.",
    "Report all of them, or put this one to a planned number of fresh seeds.",
)
LOOK_NOT_NOTED = Caution(
    "look not noted",
    "The store cannot be written, so this look at the comparison could not be noted.",
    "Analyse where the study can be written.",
)
STILL_MOVING = Caution(
    "still improving",
    "{variant} was still changing at the end of its runs: the order may be another with more steps.",
    "Train longer, or say that the verdict is about this budget.",
)
DIFFERENT_ENDS = Caution(
    "different ends",
    "The variants end at different steps ({ends}): their last values compare different budgets.",
    "Train both as long, or give --summary.window.",
)
UNEVEN_LOGGING = Caution(
    "uneven logging",
    "The runs logged {metric} at different steps: {summary} uses one value per step that all of them have, up to "
    "{steps} per run, and leaves the other values of {arms} aside.",
    "Log all runs at the same steps. If a logged value is an average since the last one, compare --summary.type auc.",
)
DUPLICATE_SEEDS = Caution(
    "repeated attempts",
    "{count} repeated attempt(s) at a seed were left out: they are not further seeds.",
    "Nothing to do; give --control-run-ids to compare chosen runs.",
)
UNUSED_STREAM_SEED = Caution(
    "stream seed without effect",
    "stream_seed names {streams}, from which this run drew nothing: its seed changed nothing.",
    "Leave it out, or name one of the streams that the run used: {used}.",
)
EDGE_OF_GRID = Caution(
    "edge of grid",
    "The best {param}, {value}, is at the edge of what was tried: a better one may lie beyond.",
    "Sweep further: finished values are kept.",
)
BEST_OF_MANY = Caution(
    "best of many",
    "The best of {count} values was chosen by these very runs: its {metric} is likely to be too good.",
    "Confirm it on fresh seeds and fresh data with --confirm {runs}.",
)
SELECTED_ON_REPORT = Caution(
    "selected on report data",
    "{metric} is measured on the data that verdicts are made from: what was chosen by it cannot be judged by it.",
    "Choose by a metric of the eval split, such as {instead}.",
)
REPORT_NOT_FRESH = Caution(
    "report data not fresh",
    "{recipe} has no further report data for these options: the confirmation has fresh seeds, but the same data.",
    "Read it as a confirmation on these data alone.",
)
NOT_CONFIRMED = Caution(
    "not confirmed",
    "The confirmation did not work out: {why}.",
    "Look at its runs, then give the same command again: finished runs are kept.",
)
LOST_VALUES = Caution(
    "lost runs in a sweep",
    "{count} run(s) ended without a valid number; to choose the best each counts as the worst value seen: {which}.",
    "Look at them: a value that loses runs is no winner.",
)
IDENTICAL_ROWS = Caution(
    "identical rows",
    "Taking away {removed} changed not a single number: it was not part of the base, or does nothing there.",
    "Choose a base that uses it, or leave it out.",
)
MATCHED_BY_TIME = Caution(
    "matched by time",
    "The baseline {name} was given {steps} steps, about as long as the slowest strategy took here: another machine may "
    "match otherwise.",
    "Read it as a check that training longer is not what helped.",
)
NOTHING_TO_MATCH = Caution(
    "nothing to match",
    "No strategy took longer than the baseline, so there is no time to give it.",
    "Read the comparison as one at equal time.",
)
DEAD_ARMS = Caution(
    "arms without a result",
    "No run of {names} ended with a valid number: nothing can be said about it but that.",
    "Look at those runs; they are results too.",
)
OLD_PRICES = Caution(
    "old prices",
    "The price of {card} is of {as_of}, {days} days ago: prices move.",
    "Give today's in a file with --prices.",
)
CONVERTED_HOURS = Caution(
    "converted hours",
    "Hours and cost on {card} are estimates. Basis: {basis}.",
    "Measure there before you decide on a close call: a model that does not fill a card never reaches its speed.",
)
NOT_FITTING = Caution(
    "does not fit",
    "Too large for the {memory} GB of {card}, and no part of the frontier: {names}.",
    "Choose a card with more memory with --gpu.",
)
TIGHT_MEMORY = Caution(
    "tight memory",
    "{need} GB of {memory} GB: a framework's own needs are not in that figure.",
    "Try one step there first.",
)
NO_HOURS = Caution(
    "no hours",
    "{variant} is left out: it has no completed run that was timed by itself.",
    "Look at its runs; those that were trained together cannot tell their time, and must be launched one by one.",
)
LOST_AS_WORST = Caution(
    "lost runs in a choice",
    "{count} run(s) ended without a valid {metric}; each counts as the worst value seen.",
    "Look at them: a configuration that loses runs costs more than its hours.",
)
FEW_FOR_CHOICE = Caution(
    "few seeds for a choice",
    "{runs} per configuration, or as few for some: what is said about noise rests on a guess from so few runs.",
    "Run more seeds of the ones that matter.",
)
UNSURE_CONSTRAINT = Caution(
    "unsure constraint",
    "{constraint} is met by the mean, but only with a probability of {percent} %.",
    "Run more seeds, or ask for certainty with --confidence 0.9.",
)
CHOSEN_OF_MANY = Caution(
    "chosen of many",
    "The best of {count} feasible configurations was chosen by these very runs: its {metric} is likely to be too good, "
    "and its interval too hopeful.",
    "Run the chosen one on fresh seeds before you rely on the figure.",
)
NO_CHANCE_KNOWN = Caution(
    "chance not known",
    "No seeds tell the noise behind {constraint} of {name}: its mean meets the limit, with what confidence is open.",
    "Give values per seed.",
)
NOT_STEADY = Caution(
    "not steady",
    "{steps} steps were too few to become steady and be measured: the figures have no intervals, or none that hold.",
    "Take more steps with --max-batches.",
)
SHORT_TRAINING = Caution(
    "short training",
    "{taken} of the {asked} steps that were asked for were taken: the training has {steps}.",
    "Train longer with --steps, or leave it out.",
)
NEAR_TIMER = Caution(
    "near the timer",
    "{phases}: less than {times} times what timing them takes; the figures are upper limits.",
    "Read them as small.",
)
BENCH_DIVERGED = Caution(
    "diverged while measured",
    "The training diverged while it was measured: {reason}. Steps up to there were timed.",
    "Measure with settings that train.",
)
PUSHED_ASIDE = Caution(
    "pushed aside",
    "The processor was taken away {times} times in {steps} steps: others were using this machine, and times are longer "
    "for it.",
    "Measure when it is quiet, or compare in turns with --ab.",
)
TWO_SESSIONS = Caution(
    "two sessions",
    "The baseline was measured at another time: what the machine did differently since then is in the ratio.",
    "Where both can be run now, compare them in turns with --ab; `fairtrial doctor --aa` shows this machine's noise.",
)
OTHER_VERSIONS = Caution(
    "other versions",
    "The baseline was measured with other versions: {versions}.",
    "Read the ratio as one of these versions too.",
)
RATE_NOT_APPLIED = Caution(
    "rate not applied",
    "The first update does not grow with the learning rate as it should: {rates} seem not to reach the optimizer.",
    "Check how the recipe uses learning_rate.",
)
SHORT_RATES = Caution(
    "short runs",
    "Losses after {steps} steps tell which rates diverge (end above where they began), not which train best at last.",
    "Choose with `fairtrial sweep {recipe} --param learning_rate=…`, which trains to the end.",
)
WEIGHTS_OF_NOW = Caution(
    "noise of these weights",
    "The noise scale is that of the weights after {steps} steps; it usually grows as training goes on.",
    "Measure again later in training: more --max-batches.",
)
NOT_A_LINE = Caution(
    "not a line",
    "Step times lie up to {percent} % away from a fixed cost and a cost per example: the knee is a rough figure.",
    "Give sizes that lie closer together.",
)
SIZE_NOT_MEASURED = Caution(
    "size not measured",
    "Batch size {size} was not measured: {reason}.",
    "Leave it out, or make room for it.",
)
CHANGES_LEFT_OUT = Caution(
    "changes left out",
    "The working tree has changes that are in neither revision.",
    "Commit them to have them measured.",
)
REGISTERED = Caution(
    "registered",
    "Study '{study}' is registered ({registration}), and this is not the analysis that was registered.",
    "Run that one: fairtrial analyze --plan REGISTRATION.",
)
NOT_BEFORE_ITS_TIME = Caution(
    "not before its time",
    "{missing} of {planned} registered runs are not there yet, so means and differences are not shown: no comparison "
    "before all of them was registered.",
    "Run the rest, then: fairtrial analyze --plan REGISTRATION.",
)
INERT_LIMIT = Caution(
    "inert limit",
    "A memory limit of {limit} GB never binds: no card here has more than {memory} GB.",
    "Leave it out, or choose a larger card.",
)
FEW_RUNS_IN_TABLE = Caution(
    "few runs in a table",
    "{n} runs per arm: a standard deviation of so few is known only to lie between {low} and {high} times the printed "
    "one (95 %), and true differences below {size} standard deviations are likely to be missed.{error}",
    "Ask for the values of the single runs, or for more runs.",
)
ROUNDED_VALUES = Caution(
    "rounded values",
    "{pair}: the verdict depends on digits that the table does not show; within rounding it may be {verdicts}.",
    "Ask for one more digit of the mean and of the spread.",
)
INTERVAL_READ_AS_T = Caution(
    "interval read as t",
    "Standard deviations come from the printed intervals, read as {level} % t intervals of the mean. If they were made "
    "with the normal quantile, the standard deviation of {n} runs is {factor} times as large{consequence}.",
    "Find out how the intervals were made, or ask for standard deviations.",
)
IMPOSSIBLE_VALUE = Caution(
    "impossible value",
    "{finding}",
    "Compare the row with its source: a digit, the number of runs or the unit is not what it seems.",
)
DOUBTFUL_VALUE = Caution(
    "doubtful value",
    "{finding}",
    "Find out what the column holds before you rely on the verdict.",
)

ALL = {caution.code: caution for caution in list(globals().values()) if isinstance(caution, Caution)}
