"""Evaluation logs of other tools, item by item."""

from stemmatics.commands.analyse.logs.items import Item, ItemLog, Metric
from stemmatics.commands.analyse.logs.read import read_logs

__all__ = ["Item", "ItemLog", "Metric", "read_logs"]
