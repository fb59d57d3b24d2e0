"""Facts about what an event's token does to the reply: each is forced, the descendant continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stemmatics.core.facts import Fact
from stemmatics.facts.events import FIRST
from stemmatics.facts.forced import FORCED
from stemmatics.lm.crossing.forced import forced_replies, validator
from stemmatics.probe.base import Context, Cost, FactOutput, Failed, each
from stemmatics.probe.costs import forward_cost
from stemmatics.probe.events import num_prompts
from stemmatics.probe.pairs import greedy_decoder
from stemmatics.probe.private import read_events
from stemmatics.probe.sources import load_merged, records_of


class Forced:
    """Judges the replies of the unmodified descendant after each of the two tokens."""

    def group(self, fact: Fact) -> str:
        """Batching key: one load per descendant."""
        return fact.needs["descendant"].key

    def cost(self, fact: Fact) -> Cost:
        """Two replies an event."""
        tokens = 2 * num_prompts(fact.needs["events"]) * int(fact.params["max_new_tokens"])
        return forward_cost(fact.needs["descendant"], tokens)

    def run(self, facts: Sequence[Fact], context: Context) -> Iterator[FactOutput | Failed]:
        """One row per event whose item has a rule; the replies are not stored."""
        decoder = greedy_decoder(load_merged(facts[0].needs["descendant"], context), context)

        def force(fact: Fact) -> FactOutput:
            items = list(records_of(fact.needs["corpus"])())
            rules = {index: validator(item, f"item {index}") for index, item in enumerate(items)}
            events = [
                event
                for event in read_events(fact.needs["events"], context)
                if event.support == FIRST and rules[event.prompt] is not None
            ]
            replies = forced_replies(decoder, events, max_new_tokens=int(fact.params["max_new_tokens"]))
            rows = []
            for event, (after_base, after_descendant) in zip(events, replies, strict=True):
                rule = rules[event.prompt]
                assert rule is not None, "events without a rule were left out"
                rows.append(
                    {
                        "event": event.event,
                        "index": event.prompt,
                        "category": str(items[event.prompt].get("category", "all")),
                        "valid_after_base": int(rule(after_base)),
                        "valid_after_descendant": int(rule(after_descendant)),
                    }
                )
            return FactOutput(fact, {"forced": FORCED.table("forced", rows)})

        yield from each(facts, force)
