"""Exports a critic's chains of thought that agree with the labels, as training data for a verifier.

A *chain* is an answer in which a critic (a language model) verifies the steps of a solution.
`mclabel judge` has recorded such answers about solutions of a labelling run. As in ThinkPRM (arXiv
2504.16828), a chain is exported if its verdicts agree with the labels of the steps. In ThinkPRM
each step has a label. Here steps may be unlabelled, so the chain's first error is compared with the
labels that exist, up to the first step that is labelled wrong. No step before the chain's first
error may be labelled wrong, and no step from this error on may be labelled sound.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mclabel.core.errors import ConfigError, DataError, ShardError
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.data.exchange import VERIFIER_CHAINS
from mclabel.data.exchange.job import CARD, DATA, push_folder
from mclabel.judge.base import Answer, hash_prompt
from mclabel.judge.consensus.sources import Source, check_same_solutions
from mclabel.judge.critic import TEMPLATES, Template, fill_critic_prompt
from mclabel.judge.critic.chains import read_step_verdicts
from mclabel.judge.critic.verdicts import judges_whole_solution
from mclabel.judge.opinions import OpinionRun, read_text_digests
from mclabel.run.outputs import EXPORT, check_no_other_output, make_output_folder
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.manifest import MANIFEST, read_manifest
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.store import Store

Filter = Literal["process", "outcome", "none"]
MAX_TOKENS = 4096
"""Default maximum number of tokens of a chain. In longer chains critics mostly repeat themselves.
"""
RIGHT, WRONG = "right", "wrong"
"""The two classes of solutions. A data set has equally many chains on each class."""


@dataclass(frozen=True, kw_only=True)
class ChainSelection:
    """Settings that decide which chains are exported."""

    filter: Filter = "process"
    """Labels that a chain must agree with: `process` means the labels of the steps, `outcome` the
    outcome of the solution, and `none` no labels."""
    max_tokens: int = MAX_TOKENS
    """Maximum number of tokens of a chain; longer chains are left out."""
    per_solution: int = 1
    """Maximum number of chains per solution. Chains of one solution are similar, so chains of more
    solutions are better training data."""
    prompt: str | None = None
    """Built-in prompt that the rows contain instead of the critic's prompt; None keeps the critic's
    prompt."""
    seed: int = 0
    """Seed of the random choice if there are more chains than are exported."""


@dataclass(kw_only=True)
class ChainsReport:
    """Counts of exported chains and of chains that were left out."""

    path: str = ""
    filter: Filter
    num_rows: int = 0
    num_solutions: int = 0
    num_chains: Counter[str] = field(default_factory=Counter)
    """Number of chains per class of solutions, `RIGHT` or `WRONG`."""
    num_eligible: Counter[str] = field(default_factory=Counter)
    """Number of chains that may be exported, since they are complete, short enough and pass the
    filter, per class of solutions (`RIGHT` or `WRONG`)."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Number of chains that were left out, by reason."""
    url: str | None = None
    """URL of the uploaded data set; None without an upload."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the summary for the terminal."""
        half = self.num_rows // 2
        yield (
            f"{self.num_rows:,} chains written to {self.path}: {half:,} on right and {half:,} on "
            f"wrong solutions ({self.num_solutions:,} solutions)"
        )
        yield (
            f"complete, short enough and eligible (--filter {self.filter}): "
            f"{self.eligible_shares_text}"
        )
        yield f"left out: {self.reasons}"
        if self.url is not None:
            yield f"uploaded to {self.url}"

    @property
    def eligible_shares_text(self) -> str:
        """Text with the number and share of chains that may be exported, per class of solutions."""
        return ", ".join(
            f"{self.num_eligible[name]:,} of {count:,} on {name} solutions"
            + (f" ({self.num_eligible[name] / count:.0%})" if count else "")
            for name, count in ((name, self.num_chains[name]) for name in (RIGHT, WRONG))
        )

    @property
    def reasons(self) -> str:
        """Text with the reasons why chains are left out, the most frequent reason first."""
        counts = (f"{count:,} {reason}" for reason, count in self.left_out.most_common())
        return "; ".join(counts) or "none"


