"""From a declared stage to a checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from stemmatics.core.errors import UserError
from stemmatics.core.numerics import Numerics
from stemmatics.core.stages import (
    Alter,
    ContinuedPretraining,
    Dpo,
    Grpo,
    Pretrain,
    Recipe,
    Recovery,
    RecoveryRecipe,
    Sft,
    Stage,
)
from stemmatics.lm.tokens.tokenizer import TextTokenizer
from stemmatics.train.alter import alter
from stemmatics.train.finetune import Conditions, OnEvent, TrainingLog, fit, quiet, seeded
from stemmatics.train.lora import check_moved, merged, save_adapter, with_adapters
from stemmatics.train.models import atomic_folder, build_model, load_model, load_tokenizer, save_checkpoint
from stemmatics.train.recovery import recover
from stemmatics.train.recovery_rows import updates_of
from stemmatics.train.rows import Records, packed_blocks, preference_rows, supervised_rows, texts
from stemmatics.train.tokenizer import train_tokenizer

STATE = "trainer_state"


def train_stage(
    stage: Stage,
    *,
    init: Path | None,
    records: Records | None,
    out: Path,
    seed: int,
    numerics: Numerics,
    resume_from: Path | None = None,
    on_event: OnEvent | None = None,
    state: Path | None = None,
    merge: bool = False,
) -> TrainingLog:
    """Write the stage's checkpoint to ``out``: config, safetensors (float32), tokenizer, chat template.

    A recovery writes only its adapter to ``out``, or with ``merge`` a full checkpoint; ``state`` is
    the folder from which it continues after a crash.

    ``init`` is the folder to start from (None for a pretraining), ``resume_from`` that of the
    pretraining that a pretraining ``resumes``. ``records`` returns the corpus from the start at each
    call. Documents are read in the order of the records, conversations and pairs in an order drawn
    from the seed. The same seed, threads and machine give the same weights, bit for bit. ``out`` is
    either complete or absent; besides it, only the system's temporary folder is written to.

    Raises:
        UserError: the corpus does not fit the stage, the training diverged, or ``out`` already exists.
    """
    conditions = Conditions(seed, numerics, on_event)
    with atomic_folder(out) as part, seeded(seed, numerics), quiet():
        if isinstance(stage, Pretrain):
            return _pretrain(stage, _needed(records, stage), part, resume_from, conditions)
        if init is None:
            raise UserError(
                f"the stage {stage.kind} has no checkpoint to start from", "it changes one", "name it in init"
            )
        # a merged adapter is added to the weights, which then need their precision
        frozen = isinstance(stage, Recovery) and not merge
        model, tokenizer = load_model(init, numerics, frozen=frozen), _tokenizer(init, stage)
        if isinstance(stage, Recovery):
            return _recover(
                stage,
                (model, tokenizer),
                _needed(records, stage),
                conditions,
                out=part,
                state=state or part.with_suffix(".state"),
                merge=merge,
            )
        if isinstance(stage, Alter):
            alter(model, stage, seed)
            log = TrainingLog()
        elif isinstance(stage, Dpo):
            models = model, load_model(init, numerics)
            model, log = _prefer(stage, models, tokenizer, _needed(records, stage), conditions)
        elif isinstance(stage, Grpo):
            model, log = _reward(stage, model, tokenizer, _needed(records, stage), conditions)
        else:
            model, log = _continue(stage, model, tokenizer, _needed(records, stage), conditions)
        save_checkpoint(model, _tokenizer(init, stage), part)
        return log


def _tokenizer(init: Path, stage: Stage) -> PreTrainedTokenizerBase:
    """The tokenizer of the checkpoint, with the chat template that the stage gives it."""
    tokenizer = load_tokenizer(init)
    if isinstance(stage, Sft) and stage.chat_template is not None:
        tokenizer.chat_template = stage.chat_template
    return tokenizer


def _pretrain(
    stage: Pretrain, records: Records, part: Path, resume_from: Path | None, conditions: Conditions
) -> TrainingLog:
    recipe, shape = stage.recipe, stage.architecture
    if stage.resumes is not None and resume_from is None:
        raise UserError(
            f"the checkpoint {stage.resumes!r} to resume from was not given",
            "the stage continues it",
            "run that stage first",
        )
    if resume_from is None:
        tokenizer = train_tokenizer(texts(records), shape.vocab_size, shape.context)
        model = build_model(shape, tokenizer, conditions.numerics)
    else:
        tokenizer, model = load_tokenizer(resume_from), load_model(resume_from, conditions.numerics)
    _check_length(recipe, model)
    log = fit(
        model,
        tokenizer,
        packed_blocks(texts(records), tokenizer, recipe.max_length, recipe.steps * recipe.batch_size),
        recipe,
        conditions,
        shuffle=False,
        resume_from=None if resume_from is None else resume_from / STATE,
        state_to=None if recipe.stop_at is None else part / STATE,
    )
    save_checkpoint(model, tokenizer, part)
    return log


def _continue(
    stage: ContinuedPretraining | Sft,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    records: Records,
    conditions: Conditions,
) -> tuple[PreTrainedModel, TrainingLog]:
    recipe = stage.recipe
    _check_length(recipe, model)
    _prepare_padding(tokenizer)
    if isinstance(stage, Sft):
        rows = supervised_rows(records, tokenizer, recipe.max_length)
    else:
        num_blocks = recipe.steps * recipe.batch_size
        rows = packed_blocks(texts(records), tokenizer, recipe.max_length, num_blocks)
    trained = model if recipe.lora is None else with_adapters(model, recipe.lora)
    log = fit(trained, tokenizer, rows, recipe, conditions, shuffle=isinstance(stage, Sft))
    return (model if recipe.lora is None else merged(trained)), log


def _recover(
    stage: Recovery,
    loaded: tuple[PreTrainedModel, PreTrainedTokenizerBase],
    records: Records,
    conditions: Conditions,
    *,
    out: Path,
    state: Path,
    merge: bool,
) -> TrainingLog:
    model, tokenizer = loaded
    _check_length(stage.recipe, model)
    updates = updates_of(texts(records), TextTokenizer(tokenizer), stage.recipe)
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    pad_id = next(index for index in candidates if index is not None)
    adapted, log = recover(model, updates, stage.recipe, conditions, pad_id=pad_id, state=state)
    if merge:
        save_checkpoint(merged(adapted), tokenizer, out)
        return log
    check_moved(adapted)
    save_adapter(adapted, out)
    return log


def _prefer(
    stage: Dpo,
    models: tuple[PreTrainedModel, PreTrainedModel],
    tokenizer: PreTrainedTokenizerBase,
    records: Records,
    conditions: Conditions,
) -> tuple[PreTrainedModel, TrainingLog]:
    # TRL takes seconds to import and no other stage needs it.
    from stemmatics.train.preference import fit_preferences

    recipe = stage.recipe
    model, reference = models
    _check_length(recipe, model)
    _prepare_padding(tokenizer)
    rows = preference_rows(records, tokenizer, recipe.max_length)
    trained = model if recipe.lora is None else with_adapters(model, recipe.lora)
    log = fit_preferences((trained, reference), tokenizer, rows, recipe, conditions, beta=stage.beta)
    return (model if recipe.lora is None else merged(trained)), log


def _reward(
    stage: Grpo,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    records: Records,
    conditions: Conditions,
) -> tuple[PreTrainedModel, TrainingLog]:
    # TRL takes seconds to import and no other stage needs it.
    from stemmatics.train.grpo import encoded_prompts, fit_rewards

    _check_length(stage.recipe, model)
    _prepare_padding(tokenizer)
    prompts = encoded_prompts(list(records()), tokenizer, stage)
    trained = model if stage.recipe.lora is None else with_adapters(model, stage.recipe.lora)
    log = fit_rewards(trained, tokenizer, prompts, stage, conditions)
    return (model if stage.recipe.lora is None else merged(trained)), log


def _needed(records: Records | None, stage: Stage) -> Records:
    if records is None:
        raise UserError(f"the stage {stage.kind} has no corpus", "it is trained on one", "name it in corpus")
    return records


def _check_length(recipe: Recipe | RecoveryRecipe, model: PreTrainedModel) -> None:
    context = model.config.max_position_embeddings
    if recipe.max_length > context:
        raise UserError(
            f"max_length {recipe.max_length} is longer than the model's context of {context}",
            "positions past the context were never trained",
            "lower max_length",
        )
    if isinstance(recipe, Recipe) and recipe.stop_at is not None and recipe.stop_at > recipe.steps:
        raise UserError(
            f"stop_at {recipe.stop_at} is after the last of {recipe.steps} steps",
            "the run would never stop there",
            "lower stop_at or raise steps",
        )


def _prepare_padding(tokenizer: PreTrainedTokenizerBase) -> None:
    """Pad on the right; the end token may serve, since labels and masks follow lengths, never ids."""
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
