"""Sentences of the imprint section, and its failures. The graded outcome comes first, the rate second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stemmatics.core.results import Category, Claim, Estimate, Results, Sentence
from stemmatics.measure.imprint.nodes import MARGIN, REFUSAL
from stemmatics.measure.imprint.settings import NAME, ImprintSettings, Tree
from stemmatics.measure.imprint.verdicts import DIFFERENT, INVISIBLE
from stemmatics.measure.present import SHARE, WHOLE, claim, interval_claims, known

Values = dict[str, Claim | str]


@dataclass(frozen=True)
class Outcome:
    """How an outcome is called and printed."""

    metric: str
    words: str
    units: str
    form: str
    plain_form: str
    scale: float

    def claims(self, estimate: Estimate, key: str) -> dict[str, Claim]:
        """Value and limits."""
        return interval_claims(estimate, self.form, key, self.scale)

    def number(self, estimate: Estimate, field: str = "value") -> Claim:
        """A number without a sign: an effect, a bound."""
        return Claim(estimate.id, field, self.plain_form, self.scale)


OUTCOMES = (
    Outcome(MARGIN, "the margin of refusal over answer", "nats a token", "{:+.3f}", "{:.3f}", 1.0),
    Outcome(REFUSAL, "the rate of refusal", "percentage points", "{:+.1f}", "{:.1f}", 100.0),
)


def summary(settings: ImprintSettings, results: Results) -> Iterator[Sentence]:
    """For each outcome, tree and end: the control's deviation, every branch against it, the verdicts."""
    for outcome in OUTCOMES:
        for name, tree in settings.trees.items():
            for end in tree.ends:
                yield from _imprints(outcome, name, tree, end, results)


def details(settings: ImprintSettings, results: Results) -> Iterator[Sentence]:
    """What could not be seen, selectivity, the order control, equivalence after SFT, and the matcher."""
    for outcome in OUTCOMES:
        for name, tree in settings.trees.items():
            yield from _invisible(outcome, name, tree, results)
            yield from _selectivity(outcome, name, results)
            yield from _after_sft(outcome, name, tree.control, results)
            if tree.order:
                yield from _order_control(outcome, name, *tree.order, results)
    yield from _matcher(results)


def _imprints(outcome: Outcome, name: str, tree: Tree, end: str, results: Results) -> Iterator[Sentence]:
    where = {"tree": name, "end": end, "metric": outcome.metric}
    control = results.find("imprint.deviation", branch=tree.control, **where)
    imprints = results.all("imprint.contrast", against=tree.control, **where)
    if control is None or not imprints:
        return
    values: Values = {"tree": name, "end": end, "control": tree.control}
    control_change, parts = _with_interval(outcome, control, "deviation", values), []
    for number, imprint in enumerate(imprints):
        parts.append(_branch(outcome, imprint, f"branch_{number}", values, results))
    yield Sentence(
        f"Imprint on {outcome.words} in tree {{tree}} after {{end}}, in {outcome.units}: {{control}} "
        f"changed by "
        f"{control_change} since SFT; compared with it, " + "; ".join(parts) + ".",
        values,
    )
    verdicts = results.categories("imprint.contrast.verdict", against=tree.control, **where)
    values = {"tree": name, "end": end, "control": tree.control}
    yield Sentence(
        f"Since SFT, the change in {outcome.words} in tree {{tree}} after {{end}}, compared with that of "
        f"{{control}}, is {_listed(verdicts, values)}.",
        values,
    )


def _with_interval(outcome: Outcome, estimate: Estimate, key: str, values: Values) -> str:
    """A value with its limits; one without limits says so."""
    claims = outcome.claims(estimate, key)
    if known(estimate.lo):
        values |= claims
        return f"{{{key}}} [{{{key}_lo}}, {{{key}_hi}}]"
    values[key] = claims[key]
    return f"{{{key}}} (no interval)"


def _branch(outcome: Outcome, imprint: Estimate, key: str, values: Values, results: Results) -> str:
    """A branch: its imprint for requests like these, for these cells, and what could have been seen."""
    values[f"{key}_name"] = imprint.subject["branch"]
    text = f"{{{key}_name}} {_with_interval(outcome, imprint, key, values)}"
    by_runs = results.find("imprint.contrast.by_runs", **imprint.subject)
    if known(imprint.lo):
        text += " for requests like these"
    if by_runs is not None and known(by_runs.lo):
        claims = outcome.claims(by_runs, f"{key}_runs")
        values |= {name: each for name, each in claims.items() if name != f"{key}_runs"}
        text += f", [{{{key}_runs_lo}}, {{{key}_runs_hi}}] for these cells"
    if not known(imprint.smallest_effect):
        return text
    visibility = results.category("imprint.contrast.visibility", **imprint.subject)
    if visibility is not None and visibility.value == INVISIBLE:
        values[f"{key}_effect"] = claim(visibility)
        return f"{text} (an imprint {{{key}_effect}})"
    values[f"{key}_effect"] = outcome.number(imprint, "smallest_effect")
    return f"{text} (minimum detectable effect {{{key}_effect}})"


