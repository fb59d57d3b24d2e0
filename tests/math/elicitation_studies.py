"""The simulations behind docs/statistics.md, "Recipes": ``python -m tests.math.elicitation_studies``."""

import sys

import numpy as np

from stemmatics.math.elicitation.ceiling import ceiling_interval, estimate_ceilings, interval_of, judge_gain
from stemmatics.math.elicitation.components import variance_components
from stemmatics.math.elicitation.order import order_recipes

NAMES = ["item", "recipe", "checkpoint", "seed"]
HALF_WIDTHS = {
    ("item",): 0.25, ("recipe",): 0.05, ("checkpoint",): 0.05, ("item", "recipe"): 0.1,
    ("recipe", "checkpoint"): 0.02,
}  # fmt: skip
NUM_ITEMS, NUM_RESAMPLES = 200, 300
ZERO = np.zeros(6)
VERDICTS = {
    "nothing changed": (ZERO, ZERO, 0),
    "nothing changed, claim at the largest gain": (ZERO, ZERO, None),
    "gain .12 at one recipe, equal best recipes": (np.r_[0, np.full(5, 0.12)], np.full(6, 0.12), 0),
    "gain .1 everywhere": (ZERO, np.full(6, 0.1), 0),
    "gain .1 everywhere, claim at the largest gain": (ZERO, np.full(6, 0.1), None),
    "gain .2 at one recipe, ceiling up by half": (np.r_[0, 0.1, ZERO[2:]], np.r_[0.2, ZERO[1:]], 0),
}
CEILINGS = {
    "equal": (np.zeros(8), np.zeros(8)),
    "spread over -.06 to .06": (np.linspace(-0.06, 0.06, 8), np.linspace(-0.06, 0.06, 8)),
    "equal, then one at .1": (np.zeros(8), np.r_[0.1, np.zeros(7)]),
    "one at .1, then two": (np.r_[0, 0.1, np.zeros(6)], np.r_[0.1, 0.1, np.zeros(6)]),
}


def simulated_answers(sizes, rng):
    """Right and wrong answers whose probability is a sum of independent uniform effects."""
    probability = np.full(sizes, 0.5)
    for chosen, half_width in HALF_WIDTHS.items():
        shape = [size if name in chosen else 1 for name, size in zip(NAMES, sizes, strict=True)]
        probability = probability + rng.uniform(-half_width, half_width, shape)
    return (rng.random(sizes) < probability).astype(float)


def known_components(sizes):
    """The components of ``simulated_answers``; others are 0."""
    known = {chosen: half_width**2 / 3 for chosen, half_width in HALF_WIDTHS.items()}
    top = tuple(name for name, size in zip(NAMES, sizes, strict=True) if size > 1)
    return known | {top: 0.25 - sum(known.values())}


def component_study(make, known, *, repeats, rng, num_draws):
    """By factors: the estimates and the share of intervals that cover."""
    values, covered = {}, {}
    for _ in range(repeats):
        for c in variance_components(make(rng), NAMES, rng=rng, num_draws=num_draws):
            values.setdefault(c.factors, []).append(c.interval.value)
            inside = c.interval.lo <= known.get(c.factors, 0.0) <= c.interval.hi
            covered[c.factors] = covered.get(c.factors, 0) + inside / repeats
    return values, covered


def skewed_table(rng):
    """Exponential effects of everything, 200 x 8 x 6."""
    table = np.zeros((200, 8, 6, 1))
    for chosen, variance in SKEWED.items():
        shape = [size if name in chosen else 1 for name, size in zip(NAMES, table.shape, strict=True)]
        table = table + variance**0.5 * (rng.exponential(size=shape) - 1)
    return table


SKEWED = {
    ("item",): 1, ("recipe",): 0.05, ("checkpoint",): 0.1, ("item", "recipe"): 0.3,
    ("item", "checkpoint"): 0.2, ("recipe", "checkpoint"): 0.04, ("item", "recipe", "checkpoint"): 0.5,
}  # fmt: skip


