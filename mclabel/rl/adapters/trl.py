"""Rewards and step advantages for TRL's GRPOTrainer (1.6 to 1.16).

    trainer = GRPOTrainer(model, reward_funcs=ProcessReward("http://127.0.0.1:8791"), ...)

To give each step its own advantage:

    credit = ServerCredit("http://127.0.0.1:8791", tokenizer)
    trainer = StepGRPOTrainer(
        model, reward_funcs=credit.process_reward, step_credit=credit, ...
    )
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from mclabel.rl.adapters.rewards import (
    decode_completion,
    extract_problem,
    extract_text,
    score_and_check,
    spread_credits_over_tokens,
)
from mclabel.rl.client import RewardClient, RewardError, RewardItem, StepRewards

StepCredit = Callable[..., Sequence[Sequence[float] | None]]
"""Function that is called like a reward function of TRL. For each completion it returns one
advantage per token id, or None if the completion is left out of the loss."""
Reduce = Literal["reward", "outcome", "min_score", "mean_score", "last_score"]
"""Number that `ProcessReward` returns for a completion."""


class _BatchClient:
    """A client that sends the batches of all training processes in one request.

    So each request contains complete groups, whose completions are compared with each other.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        answer_column: str | None = "answer",
        problem_column: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        """Prepare a client, which connects at the first batch.

        Args:
            url: URL that `mclabel serve-rewards` printed.
            token: token that the server requires; None sends none.
            answer_column: column of the data set with the gold answers; None sends no answers.
            problem_column: column of the data set with the problems; None takes the prompt, or its
                last user message.
            timeout_s: maximum seconds per request.
        """
        self.client = RewardClient(url, token=token, timeout_s=timeout_s)
        self.answer_column, self.problem_column = answer_column, problem_column

    def _score_batch(
        self,
        prompts: Sequence[Any],
        texts: Sequence[str],
        columns: dict[str, Any],
        truncated: Sequence[bool] | None = None,
    ) -> list[StepRewards]:
        problems = self._find_column(self.problem_column, columns)
        problems = problems or [extract_problem(prompt) for prompt in prompts]
        answers = self._find_column(self.answer_column, columns) or [None] * len(texts)
        items = [
            RewardItem(str(problem), text, answer, truncated=is_truncated)
            for problem, text, answer, is_truncated in zip(
                problems, texts, answers, truncated or [False] * len(texts), strict=True
            )
        ]
        batch_rewards = _score_in_first_process(
            items, lambda all_items: score_and_check(self.client, all_items)
        )
        log = columns.get("log_metric")
        if log is not None and batch_rewards:
            log(
                "rewards/refused",
                sum(item_rewards.refused is not None for item_rewards in batch_rewards)
                / len(batch_rewards),
            )
            log(
                "rewards/masked",
                sum(item_rewards.masked for item_rewards in batch_rewards) / len(batch_rewards),
            )
        return batch_rewards

    @staticmethod
    def _find_column(name: str | None, columns: dict[str, Any]) -> list[Any] | None:
        if name is not None and name not in columns:
            column_names = sorted(
                key
                for key, value in columns.items()
                if isinstance(value, list) and key not in ("completions", "completion_ids")
            )
            raise RewardError(
                f"the data set has no column {name!r}, but the columns {column_names}. Set "
                "answer_column or problem_column to one of these, or answer_column to None if the "
                "server does not check answers"
            )
        return None if name is None else list(columns[name])