@dataclass(frozen=True, kw_only=True)
class _ChainRow:
    """A chain that may be exported."""

    key: str
    """Hash of the chain and the seed. Chains are sorted by it, so that the choice among chains
    does not depend on their order in the run."""
    kind: str
    """Class of the chain's solution, `RIGHT` or `WRONG`."""
    prompt: str
    text: str
    solution: str
    """Id of the solution."""
    first_error: int | None
    """Index of the first step that the chain finds incorrect, from 0; None if it finds none."""

    def line(self) -> str:
        """Return the chain's row as a JSON line of the file."""
        row = {
            "prompt": [{"role": "user", "content": self.prompt}],
            "completion": [{"role": "assistant", "content": self.text}],
            "id": self.solution,
            "first_error": -1 if self.first_error is None else self.first_error,
        }
        return json.dumps(row, ensure_ascii=False) + "\n"


def export_chains(
    opinions: str,
    labels: str,
    out: str,
    choice: ChainSelection | None = None,
    *,
    push_to_hub: str | None = None,
) -> ChainsReport:
    """Write a critic's chains that agree with the labels as conversations.

    The export has equally many chains on right and on wrong solutions.

    Args:
        opinions: folder or URL of a run of `mclabel judge judge=critic` over the labels.
        labels: folder or URL of the labelling run, or of a combined run.
        out: output folder, made if it is missing. Files of an earlier export are replaced.
        choice: settings that decide which chains are exported; None takes the defaults.
        push_to_hub: name of a data set on the Hugging Face Hub to which the folder is uploaded;
            None uploads nothing.

    Raises:
        ConfigError: the chosen prompt asks for another answer format, or the upload was refused.
        DataError: the opinions have no chains, are on other solutions, or no chain is left.
        ShardError: there is no run, or a shard is damaged.
    """
    choice = choice or ChainSelection()
    check_no_other_output(out, EXPORT, "-o ")
    run = OpinionRun.read(opinions)
    asked = _find_template(run)
    written = _choose_template(asked, choice.prompt)
    source = Store(labels)
    check_same_solutions(labels, read_text_digests(source), [Source(name=run.judge, run=run)])
    report = ChainsReport(filter=choice.filter)
    eligible: list[_ChainRow] = []
    num_labelled = 0
    for row in read_labels(source):
        opinion = run.opinions.get(row.solution.id)
        if opinion is None or not row.steps:
            continue
        num_labelled += _has_step_labels(row)
        for answer in opinion.answers:
            _check_prompt_is_reproducible(run, row, answer, asked)
            chain = _make_chain(row, answer, written, choice, report)
            eligible += [] if chain is None else [chain]
    if choice.filter == "process" and not num_labelled:
        raise DataError(
            f"--labels {labels}: only last steps have a label, and it is the outcome of the "
            "solution. Label the steps with an estimator other than `outcome`, or take --filter "
            "outcome"
        )
    kept = _choose_chains(eligible, choice.per_solution, report)
    if not kept:
        raise DataError(
            f"{opinions}: no chains are left. An export needs equally many chains on right and on "
            f"wrong solutions. Eligible (--filter {choice.filter}): {report.eligible_shares_text}. "
            f"Left out: {report.reasons}. Judge more solutions, or judge them with a better critic"
        )
    _write_export(kept, out, report, opinions)
    if push_to_hub is not None:
        report.url = push_folder(Path(out), push_to_hub, [DATA, CARD])
    return report


def _find_template(run: OpinionRun) -> Template:
    """Return the prompt template that the critic of a run used.

    Raises:
        DataError: the judge writes no chains, or its prompts contained reference solutions.
        ShardError: the run does not record the template.
    """
    prompt_inputs: Mapping[str, Any] = (read_manifest(Store(run.location), MANIFEST) or {}).get(
        "asked"
    ) or {}
    if not prompt_inputs:
        raise DataError(
            f"{run.location}: its judge {run.judge} writes no chains of thought. Give the `out` of "
            "mclabel judge judge=critic"
        )
    if prompt_inputs.get("use_reference"):
        raise DataError(
            f"{run.location}: its critic was shown references (use_reference=true), which a "
            "verifier will not have. Judge the solutions with judge.use_reference=false"
        )
    try:
        return read_record(Template, prompt_inputs["template"])
    except (ValueError, LookupError) as error:
        raise ShardError(
            f"{run.location}: its {MANIFEST} does not contain the critic's prompt ({error}). "
            "Judge its solutions again, into a new folder"
        ) from error


