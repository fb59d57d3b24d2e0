"""The stemma as a drawing: one line per checkpoint, indented under its parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stemmatics.core.content import Node

ROW = 34
INDENT = 26
MARGIN = 12
# average advance of a sans-serif letter at the drawing's 14 and 12 pixels, rounded up
_NAME_LETTER = 7.9
_SMALL_LETTER = 6.9
# before the name and between name and regime
_GAPS = 16 + 12
_NUM_COLOURS = 7


@dataclass(frozen=True)
class Branch:
    """A checkpoint's position: dot at (x, y), elbow from the parent's dot, text to the right. Pixels."""

    node: Node
    x: float
    y: float
    parent_y: float | None
    end: float
    colour: int

    @property
    def elbow(self) -> str:
        """SVG path from the parent's dot to this one; empty for a root."""
        if self.parent_y is None:
            return ""
        return f"M{self.x - INDENT:g} {self.parent_y + 6:g}V{self.y:g}H{self.x - 6:g}"


@dataclass(frozen=True)
class Drawing:
    """A laid-out stemma: its branches from top to bottom, its size in pixels, its families' colours."""

    branches: Sequence[Branch]
    width: float
    height: float
    families: Sequence[tuple[str, int]]


def lay_out(nodes: Sequence[Node]) -> Drawing:
    """Positions of all checkpoints; one whose parent is not among the nodes is a root."""
    names = {node.name for node in nodes}
    families = list(dict.fromkeys(node.family for node in nodes))
    children: dict[str | None, list[Node]] = {}
    for node in nodes:
        children.setdefault(node.parent if node.parent in names else None, []).append(node)
    branches: list[Branch] = []
    stack: list[tuple[Node, int, float | None]] = [
        (node, 0, None) for node in reversed(children.get(None, []))
    ]
    while stack:
        node, depth, parent_y = stack.pop()
        y = MARGIN + ROW * (len(branches) + 0.5)
        x = float(MARGIN + 6 + INDENT * depth)
        end = x + _GAPS + _NAME_LETTER * len(node.name) + _SMALL_LETTER * len(node.regime) + MARGIN
        colour = families.index(node.family) % _NUM_COLOURS
        branches.append(Branch(node, x, y, parent_y, end, colour))
        stack += [(child, depth + 1, y) for child in reversed(children.get(node.name, []))]
    assert len(branches) == len(nodes), "a stemma is a tree"
    return Drawing(
        branches=branches,
        width=max((branch.end for branch in branches), default=0.0),
        height=2 * MARGIN + ROW * len(branches),
        families=[(family, index % _NUM_COLOURS) for index, family in enumerate(families)],
    )
