"""Tables of the measure `divergence`, one set per corpus."""

from __future__ import annotations

from typing import Any

from stemmatics.core.content import Named, Table
from stemmatics.core.results import Results
from stemmatics.measure.divergence.estimate import QUANTILES
from stemmatics.measure.inputs import ALL
from stemmatics.measure.present import SHARE, SIGNED, cell, claim, claim_if, table, with_rows

_KL = "{:.4g}"


def tables(pairs: list[tuple[str, str]], corpus: str, results: Results) -> list[Table]:
    """All tables of one corpus that have rows, the summary first."""
    return with_rows(
        _summary(pairs, corpus, results),
        _quantiles(pairs, corpus, results),
        _by_register(corpus, results),
        _where(corpus, results),
        _floors(pairs, corpus, results),
    )


def _summary(pairs: list[tuple[str, str]], corpus: str, results: Results) -> Table:
    rows: list[list[Any]] = []
    for base, descendant in pairs:
        subject = {"base": base, "descendant": descendant, "corpus": corpus, "register": ALL}
        mean = results.find("divergence.kl", **subject)
        if mean is None:
            continue
        rows.append(
            [
                base,
                descendant,
                claim(mean, _KL),
                cell(results, "divergence.kl_reverse", _KL, **subject),
                cell(results, "divergence.js", _KL, **subject),
                cell(results, "divergence.same_top1", SHARE, **subject),
                cell(results, "divergence.top1_in_top5", SHARE, **subject),
                cell(results, "divergence.rms_delta_p", SHARE, **subject),
                cell(results, "divergence.delta_entropy", SIGNED, **subject),
                claim_if(results.category("divergence.verdict", **subject)),
                claim(mean, field="n"),
            ]
        )
    return table(
        f"divergence/summary/{corpus}",
        Named("How far predictions on {corpus} are apart, token by token", corpus=corpus),
        [
            "base",
            "descendant",
            "KL",
            "reverse KL",
            "JS",
            "same top-1",
            "in top-5",
            "RMS change of p",
            "entropy",
            "verdict",
            "n",
        ],
        rows,
        note="Nats/token over the ids that both models have. KL is KL(base || descendant), reverse KL the "
        "other direction, JS the Jensen-Shannon divergence. `in top-5`: the base's most likely id is among "
        "the descendant's five most likely. RMS change of p: root mean square of the change of the target's "
        "probability. Entropy: the descendant's less the base's.",
    )


def _quantiles(pairs: list[tuple[str, str]], corpus: str, results: Results) -> Table:
    rows = []
    for base, descendant in pairs:
        subject = {"base": base, "descendant": descendant, "corpus": corpus, "register": ALL}
        if results.find("divergence.kl", **subject) is None:
            continue
        names = [*QUANTILES, "kl_max"]
        cells = [cell(results, f"divergence.{name}", _KL, **subject) for name in names]
        rows.append([base, descendant, *cells])
    return table(
        f"divergence/quantiles/{corpus}",
        Named("Quantiles of KL over the tokens of {corpus}", corpus=corpus),
        ["base", "descendant", "median", "90%", "99%", "99.9%", "maximum"],
        rows,
        note="Nats. Quantiles are within one per cent, and n/a where fewer than ten tokens lie beyond; "
        "the maximum is exact.",
    )


def _by_register(corpus: str, results: Results) -> Table:
    rows = []
    for mean in results.all("divergence.kl", corpus=corpus):
        if mean.subject["register"] == ALL:
            continue
        same = results.only("divergence.same_top1", **mean.subject)
        row = [*(mean.subject[name] for name in ("base", "descendant", "register"))]
        rows.append([*row, claim(mean, _KL), claim(same, SHARE), claim(mean, field="n")])
    return table(
        f"divergence/by-register/{corpus}",
        Named("Divergence on {corpus} by register", corpus=corpus),
        ["base", "descendant", "register", "KL", "same top-1", "n"],
        rows,
    )


def _where(corpus: str, results: Results) -> Table:
    rows = []
    for mean in results.all("divergence.where", corpus=corpus):
        same = results.only("divergence.where_same_top1", **mean.subject)
        row = [mean.subject["base"], mean.subject["descendant"]]
        row += [mean.subject[name].replace("_", " ") for name in ("axis", "bin")]
        rows.append([*row, claim(mean, _KL), claim(same, SHARE), claim(mean, field="n")])
    return table(
        f"divergence/where/{corpus}",
        Named("On which tokens of {corpus} predictions diverge", corpus=corpus),
        ["base", "descendant", "axis", "bin", "KL", "same top-1", "n"],
        rows,
        note="Means over the tokens of each bin. Base entropy is in nats.",
    )


def _floors(pairs: list[tuple[str, str]], corpus: str, results: Results) -> Table:
    rows: list[list[Any]] = []
    for base, descendant in pairs:
        subject = {"base": base, "descendant": descendant, "corpus": corpus}
        for control in results.all("divergence.control", **subject):
            name = {"itself": "read again", "bfloat16": "in bfloat16", "attention": "other attention"}
            what = f"base, {name[control.subject['control']]}"
            rows.append([base, descendant, what, claim(control, _KL), None, claim(control, field="n")])
        damage = results.find("divergence.floor", **subject)
        if damage is None:
            continue
        pair, ratio = (
            results.find(f"divergence.{name}", **subject) for name in ("on_floor", "against_damage")
        )
        what = "base, damaged at random by the same loss"
        rows.append([base, descendant, what, claim(damage, _KL), None, claim(damage, field="n")])
        what = "the pair on the same documents"
        rows.append(
            [base, descendant, what, claim_if(pair, _KL), claim_if(ratio, SHARE), claim(damage, field="n")]
        )
    return table(
        f"divergence/floors/{corpus}",
        Named("What else makes predictions on {corpus} diverge", corpus=corpus),
        ["base", "descendant", "compared with the base", "KL", "times the damage", "n"],
        rows,
        note="Numerical controls and random damage of the head, on a part of the documents.",
    )
