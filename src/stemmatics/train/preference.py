"""Direct preference optimisation with TRL."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import DPOConfig, DPOTrainer

from stemmatics.core.stages import Recipe
from stemmatics.train.finetune import Conditions, Listener, TrainingLog, arguments, order_of, run
from stemmatics.train.rows import Row


class TokenisedPairs(DPOTrainer):
    """TRL's trainer on rows that are token ids already, without telemetry."""

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        return dataset

    def _send_telemetry(self) -> None:
        """Do nothing."""


def fit_preferences(
    models: tuple[PreTrainedModel | PeftModel, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    recipe: Recipe,
    conditions: Conditions,
    *,
    beta: float,
) -> TrainingLog:
    """Train the first of (model, reference) in place with the loss of Rafailov et al. 2023, equation 7.

    A recipe's batch counts pairs. At step 1 model and reference agree and the loss is ln 2.

    Raises:
        UserError: the loss is not finite.
    """
    pairs = Dataset.from_list([rows[index] for index in order_of(len(rows), recipe, conditions.rng())])
    model, reference = models
    with tempfile.TemporaryDirectory() as scratch:
        listener = Listener(recipe, conditions.on_event)
        trainer = TokenisedPairs(
            model=model,
            ref_model=reference,
            args=DPOConfig(
                beta=beta,
                loss_type="sigmoid",
                max_length=None,
                gradient_checkpointing=False,
                **arguments(recipe, Path(scratch), conditions),
            ),
            train_dataset=pairs,
            processing_class=tokenizer,
            callbacks=[listener],
        )
        run(trainer)
    return listener.log
