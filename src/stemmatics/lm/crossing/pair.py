"""Which two checkpoints can be crossed: same token ids for the same text, layers of the same shapes."""

from __future__ import annotations

from stemmatics.lm.checkpoints.compat import Description, compare_descriptions
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.crossing.models import Crossable, Uncrossable

_MAX_CHARACTERS = 80
# findings of `lm.checkpoints.compat` that rule crossing out: other ids, other positions, other layers
_FORBIDDING = ("vocabulary", "vocabulary size", "tokens of one alone", "prefix ids", "RoPE", "architecture")


def cross(base: Loaded, descendant: Loaded) -> tuple[Crossable, Crossable]:
    """Both models, ready to be cut.

    Raises:
        Uncrossable: tokenizers, RoPE or shapes differ (the field is named), or an architecture
            whose layers can't be cut.
        UserError: logits that are not finite.
    """
    refuse_unlike(base, descendant)
    return Crossable(base.model), Crossable(descendant.model)


def refuse_unlike(base: Loaded, descendant: Loaded) -> None:
    """Raise Uncrossable naming the first field in which the pair differs too much to be crossed."""
    descriptions = [
        Description(loaded.pin, loaded.model.config, loaded.tokenizer, loaded.flags)
        for loaded in (base, descendant)
    ]
    for finding in compare_descriptions(*descriptions):
        if finding.severity == "by_byte" or finding.field in _FORBIDDING:
            raise _unlike(base, descendant, finding.field, finding.a, finding.b)
    shapes = [
        {name: tuple(weight.shape) for name, weight in loaded.model.named_parameters()}
        for loaded in (base, descendant)
    ]
    for name in [*shapes[0], *shapes[1]]:
        # one of the two may tie its head to the embedding: the head's shape follows from the vocabulary
        both = [str(shapes_by_name.get(name, "missing")) for shapes_by_name in shapes]
        if both[0] != both[1] and not _is_head(base, descendant, name):
            raise _unlike(base, descendant, f"shape of {name}", *both)


def _is_head(base: Loaded, descendant: Loaded, name: str) -> bool:
    models = [loaded.model for loaded in (base, descendant)]
    heads = [model.get_output_embeddings().weight for model in models]
    named = [dict(model.named_parameters()).get(name) for model in models]
    is_head = any(weight is head for weight, head in zip(named, heads, strict=True))
    return is_head and heads[0].shape == heads[1].shape


def _unlike(base: Loaded, descendant: Loaded, field: str, first: str, second: str) -> Uncrossable:
    values = "it is {} in the first and {} in the second".format(*_around_difference(str(first), str(second)))
    return Uncrossable(
        f"{base.pin.source} and {descendant.pin.source} can't be crossed: {field} differs",
        values,
        "Cross a descendant with the base that it was trained from",
        # sources are left out of the stored reason: they may be paths
        reason=f"{field} differs: {values}",
    )


def _around_difference(first: str, second: str) -> list[str]:
    """Both values, cut around the first character that differs: a vocabulary may be listed whole."""
    num_equal = next(
        (position for position, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(second)),
    )
    start = max(0, num_equal - _MAX_CHARACTERS // 2)
    shown = []
    for value in (first, second):
        part = value[start : start + _MAX_CHARACTERS]
        before, after = "..." if start else "", "..." if len(value) > start + _MAX_CHARACTERS else ""
        shown.append(f"{before}{part}{after}")
    return shown
