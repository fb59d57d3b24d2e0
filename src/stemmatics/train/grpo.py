"""Group relative policy optimisation with TRL, on rule-based rewards."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from trl import GRPOConfig, GRPOTrainer

from stemmatics.core.errors import UserError
from stemmatics.core.stages import Grpo, Recipe
from stemmatics.lm.generation.generate import encode_prompt
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.train.finetune import Conditions, Listener, TrainingLog, arguments, order_of, run
from stemmatics.train.rewards import check_items, reward

# TRL's name for the share of groups in which all replies got the same reward
_NO_SIGNAL = "frac_reward_zero_std"


@dataclass(frozen=True)
class Prompts:
    """Items with the ids of their prompts, encoded as in evaluation."""

    items: Sequence[Mapping[str, Any]]
    ids: Sequence[Sequence[int]]


class EncodedPrompts(GRPOTrainer):
    """TRL's trainer on prompts that are token ids already, without telemetry.

    TRL passes prompts as text; here that text is the index of an item in ``prompts``.
    """

    prompts: Prompts

    def _tokenize_prompts(self, prompts: Sequence[str]) -> tuple[list[list[int]], None, dict[str, Any]]:
        return [list(self.prompts.ids[int(index)]) for index in prompts], None, {}

    def _send_telemetry(self) -> None:
        """Do nothing."""


class RewardListener(Listener):
    """Also counts the steps in which a group of replies had different rewards."""

    def __init__(self, recipe: Recipe, conditions: Conditions) -> None:
        super().__init__(recipe, conditions.on_event)
        self.num_steps_with_signal = 0

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float], **rest: Any) -> None:
        """Without a group with different rewards, a step has only the gradient of the divergence."""
        super().on_log(args, state, control, logs, **rest)
        self.num_steps_with_signal += logs.get(_NO_SIGNAL, 1.0) < 1.0


def encoded_prompts(
    items: Sequence[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase, stage: Grpo
) -> Prompts:
    """The prompts of all items.

    Raises:
        UserError: an item has no requirement that can be checked, or its prompt leaves no room for a reply.
    """
    check_items(items)
    text_tokenizer = TextTokenizer(tokenizer)
    ids = []
    for index, item in enumerate(items):
        prompt = item.get("messages") or item.get("prompt")
        if not prompt:
            raise UserError(
                f"item {index} has no question",
                "a record of items needs `prompt` or `messages`",
                "give one of them, or leave the item out",
            )
        ids.append(encode_prompt(text_tokenizer, prompt))
        if len(ids[-1]) + stage.max_new_tokens > stage.recipe.max_length:
            raise UserError(
                f"item {index} has {len(ids[-1])} tokens: no room for {stage.max_new_tokens} more",
                f"the recipe's max_length is {stage.recipe.max_length}",
                "raise max_length or lower max_new_tokens",
            )
    return Prompts(items, ids)


def fit_rewards(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Prompts,
    stage: Grpo,
    conditions: Conditions,
) -> TrainingLog:
    """Train ``model`` in place for rewards (Shao et al. 2024, arXiv 2402.03300, section 4).

    Each step takes ``batch_size / num_generations`` prompts in an order drawn from the seed, samples
    the replies with transformers and makes one update on them.

    Raises:
        UserError: the loss is not finite, or in no step did two replies to a prompt differ in reward.
    """
    recipe = stage.recipe
    per_step = recipe.model_copy(update={"batch_size": recipe.batch_size // stage.num_generations})
    indices = order_of(len(prompts.ids), per_step, conditions.rng())

    def rewards(indices: Sequence[str], replies: Sequence[str]) -> list[float]:
        return [
            reward(reply, prompts.items[int(index)]) for index, reply in zip(indices, replies, strict=True)
        ]

    with tempfile.TemporaryDirectory() as scratch:
        listener = RewardListener(recipe, conditions)
        trainer = EncodedPrompts(
            model=model,
            reward_funcs=lambda prompts, completions, **_: rewards(prompts, completions),
            args=_config(stage, Path(scratch), conditions),
            train_dataset=Dataset.from_dict({"prompt": [str(index) for index in indices]}),
            processing_class=tokenizer,
            callbacks=[listener],
        )
        trainer.prompts = prompts
        run(trainer)
    if not listener.num_steps_with_signal:
        raise UserError(
            f"there was no training signal in {len(listener.log.rows)} steps",
            "all replies to a prompt always got the same reward",
            "give items that the model gets right at times, more replies per prompt, or a higher temperature",
        )
    return listener.log


def _config(stage: Grpo, scratch: Path, conditions: Conditions) -> GRPOConfig:
    """The stage as TRL's config. TRL itself counts tokens: prompts and replies."""
    return GRPOConfig(
        **{**arguments(stage.recipe, scratch, conditions), "include_num_input_tokens_seen": "no"},
        loss_type=stage.loss_type,
        scale_rewards=stage.scale_rewards,
        num_generations=stage.num_generations,
        max_completion_length=stage.max_new_tokens,
        temperature=stage.temperature,
        beta=stage.beta,
        num_iterations=1,
        shuffle_dataset=False,
        gradient_checkpointing=False,
        use_vllm=False,
    )
