"""Preview of a labelling job: its plan, inputs and models, without starting an engine."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isinf

from mclabel.checkers import Checker, make_checker
from mclabel.core.errors import ConfigError, MclabelError, shorten_detail
from mclabel.core.records import AUTHOR, Problem
from mclabel.data.readers.rows import describe_row_place
from mclabel.engines import EngineResources, PolicyPreview, PolicySettings, make_engine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import find_strongest_completer_index
from mclabel.labeling.inputs import load_inputs, open_source_run
from mclabel.labeling.job import make_semantic_config
from mclabel.labeling.policy import PreparedModels, PreparedPolicy, read_few_shot_examples
from mclabel.run.outputs import RUN, check_output_is_usable
from mclabel.run.shards.rejects import Reject

NUM_GOLDS = 2000
"""Number of problems, from the first, whose gold answers the checker parses for the preview."""
MAX_SHOWN = 3000
"""Maximum number of characters of a prompt that are printed."""
NUM_LONGEST = 64
"""Number of problems, those with the longest texts, that are tokenised for the preview."""


@dataclass(frozen=True, kw_only=True)
class InputSummary:
    """Summary of a job's input files."""

    num_problems: int
    num_solutions: int | None
    """Number of given solutions; None if the policy samples the solutions."""
    rejects: Counter[str]
    """Numbers of rows and problems that cannot be used, by reason."""
    first_reject: Reject | None
    num_golds: int
    """Number of gold answers that the checker tried to parse."""
    refused_golds: Sequence[str]
    """Gold answers that the checker tried to parse and could not."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return the summary as pairs of a name and a text to print."""
        given = "" if self.num_solutions is None else f", {self.num_solutions:,} given solutions"
        yield "input", f"{self.num_problems:,} problems{given}"
        if (first := self.first_reject) is not None:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.rejects.items())
            place = (
                f"problem {first.problem_id}"
                if first.row is None
                else describe_row_place(str(first.source), first.row)
            )
            yield (
                "left out",
                f"{self.rejects.total():,} of {self._num_rows:,} rows or problems: {reasons}; the "
                f"first: {place}: {shorten_detail(first.detail)}",
            )
        if self.refused_golds:
            shown = ", ".join(repr(shorten_detail(gold)) for gold in self.refused_golds[:3])
            yield (
                "golds",
                f"the answer checker does not understand {len(self.refused_golds):,} of the first "
                f"{self.num_golds:,} gold answers, such as {shown}. These problems will be "
                "rejected",
            )
        if (warning := self._find_unusable_input_warning()) is not None:
            yield "WARNING", warning

    @property
    def _num_rows(self) -> int:
        """Number of rows in the files of problems and given solutions, including unused rows."""
        return self.num_problems + (self.num_solutions or 0) + self.rejects.total()

    def _find_unusable_input_warning(self) -> str | None:
        """Return a warning if most of the input is unusable, which is rarely intended; else None.

        Repeated rows and problems without a given solution do not count as unusable here.
        """
        num_harmless = self.rejects["duplicate"] + self.rejects["no_solution"]
        if 2 * (self.rejects.total() - num_harmless) > self._num_rows - num_harmless:
            return (
                "more than half of the input cannot be used. Check that problems.source, "
                "problems.problem_column, problems.answer_column and solutions.path are right"
            )
        if 2 * len(self.refused_golds) > self.num_golds:
            return (
                "the checker understands less than half of the golds. Check "
                "problems.answer_column, or choose another checker"
            )
        return None


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """Facts from a model's configuration and tokenizer."""

    tokenizer: str
    """Description of the tokenizer."""
    prompt: str
    """Description of the way in which prompts are rendered."""
    completion_ends: Sequence[str]
    """Stop strings and tokens that end a completion, as printable texts."""
    max_context: float
    """Maximum number of tokens of prompt and completion together; infinite if unlimited."""
    max_tokens: int
    longest_prompt_tokens: int
    """Number of tokens of the longest prompt among the tokenised problems."""
    num_too_long: int
    """Number of problems, among the tokenised ones, whose prompt leaves no room for a solution."""
    shown_prompt: str | None
    """Example prompt with its control tokens marked; None if no problem was tokenised."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return the facts as pairs of a name and a text to print."""
        ends = (
            ", ".join(self.completion_ends) or "nothing: every completion runs to policy.max_tokens"
        )
        yield "tokenizer", f"{self.tokenizer}; the prompt is {self.prompt}; ends at {ends}"
        if self.shown_prompt is not None:
            shown = repr(self.shown_prompt)  # on one line, control characters escaped
            if len(shown) > MAX_SHOWN:
                shown = f"{shown[: MAX_SHOWN // 2]} … {shown[-MAX_SHOWN // 2 :]}"
            yield "a prompt, ⟦control tokens⟧ marked", shown
        limit = "any number" if isinf(self.max_context) else f"{self.max_context:,.0f}"
        room = self.max_context - self.longest_prompt_tokens
        text = (
            f"a prompt of {self.longest_prompt_tokens:,} tokens; the model's context takes {limit}"
        )
        if self.num_too_long:
            more = " or more" if self.num_too_long == NUM_LONGEST else ""
            text += (
                f"; {self.num_too_long:,}{more} of the problems leave no room for a solution and "
                "will be rejected"
            )
        elif room < self.max_tokens:
            text += (
                f"; its solutions are cut at {room:,.0f} tokens, not at policy.max_tokens="
                f"{self.max_tokens:,}"
            )
        yield "longest problem", text


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Facts about a job's inputs and models, collected before the job starts."""

    inputs: InputSummary
    models: dict[str, ModelSummary]
    """Facts by model name: `policy` or a completer's name. Models whose engine cannot be inspected
    without starting it are left out."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Return the preview as pairs of a name and a text to print."""
        yield from self.inputs.lines()
        for name, facts in self.models.items():
            whose = "" if name == AUTHOR else f"{name}'s "
            yield from ((f"{whose}{fact}", text) for fact, text in facts.lines())


