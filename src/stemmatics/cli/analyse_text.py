"""The text of `stemma analyse`: every value with its interval, in 80 columns."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.cli.elicitation_text import show_elicitation
from stemmatics.cli.tables import print_rows

COLUMNS = ("quantity", "value", "interval", "n", "note")
DIGITS = 4


def show(estimates: Mapping[str, Any]) -> None:
    """Print one measure's estimates."""
    printers = {"recovery": _recovery, "agreement": _agreement, "depth": _depth, "prior": _prior}
    printers |= {"divergence": _divergence, "axes": _axes}
    if estimates["measure"] == "elicitation":
        show_elicitation(estimates, _number)
    else:
        printers[estimates["measure"]](estimates)


def _number(value: Any, digits: int = DIGITS) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "n/a"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def _row(name: str, data: Mapping[str, Any]) -> dict[str, str]:
    """A value with its interval; exact values have none."""
    interval = "" if data["method"] == "exact" else f"[{_number(data['lo'])}, {_number(data['hi'])}]"
    if interval == "[n/a, n/a]":
        interval = "n/a"
    count = f"{data['n']} {_plural(data['unit'])}"
    return {
        "quantity": name,
        "value": _number(data["value"]),
        "interval": interval,
        "n": count,
        "note": data.get("note", ""),
    }


