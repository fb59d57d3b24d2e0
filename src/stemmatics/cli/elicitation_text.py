"""The text of `stemma analyse elicitation`."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from stemmatics.cli.tables import print_rows

Format = Callable[[Any, int], str]

NAIVE = (
    "The table has no items. The maximum over recipes is naive: it is too high by what chance adds to the "
    "best of several, and there is no interval and no verdict."
)
LOW = (
    "ceiling: accuracy of the recipe that half of the items choose, on the other half; low for the best "
    "recipe. maximum: the largest mean, too high. Intervals: these recipes and checkpoints, items like these."
)


def show_elicitation(estimates: Mapping[str, Any], number: Format) -> None:
    """Print verdicts, ceilings, order of recipes, flips and components.

    Args:
        estimates: what ``analyse_elicitation`` returns.
        number: formats a number with that many digits.
    """

    def with_interval(data: Mapping[str, Any], digits: int = 3) -> str:
        limits = f"[{number(data['lo'], digits)}, {number(data['hi'], digits)}]"
        return f"{number(data['value'], digits)} {limits}"

    unit = "tasks" if estimates["naive"] else "items"
    print(
        f"{estimates[f'num_{unit}']} {unit}, {len(estimates['recipes'])} recipes, "
        f"{len(estimates['checkpoints'])} checkpoints, seeds: {estimates['num_seeds']}; 95% intervals\n"
    )
    for claim in estimates["claims"]:
        print(f"{claim['verdict'].upper()}: {claim['to']} against {claim['from']}, recipe {claim['recipe']}")
        print(f"  gain {with_interval(claim['gain'])}, ceiling {with_interval(claim['ceiling_change'])}")
    if estimates["claims"]:
        print()
    rows = [
        {
            "checkpoint": result["checkpoint"],
            "ceiling": with_interval(result["ceiling"]) if "ceiling" in result else "",
            "maximum": number(result["naive_maximum"], 3),
            "mean": number(result["mean_of_recipes"], 3),
            "not beaten by the best": ", ".join(result.get("top_group", [])),
        }
        for result in estimates["results"]
    ]
    print_rows(rows, [name for name in rows[0] if any(row[name] for row in rows)])
    print(textwrap.fill(NAIVE if estimates["naive"] else LOW, 80), end="\n\n")
    print("order of two recipes, or checkpoints, that is opposite elsewhere")
    for name, flips in estimates["flips"].items():
        counts = f"{flips['num_flipped']} of {flips['num_compared']}"
        print(f"  {name.replace('_', ' ')}: {number(flips['share'], 3)} ({counts})")
    print("\nvariance of a score, by factor; unbiased, so it can be below 0")
    components = [
        {
            "factor": name,
            "variance": with_interval(data, 4),
            "share": number(data["share"], 3),
        }
        for name, data in estimates["components"].items()
    ]
    print_rows(components, list(components[0]))
    notes = [data["note"] for name, data in estimates["components"].items() if " x " not in name]
    for note in filter(None, notes):
        print(f"{note}: its components are hardly known")
    for noise in estimates["noise"]:
        print(
            f"{noise['checkpoint']}, {noise['recipe']}: prediction noise "
            f"{with_interval(noise['prediction'], 4)}, data noise {with_interval(noise['data'], 4)}"
        )
    if estimates["num_left_out"]:
        print(f"\nleft out: {estimates['num_left_out']} {unit}")
        for name, reason in list(estimates["left_out"].items())[:5]:
            print(f"  {name}: {reason}")