def preview(config: LabelConfig) -> Preview:
    """Read a job's inputs, and inspect its models.

    Raises:
        ConfigError: the job would not run. The message lists all causes: missing or unusable
            files, a model that cannot be found or used, an output that cannot be written.
    """
    faults: list[str] = []
    inputs: InputSummary | None = None
    facts: dict[str, ModelSummary] = {}
    longest: Sequence[str] = ()
    try:
        check_output_is_usable(config.out, RUN)
    except MclabelError as error:
        faults.append(str(error))
    try:
        inputs, longest = summarise_inputs(config)
    except MclabelError as error:
        faults.append(str(error))
    try:
        for name, policy in PreparedModels.prepare_all(config).by_name.items():
            if (shown := policy.engine.preview()) is not None:
                facts[name] = summarise_model(policy.settings, shown, longest)
    except MclabelError as error:
        faults.append(str(error))
    if inputs is None or faults:
        raise ConfigError("\n".join(["this job would not run:", *faults]))
    return Preview(inputs=inputs, models=facts)


def summarise_inputs(config: LabelConfig) -> tuple[InputSummary, list[str]]:
    """Read all problems and given solutions of a job.

    Returns:
        A summary of the inputs, and the texts of the longest problems, the longest first.

    Raises:
        DataError: a file is missing or unreadable, or none of its rows can be used; if strict, a
            single row cannot be used.
    """
    source = None
    if config.solutions.run is not None:
        source = open_source_run(config, make_semantic_config(config))
    work = load_inputs(config, source)
    rejects: Counter[str] = Counter()
    first: Reject | None = None
    for reject in work.rejects():
        first = first or reject
        rejects[reject.reason] += 1
    checker = make_checker(config.checker)
    first_problems = list(islice(work.problems, NUM_GOLDS))
    texts = (problem.text for problem in work.problems)
    inputs = InputSummary(
        num_problems=len(work.problems),
        num_solutions=None if work.given is None else sum(map(len, work.given.values())),
        rejects=rejects,
        first_reject=first,
        num_golds=len(first_problems),
        refused_golds=asyncio.run(_find_refused_golds(checker, first_problems)),
    )
    return inputs, heapq.nlargest(NUM_LONGEST, texts, key=len)


async def _find_refused_golds(checker: Checker, problems: Sequence[Problem]) -> list[str]:
    """Return the gold answers that the checker cannot parse."""
    return [problem.answer for problem in problems if await checker.refuse(problem) is not None]


