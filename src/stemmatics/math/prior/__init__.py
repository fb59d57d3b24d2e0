"""How much of a loss increase a context-independent correction of the logits recovers: the mathematics.

Corrected logits are beta * z + b. Arrays in, fits out: no file, no model, no global state.
"""

from stemmatics.math.prior.arms import (
    Arm,
    Arms,
    FreeIds,
    Selected,
    fit_arms,
    fit_optimum,
    free_ids,
    mean_loss,
)
from stemmatics.math.prior.corrected import Correction, document_gradients, expected_counts, nll_sums
from stemmatics.math.prior.damage import (
    Damage,
    centred_noise,
    damage_search,
    match_damage,
    mean_energy_share,
)
from stemmatics.math.prior.insample import InSampleStep, in_sample_optimum, in_sample_step
from stemmatics.math.prior.inside import with_fit_inside
from stemmatics.math.prior.matching import (
    SMOOTHINGS,
    Matched,
    closed_form_bias,
    fit_affine,
    fit_closed_form,
    fit_proportional,
)
from stemmatics.math.prior.newton import Certificate, Coordinates, Solution, minimise
from stemmatics.math.prior.objective import Objective
from stemmatics.math.prior.redraw import Redrawn, redraw
from stemmatics.math.prior.refit import (
    RefitCheck,
    bayesian_weights,
    check_refits,
    moved_nll_sums,
    refit_fully,
    refit_one_step,
)
from stemmatics.math.prior.rest import (
    MAX_INVERSE_TEMPERATURE,
    MIN_INVERSE_TEMPERATURE,
    NODES_PER_DOUBLING,
    Rest,
    node_inverse_temperatures,
    uncorrected_node,
)
from stemmatics.math.prior.shares import (
    HOLDS_ZERO,
    IMPROVED,
    PairSums,
    Shares,
    ratio_of_sums,
    shapley_split,
    shares,
)
from stemmatics.math.prior.statistics import (
    IN_REST,
    RowSource,
    Statistics,
    reduce_logits,
    top_columns,
)
from stemmatics.math.prior.text_parts import held_out_documents, part_of_documents

__all__ = [
    "HOLDS_ZERO",
    "IMPROVED",
    "IN_REST",
    "MAX_INVERSE_TEMPERATURE",
    "MIN_INVERSE_TEMPERATURE",
    "NODES_PER_DOUBLING",
    "SMOOTHINGS",
    "Arm",
    "Arms",
    "Certificate",
    "Coordinates",
    "Correction",
    "Damage",
    "FreeIds",
    "InSampleStep",
    "Matched",
    "Objective",
    "PairSums",
    "Redrawn",
    "RefitCheck",
    "Rest",
    "RowSource",
    "Selected",
    "Shares",
    "Solution",
    "Statistics",
    "bayesian_weights",
    "centred_noise",
    "check_refits",
    "closed_form_bias",
    "damage_search",
    "document_gradients",
    "expected_counts",
    "fit_affine",
    "fit_arms",
    "fit_closed_form",
    "fit_optimum",
    "fit_proportional",
    "free_ids",
    "held_out_documents",
    "in_sample_optimum",
    "in_sample_step",
    "match_damage",
    "mean_energy_share",
    "mean_loss",
    "minimise",
    "moved_nll_sums",
    "nll_sums",
    "node_inverse_temperatures",
    "part_of_documents",
    "ratio_of_sums",
    "redraw",
    "reduce_logits",
    "refit_fully",
    "refit_one_step",
    "shapley_split",
    "shares",
    "top_columns",
    "uncorrected_node",
    "with_fit_inside",
]
