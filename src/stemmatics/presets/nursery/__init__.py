"""The embedded default: a generated world and the small models that learn it."""

from stemmatics.presets.nursery.parts import PARTS, nursery_records
from stemmatics.presets.nursery.preset import nursery
from stemmatics.presets.nursery.world import CHANCE, World

__all__ = ["CHANCE", "PARTS", "World", "nursery", "nursery_records"]
