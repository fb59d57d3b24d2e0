"""Checkpoints made by training or by changing weights, with transformers, TRL and PEFT."""

from stemmatics.train.finetune import TrainingLog, TrainingStep
from stemmatics.train.stages import train_stage

__all__ = ["TrainingLog", "TrainingStep", "train_stage"]
