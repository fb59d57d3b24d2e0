"""A callback of transformers' ``Trainer`` that evaluates the model in training, without the evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate.utils import extract_model_from_parallel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from stemmatics.core.errors import UserError
from stemmatics.train.trackers import log_to_trackers


class Watcher(TrainerCallback):
    """Calls ``begin``, ``evaluate`` when ``is_due`` and at the end, and ``end``, on the main process.

    The model that these get is the one of transformers inside wrappers of data parallelism, compilation and
    PEFT. What ``evaluate`` returns goes to ``state.log_history`` and to the trainer's trackers.

    Raises:
        UserError: parameters are spread over processes (ZeRO-3, FSDP); the trainer has no tokenizer.
    """

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}
        self._last_step = -1

    def begin(self, model: Any, tokenizer: Any, folder: Path) -> None:
        """Training starts; ``folder`` is the trainer's output folder."""
        raise NotImplementedError

    def is_due(self, step: int) -> bool:
        """Whether to evaluate after this update."""
        raise NotImplementedError

    def evaluate(self, model: Any, tokenizer: Any, step: int, epoch: float | None) -> Mapping[str, float]:
        """Values by name; NaN where unknown."""
        raise NotImplementedError

    def end(self, model: Any) -> None:
        """Training has ended, and so has the last evaluation; ``saved`` names the checkpoints it left."""
        raise NotImplementedError

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse what can't be evaluated, and begin."""
        del control
        _refuse_spread(kwargs["model"], args)
        if state.is_world_process_zero:
            self.begin(_unwrapped(kwargs["model"]), _tokenizer_of(kwargs), Path(str(args.output_dir)))

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate if it is due, and after the last update: trackers end their runs when training does."""
        is_last = state.global_step >= state.max_steps or control.should_training_stop
        if state.is_world_process_zero and (is_last or self.is_due(state.global_step)):
            self._evaluate(args, state, kwargs)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remember the saved checkpoint."""
        del control, kwargs
        folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            self.saved[f"step-{state.global_step}"] = str(folder.resolve())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Evaluate what training has made, if it ended otherwise than after an update, and end."""
        del control
        if state.is_world_process_zero:
            if state.global_step != self._last_step:
                self._evaluate(args, state, kwargs)
            # save_total_limit removes checkpoints again
            self.saved = {name: folder for name, folder in self.saved.items() if Path(folder).is_dir()}
            self.end(_unwrapped(kwargs["model"]))

    def _evaluate(self, args: TrainingArguments, state: TrainerState, kwargs: Mapping[str, Any]) -> None:
        step, epoch = int(state.global_step), state.epoch
        values = self.evaluate(_unwrapped(kwargs["model"]), _tokenizer_of(kwargs), step, epoch)
        self._last_step = step
        state.log_history.append({**values, "step": step, "epoch": epoch})
        log_to_trackers(args, values, step)


def _refuse_spread(model: Any, args: TrainingArguments) -> None:
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()) or getattr(args, "fsdp", None):
        raise UserError(
            "The model's parameters are spread over processes",
            "no process holds all of them, and the callback scores on one",
            "Leave the callback out, and compare the saved checkpoints with `stemma compare`",
        )


def _unwrapped(model: Any) -> Any:
    model = extract_model_from_parallel(model, keep_fp32_wrapper=False)
    # an adapter's modules lie inside the base model, so that it computes with them
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _tokenizer_of(kwargs: Mapping[str, Any]) -> Any:
    processing_class = kwargs.get("processing_class")
    tokenizer = getattr(processing_class, "tokenizer", processing_class)
    if tokenizer is None:
        raise UserError(
            "The trainer has no tokenizer",
            "the callback scores text with the model in training",
            "Give the trainer `processing_class=tokenizer`",
        )
    return tokenizer
