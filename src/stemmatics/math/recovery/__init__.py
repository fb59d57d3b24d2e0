"""Recovery: the base's loss estimated through a descendant. Arrays in, estimates out; nats/byte throughout.

``resolution`` says how finely recovered losses distinguish bases, ``ladder`` orders models, ``offsets`` and
``unknown_base`` are for models whose base is not available, ``verdict`` and ``retention`` say whether
training changed the register or made the model forget.
"""

from stemmatics.math.recovery.ladder import Ladder, ladder
from stemmatics.math.recovery.offsets import (
    DISTILLED,
    FEWEST_FAMILIES,
    LEVEL,
    MEASURED_RULES,
    ORDINARY,
    PUBLISHED_HALF_WIDTHS,
    UNKNOWN,
    Calibration,
    DistillationFlag,
    NestedCoverage,
    Offset,
    class_offset,
    default_offset,
    distillation_flag,
    nested_coverage,
    offset_for,
    own_pair_offset,
    pipeline_spread,
    weighted_bar,
)
from stemmatics.math.recovery.pairs import Pairs, pairs_of
from stemmatics.math.recovery.resolution import (
    BAND_EDGES,
    Band,
    Resolution,
    different_base_pairs,
    family_percentile,
    left_out_errors,
    mean_by_family,
    resolution,
    sibling_ranges,
)
from stemmatics.math.recovery.size import size_slope, size_slope_by_family
from stemmatics.math.recovery.unknown_base import (
    BaseEstimate,
    Origin,
    base_estimate,
    calibration,
    estimate_base,
    offset_of,
    recipe_class_of,
)

__all__ = [
    "BAND_EDGES",
    "DISTILLED",
    "FEWEST_FAMILIES",
    "LEVEL",
    "MEASURED_RULES",
    "ORDINARY",
    "PUBLISHED_HALF_WIDTHS",
    "UNKNOWN",
    "Band",
    "BaseEstimate",
    "Calibration",
    "DistillationFlag",
    "Ladder",
    "NestedCoverage",
    "Offset",
    "Origin",
    "Pairs",
    "Resolution",
    "base_estimate",
    "calibration",
    "class_offset",
    "default_offset",
    "different_base_pairs",
    "distillation_flag",
    "estimate_base",
    "family_percentile",
    "ladder",
    "left_out_errors",
    "mean_by_family",
    "nested_coverage",
    "offset_for",
    "offset_of",
    "own_pair_offset",
    "pairs_of",
    "pipeline_spread",
    "recipe_class_of",
    "resolution",
    "sibling_ranges",
    "size_slope",
    "size_slope_by_family",
    "weighted_bar",
]