class ProcessReward(_BatchClient):
    """A reward function of TRL that returns one number per completion from the reward server."""

    __name__ = "process_reward"

    def __init__(self, url: str, *, reduce: Reduce = "reward", **options: Any) -> None:
        """Prepare a client, which connects at the first batch.

        Args:
            url: URL that `mclabel serve-rewards` printed.
            reduce: number to return: the server's `reward`; the `outcome` as 1 if right, else 0; or
                the `min_score`, `mean_score` or `last_score` of the PRM's step scores.
            **options: `token`, `answer_column`, `problem_column` and `timeout_s`: the token that
                the server requires, two columns of the data set, and maximum seconds per request.
        """
        if reduce not in get_args(Reduce):
            raise ValueError(f"reduce={reduce!r}: must be one of {get_args(Reduce)}")
        super().__init__(url, **options)
        self.reduce = reduce

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        """Return one reward per completion in TRL's format.

        A masked completion (its reward is unknown) has None. TRL leaves it out of baselines and
        advantages.
        """
        texts = [extract_text(completion) for completion in completions]
        return [
            self._reduce_reward(item_rewards)
            for item_rewards in self._score_batch(prompts, texts, columns)
        ]

    def _reduce_reward(self, item_rewards: StepRewards) -> float | None:
        if item_rewards.masked:
            return None
        if item_rewards.refused is not None:
            return 0.0
        if self.reduce == "reward":
            return item_rewards.reward
        if self.reduce == "outcome":
            if item_rewards.outcome is None:
                raise RewardError(
                    "reduce='outcome': needs outcomes, but the server does not check answers. "
                    "Start it with check=true, or set another reduce"
                )
            return float(item_rewards.outcome == "right")
        if not item_rewards.scores:
            raise RewardError(
                f"reduce={self.reduce!r}: needs step scores, but the server has no PRM. Start it "
                "with prm=FOLDER, or set another reduce"
            )
        if self.reduce == "min_score":
            return min(item_rewards.scores)
        return (
            item_rewards.scores[-1]
            if self.reduce == "last_score"
            else math.fsum(item_rewards.scores) / len(item_rewards.scores)
        )


class ServerCredit(_BatchClient):
    """A `step_credit` function that returns the advantages computed by the reward server.

    Use its method `process_reward` as the reward function. Then only one request per batch is sent
    for rewards and advantages.
    """

    def __init__(self, url: str, tokenizer: Any, **options: Any) -> None:
        """Prepare a client, which connects at the first batch.

        Args:
            url: URL that `mclabel serve-rewards` printed.
            tokenizer: tokenizer of the policy.
            **options: `token`, `answer_column`, `problem_column` and `timeout_s`: the token that
                the server requires, two columns of the data set, and maximum seconds per request.
        """
        super().__init__(url, **options)
        self.tokenizer = tokenizer
        self._cached_rewards: tuple[list[tuple[int, ...]], list[StepRewards]] = ([], [])

    def __call__(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], **columns: Any
    ) -> list[list[float] | None]:
        """Return for each completion one advantage per token id; None if its reward is unknown."""
        cached_ids, batch_rewards = self._cached_rewards
        self._cached_rewards = ([], [])  # used only once: a later policy may sample the same ids
        if not cached_ids or cached_ids != [tuple(ids) for ids in completion_ids]:
            batch_rewards = self._score_completion_ids(prompts, completion_ids, columns)
        return [
            None
            if item_rewards.masked
            else spread_credits_over_tokens(item_rewards, ids, self.tokenizer)
            for item_rewards, ids in zip(batch_rewards, completion_ids, strict=True)
        ]

    def process_reward(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], **columns: Any
    ) -> list[float]:
        """Return the server's rewards in the format of a reward function.

        The server's response is kept for the next call of this object as `step_credit`.
        """
        batch_rewards = self._score_completion_ids(prompts, completion_ids, columns)
        self._cached_rewards = ([tuple(ids) for ids in completion_ids], batch_rewards)
        return [item_rewards.reward for item_rewards in batch_rewards]

    def _score_completion_ids(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], columns: Any
    ) -> list[StepRewards]:
        texts = [decode_completion(ids, self.tokenizer) for ids in completion_ids]
        end_token_ids = {
            self.tokenizer.eos_token_id,
            self.tokenizer.pad_token_id,
        }  # TRL's rule for truncated completions
        truncated = [not len(ids) or ids[-1] not in end_token_ids for ids in completion_ids]
        return self._score_batch(prompts, texts, columns, truncated)