def _plural(unit: str) -> str:
    """The plural of a unit's name."""
    noun, preposition, rest = unit.partition(" of ")
    return (f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s") + preposition + rest


def _print(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """A titled table without its empty columns."""
    print(title)
    print_rows(rows, [name for name in COLUMNS if any(row.get(name) for row in rows)])
    print()


def _recovery(estimates: Mapping[str, Any]) -> None:
    for corpus, data in estimates["corpora"].items():
        counts = f"{data['num_pairs']} pairs, {data['num_bases']} bases, {data['num_families']} families"
        rows = [
            _row(name.replace("_", " "), data[name])
            for name in ("mean_residual", "offset", "delta95", "lofo90", "sibling_spread")
        ]
        _print(f"{corpus}: {counts}; nats/byte, 95% intervals", rows)
        rows = [
            _row(name.replace("_", " "), data[name])
            for name in (
                "spearman_recovered_matched",
                "spearman_native_matched",
                "spearman_native_rebased",
                "kendall_native_rebased",
                "rank_reversals",
            )
        ]
        _print("orders: descendants against their bases; bases native against re-based", rows)
        _print("misordered pairs of descendants, by true gap", [_band(band) for band in data["misorder"]])
        if "size" in data:
            slopes = [_row("all", data["size"]["overall"])]
            slopes += [_row(name, slope) for name, slope in data["size"]["pipelines"].items()]
            _print("residual per tenfold parameters", slopes)
        for pair in data["rank_reversals"]["pairs"]:
            print(f"reversed: {pair['lower_native']} is lower natively, {pair['lower_rebased']} re-based")
        print()
    _placements(estimates["placements"])
    across = [
        _row(f"{' and '.join(row['corpora'])} ({row['num_pairs']})", row["spearman_of_residuals"])
        for row in estimates["across_corpora"]
    ]
    if across:
        _print("Spearman of residuals across corpora (pairs that both have)", across)


def _placements(placements: Sequence[Mapping[str, Any]]) -> None:
    """Bases that are unknown: the estimate, plus and minus what, at which level, and from what."""
    if not placements:
        return
    print("unknown bases, nats/byte on this text; range: no bar of a known level")
    rows = [
        {
            "descendant": placement["descendant"],
            "corpus": placement["corpus"],
            "base": _number(placement["estimate"]),
            "+-": _number(placement["half_width"]),
            "level": "range" if placement["level"] is None else f"{placement['level']:.0%}",
            "offset from": placement["source"],
            "distilled": placement.get("distilled_flag", ""),
        }
        for placement in placements
    ]
    print_rows(rows, [name for name in rows[0] if any(row[name] for row in rows)])
    print()


def _band(band: Mapping[str, Any]) -> dict[str, str]:
    gap = f"{band['lo']:g} to {band['hi']:g}" if math.isfinite(band["hi"]) else f"{band['lo']:g} or more"
    return _row(gap, band["share"]) | {"n": f"{band['misordered']} of {band['pairs']}"}


def _agreement(estimates: Mapping[str, Any]) -> None:
    rows = [_row(name, data) for name, data in estimates["settings"].items()]
    rows.append(_row("difference", estimates["difference"]))
    _print(f"mean Kendall tau-b over {estimates['num_task_pairs']} pairs of tasks, 95% intervals", rows)
    print(
        f"{estimates['num_models']} models, {len(estimates['tasks'])} tasks: {', '.join(estimates['tasks'])}"
    )
    if estimates["lower_is_better"]:
        print(f"lower is better: {', '.join(estimates['lower_is_better'])}")
    for task, reason in estimates["left_out"].items():
        print(f"left out: {task}: {reason}")
    for model in estimates["models_left_out"]:
        print(f"left out: {model}: it lacks a task")


def _depth(estimates: Mapping[str, Any]) -> None:
    title = "logits, 95% intervals, p of the sign-flip by prompt"
    print(f"readout {estimates['readout']}")
    support = estimates["support"]
    print(textwrap.fill(f"support {support['value']}: {support['says']}", 80), end="\n\n")
    for name, data in {"overall": estimates["overall"], **estimates["categories"]}.items():
        rows = [
            _row(effect.replace("_", " "), data[effect])
            | {"note": _test(data[effect]) or data[effect]["note"]}
            for effect in ("effect_after_base", "effect_after_descendant", "interaction", "portable_share")
        ]
        _print(f"{name}, {title}", rows)
    rows = [_row(readout, data) for readout, data in estimates["positive_margin"].items()]
    _print("base-base cell: margin above 0, by readout", rows)
    if "top1_changes" in estimates:
        rows = [_row(name.replace("_", " "), data) for name, data in estimates["top1_changes"].items()]
        _print("most likely token changes with the late stack", rows)
    if estimates["degenerate"]:
        print("degenerate: the earlier state makes no difference in any event")


def _test(data: Mapping[str, Any]) -> str:
    if "sign_flip_p" not in data:
        return ""
    p_value = f"p {data['sign_flip_p']:.2g}" + (" (exact)" if data["exact"] else "")
    return "; ".join(filter(None, [p_value, data["note"]]))


def _prior(estimates: Mapping[str, Any]) -> None:
    if "tables" not in estimates:
        _prior_table(estimates["table"], estimates)
        return
    for name, data in estimates["tables"].items():
        _prior_table(name, data)
    print(f"{estimates['num_files']} files, {len(estimates['problems'])} problems")


def _prior_table(name: str, data: Mapping[str, Any]) -> None:
    rows = [_row("delta, nats/token", data["delta"])]
    for arm, columns in data["arms"].items():
        rows += [_row(f"{arm} {column}", columns[column]) for column in ("S_card", "S_sym", "R_new", "R_old")]
    for row in rows:
        row["note"] = "" if row["note"] == data["note"] else row["note"]
    _print(f"{name}: {data['num_documents']} documents, {data['num_tokens']} tokens, 95% intervals", rows)
    if data["note"]:
        print(data["note"])


def _divergence(estimates: Mapping[str, Any]) -> None:
    counts = f"{estimates['num_documents']} documents, {estimates['num_tokens']} tokens"
    for register, data in estimates["registers"].items():
        rows = [_row(_with_units(name, value), value) for name, value in data.items()]
        notes = {row["note"] for row in rows if row["interval"]}
        shared = notes.pop() if len(notes) == 1 else ""
        for row in rows:
            row["note"] = "" if row["note"] == shared else row["note"]
        _print(f"{counts if register == 'all' else f'register {register}'}; 95% intervals", rows)
        if shared:
            print(shared, end="\n\n")
    if "controls" in estimates:
        rows = [_row(name, value) for name, value in estimates["controls"].items()]
        _print("the base with itself: KL, nats/token", rows)
    if "floor" in estimates:
        floor = estimates["floor"]
        rows = [
            _row(_with_units(name.replace("_", " "), floor[name]), floor[name])
            for name in ("floor", "on_floor", "against_damage")
        ]
        _print(f"random damage of the same size, {floor['num_draws']} draws: KL", rows)


def _with_units(name: str, data: Mapping[str, Any]) -> str:
    return f"{name}, {data['units']}" if data["units"] else name


def _axes(estimates: Mapping[str, Any]) -> None:
    for name in estimates["models"][1:]:
        rows = [row for row in estimates["axes"] if row["to"] == name]
        if not rows:
            continue
        print(f"{rows[0]['from']} -> {name}")
        shown = [
            {
                "task": " ".join(
                    filter(None, [row["task"], row["metric"], row["filter"].replace("none", "")])
                ),
                "from": _number(row["from_value"], 3),
                "to": _number(row["to_value"], 3),
                "change": f"{row['difference']:+.3f} [{_number(row['lo'], 3)}, {_number(row['hi'], 3)}]",
                "+/-": f"{row['gained']}/{row['lost']}",
                "n": str(row["n"]),
                "p": _p(row["p"]),
                "p Holm": _p(row["p_holm"]),
            }
            for row in rows
        ]
        print_rows(shown, list(shown[0]))
        for row in rows:
            if row["num_unmatched"]:
                first = ", ".join(row["unmatched"][:5])
                print(f"{row['task']}: {row['num_unmatched']} items are in one log only, such as {first}")
        for missing in estimates["not_in_both"].get(name, []):
            print(f"only in one log: {missing}")
        print()


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else _number(value, 3)
