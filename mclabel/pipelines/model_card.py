"""The README.md beside a trained scorer."""

from __future__ import annotations

from mclabel.config import TrainConfig
from mclabel.pipelines.train_report import TrainReport
from mclabel.prm.examples.targets import target_of


def model_card(config: TrainConfig, report: TrainReport) -> str:
    """The card of a scorer: how it was trained, what its scores mean, figures on validation.

    Args:
        config: of its training.
        report: of the same.
    """
    figures = "\n".join(
        f"| {name.replace('_', ' ')} | {'-' if value is None else round(value, 4)} |"
        for name, value in report.validation.items()
    )
    kind = "An outcome" if target_of(config.target).is_outcome else "A process"
    base = config.base.replace("\n", " ")
    return f"""---
library_name: mclabel
tags: [process-reward-model]
---
{kind} reward model, trained by mclabel on {report.num_solutions} solutions
({config.target} labels), head `{config.head}`, from `{base}`.

What a score means is what the labels mean: with labels from rollouts, how likely the labelling
policy is to end right from a step on (soft), or whether it still can (hard). It is not a proof that
the step is right.

```python
from mclabel.prm import PRM

PRM.load("…").score([problem], [solution])  # one number in [0, 1] for each step
```

| validation, on problems held out of training | |
|---|---|
{figures}
"""
