"""What a whole run still has to do, as it is shown beside every line of progress."""

from stemmatics.cli import progress


def test_tokens_and_time_left_are_those_of_the_whole_run(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    left = progress.Remaining({"window": (1_000_000, 6e9), "sft": (2_000_000, 12e9), "asked": (500_000, 0.0)})
    assert left.text() == "3.50 Mtokens left"
    now[0] += 60.0
    left.done("window")
    # a third of the operations took a minute
    assert left.text() == "2.50 Mtokens left, about 2.0 min"
    left.done("no such fact")
    left.done("sft")
    left.done("asked")
    assert left.text() == "0.00 Mtokens left, about 0.0 min"
