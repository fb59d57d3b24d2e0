"""A report as a run would fill it: three checkpoints, two families, one failure, unknown values."""

import math

import altair as alt
import pytest

from stemmatics.core.content import Chart, Content, Node, Section, Table
from stemmatics.core.results import Claim, Estimate, Results, Sentence

REGISTERS = ("encyclopedic", "chat", "code")
PAIRS = (
    ("smollm2-135m-instruct", "smollm2-135m"),
    ("smollm2-135m-cpt", "smollm2-135m"),
    ("olmo2-1b-instruct", "olmo2-1b"),
)
DELTAS = {
    ("smollm2-135m-instruct", "encyclopedic"): (0.04127, 0.03391, 0.04866),
    ("smollm2-135m-instruct", "chat"): (-0.11502, -0.12984, -0.10019),
    ("smollm2-135m-instruct", "code"): (0.02210, -0.00172, 0.04601),
    ("smollm2-135m-cpt", "encyclopedic"): (-0.00641, -0.00902, -0.00381),
    ("smollm2-135m-cpt", "chat"): (0.01288, 0.00733, 0.01844),
    ("smollm2-135m-cpt", "code"): (math.nan, math.nan, math.nan),
}


def loss(model: str, register: str, value: float) -> Estimate:
    return Estimate(
        "loss", "loss.native", {"checkpoint": model, "register": register}, value, method="exact", n=412
    )


def difference(pair: tuple[str, str], register: str) -> Estimate:
    value, lo, hi = DELTAS.get((pair[0], register), (math.nan,) * 3)
    return Estimate(
        "loss",
        "loss.difference",
        {"descendant": pair[0], "base": pair[1], "register": register},
        value,
        lo,
        hi,
        method="paired bootstrap",
        n=412,
        unit="group",
        units="nats/byte",
    )


@pytest.fixture
def estimates() -> dict[str, Estimate]:
    made = [difference(pair, register) for pair in PAIRS for register in REGISTERS]
    for index, pair in enumerate(PAIRS):
        made += [loss(pair[0], register, 0.8 + 0.05 * index) for register in REGISTERS]
        made += [loss(pair[1], register, 0.75 + 0.05 * index) for register in REGISTERS]
    return {estimate.id: estimate for estimate in made}


def chart() -> dict:
    rows = [
        {"descendant": pair[0], "register": register, "difference": value, "lo": lo, "hi": hi}
        for pair in PAIRS
        for register in REGISTERS
        for value, lo, hi in [DELTAS.get((pair[0], register), (math.nan,) * 3)]
    ]
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("register:N", title=None),
        yOffset="descendant:N",
        color=alt.Color("descendant:N", title=None),
    )
    dots = base.mark_point().encode(
        x=alt.X("difference:Q", title="descendant minus base, nats/byte"),
        tooltip=["descendant:N", "register:N", "difference:Q"],
    )
    bars = base.mark_rule().encode(x="lo:Q", x2="hi:Q")
    return (bars + dots).to_dict()


def difference_table() -> Table:
    rows = []
    for pair in PAIRS:
        for register in REGISTERS:
            delta = difference(pair, register).id
            descendant = loss(pair[0], register, 0.0).id
            base = loss(pair[1], register, 0.0).id
            count = 412 if pair[0].startswith("smollm2") else None
            rows.append(
                (pair[0], register, count, Claim(base), Claim(descendant), Claim(delta, form="{:+.4f}"))
            )
    return Table(
        name="loss/differences",
        title="Loss by register, nats/byte",
        columns=("descendant", "register", "documents", "base", "descendant's loss", "difference"),
        rows=rows,
        note="Lower is better; the base is scored on the same bytes.",
    )


@pytest.fixture
def content(estimates: dict[str, Estimate]) -> Content:
    worst = difference(PAIRS[0], "encyclopedic").id
    best = difference(PAIRS[0], "chat").id
    summary = [
        Sentence(
            "{name} loses {delta} nats/byte ({lo} to {hi}) against its base on {register} text.",
            {
                "name": PAIRS[0][0],
                "delta": Claim(worst, form="{:+.3f}"),
                "lo": Claim(worst, "lo", "{:+.3f}"),
                "hi": Claim(worst, "hi", "{:+.3f}"),
                "register": "encyclopedic",
            },
        ),
        Sentence(
            "On {register} text it gains: {delta} nats/byte, over {n} documents hashed with `SHA-256`.",
            {"register": "chat", "delta": Claim(best, form="{:+.3f}"), "n": Claim(best, "n", "{:d}")},
        ),
    ]
    section = Section(
        name="loss",
        title="Loss",
        question="What does a descendant lose or gain on text that neither was trained on?",
        sentences=[
            Sentence(
                "{name} moves {percent}% of a nat on chat.",
                {"name": PAIRS[0][0], "percent": Claim(best, scale=100, form="{:.1f}")},
            )
        ],
        tables=[difference_table()],
        charts=[
            Chart(
                "loss/differences",
                "Loss of the descendant minus loss of its base",
                "A dot is a pair on one register, its bar the interval. Left of zero is better.",
                chart(),
            )
        ],
        failures=["olmo2-1b-instruct: out of memory at 1,024 tokens; the pair has no estimate <here>"],
    )
    return Content(
        title="smollm2 and olmo2 <descendants>",
        summary=summary,
        sections=[section],
        nodes=[
            Node("smollm2-135m", None, "base", "smollm2", made_here=False),
            Node("smollm2-135m-instruct", "smollm2-135m", "sft", "smollm2", made_here=False),
            Node("smollm2-135m-instruct-dpo", "smollm2-135m-instruct", "dpo", "smollm2", made_here=True),
            Node("smollm2-135m-cpt", "smollm2-135m", "cpt", "smollm2", made_here=True, note="2 epochs"),
            Node("olmo2-1b", None, "base", "olmo2", made_here=False),
            Node("olmo2-1b-instruct", "olmo2-1b", "sft", "olmo2", made_here=False),
        ],
        results=Results(estimates.values()),
        provenance={
            "run": {"digest": "4f2a" * 16, "seed": 7},
            "versions": {"python": "3.11.9", "numpy": "2.1.0"},
            "hardware": {"device": "cpu", "cores": 2},
            "weights": {"smollm2-135m": {"revision": "main", "sha256": "9c1b" * 16}},
            "corpora": ["manual.jsonl", "chat.jsonl"],
            "numerics": {"dtype": "float32", "attention": "sdpa", "bf16": None},
        },
        failures=["olmo2-1b: score failed with MemoryError (exit 1)"],
    )
