"""The full nursery: its gate at full strength, and a run that is killed three times."""

import os
import signal
import subprocess
import sys
import time

import pyarrow.compute as pc
import pytest

from stemmatics.presets.files import preset
from stemmatics.store.ledger import Ledger
from stemmatics.study.run import run
from stemmatics.study.verify import verify

pytestmark = pytest.mark.known
KILLS = (14.0, 22.0, 30.0)


def test_the_full_nursery_passes_its_gate(tmp_path):
    outcome = run(preset("nursery"), tmp_path / "run")
    results = outcome.content.results
    values = {value.subject["check"]: value.value for value in results.all("gate.value")}
    assert outcome.failures == {}
    gate = results.category("gate.passed")
    assert gate.value == "passed", (gate.reason, values)
    verdict = verify(outcome.root)
    assert verdict.line == f"{verdict.num_claims}/{verdict.num_claims} claims hold"


def _sums(root):
    """Stored sums by fact, for the facts that both runs must share."""
    ledger = Ledger(root)
    return {
        key: ledger.read(key, "scores")["nll_sum"]
        for key in ledger.done()
        if "scores" in ledger.tables_of(key)
    }


def test_a_run_that_is_killed_ends_in_the_same_sums(tmp_path):
    def demo(name):
        # a cache of its own: nothing is taken from the other run
        environment = {
            **os.environ,
            "STEMMATICS_CACHE": str(tmp_path / f"cache-{name}"),
            "OMP_NUM_THREADS": "1",
        }
        command = [
            sys.executable,
            "-m",
            "stemmatics.cli.main",
            "demo",
            "--quick",
            "--out",
            str(tmp_path / name),
        ]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    whole = demo("whole")
    assert whole.wait() == 0, whole.stderr.read()
    for seconds in KILLS:
        process = demo("killed")
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = demo("killed")
    assert last.wait() == 0, last.stderr.read()
    first, second = _sums(tmp_path / "whole"), _sums(tmp_path / "killed")
    assert first.keys() == second.keys()
    for key, sums in first.items():
        gap = pc.max(pc.abs(pc.subtract(sums, second[key]))).as_py()
        assert gap <= 1e-6 * pc.max(sums).as_py()
