"""The nursery's two planted cases of recovery, with all that a verdict needs: runs, second pool, items."""

from __future__ import annotations

from typing import Any

from stemmatics.core.presets import preset
from stemmatics.core.stemma import Stemma
from stemmatics.presets.nursery.preset import nursery
from stemmatics.presets.nursery.recovery import SCORING, nano

SHIFT, LOST = "register-shift", "lost-facts"
# At 64 updates a quarter of a register shift is left; at 256 of these a twentieth.
UPDATES, RUNS = 256, 3
# Documents of the first pool that suffice for so many updates.
POOL_DOCUMENTS = 4000
_STAGES = ("base-early", "base", SHIFT, LOST)
_CORPORA = ("heldout", "pretraining", "telegrams", "false-facts", "recall")


@preset(
    "verdicts", "a register shift and lost facts, trained here: what the verdicts of recovery read in them"
)
def verdicts(seed: int = 0) -> Stemma:
    """The base, the register shift and the lost facts of the nursery of this seed, three runs of each arm.

    The known answer: register-shift reads *register* over the whole text, and lost-facts *forgetting* in
    prose, the register in which its facts are told.
    """
    whole = nursery("demo", seed)

    def pool(part: str, **size: int) -> dict[str, Any]:
        return {"generator": "nursery", "params": {"part": part, "seed": seed, **size}, "role": "data"}

    return Stemma.model_validate(
        {
            "name": "verdicts",
            "seed": seed,
            "corpora": {
                **{name: whole.corpora[name] for name in _CORPORA},
                "recovery": pool("recovery", documents=POOL_DOCUMENTS),
                "scored-registers": pool("scored-registers"),
            },
            "stages": {name: whole.stages[name] for name in _STAGES},
            "scoring": whole.scoring,
            "measures": {
                "recovery": {
                    "pool": "recovery",
                    "second_pool": "scored-registers",
                    "recipe": nano(UPDATES),
                    "corpora": ["heldout"],
                    "scoring": SCORING,
                    "checkpoints": ["base", SHIFT, LOST],
                    "runs": RUNS,
                    "items": "recall",
                    "categories": ["recall"],
                }
            },
        }
    )
