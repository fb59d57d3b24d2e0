"""Which two checkpoints can be crossed: those that read one text alike and have layers of one shape."""

from __future__ import annotations

from stemmatics.lm.checkpoints.compat import Description, compare_descriptions
from stemmatics.lm.checkpoints.loading import Loaded
from stemmatics.lm.crossing.models import Crossable, Uncrossable

_MOST_CHARACTERS = 80
# findings of `lm.compat` that forbid it: other ids, other positions, other layers
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
    described = [
        Description(one.pin, one.model.config, one.tokenizer, one.flags) for one in (base, descendant)
    ]
    for finding in compare_descriptions(*described):
        if finding.severity == "by_byte" or finding.field in _FORBIDDING:
            raise _unlike(base, descendant, finding.field, finding.a, finding.b)
    shapes = [
        {name: tuple(weight.shape) for name, weight in one.model.named_parameters()}
        for one in (base, descendant)
    ]
    for name in [*shapes[0], *shapes[1]]:
        # one of the two may tie its head to the embedding: the head's shape follows from the vocabulary
        found = [str(side.get(name, "missing")) for side in shapes]
        if found[0] != found[1] and not _is_head(base, descendant, name):
            raise _unlike(base, descendant, f"shape of {name}", *found)


def _is_head(base: Loaded, descendant: Loaded, name: str) -> bool:
    heads = [one.model.get_output_embeddings().weight for one in (base, descendant)]
    named = [dict(one.model.named_parameters()).get(name) for one in (base, descendant)]
    is_head = any(weight is head for weight, head in zip(named, heads, strict=True))
    return is_head and heads[0].shape == heads[1].shape


def _unlike(base: Loaded, descendant: Loaded, field: str, first: str, second: str) -> Uncrossable:
    values = "it is {} in the first and {} in the second".format(*_where_they_part(str(first), str(second)))
    return Uncrossable(
        f"{base.pin.source} and {descendant.pin.source} can't be crossed: {field} differs",
        values,
        "Cross a descendant with the base that it was trained from",
        # a source may be a path, which is nobody else's business
        reason=f"{field} differs: {values}",
    )


def _where_they_part(first: str, second: str) -> list[str]:
    """Both values, cut around the first character that differs: a vocabulary may be listed whole."""
    same = next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]),
        min(len(first), len(second)),
    )
    start = max(0, same - _MOST_CHARACTERS // 2)
    shown = []
    for value in (first, second):
        part = value[start : start + _MOST_CHARACTERS]
        before, after = "..." if start else "", "..." if len(value) > start + _MOST_CHARACTERS else ""
        shown.append(f"{before}{part}{after}")
    return shown
