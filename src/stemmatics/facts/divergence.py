"""How far apart the predictions of two models are at every scored token: sums and counts by document."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from stemmatics.core.facts import Fact, FactKind, FactParams, Tag

# sums over the scored tokens of a document, in nats but for counts. ``delta_logp`` is the descendant's
# log-probability of the target less the base's, ``delta_p_squared`` the squared change of its probability
SUMS = (
    "kl",
    "kl_reverse",
    "js",
    "delta_logp",
    "delta_p_squared",
    "delta_entropy",
    "same_top1",
    "top1_in_top5",
)
# one row a document and comparison
DIVERGENCE_SUMS = pa.schema(
    [
        ("index", pa.int64()),
        ("comparison", pa.string()),
        *((name, pa.float64()) for name in SUMS),
        ("num_tokens", pa.int64()),
        ("num_outside_support", pa.int64()),
        ("num_set_to_zero", pa.int64()),
        ("kl_max", pa.float64()),
    ]
)
# counts of tokens by bin of KL(base || descendant) (math/divergence.py): one row a document, bins with tokens
DIVERGENCE_BINS = pa.schema(
    [("index", pa.int64()), ("bins", pa.list_(pa.int16())), ("counts", pa.list_(pa.int32()))]
)
# the same tokens split along an axis: token_class, position or base_entropy
DIVERGENCE_PARTS = pa.schema(
    [
        ("index", pa.int64()),
        ("axis", pa.string()),
        ("bin", pa.string()),
        ("kl", pa.float64()),
        ("same_top1", pa.float64()),
        ("num_tokens", pa.int64()),
    ]
)
# one row a fact: what was compared, or why it was not; one list entry a draw of the damage
DIVERGENCE_MODEL = pa.schema(
    [
        ("refusal", pa.string()),
        ("token_ids_sha256", pa.string()),
        ("prefix_id", pa.int64()),
        ("num_ids", pa.int64()),
        ("num_support", pa.int64()),
        ("dtype", pa.string()),
        ("scratch_bytes", pa.int64()),
        ("noise_scales", pa.list_(pa.float64())),
        ("noise_failure", pa.string()),
    ]
)

# comparisons: the pair on all documents; the same pair on the documents of the floor; the base with itself,
# in half precision and under the other implementation of attention; the base with damaged copies of itself
PAIR = "pair"
ON_FLOOR, ITSELF, HALF_PRECISION, ATTENTION = "pair_on_floor", "itself", "bfloat16", "attention"
DAMAGE = "damage"


def damage_name(draw: int) -> str:
    """The comparison with one draw of the damage, counted from 1."""
    return f"{DAMAGE}-{draw}"


class DivergenceParams(FactParams):
    """How tokens are scored, and on how many tokens the floors are measured.

    ``control_tokens`` and ``floor_tokens``: tokens of the numerical controls and of the damage floor, 0 for
    none. ``draws``: of the damage.
    """

    scoring: dict[str, Any]
    numerics: dict[str, Any]
    control_tokens: int
    floor_tokens: int
    draws: int


DIVERGENCE = FactKind(
    "divergence",
    1,
    DivergenceParams,
    {
        "divergence_sums": DIVERGENCE_SUMS,
        "divergence_bins": DIVERGENCE_BINS,
        "divergence_parts": DIVERGENCE_PARTS,
        "divergence_model": DIVERGENCE_MODEL,
    },
)


def divergence_fact(
    params: DivergenceParams, base: Fact, descendant: Fact, corpus: Fact, *, tag: Tag = "main"
) -> Fact:
    """The divergence of ``descendant`` from ``base`` on ``corpus``, with its controls and floor."""
    needs = {"base": base, "descendant": descendant, "corpus": corpus}
    label = f"{base.label} and {descendant.label} on {corpus.label}"
    return DIVERGENCE.make(params, needs, label=label, tag=tag)
