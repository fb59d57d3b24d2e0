"""One run of transformers' Trainer or TRL's DPOTrainer under a recipe."""

from __future__ import annotations

import json
import math
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils import logging

from stemmatics.core.errors import UserError
from stemmatics.core.keys import key_of
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import Recipe
from stemmatics.lm.checkpoints.loading import device_of
from stemmatics.train.rows import IGNORED, Row

OnEvent = Callable[[Mapping[str, Any]], None]
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


@dataclass(frozen=True)
class TrainingStep:
    """One update: ``loss`` in nats per supervised token (DPO: per pair), ``num_tokens`` so far, unpadded."""

    step: int
    loss: float
    num_tokens: int


@dataclass
class TrainingLog:
    """Updates of a stage in order; empty for a stage that does not train.

    A recovery also counts the bytes of text that it read and the documents that it started.
    """

    rows: list[TrainingStep] = field(default_factory=list)
    num_bytes: int = 0
    num_documents: int = 0


@dataclass(frozen=True)
class Conditions:
    """Settings of a run that do not depend on the stage."""

    seed: int
    numerics: Numerics
    on_event: OnEvent | None = None

    def rng(self) -> np.random.Generator:
        """A generator for the order of the rows."""
        return np.random.default_rng(self.seed)


@contextmanager
def seeded(seed: int, numerics: Numerics) -> Iterator[None]:
    """Seed the process-wide generators and set the number of threads; restore both on exit."""
    threads = torch.get_num_threads()
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 -- Trainer seeds these; we restore them
    with torch.random.fork_rng():
        try:
            torch.manual_seed(seed)
            if numerics.threads:
                torch.set_num_threads(numerics.threads)
            yield
        finally:
            torch.set_num_threads(threads)
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002 -- see above


def order_of(num_rows: int, recipe: Recipe, rng: np.random.Generator | None) -> list[int]:
    """Indices of the rows of ``steps`` full batches: epoch after epoch, shuffled if ``rng`` is given."""
    length = recipe.steps * recipe.batch_size
    epochs = range(math.ceil(length / num_rows))
    order = [rng.permutation(num_rows) if rng else np.arange(num_rows) for _ in epochs]
    return [int(index) for index in np.concatenate(order)[:length]]


def fit(
    model: torch.nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Row],
    recipe: Recipe,
    conditions: Conditions,
    *,
    shuffle: bool,
    resume_from: Path | None = None,
    state_to: Path | None = None,
) -> TrainingLog:
    """Train ``model`` in place on next-token rows.

    Gradients of a batch are those of the mean over all its supervised tokens, however many forward
    passes ``token_budget`` splits it into. The state saved to ``state_to`` is what ``resume_from``
    continues from: same weights, optimizer, schedule and order as an uninterrupted run.

    Raises:
        UserError: the loss is not finite, or the stored state is of another recipe or corpus.
    """
    order = order_of(len(rows), recipe, conditions.rng() if shuffle else None)
    batches = [rows[index] for index in order]
    with tempfile.TemporaryDirectory() as scratch:
        listener = Listener(recipe, conditions.on_event, keeps_state=state_to is not None)
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**arguments(recipe, Path(scratch), conditions)),
            data_collator=DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORED),
            train_dataset=batches,
            processing_class=tokenizer,
            callbacks=[listener],
        )
        run(trainer, None if resume_from is None else _checked_state(resume_from, batches, recipe))
        if state_to is not None:
            _keep_state(Path(scratch), state_to, batches, recipe)
    return listener.log


