"""The solutions to be labelled: sampled by the policy or given, split into steps and graded."""

from __future__ import annotations

from mclabel.core.records import Completion, GivenSolution, Solution
from mclabel.core.seeds import content_id, sampling_seed
from mclabel.data.alignment import split_steps
from mclabel.data.steps import StepSplitter
from mclabel.labeling.grading import not_sampled
from mclabel.labeling.rollouts import Sampler


async def sampled_solution(
    sampler: Sampler, index: int, splitter: StepSplitter, thinks: bool
) -> Solution:
    """A solution that the policy samples, or has sampled as the journal says.

    Args:
        sampler: of the problem.
        index: among the problem's solutions.
        splitter: of the solution.
        thinks: whether the prompt ends where the policy's thinking begins.
    """
    problem, policy, journal = sampler.problem, sampler.policy, sampler.journal
    known = None if journal is None else journal.take_solution(problem.id, index)
    if known is not None and not known.failed:
        return known.solution
    why = None
    if known is not None:
        completion = known.completion
    else:
        seed = sampling_seed(sampler.run_seed, problem.id, "solution", index)
        completion, why = await sampler.sample((), seed=seed)
    grade = await sampler.grade(completion) if why is None else not_sampled(why)
    steps = splitter.split(
        completion.ids,
        completion.text,
        policy.decode,
        opened=thinks,
        ended=completion.finish_reason == "stop",
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
    if known is None:
        sampler.on_completion(grade.outcome)
    if journal is not None and why is None:
        journal.add_solution(solution, failed=grade.failed)
    return solution


async def given_solution(
    sampler: Sampler, given: GivenSolution, index: int, splitter: StepSplitter, thinks: bool
) -> Solution | None:
    """A solution from elsewhere, in the policy's tokens.

    Args:
        sampler: of the problem.
        given: its text, and where its steps end if that is known.
        index: among the problem's solutions.
        splitter: of the solution.
        thinks: whether the prompt ends where the policy's thinking begins.

    Returns:
        None if the policy's tokenizer does not give the text back: its steps would have no exact
        token boundaries.
    """
    problem, policy = sampler.problem, sampler.policy
    ids = policy.encode(given.text)
    if policy.decode(ids) != given.text:
        return None
    if given.step_ends is None:
        steps = splitter.split(ids, given.text, policy.decode, opened=thinks)
    else:
        steps = split_steps(ids, given.text, given.step_ends, policy.decode)
    completion = Completion(ids=ids, text=given.text, finish_reason="stop")
    grade = await sampler.grade(completion)
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
