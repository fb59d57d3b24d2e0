"""Values of a callback, to the trackers that transformers' trainer reports to."""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

Values = Mapping[str, float]
# beside the trainer's own runs, so that TensorBoard shows both
TENSORBOARD_FOLDER = "runs/stemma"


def log_to_trackers(args: TrainingArguments, values: Values, step: int) -> None:
    """Hand finite values to every tracker that the trainer reports to and that has a run.

    The trainer's own callbacks get only what the trainer logs, and a callback can't reach them; a tracker is
    called as its library documents it. One that fails is named in the log and does not end the training.
    """
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    report_to = args.report_to
    for name in [report_to] if isinstance(report_to, str) else report_to or []:
        log = TRACKERS.get(name)
        if log is None:
            continue
        try:
            log(args, finite, step)
        except Exception as error:  # noqa: BLE001 - a tracker must not end a training run
            logging.getLogger("stemmatics").warning("%s did not take the values: %s", name, error)


def _tensorboard(args: TrainingArguments, values: Values, step: int) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(log_dir=str(Path(str(args.output_dir)) / TENSORBOARD_FOLDER)) as writer:
        for name, value in values.items():
            writer.add_scalar(name, value, step)


def _mlflow(args: TrainingArguments, values: Values, step: int) -> None:
    del args
    mlflow = importlib.import_module("mlflow")
    if mlflow.active_run() is not None:
        mlflow.log_metrics(dict(values), step=step)


def _trackio(args: TrainingArguments, values: Values, step: int) -> None:
    del args
    importlib.import_module("trackio").log({**values, "train/global_step": step})


def _wandb(args: TrainingArguments, values: Values, step: int) -> None:
    del args
    wandb = importlib.import_module("wandb")
    if wandb.run is not None:
        # the trainer logs without a step of its own, and W&B refuses steps that go back
        wandb.log({**values, "train/global_step": step})


TRACKERS: Mapping[str, Callable[[Any, Values, int], None]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "trackio": _trackio,
    "wandb": _wandb,
}
