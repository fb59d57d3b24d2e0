"""The estimators alone, on a table of sums that somebody else made."""

from stemmatics.commands.analyse.run import MEASURES, analyse

__all__ = ["MEASURES", "analyse"]
