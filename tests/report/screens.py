"""A report as large as the demo's: twelve descendants, six questions, a table of more than a hundred rows."""

from __future__ import annotations

import random

from stemmatics.core.content import (
    CLEAR,
    NOT_MEASURED,
    UNCLEAR,
    Answer,
    Chart,
    Column,
    Content,
    Node,
    Section,
    Table,
)
from stemmatics.core.results import Claim, Estimate, Results, Sentence
from stemmatics.measure.present import forest, interval_points
from stemmatics.report.page import render_page

NAMES = (
    "register-shift", "lost-facts", "cpt", "sft-light", "sft-heavy", "dpo", "temperature", "noise",
    "second-bias", "second-temperature", "second-noise", "second-sft",
)  # fmt: skip
QUESTIONS = (
    ("loss", "loss on ordinary text", "nats/byte less its base", "{:+.3f}", True),
    ("divergence", "predictions moved", "KL, nats/token", "{:.3g}", True),
    ("prior", "logit correction recovers", "net share; grey: damage", "{:.0f}%", True),
    ("recovery", "left after fine-tune", "residual, nats/byte", "{:+.3f}", True),
    ("recall", "recall of facts", "change, points", "{:+.0f}", False),
    ("depth", "portable share", "of the late change", "{:.2f}", False),
)
# as text, 256 stands before 64 and 1024 before 16
BINS = ("0-15", "16-63", "64-255", "256-1023", "1024-4095")
NUM_ROWS = len(NAMES) * len(BINS) * 2


def _estimate(quantity: str, value: float, **subject: str) -> Estimate:
    return Estimate(
        "loss", quantity, subject, value, value - 0.02, value + 0.02,
        method="bootstrap", n=360, units="nats/byte", smallest_effect=0.03,
    )  # fmt: skip


def _effect(question: str, estimate: Estimate) -> Claim | None:
    if question == "recall":
        return Claim(estimate.id, "smallest_effect", "{:.0f}", 100.0)
    return Claim(estimate.id, "smallest_effect", "{:.3f}") if question in {"loss", "recovery"} else None


def _base_of(name: str) -> str:
    return "second" if name.startswith("second") else "base"


def demo_like() -> Content:
    draw = random.Random(0)
    results: list[Estimate] = []
    columns = []
    for question, title, caption, form, bars in QUESTIONS:
        answers = []
        for index, name in enumerate(NAMES):
            names = (_base_of(name), name)
            if question != "loss" and (index + len(question)) % 3 == 0:
                answers.append(Answer(*names, NOT_MEASURED, mark=NOT_MEASURED, reason="it was left out"))
                continue
            estimate = _estimate(f"{question}.value", draw.uniform(-0.1, 0.7), descendant=name)
            results.append(estimate)
            scale = 100.0 if "%" in form or question == "recall" else 1.0
            number = Claim(estimate.id, "value", form, scale)
            unclear = index % 4 == 0
            answers.append(
                Answer(
                    *names,
                    "unclear" if unclear else "above damage" if question == "prior" else "lost",
                    number,
                    UNCLEAR if unclear else CLEAR,
                    "neutral" if unclear else "worse" if estimate.value > 0 else "better",
                    effect=_effect(question, estimate) if unclear else None,
                    floor=number if question == "prior" else None,
                )
            )
        columns.append(
            Column(question, title, caption, answers, evidence="loss/where/text", how="do it", bars=bars)
        )
    parts = [
        _estimate("loss.where", draw.gauss(0, 0.1), descendant=name, axis=axis, bin=bin_name)
        for name in NAMES
        for axis in ("position", "frequency")
        for bin_name in BINS
    ]
    deltas = [_estimate("loss.delta", draw.gauss(0.2, 0.1), descendant=name) for name in NAMES]
    results += [*parts, *deltas]
    main = Table(
        "loss/summary/text", "Loss of every descendant", ["descendant", "nats/byte"],
        [[delta.subject["descendant"], Claim(delta.id, form="{:+.4f}")] for delta in deltas],
        note="Less that of the base.",
    )  # fmt: skip
    where = Table(
        "loss/where/text", "Where it changed", ["descendant", "axis", "bin", "nats/byte", "n"],
        [
            [*part.subject.values(), Claim(part.id, form="{:+.4f}"), Claim(part.id, "n", "{}")]
            for part in parts
        ],
    )  # fmt: skip
    chart_points = interval_points(deltas, "descendant")
    spec = forest(
        [{**point, "register": "all"} for point in chart_points],
        title="nats/byte", row="descendant", colour="register",
    )  # fmt: skip
    section = Section(
        "loss", "Loss on ordinary text", "How much was lost?",
        sentences=[Sentence("{name} lost {value}.", {"name": NAMES[0], "value": Claim(deltas[0].id)})],
        tables=[main, where],
        charts=[Chart("loss/forest", "Loss of each descendant", "A point is a difference.", spec)],
    )  # fmt: skip
    nodes = [Node(name, None, "base", "f", made_here=False) for name in ("base", "second")]
    nodes += [Node(name, _base_of(name), "sft", "f", made_here=True) for name in NAMES]
    summary = [
        Sentence(
            "{name} lost {value} nats/byte.", {"name": delta.subject["descendant"], "value": Claim(delta.id)}
        )
        for delta in deltas[:5]
    ]
    return Content(
        "nursery", summary, [section], nodes, Results(results),
        provenance={"digest": "9a469b20" * 8, "versions": {"stemmatics": "0.1.0"}},
        columns=columns, pairs=[(_base_of(name), name) for name in NAMES],
    )  # fmt: skip


def demo_page() -> str:
    return render_page(demo_like())[0]
