"""What a whole comparison costs: `stemma compare` against the two scorings alone.

SmolLM2-135M-Instruct and a descendant from which some updates were taken away (a negated task vector: a
descendant that lost, so that every floor has a loss to be matched to); the text is some 36 kB of the Python
language reference and of library sources. The two scorings are `stemma score` on each checkpoint,
its load included, one before and one after the comparison, which takes its turn between them, so that a
machine that slows down slows both sides. The comparison is everything that `stemma compare` does by default:
loss, prior and depth with their floors, the control of the scoring, pinning, estimates, page. The measures
are the seconds of their facts; the rest is printed beside them. Loads and passes are counted by checkpoint.

The last line is JSON; the exit status is 1 where a goal is missed.

Run: python benchmarks/compare.py
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from stemmatics.commands.compare import pair_stemma
from stemmatics.commands.score import score
from stemmatics.core.corpora import Corpus
from stemmatics.core.numerics import Numerics
from stemmatics.lm.checkpoints.loading import load, save
from stemmatics.lm.text.corpus import read
from stemmatics.presets.smollm2 import weights
from stemmatics.study import run as study
from stemmatics.study.readings import Readings

TEXT_BYTES, MOST_DOCUMENT_BYTES = 36_000, 2_000
UPDATES, ROWS, LENGTH = 8, 2, 256
# of the updates' sum, so much is added to the base
NEGATION = -1.0
# facts that are no measure's own: texts, weights, and the control of the scoring by a plain loop
APART = frozenset({"corpus", "weights", "reference"})
GOALS = {"measures": 4.0, "everything": 6.0}


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def write_text(path: Path) -> int:
    """Beginnings of held-out documents, a JSON line each; returns their number."""
    documents, size = [], 0
    for document in read(Corpus(generator="python", params={"part": "heldout"})):
        text = document.text.encode()[:MOST_DOCUMENT_BYTES].decode(errors="ignore")
        documents.append(json.dumps({"text": text}))
        size += len(text.encode())
        if size >= TEXT_BYTES:
            break
    path.write_text("\n".join(documents) + "\n", encoding="utf-8")
    return len(documents)


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Base and descendant as folders: the released weights, and the same less some updates."""
    loaded = load(str(weights()), Numerics(device="cpu"))
    save(loaded.model, loaded.tokenizer, folder / "base")
    model = loaded.model.train().requires_grad_(requires_grad=True)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-5)
    texts = read(Corpus(generator="python", params={"part": "training"}))
    stream = itertools.chain.from_iterable(loaded.tokenizer.encode(document.text) for document in texts)
    for _ in range(UPDATES):
        ids = torch.tensor(list(itertools.islice(stream, ROWS * LENGTH))).view(ROWS, LENGTH)
        model(ids, labels=ids).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(before[name] + NEGATION * (weight - before[name]))
    save(model.eval(), loaded.tokenizer, folder / "descendant")
    return folder / "base", folder / "descendant"


class Events:
    """Listens to a comparison: seconds by kind of fact, loads and passes by checkpoint."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.readings = Readings()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Count an event."""
        self.readings.event(event)
        if "seconds" in event:
            self.seconds[event["probe"]] += event["seconds"]


def main() -> int:
    """Time both sides, print, judge."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.jsonl"
        num_documents = write_text(text)
        base, descendant = (str(path) for path in write_pair(folder))
        events = Events()
        stemma = pair_stemma(base, descendant, [text])
        _, first = timed(lambda: score(base, text))
        outcome, whole = timed(lambda: study.run(stemma, folder / "run", on_event=events))
        _, second = timed(lambda: score(descendant, text))
    scorings = first + second
    measures = sum(spent for probe, spent in events.seconds.items() if probe not in APART)
    ratios = {"measures": measures / scorings, "everything": whole / scorings}
    missed = [name for name, goal in GOALS.items() if not ratios[name] <= goal]
    missed += [f"fact: {name}" for name in outcome.failures]
    print(f"{'two scorings':18} {scorings:8.1f} s ({first:.1f} and {second:.1f})")
    for probe, spent in events.seconds.most_common():
        print(f"{probe:18} {spent:8.1f} s {spent / scorings:8.2f} times")
    for what, spent in (("measures", measures), ("everything", whole)):
        print(f"{what:18} {spent:8.1f} s {ratios[what]:8.2f} times, goal {GOALS[what]:g}")
    for row in events.readings.rows():
        print(f"{row['stage']:30} {row['seconds']:8.1f} s, {row['times']} times")
    report = {
        "benchmark": "compare",
        "num_documents": num_documents,
        "threads": torch.get_num_threads(),
        "seconds_scorings": round(scorings, 2),
        "seconds_by_fact": {probe: round(spent, 2) for probe, spent in events.seconds.items()},
        "seconds": round(whole, 2),
        "readings": events.readings.rows(),
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "goals": GOALS,
        "missed": missed,
    }
    print(json.dumps(report))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