class StepGRPOTrainer(GRPOTrainer):
    """TRL's GRPO trainer with a separate advantage for every token.

    Only `advantages` differ from TRL. Rewards are logged as usual. If all tokens of a completion
    have the same advantage, the losses are the same as TRL's. Set `scale_rewards="none"` and
    `loss_type="dr_grpo"`, because the standard deviation of a group's rewards has no meaning for
    step advantages.
    """

    def __init__(self, *args: Any, step_credit: StepCredit, **kwargs: Any) -> None:
        """Create a trainer.

        Args:
            *args: positional arguments of GRPOTrainer.
            step_credit: function that is called like a reward function, with `prompts`,
                `completions`, `completion_ids` and the columns of this process's batch. For each
                completion it returns one advantage per token id, or None if the completion is left
                out of the loss.
            **kwargs: keyword arguments of GRPOTrainer.

        Raises:
            ValueError: an option is set for which TRL needs one advantage per completion.
        """
        super().__init__(*args, **kwargs)
        self.step_credit = step_credit
        self._credits: Sequence[Sequence[float] | None] | None = None
        rejected_options = {
            "loss_type='vespo'": self.loss_type == "vespo",
            "off_policy_mask_threshold": getattr(self, "off_policy_mask_threshold", None)
            is not None,
            "use_liger_kernel=True": bool(getattr(self.args, "use_liger_kernel", False)),
        }
        for option, is_set in rejected_options.items():
            if is_set:
                raise ValueError(
                    f"{option} needs one advantage per completion, but StepGRPOTrainer computes "
                    "one per token. Leave this option out"
                )
        if not hasattr(GRPOTrainer, "_calculate_rewards"):
            raise ValueError(
                "the installed version of TRL is not supported by StepGRPOTrainer. Install trl "
                "from 1.6 to 1.16"
            )

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any
    ) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.model is None or not self.model.training:
            return rewards
        direct_arguments = ("prompt", "completion", "completion_ids")
        columns: dict[str, Any] = {
            key: [row[key] for row in inputs] for key in inputs[0] if key not in direct_arguments
        }
        columns["trainer_state"] = self.state
        if hasattr(self, "_log_metric"):
            columns |= {"log_metric": self._log_metric, "log_extra": self._log_completion_extra}
        self._credits = self.step_credit(
            prompts=prompts, completions=completions, completion_ids=completion_ids_list, **columns
        )
        _check_lengths(self._credits, completion_ids_list)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._credits = None
        output = super()._generate_and_score_completions(inputs)
        if self._credits is None:  # an evaluation
            return output
        advantages = output["advantages"]
        shape = output["completion_ids"].shape
        if advantages.shape != shape[:1] or len(self._credits) != shape[0]:
            raise RuntimeError(
                f"TRL made advantages of shape {tuple(advantages.shape)} for completions of shape "
                f"{tuple(shape)} and {len(self._credits)} credits. This version of TRL is not "
                "supported. Install trl from 1.6 to 1.16"
            )
        token_advantages = advantages.new_zeros(shape)
        for index, advantages_of_completion in enumerate(self._credits):
            if advantages_of_completion is None:
                output["completion_mask"][index] = 0  # excludes it from the loss and its KL term
            else:
                token_advantages[index, : len(advantages_of_completion)] = torch.tensor(
                    advantages_of_completion, dtype=token_advantages.dtype
                )
        output["advantages"] = token_advantages
        return output


def _check_lengths(credits: Sequence[Sequence[float] | None], ids: Sequence[Sequence[int]]) -> None:
    required_lengths = [len(completion) for completion in ids]
    given_lengths = [None if advantages is None else len(advantages) for advantages in credits]
    expected_lengths = [
        required_length if given_length is not None else None
        for given_length, required_length in zip(given_lengths, required_lengths, strict=False)
    ]
    if len(given_lengths) != len(required_lengths) or given_lengths != expected_lengths:
        raise ValueError(
            f"step_credit gave {given_lengths} advantages for completions of {required_lengths} "
            "ids, but must give one advantage per id"
        )
    if not all(
        math.isfinite(advantage) for advantages in credits for advantage in advantages or ()
    ):
        raise ValueError("step_credit gave an advantage that is not finite")


def _score_in_first_process(
    items: list[RewardItem], score: Callable[[list[RewardItem]], list[StepRewards]]
) -> list[StepRewards]:
    """Score the items of all processes in one request, which the first process sends.

    This is necessary because completions of one group, which the server compares, may be on
    different processes.

    Args:
        items: items of this process.
        score: function that sends a request. Only the first process calls it.

    Returns:
        The rewards of this process's items.
    """
    distributed = torch.distributed
    if (
        not (distributed.is_available() and distributed.is_initialized())
        or distributed.get_world_size() == 1
    ):
        return score(items)
    items_by_process: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(items_by_process, items)
    broadcast_rewards: list[Any] = [None]
    if distributed.get_rank() == 0:
        try:
            broadcast_rewards = [
                score([item for process_items in items_by_process for item in process_items])
            ]
        except RewardError as error:  # raised again in every process, so that no process hangs
            broadcast_rewards = [error]
    distributed.broadcast_object_list(broadcast_rewards, src=0)
    if isinstance(broadcast_rewards[0], RewardError):
        raise broadcast_rewards[0]
    start = sum(len(process_items) for process_items in items_by_process[: distributed.get_rank()])
    batch_rewards: list[StepRewards] = broadcast_rewards[0]
    return batch_rewards[start : start + len(items)]
