"""Samples or encodes the solutions of a problem, splits them into steps, and grades them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mclabel.checkers import Checker
from mclabel.core.errors import RejectReason, shorten_detail
from mclabel.core.records import AUTHOR, Completion, GivenSolution, Problem, Solution
from mclabel.core.seeds import content_id, derive_sampling_seed
from mclabel.data.lengths import split_steps
from mclabel.data.steps import StepSplitter
from mclabel.engines import Policy
from mclabel.engines.base import describe_oversized_text
from mclabel.labeling.grading import make_failed_grade_record
from mclabel.labeling.journal import JournaledSolution, make_solution_line
from mclabel.labeling.rollouts import Sampler
from mclabel.run.cpu_executor import CpuExecutor


async def sample_solution(
    sampler: Sampler, index: int, splitter: StepSplitter, prompt_opens_thinking: bool
) -> Solution:
    """Sample one solution from the policy, split and grade it; or take it from the journal of an
    earlier attempt.

    Args:
        sampler: sampler of the problem.
        index: index of the solution among the problem's solutions, from 0.
        splitter: splitter that divides the solution into steps.
        prompt_opens_thinking: True if the prompt ends with the marker that opens the policy's
            thinking.
    """
    problem, policy, journal = sampler.problem, sampler.policy, sampler.journal
    recorded: JournaledSolution | None = None
    if journal is not None:
        recorded = journal.take(("solution", problem.id, index))
    if recorded is not None and not recorded.failed:
        return recorded.solution
    why = None
    if recorded is not None:
        completion = recorded.completion
    else:
        seed = derive_sampling_seed(sampler.run_seed, problem.id, "solution", index)
        completion, why = await sampler.sample((), seed=seed)
    grade = await sampler.grade(completion) if why is None else make_failed_grade_record(why)
    steps = splitter.split(
        completion.ids,
        completion.text,
        policy.decode,
        starts_in_thinking=prompt_opens_thinking,
        is_complete=completion.finish_reason == "stop",
    )
    solution = Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=completion.text,
        ids=completion.ids,
        steps=steps,
        finish_reason=completion.finish_reason,
        origin="sampled",
        prediction=grade.prediction,
        outcome=grade.outcome,
    )
    if recorded is None:
        sampler.on_completion(grade.outcome)
    if journal is not None and why is None:
        journal.add(partial(make_solution_line, solution, failed=grade.failed))
    return solution


async def encode_given_solution(
    sampler: Sampler,
    given: GivenSolution,
    index: int,
    splitter: StepSplitter,
    prompt_opens_thinking: bool,
) -> Solution | None:
    """Encode a given solution in the policy's tokens, split it into steps, and grade it.

    Args:
        sampler: sampler of the problem.
        given: text of the solution, and the ends of its steps if they are known.
        index: index of the solution among the problem's solutions, from 0.
        splitter: splitter that divides the solution into steps if their ends are not known.
        prompt_opens_thinking: True if the prompt ends with the marker that opens the policy's
            thinking.

    Returns:
        The solution; None if the policy's tokenizer does not reproduce the text. The steps would
        then have no exact token boundaries.
    """
    problem, policy = sampler.problem, sampler.policy
    ids = policy.encode(given.text)
    if policy.decode(ids) != given.text:
        return None
    if given.step_ends is None:
        steps = splitter.split(
            ids, given.text, policy.decode, starts_in_thinking=prompt_opens_thinking
        )
    else:
        steps = split_steps(ids, given.text, given.step_ends, policy.decode)
    grade = await sampler.grade(Completion(ids=ids, text=given.text, finish_reason="stop"))
    return Solution(
        id=content_id("solution", problem.id, index),
        problem_id=problem.id,
        sample_index=index,
        text=given.text,
        ids=ids,
        steps=steps,
        finish_reason="stop",
        origin="given",
        prediction=grade.prediction,
        outcome=grade.outcome,
    )


async def render_prompts(
    problem: Problem,
    given: Sequence[GivenSolution],
    policies: Sequence[tuple[str, Policy]],
    *,
    checker: Checker,
    executor: CpuExecutor,
) -> list[tuple[int, ...]] | RejectReason:
    """Return the prompt of a problem for each model, or the reason why it cannot be labelled.

    Args:
        problem: problem with its gold answer.
        given: given solutions to label.
        policies: names and policies of the models, the author first, then the completers. A policy
            that occurs twice renders its prompt only once.
        checker: checker that will grade the completions.
        executor: executor for the checker's computations.
    """
    prompts: dict[int, tuple[int, ...]] = {}
    for name, policy in policies:
        if id(policy) in prompts:
            continue
        model_noun = "the model" if name == AUTHOR else f"the completer {name}"
        if (why := _find_oversized_text(problem, given, policy, model_noun)) is not None:
            return why
        prompt = prompts[id(policy)] = policy.prompt_ids(problem.text)
        if len(prompt) >= policy.max_context:
            return RejectReason(
                "prompt_too_long",
                f"its prompt has {len(prompt)} tokens, but {model_noun} takes "
                f"{policy.max_context:g} of prompt and solution together",
            )
    reason = await checker.refuse(problem, executor.run)
    if reason is not None:
        return RejectReason(
            "unparsed_gold",
            f"the checker {checker.name} does not understand the gold "
            f"{shorten_detail(problem.answer)!r} ({reason})",
        )
    return [prompts[id(policy)] for _, policy in policies]


def _find_oversized_text(
    problem: Problem, given: Sequence[GivenSolution], policy: Policy, model_noun: str
) -> RejectReason | None:
    """Return a reason if a text is too long to fit a model's context; else None.

    The check uses the number of characters, because tokenising a huge text would take long.
    """
    takes = f"which {model_noun} takes of prompt and solution together"
    if (size := describe_oversized_text(len(problem.text), policy)) is not None:
        return RejectReason("prompt_too_long", f"its text has {size}, {takes}")
    for index, solution in enumerate(given):
        if (size := describe_oversized_text(len(solution.text), policy)) is not None:
            return RejectReason("solution_too_long", f"its solution {index} has {size}, {takes}")
    return None
