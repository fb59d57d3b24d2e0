import pytest

from stemmatics.core.content import Node
from stemmatics.report.tree import INDENT, lay_out


def test_children_are_indented_under_their_parent(content):
    drawing = lay_out(content.nodes)
    placed = {branch.node.name: branch for branch in drawing.branches}
    assert [branch.node.name for branch in drawing.branches] == [node.name for node in content.nodes]
    for branch in drawing.branches:
        if branch.node.parent is None:
            assert branch.elbow == ""
        else:
            parent = placed[branch.node.parent]
            assert (branch.x, branch.parent_y) == (parent.x + INDENT, parent.y)
            assert branch.y > parent.y


def test_order_of_declaration_does_not_matter(content):
    drawing = lay_out(list(reversed(content.nodes)))
    assert len(drawing.branches) == len(content.nodes)
    assert drawing.branches[0].node.name == "olmo2-1b"


def test_a_parent_that_is_not_shown_makes_a_root():
    (branch,) = lay_out([Node("b", "a", "sft", "f", made_here=False)]).branches
    assert branch.elbow == ""


def test_no_nodes_no_size():
    drawing = lay_out([])
    assert (drawing.branches, drawing.width) == ([], 0.0)


def test_cycles_are_refused():
    circle = [Node("a", "b", "sft", "f", made_here=False), Node("b", "a", "sft", "f", made_here=False)]
    with pytest.raises(AssertionError, match="tree"):
        lay_out(circle)