def simulated_recipes(shifts, num_items, rng):
    """[I, R, C] answers; difficulties are beta, and each recipe of each checkpoint has its shift."""
    difficulty = rng.beta(0.7, 0.7, num_items) * 0.6 + 0.2
    probability = difficulty[:, None, None] + np.stack(shifts, axis=-1)
    return (rng.random(probability.shape) < probability).astype(float)


def chosen_by_half(shift, rng, repeats=4000):
    """The mean accuracy of the recipe that half as many new items choose."""
    accuracies = []
    for _ in range(repeats):
        means = simulated_recipes([shift], NUM_ITEMS // 2, rng).mean(axis=0)[:, 0]
        accuracies.append(0.5 + shift[means >= means.max() - 1e-12].mean())
    return np.mean(accuracies)


def ceiling_study(first, second, *, repeats, rng):
    """Coverage of a ceiling and of the difference of two, and the mean of the largest mean."""
    truths = [chosen_by_half(shift, rng) for shift in (first, second)]
    covered, naive = np.zeros(2), []
    for _ in range(repeats):
        scores = simulated_recipes((first, second), NUM_ITEMS, rng)
        ceilings = estimate_ceilings(scores, rng=rng, num_resamples=NUM_RESAMPLES)
        one = ceiling_interval(ceilings, 0)
        change = interval_of(
            float(np.diff(ceilings.values_C)[0]), np.diff(ceilings.replicates_BC)[:, 0], ceilings
        )
        covered += [one.lo <= truths[0] <= one.hi, change.lo <= truths[1] - truths[0] <= change.hi]
        naive.append(ceilings.naive_C[0])
    return truths, covered / repeats, np.mean(naive)


def verdict_study(first, second, recipe, *, repeats, rng):
    """How often each verdict is given; without a recipe, at the one with the largest gain of the table."""
    counts = {}
    for _ in range(repeats):
        scores = simulated_recipes((first, second), NUM_ITEMS, rng)
        ceilings = estimate_ceilings(scores, rng=rng, num_resamples=NUM_RESAMPLES)
        claimed = int(np.diff(ceilings.means_RC)[:, 0].argmax()) if recipe is None else recipe
        verdict = judge_gain(ceilings, claimed, 0, 1).verdict
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts


def main():
    """Print every number of the section."""
    rng = np.random.default_rng(0)
    write = sys.stdout.write
    for sizes in ((150, 6, 5, 2), (100, 8, 5, 1), (60, 6, 5, 3)):
        make = lambda rng, sizes=sizes: simulated_answers(sizes, rng)  # noqa: E731
        _, covered = component_study(make, known_components(sizes), repeats=400, rng=rng, num_draws=2000)
        write(f"{sizes}: coverage {min(covered.values()):.3f} to {max(covered.values()):.3f}\n")
    _, covered = component_study(skewed_table, SKEWED, repeats=400, rng=rng, num_draws=2000)
    write(f"skewed: { {' x '.join(k): round(v, 3) for k, v in covered.items()} }\n")
    for name, shifts in CEILINGS.items():
        truths, covered, naive = ceiling_study(*shifts, repeats=300, rng=rng)
        write(f"{name}: truth {np.round(truths, 3)}, coverage {covered}, largest mean {naive:.3f}\n")
        sys.stdout.flush()
    for name, case in VERDICTS.items():
        write(f"{name}: {verdict_study(*case, repeats=400, rng=rng)}\n")
        sys.stdout.flush()
    left = 0
    for _ in range(1000):
        left += len(order_recipes(simulated_recipes([ZERO], NUM_ITEMS, rng)[:, :, 0], rng=rng).top_group) < 6
    write(f"of 6 equal recipes one leaves the top group: {left / 1000}\n")


if __name__ == "__main__":
    main()