def _choose_template(critic_template: Template, prompt: str | None) -> Template:
    """Return the template of the exported prompts: the critic's own, or the named one."""
    if prompt is None:
        return critic_template
    fit = [
        name for name, template in TEMPLATES.items() if template.parser == critic_template.parser
    ]
    if prompt not in fit:
        raise ConfigError(
            f"--prompt {prompt}: must ask for the answer format of the critic's chains, "
            f"{critic_template.parser}. Take one of {', '.join(fit)}, or leave --prompt out"
        )
    return TEMPLATES[prompt]


def _fill_prompt(row: LabeledSolution, template: Template) -> str:
    return fill_critic_prompt(
        template, row.problem.text, [step.text for step in row.solution.steps]
    )


def _check_prompt_is_reproducible(
    run: OpinionRun, row: LabeledSolution, answer: Answer, template: Template
) -> None:
    if hash_prompt(_fill_prompt(row, template)) != answer.prompt:
        raise ShardError(
            f"{run.location}: the critic's prompt about solution {row.solution.id} differs from "
            "the prompt that its template gives today. Judge the solutions again, into a new folder"
        )


def _make_chain(
    row: LabeledSolution,
    answer: Answer,
    template: Template,
    choice: ChainSelection,
    report: ChainsReport,
) -> _ChainRow | None:
    """Return the chain in an answer; None if it is incomplete, too long or contradicts the labels.

    Count the chain in the report.
    """
    kind = _classify_solution(row, choice.filter)
    if isinstance(kind, _LeftOutReason):
        report.left_out[kind] += 1
        return None
    report.num_chains[kind] += 1
    error = _read_named_error(row, answer, template.parser, choice)
    if isinstance(error, _LeftOutReason):
        report.left_out[error] += 1
        return None
    report.num_eligible[kind] += 1
    return _ChainRow(
        key=content_id("verifier chain", choice.seed, row.solution.id, answer.text),
        kind=kind,
        prompt=_fill_prompt(row, template),
        text=_complete_chain_text(answer.text, error, template),
        solution=row.solution.id,
        first_error=error,
    )


def _complete_chain_text(text: str, error: int | None, template: Template) -> str:
    """Return the text of a chain, for ThinkPRM's prompt with a final verdict on the solution.

    ThinkPRM scores a solution by the probability of this verdict (2504.16828, appendix E.1), so
    training chains must end with it.
    """
    if template != TEMPLATES["thinkprm"] or judges_whole_solution(text):
        return text
    return f"{text.rstrip()}\nIs the solution correct? {'Yes' if error is None else 'No'}"


class _LeftOutReason(str):
    """Reason why a chain is left out."""


def _classify_solution(row: LabeledSolution, criterion: Filter) -> str | _LeftOutReason:
    """Return the class of a solution, or the reason why it has none.

    The class is `RIGHT` or `WRONG` by the step labels if `criterion` is `process`, else by the
    outcome.
    """
    if not row.is_kept:
        return _LeftOutReason("on solutions that a consensus does not keep")
    if criterion == "process":
        if not _has_step_labels(row):
            return _LeftOutReason("on solutions without labels of steps")
        return RIGHT if _find_first_wrong_step(row) is None else WRONG
    classes = {Outcome.RIGHT: RIGHT, Outcome.WRONG: WRONG}
    return classes.get(
        row.solution.outcome, _LeftOutReason("on solutions that could not be graded")
    )


