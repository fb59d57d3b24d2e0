"""Recovery: the base's loss estimated through a descendant. Arrays in, estimates out; nats/byte throughout.

``resolution`` says how finely recovered losses distinguish bases, ``ladder`` orders models, ``offset_for``
and ``unknown_base`` are for models whose base is not available.
"""

from stemmatics.math.recovery.ladder import Ladder, ladder
from stemmatics.math.recovery.offsets import (
    PUBLISHED_HALF_WIDTHS,
    Calibration,
    DistillationFlag,
    NestedCoverage,
    Offset,
    UnknownBase,
    class_offset,
    conformal_bar,
    distillation_flag,
    nested_coverage,
    offset_for,
    own_pair_offset,
    pipeline_spread,
    published_offset,
    unknown_base,
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

__all__ = [
    "BAND_EDGES",
    "PUBLISHED_HALF_WIDTHS",
    "Band",
    "Calibration",
    "DistillationFlag",
    "Ladder",
    "NestedCoverage",
    "Offset",
    "Pairs",
    "Resolution",
    "UnknownBase",
    "class_offset",
    "conformal_bar",
    "different_base_pairs",
    "distillation_flag",
    "family_percentile",
    "ladder",
    "left_out_errors",
    "mean_by_family",
    "nested_coverage",
    "offset_for",
    "own_pair_offset",
    "pairs_of",
    "pipeline_spread",
    "published_offset",
    "resolution",
    "sibling_ranges",
    "size_slope",
    "size_slope_by_family",
    "unknown_base",
]
