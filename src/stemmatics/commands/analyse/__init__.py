"""The estimators alone, on tables of sums from elsewhere."""

from stemmatics.commands.analyse.run import MEASURES, analyse

__all__ = ["MEASURES", "analyse"]