def _listed(verdicts: Sequence[Category], values: Values) -> str:
    """Verdicts as claims, each with its branch."""
    for number, verdict in enumerate(verdicts):
        values[f"branch_{number}"] = verdict.subject["branch"]
        values[f"verdict_{number}"] = claim(verdict)
    return ", ".join(f"{{verdict_{number}}} for {{branch_{number}}}" for number in range(len(verdicts)))


def _invisible(outcome: Outcome, name: str, tree: Tree, results: Results) -> Iterator[Sentence]:
    """Contrasts whose smallest effect is above the whole range; nothing where there are none."""
    for end in tree.ends:
        where = {"tree": name, "end": end, "metric": outcome.metric, "against": tree.control}
        unseen = [
            category
            for category in results.categories("imprint.contrast.visibility", **where)
            if category.value == INVISIBLE
        ]
        if not unseen:
            continue
        values: Values = {"tree": name, "end": end}
        values |= {f"branch_{number}": category.subject["branch"] for number, category in enumerate(unseen)}
        values["visibility"] = claim(unseen[0])
        branches = ", ".join(f"{{branch_{number}}}" for number in range(len(unseen)))
        yield Sentence(
            f"An imprint on {outcome.words} in tree {{tree}} after {{end}} {{visibility}} for "
            f"{branches}: only an "
            "effect larger than the whole range of a rate would have been detected.",
            values,
            topic=NAME,
        )


def _selectivity(outcome: Outcome, tree: str, results: Results) -> Iterator[Sentence]:
    """The target less the mean of the other sources; nothing without an interval."""
    for contrast in results.all("imprint.selectivity", tree=tree, metric=outcome.metric):
        verdict = results.category("imprint.selectivity.verdict", **contrast.subject)
        if verdict is None or not known(contrast.lo):
            continue
        yield Sentence(
            f"Selectivity in tree {{tree}} after {{end}}: the change in {outcome.words} since SFT of "
            f"{{branch}} less "
            "the mean of {others} is {difference} [{difference_lo}, {difference_hi}] "
            f"{outcome.units} for requests like these: {{verdict}}.",
            {
                "tree": tree,
                "end": contrast.subject["end"],
                "branch": contrast.subject["branch"],
                "others": contrast.subject["against"],
                "verdict": claim(verdict),
                **outcome.claims(contrast, "difference"),
            },
            topic=NAME,
        )


def _after_sft(outcome: Outcome, tree: str, control: str, results: Results) -> Iterator[Sentence]:
    where = {"tree": tree, "metric": outcome.metric, "against": control}
    verdicts = results.categories("imprint.after_sft.verdict", **where)
    bound = results.find("imprint.bound", metric=outcome.metric)
    if not verdicts or bound is None:
        return
    values: Values = {"tree": tree, "control": control, "bound": outcome.number(bound)}
    yield Sentence(
        f"After SFT in tree {{tree}}, {outcome.words} compared with {{control}}, at a margin of {{bound}} "
        f"{outcome.units}, is {_listed(verdicts, values)}.",
        values,
        topic=NAME,
    )


def _order_control(
    outcome: Outcome, tree: str, last: str, first: str, results: Results
) -> Iterator[Sentence]:
    """The first branch of the order control minus the second; nothing without an interval."""
    about = {"tree": tree, "branch": last, "against": first, "metric": outcome.metric}
    for contrast in results.all("imprint.contrast", **about):
        verdict = results.category("imprint.contrast.verdict", **contrast.subject)
        if verdict is None or not known(contrast.lo):
            continue
        yield Sentence(
            "Order control in tree {tree} after {end}: {last} and {first} saw the same windows in opposite "
            f"order; the change in {outcome.words} since SFT differs by {{difference}} [{{difference_lo}}, "
            f"{{difference_hi}}] {outcome.units} ({{last}} minus {{first}}): {{verdict}}.",
            {
                "tree": tree,
                "end": contrast.subject["end"],
                "last": last,
                "first": first,
                "verdict": claim(verdict),
                **outcome.claims(contrast, "difference"),
            },
            topic=NAME,
        )


def _matcher(results: Results) -> Iterator[Sentence]:
    """Precision and recall of the refusal matcher; nothing where neither has an interval."""
    precision, recall = (results.find("imprint.matcher", what=what) for what in ("precision", "recall"))
    if precision is None or recall is None or not (known(precision.lo) and known(recall.lo)):
        return
    yield Sentence(
        "The refusal matcher on labelled replies: precision {precision} [{precision_lo}, {precision_hi}] of "
        "{matched} matched, recall {recall} [{recall_lo}, {recall_hi}] of {labelled} labelled as refusals.",
        {
            **interval_claims(precision, SHARE, "precision"),
            **interval_claims(recall, SHARE, "recall"),
            "matched": claim(precision, WHOLE, "n"),
            "labelled": claim(recall, WHOLE, "n"),
        },
        topic=NAME,
    )


def failures(results: Results) -> list[str]:
    """Stages that differ between branches, so that a contrast shows more than the windows."""
    lines = []
    for stages in results.categories("imprint.stage_equality"):
        if stages.value == DIFFERENT:
            tree, run, stage = (stages.subject[name] for name in ("tree", "run", "stage"))
            lines.append(
                f"the {stage} stages of run {run} in tree {tree} differ between branches: {stages.reason}"
            )
    return lines
