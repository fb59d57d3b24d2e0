"""Results in formats of others: Every Eval Ever's aggregate JSON, and the Hub's ``.eval_results`` YAML."""

from __future__ import annotations

import io
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from stemmatics import __version__
from stemmatics.commands.show import Run, load_run
from stemmatics.core.errors import UserError
from stemmatics.core.results import Estimate

# quantities that have a better direction: True where lower is better
LOWER_IS_BETTER = {
    "loss.native.byte": True,
    "loss.native.token": True,
    "loss.delta.byte": True,
    "loss.delta.token": True,
    "divergence.kl": True,
    "divergence.kl_reverse": True,
    "divergence.js": True,
    "divergence.same_top1": False,
    "recovery.residual": True,
    "recovery.matched_base": True,
    "recovery.recovered": True,
    "axes.value": False,
}
SCHEMA = "every_eval_ever.schema.json"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WHO = ("checkpoint", "descendant")


def export_every_eval_ever(root: Path, out: Path, *, organization: str) -> tuple[list[Path], int]:
    """Write ``OUT/CHECKPOINT.json`` for each checkpoint that has results; also how many were left out.

    One file an evaluated checkpoint, as schema version 0.3.0 has it: value, standard error, interval, level,
    method and the number of resampled units. Quantities without a better direction, controls, floors and
    unknown values are left out. Rows of documents are not written: a run holds no text.

    Raises UserError where the run has no such result, and where a file would not follow the schema.
    """
    run = load_run(root)
    by_checkpoint: dict[str, list[Estimate]] = {}
    left_out = 0
    for estimate in run.estimates.values():
        name = next((estimate.subject[who] for who in _WHO if who in estimate.subject), None)
        if name is None or not _has_score(estimate):
            left_out += 1
        else:
            by_checkpoint.setdefault(name, []).append(estimate)
    if not by_checkpoint:
        raise UserError(
            f"{root} has no result to export",
            "no known estimate of it has a better direction",
            f"Quantities that have one: {', '.join(LOWER_IS_BETTER)}",
        )
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, estimates in by_checkpoint.items():
        record = _record(run, name, estimates, organization)
        _validate(record)
        path = out / f"{_file_name(name)}.json"
        path.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        paths.append(path)
    return paths, left_out


def _has_score(estimate: Estimate) -> bool:
    is_main = estimate.tag == "main" and estimate.quantity in LOWER_IS_BETTER
    return is_main and math.isfinite(estimate.value)


def _record(run: Run, name: str, estimates: Sequence[Estimate], organization: str) -> dict[str, Any]:
    now = str(int(time.time()))
    model = _model(run, name)
    return {
        "schema_version": "0.3.0",
        "evaluation_id": f"stemmatics/{model['id']}/{now}",
        "retrieved_timestamp": now,
        "source_metadata": {
            "source_name": "stemmatics",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "other",
            "additional_details": {"run_digest": str(run.manifest["digest"])},
        },
        "eval_library": {"name": "stemmatics", "version": __version__},
        "model_info": model,
        "evaluation_results": [_result(run, estimate) for estimate in estimates],
    }


def _model(run: Run, name: str) -> dict[str, Any]:
    declared = run.manifest["stemma"].get("checkpoints", {}).get(name, {})
    source = str(declared.get("source") or "").partition("@")[0]
    on_hub = _HUB_NAME.fullmatch(source) is not None and not Path(source).exists()
    pinned = run.manifest["pins"].get("checkpoints", {}).get(name, {})
    details = {
        "deployment_type": "self_deployed",
        "model_availability": "open_weights" if on_hub else "unknown",
        "name_in_run": name,
    }
    if pinned.get("weights"):
        details["weights_sha256"] = str(pinned["weights"])
    model = {"name": name, "id": source if on_hub else name, "additional_details": details}
    if declared.get("lab"):
        model["developer"] = str(declared["lab"])
    return model


def _result(run: Run, estimate: Estimate) -> dict[str, Any]:
    subject = dict(estimate.subject)
    bounded = estimate.units.startswith("share")
    details = {"score": estimate.value, "details": {name: str(value) for name, value in subject.items()}}
    uncertainty = _uncertainty(estimate)
    if uncertainty:
        details["uncertainty"] = uncertainty
    return {
        "evaluation_result_id": estimate.id,
        "evaluation_name": " ".join(
            filter(None, [estimate.quantity, subject.get("corpus"), subject.get("register")])
        ),
        "source_data": _source(run, subject.get("corpus", "")),
        "metric_config": {
            "metric_id": f"stemmatics.{estimate.quantity}",
            "metric_name": estimate.quantity,
            "metric_unit": estimate.units or "1",
            "lower_is_better": LOWER_IS_BETTER[estimate.quantity],
            "score_type": "continuous",
            "min_score": 0.0 if bounded or not estimate.quantity.startswith("loss.delta") else "-Infinity",
            "max_score": 1.0 if bounded else "Infinity",
        },
        "score_details": details,
    }


