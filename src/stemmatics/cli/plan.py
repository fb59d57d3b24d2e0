"""stemma run --plan: what a study would take."""

from __future__ import annotations

from typing import Any

from stemmatics.cli.output import print_json
from stemmatics.cli.tables import print_rows


def print_plan(plan: Any, *, as_json: bool) -> int:
    """The missing facts and what each takes."""
    from stemmatics.study.plan import costs, totals

    rows = costs(plan)
    total = totals(rows)
    if as_json:
        print_json(
            {
                "facts": rows,
                "total": total,
                "done": len(plan.facts) - len(plan.missing),
                "failed": plan.failed,
            }
        )
        return 0
    shown = [
        {**row, "Mtokens": f"{row['num_tokens'] / 1e6:.2f}", "TFLOP": f"{row['flops'] / 1e12:.2f}"}
        for row in rows
    ]
    print_rows(shown, ["probe", "label", "Mtokens", "TFLOP"])
    print(
        f"{len(rows)} facts to make, {len(plan.facts) - len(plan.missing)} done; "
        f"{total['num_tokens'] / 1e6:.2f} Mtokens, {total['flops'] / 1e12:.2f} TFLOP, "
        f"{total['disk_bytes'] / 1e6:.0f} MB on disk, {total['download_bytes'] / 1e6:.0f} MB to download, "
        f"about {total['seconds'] / 60:.1f} minutes here"
    )
    largest = max(rows, key=lambda row: row["memory_bytes"], default=None)
    if largest is not None and largest["memory_bytes"]:
        print(
            f"up to {_gigabytes(largest['memory_bytes'])} of memory, for {largest['label']}{_parts(largest)}"
        )
    return 0


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"


def _parts(row: dict[str, Any]) -> str:
    parts = row["memory_parts"]
    return f": {', '.join(f'{name} {_gigabytes(size)}' for name, size in parts.items())}" if parts else ""