def arguments(recipe: Recipe, scratch: Path, conditions: Conditions) -> dict[str, Any]:
    """The recipe as arguments of TrainingArguments and DPOConfig; nothing is reported or uploaded."""
    numerics = conditions.numerics
    fits = max(1, min(recipe.batch_size, numerics.token_budget // recipe.max_length))
    micro_batch = next(size for size in range(fits, 0, -1) if recipe.batch_size % size == 0)
    return {
        "output_dir": str(scratch),
        "max_steps": recipe.steps,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": recipe.batch_size // micro_batch,
        "learning_rate": recipe.learning_rate,
        "lr_scheduler_type": SCHEDULES[recipe.schedule],
        "warmup_steps": math.ceil(recipe.warmup * recipe.steps),
        "weight_decay": recipe.weight_decay,
        "train_sampling_strategy": "sequential",
        "seed": conditions.seed % 2**32,
        # Trainer refuses 16 bits without an accelerator unless this is set
        "use_cpu": device_of(numerics).type == "cpu",
        "bf16": numerics.dtype == "bfloat16",
        "fp16": numerics.dtype == "float16",
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "include_num_input_tokens_seen": "non_padding",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "remove_unused_columns": False,
    }


def run(trainer: Trainer, resume_from: Path | None = None) -> None:
    """Train without Trainer's own printing."""
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars, notes and deprecation warnings of its own calls."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


class Listener(TrainerCallback):
    """Keeps the log, reports progress, stops at ``stop_at`` and when the loss is not finite."""

    def __init__(self, recipe: Recipe, on_event: OnEvent | None, *, keeps_state: bool = False) -> None:
        self.log = TrainingLog()
        self.recipe = recipe
        self.on_event = on_event
        self.keeps_state = keeps_state

    def on_step_end(self, _args: TrainingArguments, state: Any, control: Any, **_: Any) -> None:
        """Ends the run at ``stop_at``."""
        if state.global_step == self.recipe.stop_at:
            control.should_training_stop = True
            control.should_save = self.keeps_state

    def on_log(
        self, _args: TrainingArguments, state: Any, _control: Any, logs: Mapping[str, float], **_: Any
    ) -> None:
        """One row per step; Trainer's final summary has no ``loss``."""
        if "loss" not in logs:
            return
        step, loss, norm = state.global_step, float(logs["loss"]), float(logs["grad_norm"])
        # The norm of the gradient shows one step before the loss that the weights will not be finite.
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise UserError(
                f"training diverged at step {step} of {self.recipe.steps}, loss {loss:g}, gradient {norm:g}",
                f"the learning rate {self.recipe.learning_rate:g} is likely too high",
                "lower learning_rate or raise warmup",
            )
        self.log.rows.append(TrainingStep(step, loss, state.num_input_tokens_seen))
        if self.on_event is not None:
            self.on_event(
                {
                    "step": step,
                    "steps": self.recipe.stop_at or self.recipe.steps,
                    "loss": loss,
                    "num_tokens": state.num_input_tokens_seen,
                }
            )


def _fingerprint(batches: Sequence[Row], recipe: Recipe, num_rows: int) -> dict[str, Any]:
    ids = key_of([row["input_ids"] for row in batches[:num_rows]])
    return {
        "recipe": recipe.model_dump(mode="json", exclude={"stop_at"}),
        "rows": num_rows,
        "rows_sha256": ids,
    }


def _keep_state(scratch: Path, state_to: Path, batches: Sequence[Row], recipe: Recipe) -> None:
    (stored,) = scratch.glob("checkpoint-*")
    # A pickle of the arguments with this process's folders; resuming does not read it.
    (stored / "training_args.bin").unlink()
    num_rows = (recipe.stop_at or recipe.steps) * recipe.batch_size
    (stored / "resumes.json").write_text(json.dumps(_fingerprint(batches, recipe, num_rows), sort_keys=True))
    shutil.copytree(stored, state_to)


def _checked_state(folder: Path, batches: Sequence[Row], recipe: Recipe) -> Path:
    if not (folder / "resumes.json").is_file():
        raise UserError(
            f"{folder.parent.name} has no state to resume from",
            "only a stage with stop_at stores its optimizer and schedule",
            "set stop_at in the earlier stage's recipe",
        )
    stored = json.loads((folder / "resumes.json").read_text())
    expected = _fingerprint(batches, recipe, stored["rows"])
    for name, what in (("recipe", "recipe"), ("rows_sha256", "first documents")):
        if stored[name] != expected[name]:
            raise UserError(
                f"the {what} differ from those of the run that is to be resumed",
                "its schedule and order would change in the middle",
                "give both stages the same corpus and recipe, stop_at apart",
            )
    return folder