def _uncertainty(estimate: Estimate) -> dict[str, Any]:
    """The interval with its level and method; nothing where it is unknown."""
    if not (math.isfinite(estimate.lo) and math.isfinite(estimate.hi)):
        return {}
    interval = {
        "lower": estimate.lo,
        "upper": estimate.hi,
        "confidence_level": estimate.level,
        "method": f"{estimate.method}, over {estimate.unit}s",
    }
    return {"confidence_interval": interval, "num_samples": estimate.n}


def _source(run: Run, corpus: str) -> dict[str, Any]:
    declared = run.manifest["stemma"].get("corpora", {}).get(corpus, {})
    if not declared.get("dataset"):
        return {"dataset_name": corpus or "none", "source_type": "other"}
    source = {"dataset_name": corpus, "source_type": "hf_dataset", "hf_repo": str(declared["dataset"])}
    if declared.get("dataset_split"):
        source["hf_split"] = str(declared["dataset_split"])
    return source


def _validate(record: Mapping[str, Any]) -> None:
    """Raise UserError where a record does not follow the vendored schema."""
    from jsonschema import Draft202012Validator

    schema = json.loads((files("stemmatics.commands") / "schemas" / SCHEMA).read_text(encoding="utf-8"))
    problem = next(iter(Draft202012Validator(schema).iter_errors(record)), None)
    if problem is not None:
        raise UserError(
            "a record does not follow the schema of Every Eval Ever",
            f"{'/'.join(map(str, problem.absolute_path))}: {problem.message}",
            "Report this as a bug of stemmatics",
        )


def export_eval_results(root: Path, out: Path, benchmarks: Sequence[str]) -> list[Path]:
    """Write ``OUT/CHECKPOINT/.eval_results/TASK.yaml``, to be put in the checkpoints' repositories.

    Args:
        root: the run.
        out: the folder.
        benchmarks: ``DATASET:TASK=QUANTITY[/CORPUS]``, such as ``cais/hle:default=axes.value/hle``: which
            results are the score of which benchmark. The Hub shows a score only for a dataset that it lists
            as a benchmark; which ones it lists is known there alone.

    Raises UserError for another form, and where the run has no such result.
    """
    run = load_run(root)
    by_checkpoint: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for benchmark in benchmarks:
        dataset, task, quantity, corpus = _parsed(benchmark)
        matching = [
            estimate
            for estimate in run.estimates.values()
            if estimate.quantity == quantity
            and corpus in ("", estimate.subject.get("corpus"))
            and estimate.subject.get("register", "all") == "all"
            and math.isfinite(estimate.value)
        ]
        if not matching:
            raise UserError(
                f"the run has no {quantity} on {corpus or 'any corpus'}",
                f"{benchmark!r} names it",
                f"`stemma show {root}` lists what there is",
                code=2,
            )
        for estimate in matching:
            name = next((estimate.subject[who] for who in _WHO if who in estimate.subject), None)
            if name is not None:
                by_checkpoint.setdefault(name, []).append((task, _entry(run, estimate, dataset, task)))
    return list(_written(out, by_checkpoint))


def _parsed(benchmark: str) -> tuple[str, str, str, str]:
    match = re.fullmatch(r"([^:=]+/[^:=]+):([^:=]+)=([^/=]+)(?:/(.+))?", benchmark)
    if match is None:
        raise UserError(
            f"{benchmark!r} is not a benchmark and its result",
            "the form is DATASET:TASK=QUANTITY[/CORPUS]",
            "Give cais/hle:default=axes.value/hle, say",
            code=2,
        )
    dataset, task, quantity, corpus = match.groups()
    return dataset, task, quantity, corpus or ""


def _entry(run: Run, estimate: Estimate, dataset: str, task: str) -> dict[str, Any]:
    notes = f"stemmatics {__version__}, {estimate.quantity}"
    if math.isfinite(estimate.lo) and math.isfinite(estimate.hi):
        notes += (
            f", {estimate.level:.0%} [{estimate.lo:.4g}, {estimate.hi:.4g}] ({estimate.method}, "
            f"n = {estimate.n} {estimate.unit}s)"
        )
    return {
        "dataset": {"id": dataset, "task_id": task},
        "value": estimate.value,
        "notes": f"{notes}, run {run.manifest['digest'][:12]}",
    }


def _written(out: Path, by_checkpoint: Mapping[str, list[tuple[str, dict[str, Any]]]]) -> Iterator[Path]:
    writer = YAML()
    writer.width = 100
    for name, entries in by_checkpoint.items():
        folder = out / _file_name(name) / ".eval_results"
        folder.mkdir(parents=True, exist_ok=True)
        for task in dict.fromkeys(task for task, _ in entries):
            stream = io.StringIO()
            writer.dump([entry for other, entry in entries if other == task], stream)
            path = folder / f"{_file_name(task)}.yaml"
            path.write_text(stream.getvalue(), encoding="utf-8")
            yield path


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).strip(".") or "_"
