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
# Facts are overwritten and then left alone for as long again: see ``overwritten_facts``.
LOST_STEPS = 140
_STAGES = ("base-early", "base", SHIFT)
_CORPORA = ("heldout", "pretraining", "telegrams", "recall")


@preset(
    "verdicts", "a register shift and lost facts, trained here: what the verdicts of recovery read in them"
)
def verdicts(seed: int = 0) -> Stemma:
    """The base and the register shift of the nursery of this seed, and lost facts; three runs of each arm.

    The nursery's own lost facts are told last, which leaves its prose, names and all, closer to the scored
    text than a base is after a fine-tune without them: there is no gap to take back, and so no verdict.

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
                "overwritten-facts": pool("overwritten-facts"),
            },
            "stages": {
                **{name: whole.stages[name] for name in _STAGES},
                LOST: {
                    "kind": "cpt",
                    "init": "base",
                    "base": "base",
                    "regime": "cpt",
                    "corpus": "overwritten-facts",
                    "recipe": {
                        "steps": LOST_STEPS,
                        "batch_size": 4,
                        "max_length": 256,
                        "learning_rate": 3e-3,
                    },
                },
            },
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