def _read_named_error(
    row: LabeledSolution, answer: Answer, parser: str, choice: ChainSelection
) -> int | _LeftOutReason | None:
    """Return the first error that a verification chain names, or the reason why it is left out."""
    if answer.finish_reason == "failed":
        return _LeftOutReason("whose sampling failed")
    is_cut = answer.finish_reason == "length"
    verdicts = read_step_verdicts(answer.text, len(row.steps), parser, truncated=is_cut)
    if verdicts.fault is not None:
        return _LeftOutReason(f"with {verdicts.fault}" if not is_cut else str(verdicts.fault))
    if answer.num_tokens is not None and answer.num_tokens > choice.max_tokens:
        return _LeftOutReason(f"longer than {choice.max_tokens:,} tokens")
    error = verdicts.first_error
    if choice.filter == "outcome" and (error is None) != (row.solution.outcome is Outcome.RIGHT):
        return _LeftOutReason("that disagree with the outcome")
    if choice.filter == "process" and not _agrees_with_labels(row, error):
        return _LeftOutReason("that disagree with the labels")
    return error


def _has_step_labels(row: LabeledSolution) -> bool:
    """Return whether a step has a label other than the outcome.

    In a solution of one step the outcome is the label of this step.
    """
    steps = [step for step in row.steps if step.hard is not None]
    return bool(steps) and (len(row.steps) == 1 or not all(step.is_from_outcome for step in steps))


def _find_first_wrong_step(row: LabeledSolution) -> int | None:
    """Return the index of the first step that is labelled wrong; earlier steps may be unlabelled.

    None if no step is labelled wrong.
    """
    if row.first_error is not None:
        return row.first_error
    return next((i for i, step in enumerate(row.steps) if step.hard is False), None)


def _agrees_with_labels(row: LabeledSolution, error: int | None) -> bool:
    """Return whether a chain's first error agrees with all labels up to the first wrong step.

    A step is labelled sound if the solution has no error up to it. So no step from the chain's
    first error on may be labelled sound. Steps without a label are ignored.
    """
    wrong = _find_first_wrong_step(row)
    last = len(row.steps) - 1 if wrong is None else wrong
    return all(
        step.hard is None or step.hard == (error is None or index < error)
        for index, step in enumerate(row.steps[: last + 1])
    )


def _choose_chains(
    eligible: list[_ChainRow], per_solution: int, report: ChainsReport
) -> list[_ChainRow]:
    """Choose equally many chains on right and on wrong solutions at random, and count the rest."""
    by_kind: dict[str, list[_ChainRow]] = {RIGHT: [], WRONG: []}
    texts: dict[str, set[str]] = defaultdict(set)  # by prompt, as two samples may be the same text
    for chain in sorted(eligible, key=lambda kept_chain: kept_chain.key):
        there = texts[chain.prompt]
        if chain.text in there:
            report.left_out["that repeat another chain of the same solution"] += 1
        elif len(there) == per_solution:
            report.left_out[f"beyond {per_solution} a solution"] += 1
        else:
            there.add(chain.text)
            by_kind[chain.kind].append(chain)
    size = min(len(by_kind[RIGHT]), len(by_kind[WRONG]))
    if spare := len(by_kind[RIGHT]) + len(by_kind[WRONG]) - 2 * size:
        report.left_out["to have as many on right as on wrong solutions"] += spare
    kept = sorted(
        (*by_kind[RIGHT][:size], *by_kind[WRONG][:size]), key=lambda kept_chain: kept_chain.key
    )
    report.num_rows, report.num_solutions = (
        len(kept),
        len({kept_chain.prompt for kept_chain in kept}),
    )
    return kept


def _write_export(kept: list[_ChainRow], out: str, report: ChainsReport, opinions: str) -> None:
    folder = make_output_folder(out, "-o ")
    partial = folder / f"{DATA}.partial"
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(chain.line() for chain in kept)
    partial.rename(folder / DATA)
    (folder / REJECTS).unlink(missing_ok=True)
    report.path = str(folder / DATA)
    (folder / CARD).write_text(_format_data_set_card(report), encoding="utf-8")


def _format_data_set_card(report: ChainsReport) -> str:
    return f"""---
tags: [process-reward-model, generative-verifier, mclabel]
configs:
- config_name: default
  data_files: {DATA}
---
{report.num_rows} conversations in which a critic verifies the steps of a solution, half of them on
right solutions, in the format {VERIFIER_CHAINS}, made by mclabel. `first_error` is the index of the
first step that the chain finds incorrect, from 0, and -1 if the chain finds no error.

Complete, short enough and eligible (filter `{report.filter}`): {report.eligible_shares_text}.
Left out: {report.reasons}.
"""
