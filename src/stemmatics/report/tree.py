"""The stemma as a drawing: one line per checkpoint, indented under its parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stemmatics.core.content import Node

# beside the first table: as many checkpoints as the table has rows, and their bases
ROW = 23
INDENT = 16
MARGIN = 8
RADIUS = 5
# average advance of a sans-serif letter at the drawing's 12 pixels, rounded up
_LETTER = 6.9
_BEFORE_NAME = 12


@dataclass(frozen=True)
class Branch:
    """A checkpoint's position: dot at (x, y), elbow from the parent's dot, text to the right. Pixels."""

    node: Node
    x: float
    y: float
    parent_y: float | None
    end: float

    @property
    def elbow(self) -> str:
        """SVG path from the parent's dot to this one; empty for a root."""
        if self.parent_y is None:
            return ""
        return f"M{self.x - INDENT:g} {self.parent_y + RADIUS:g}V{self.y:g}H{self.x - RADIUS:g}"


@dataclass(frozen=True)
class Drawing:
    """A laid-out stemma: its branches from top to bottom and its size in pixels."""

    branches: Sequence[Branch]
    width: float
    height: float


def lay_out(nodes: Sequence[Node]) -> Drawing:
    """Positions of all checkpoints; one whose parent is not among the nodes is a root."""
    names = {node.name for node in nodes}
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
        x = float(MARGIN + RADIUS + INDENT * depth)
        end = x + _BEFORE_NAME + _LETTER * len(node.name) + MARGIN
        branches.append(Branch(node, x, y, parent_y, end))
        stack += [(child, depth + 1, y) for child in reversed(children.get(node.name, []))]
    assert len(branches) == len(nodes), "a stemma is a tree"
    return Drawing(
        branches=branches,
        width=max((branch.end for branch in branches), default=0.0),
        height=2 * MARGIN + ROW * len(branches),
    )
