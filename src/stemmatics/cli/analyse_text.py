"""What `stemma analyse` prints for people: every value with its interval, in 80 columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stemmatics.cli.tables import print_rows

COLUMNS = ("quantity", "value", "interval", "n", "note")
DIGITS = 4


def show(found: Mapping[str, Any]) -> None:
    """Print one measure's estimates."""
    shown = {"recovery": _recovery, "agreement": _agreement, "depth": _depth, "prior": _prior}
    shown[found["measure"]](found)


def _number(value: Any, digits: int = DIGITS) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "n/a"
    return str(value) if isinstance(value, int) else f"{value:.{digits}f}"


def _row(name: str, data: Mapping[str, Any]) -> dict[str, str]:
    """A value with its interval; what is exact has none."""
    interval = "" if data["method"] == "exact" else f"[{_number(data['lo'])}, {_number(data['hi'])}]"
    if interval == "[n/a, n/a]":
        interval = "n/a"
    of = f"{data['n']} {_plural(data['unit'])}"
    return {
        "quantity": name,
        "value": _number(data["value"]),
        "interval": interval,
        "n": of,
        "note": data.get("note", ""),
    }


def _plural(unit: str) -> str:
    """The unit's name after a number."""
    first, of, rest = unit.partition(" of ")
    return (f"{first[:-1]}ies" if first.endswith("y") else f"{first}s") + of + rest


def _print(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """A titled table; columns without content are left out."""
    print(title)
    print_rows(rows, [name for name in COLUMNS if any(row.get(name) for row in rows)])
    print()


def _recovery(found: Mapping[str, Any]) -> None:
    for corpus, data in found["corpora"].items():
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
        for one in data["rank_reversals"]["pairs"]:
            print(f"reversed: {one['lower_native']} is lower natively, {one['lower_rebased']} re-based")
        print()
    across = [
        _row(f"{' and '.join(row['corpora'])} ({row['num_pairs']})", row["spearman_of_residuals"])
        for row in found["across_corpora"]
    ]
    if across:
        _print("Spearman of residuals across corpora (pairs that both have)", across)


def _band(band: Mapping[str, Any]) -> dict[str, str]:
    gap = f"{band['lo']:g} to {band['hi']:g}" if math.isfinite(band["hi"]) else f"{band['lo']:g} and over"
    return _row(gap, band["share"]) | {"n": f"{band['misordered']} of {band['pairs']}"}


def _agreement(found: Mapping[str, Any]) -> None:
    rows = [_row(name, data) for name, data in found["settings"].items()]
    rows.append(_row("difference", found["difference"]))
    _print(f"mean Kendall tau-b over {found['num_task_pairs']} pairs of tasks, 95% intervals", rows)
    print(f"{found['num_models']} models, {len(found['tasks'])} tasks: {', '.join(found['tasks'])}")
    if found["lower_is_better"]:
        print(f"lower is better: {', '.join(found['lower_is_better'])}")
    for task, why in found["left_out"].items():
        print(f"left out: {task}: {why}")
    for model in found["models_left_out"]:
        print(f"left out: {model}: it lacks a task")


def _depth(found: Mapping[str, Any]) -> None:
    title = "logits, 95% intervals, p of the sign-flip by prompt"
    print(f"readout {found['readout']}\n")
    for name, data in {"overall": found["overall"], **found["categories"]}.items():
        rows = [
            _row(effect.replace("_", " "), data[effect])
            | {"note": _test(data[effect]) or data[effect]["note"]}
            for effect in ("effect_after_base", "effect_after_descendant", "interaction", "portable_share")
        ]
        _print(f"{name}, {title}", rows)
    rows = [_row(readout, data) for readout, data in found["positive_margin"].items()]
    _print("base-base cell: margin above 0, by readout", rows)
    if "top1_changes" in found:
        rows = [_row(name.replace("_", " "), data) for name, data in found["top1_changes"].items()]
        _print("most likely token changes with the late stack", rows)
    if found["degenerate"]:
        print("degenerate: the earlier state makes no difference in any event")


def _test(data: Mapping[str, Any]) -> str:
    if "sign_flip_p" not in data:
        return ""
    p_value = f"p {data['sign_flip_p']:.2g}" + (" (exact)" if data["exact"] else "")
    return "; ".join(filter(None, [p_value, data["note"]]))


def _prior(found: Mapping[str, Any]) -> None:
    if "tables" not in found:
        _one_prior(found["table"], found)
        return
    for name, data in found["tables"].items():
        _one_prior(name, data)
    print(f"{found['num_files']} files, {len(found['problems'])} problems")


def _one_prior(name: str, data: Mapping[str, Any]) -> None:
    rows = [_row("delta, nats/token", data["delta"])]
    for arm, one in data["arms"].items():
        rows += [_row(f"{arm} {what}", one[what]) for what in ("S_card", "S_sym", "R_new", "R_old")]
    for row in rows:
        row["note"] = "" if row["note"] == data["note"] else row["note"]
    _print(f"{name}: {data['num_documents']} documents, {data['num_tokens']} tokens, 95% intervals", rows)
    if data["note"]:
        print(data["note"])
