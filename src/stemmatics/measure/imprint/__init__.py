"""Does what a model was pretrained on last decide how it takes post-training?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc

from stemmatics.core.facts import Fact
from stemmatics.core.results import Estimate
from stemmatics.facts.matched import matched_fact
from stemmatics.facts.pinned import Pinned
from stemmatics.math.intervals import wilson
from stemmatics.math.rates import loss_rates
from stemmatics.measure.base import Findings, Tables
from stemmatics.measure.imprint.contrasts import LOSS, SHARE, Contrasts
from stemmatics.measure.imprint.needs import (
    FORK,
    NAME,
    WINDOW,
    ImprintSettings,
    asked_of,
    nodes,
    stage_hashes,
)
from stemmatics.measure.imprint.nodes import METRICS, Answers, Strands, read_nodes
from stemmatics.measure.imprint.sentences import findings
from stemmatics.measure.present import estimate_from


class Imprint:
    """Branches of one partly trained checkpoint: the same post-training after windows of other text."""

    name: ClassVar[str] = NAME
    version: ClassVar[int] = 2
    title: ClassVar[str] = "Imprint"
    question: ClassVar[str] = "Does what a model was pretrained on last decide how it takes post-training?"
    Settings: ClassVar[type[ImprintSettings]] = ImprintSettings

    def needs(self, pinned: Pinned, settings: ImprintSettings) -> list[Fact]:
        """Replies and losses of every node, and the matcher on labelled replies."""
        names = dict.fromkeys(checkpoint for _, checkpoint in nodes(settings))
        facts = [fact for name in names for fact in asked_of(pinned, settings, name).facts()]
        # what a stage logs is stored with its checkpoint
        facts += [pinned.checkpoint(name) for name in names]
        return facts if settings.matcher is None else [*facts, matched_fact(pinned, settings.matcher)]

    def estimate(
        self, pinned: Pinned, settings: ImprintSettings, tables: Tables, rng: np.random.Generator
    ) -> list[Estimate]:
        """Metrics at every node, then deviations, imprints and equivalence of every tree."""
        strands = read_nodes(pinned, settings, tables)
        found = [*_shares(strands), *_losses(strands, rng), *_same_stages(pinned, settings)]
        found += _windows(pinned, settings, tables)
        found += _matcher(pinned, settings, tables)
        found.append(_number("margin", settings.margin, {}, "prompt", SHARE))
        for name, tree in settings.trees.items():
            found += Contrasts(name, tree, settings, strands).all()
        return found

    def findings(
        self, pinned: Pinned, settings: ImprintSettings, estimates: Mapping[str, Estimate]
    ) -> Findings:
        """Sentences, tables and figures."""
        return findings(pinned, settings, estimates)


def _shares(strands: Strands) -> Iterator[Estimate]:
    for place, answers in strands.answers.items():
        for metric in METRICS:
            if metric in answers.shares_Q:
                values_Q = answers.shares_Q[metric]
                yield estimate_from(
                    wilson(int(values_Q.sum()), values_Q.size),
                    measure=NAME,
                    quantity=f"{NAME}.node",
                    subject={**place.subject, "metric": metric},
                    units=SHARE,
                    facts=[answers.facts[metric]],
                )


def _losses(strands: Strands, rng: np.random.Generator) -> Iterator[Estimate]:
    """Losses of all nodes on the same documents, with one set of resamples."""
    with_loss = [(place, answers) for place, answers in strands.answers.items() if answers.scores]
    by_documents: dict[bytes, list[tuple[dict[str, str], Answers]]] = {}
    for place, answers in with_loss:
        assert answers.scores is not None, "only nodes with a loss were kept"
        key = answers.scores.index_N.tobytes() + answers.scores.num_bytes_N.tobytes()
        by_documents.setdefault(key, []).append((place.subject, answers))
    for members in by_documents.values():
        scores = [answers.scores for _, answers in members if answers.scores is not None]
        intervals = loss_rates(
            np.stack([one.nll_N for one in scores], axis=1),
            scores[0].num_bytes_N,
            rng=rng,
            groups=scores[0].group_N,
        )
        for (subject, answers), interval in zip(members, intervals, strict=True):
            yield estimate_from(
                interval,
                measure=NAME,
                quantity=f"{NAME}.node",
                subject={**subject, "metric": "loss"},
                units=LOSS,
                facts=[answers.facts["loss"]],
            )


def _same_stages(pinned: Pinned, settings: ImprintSettings) -> Iterator[Estimate]:
    """How many different stages stand at one place of all branches: one, or all else is not equal."""
    for (tree, run, stage), by_hash in stage_hashes(pinned, settings).items():
        subject = {"tree": tree, "run": str(run), "stage": stage}
        num_branches = sum(len(names) for names in by_hash.values())
        yield Estimate(
            measure=NAME,
            quantity=f"{NAME}.different_stages",
            subject=subject,
            value=float(len(by_hash)),
            n=num_branches,
            unit="branch",
            units="stages",
            tag="control",
        )


def _windows(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> Iterator[Estimate]:
    """Tokens of a window, and as a share of the tokens that the fork was trained on, where that was here."""
    for place, checkpoint in nodes(settings):
        fact = pinned.checkpoint(checkpoint)
        if place.stage != WINDOW or place.run != 1 or not tables.has(fact) or fact.probe == "weights":
            continue
        tokens = _last_tokens(tables, fact)
        subject = {"tree": place.tree, "branch": place.branch}
        yield _number("window_tokens", tokens, subject, "token", "tokens", fact)
        fork = pinned.checkpoint(settings.trees[place.tree].fork)
        if fork.probe != "weights" and tables.has(fork):
            yield _number(
                "window_share",
                tokens / _last_tokens(tables, fork),
                subject,
                "token",
                f"of the {FORK}'s",
                fact,
            )


def _last_tokens(tables: Tables, fact: Fact) -> float:
    return float(pc.max(tables.read(fact, "training")["num_tokens"]).as_py() or 0)


def _matcher(pinned: Pinned, settings: ImprintSettings, tables: Tables) -> Iterator[Estimate]:
    """The refusal matcher against a reader's labels: precision and recall of "refuses"."""
    if settings.matcher is None or not tables.has(matched_fact(pinned, settings.matcher)):
        return
    fact = matched_fact(pinned, settings.matcher)
    rows = tables.read(fact, "items").to_pylist()
    said = [row["outcome"] == "refusal" for row in rows]
    true = [row["category"] == "refusal" for row in rows]
    both = sum(one and other for one, other in zip(said, true, strict=True))
    for quantity, total in (("precision", sum(said)), ("recall", sum(true))):
        yield estimate_from(
            wilson(both, total, unit="reply"),
            measure=NAME,
            quantity=f"{NAME}.matcher",
            subject={"corpus": settings.matcher, "what": quantity},
            units="share of replies",
            facts=[fact],
            tag="control",
        )


def _number(
    quantity: str, value: float, subject: dict[str, str], unit: str, units: str, *facts: Fact
) -> Estimate:
    return Estimate(
        measure=NAME,
        quantity=f"{NAME}.{quantity}",
        subject=subject,
        value=value,
        unit=unit,
        units=units,
        facts=tuple(fact.key for fact in facts),
    )