def summarise_model(
    policy: PolicySettings, policy_preview: PolicyPreview, problems: Sequence[str]
) -> ModelSummary:
    """Return facts about a model, and check that the longest prompts fit its context.

    Args:
        policy: resolved settings of the model.
        policy_preview: preview by the model's engine, from its configuration and tokenizer files.
        problems: texts of the longest problems.
    """
    most = policy_preview.max_context * policy_preview.max_token_chars
    prompts = [policy_preview.prompt_ids(text) for text in problems if len(text) <= most]
    lengths = [len(ids) for ids in prompts]
    num_too_long = sum(length >= policy_preview.max_context for length in lengths)
    return ModelSummary(
        tokenizer=policy_preview.tokenizer,
        prompt=policy_preview.prompt,
        completion_ends=[*map(repr, policy.stop), *policy_preview.ends],
        max_context=policy_preview.max_context,
        max_tokens=policy.max_tokens,
        longest_prompt_tokens=max(lengths, default=0),
        num_too_long=num_too_long + len(problems) - len(lengths),
        shown_prompt=policy_preview.mark_control_tokens(min(prompts, key=len)) if prompts else None,
    )


@dataclass(frozen=True, kw_only=True)
class LabelPlan:
    """Plan of a labelling job, resolved as far as possible without a network."""

    config: LabelConfig
    models: PreparedModels
    """Models of the job. Their commits are not looked up, because that needs a network."""

    @property
    def resources(self) -> EngineResources:
        """Cluster resources that one engine needs."""
        return self.models.resources(self.config.ray)

    def lines(self) -> list[tuple[str, str]]:
        """Return the plan as pairs of a name and a text to print."""
        config = self.config
        solutions, split = config.solutions, config.split
        problems = config.problems.source
        if solutions.run is not None:
            problems = f"those of {solutions.run}"
            chosen = f"those of {solutions.run}, whose rollouts are reused"
        elif solutions.path is not None:
            chosen = f"given by {solutions.path}"
        elif solutions.balance is None:
            chosen = f"{solutions.per_problem} sampled of each problem"
        else:
            most = solutions.max_sampled_solutions
            chosen = (
                f"{solutions.balance} right and {solutions.balance} wrong solutions kept of each "
                f"problem, {solutions.per_problem} to {most} sampled"
            )
        if solutions.select is not None:
            chosen += f", only those that {solutions.select} selects"
        limit = "" if split.max_steps is None else f", {split.max_steps} at most"
        return [
            ("problems", f"{problems}, in blocks of {config.block_problems}"),
            ("solutions", chosen),
            ("steps", f"by {split.by}, of {split.region}{limit}"),
            ("rollouts", config.estimator.summary),
            *self._iter_model_lines(),
            *self._iter_completer_lines(),
            ("an engine takes", _format_resources(self.resources)),
            ("Ray", config.ray.address),
            ("out", config.out),
        ]

    def _iter_completer_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the completers and their costs, unless the policy alone samples rollouts."""
        if self.models.completers:
            rolling = self.models.estimator_completers
            each = ", ".join(
                f"{completer.name} (a token costs {completer.cost:.3g})" for completer in rolling
            )
            strong = (
                rolling[find_strongest_completer_index(rolling)].name if len(rolling) > 1 else None
            )
            yield "rolled out by", each + (f"; {strong} is the strongest" if strong else "")

    def _iter_model_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the engine of each model."""
        for name, model in self.models.by_name.items():
            whose = "" if name == AUTHOR else f"{name}'s "
            settings = model.settings
            revision = f"@{settings.revision}" if settings.revision else ""
            yield f"{whose}model", settings.model + revision
            yield f"{whose}engine", f"{settings.engine.kind}, {model.engine.place}"


def plan_labelling(config: LabelConfig) -> LabelPlan:
    """Return the plan of a labelling job.

    Raises:
        DataError: the file of examples cannot be read.
    """
    models = PreparedModels.prepare_all(config, _prepare_unchecked_policy)
    return LabelPlan(config=models.with_resolved_settings(config), models=models)


def _prepare_unchecked_policy(policy: PolicySettings) -> PreparedPolicy:
    settings = read_few_shot_examples(policy)
    return PreparedPolicy(settings=settings, engine=make_engine(settings))


def _format_resources(resources: EngineResources) -> str:
    text = f"{resources.num_cpus:g} CPUs"
    if resources.total_gpus:
        text += f", {resources.total_gpus:g} GPUs"
    return text + (", over as few nodes as have room" if resources.bundles else "")
