"""A reader of runs needs no torch; who scores is told what to type; help imports nothing heavy."""

import json
import subprocess
import sys

HEAVY = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "accelerate",
    "safetensors",
    "tokenizers",
    "gguf",
    "sentencepiece",
    "tiktoken",
)

READING = """
import contextlib, io, json, sys
class NotInstalled:
    # not None in sys.modules: SciPy looks there whether it has to do with torch's arrays
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, NotInstalled())
# others ask first whether it could be imported
import importlib.util
true_find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in {heavy} else true_find_spec(name, package)
)
from stemmatics.cli.main import main

results = {{}}
for words in json.loads(sys.argv[1]):
    sys.argv = ["stemma", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as left:
            code = left.code
    results[" ".join(words[:1])] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(results))
"""

HELP = """
import contextlib, io, json, sys
sys.argv = ["stemma", "--help"]
from stemmatics.cli.main import main

with contextlib.redirect_stdout(io.StringIO()) as out:
    try:
        main()
    except SystemExit as left:
        assert left.code == 0
assert "Commands:" in out.getvalue()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def in_a_new_process(code, *args):
    ran = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_runs_are_read_without_torch_and_scoring_says_what_to_type(run_copy, tiny, tmp_path):
    sums = tmp_path / "sums.csv"
    sums.write_text("doc_id,num_tokens,old_none,new_none,old_b,new_b\na,9,8,9,8,9\nb,9,8,10,8,9\n")
    commands = [
        ["analyse", "prior", str(sums)],
        ["verify", str(run_copy)],
        ["show", str(run_copy), "scores"],
        ["export", str(run_copy), "--out", str(tmp_path / "out")],
        ["report", str(run_copy)],
        ["status", str(run_copy)],
        ["score", str(tiny / "base"), str(tiny / "a.jsonl")],
        ["compare", str(tiny / "base"), str(tiny / "tuned"), "--text", str(tiny / "a.jsonl")],
        ["tokens", str(tiny / "base"), str(tiny / "tuned"), "--text", str(tiny / "a.jsonl")],
        ["check", str(tiny / "base")],
    ]
    results = in_a_new_process(READING.format(heavy=HEAVY), json.dumps(commands))
    for name in ("verify", "show", "export", "report", "status", "analyse"):
        code, out, err = results[name]
        assert code == 0, (name, err)
        assert out, name
    assert results["verify"][1].splitlines()[-1].endswith("claims hold")
    for name in ("score", "compare", "tokens", "check"):
        code, out, err = results[name]
        assert (code, out) == (1, ""), name
        assert "pip install 'stemmatics[lm]'" in err, err
        assert len(err.splitlines()) == 1, err


def test_help_imports_nothing_heavy():
    loaded = set(in_a_new_process(HELP))
    unwanted = {*HEAVY, "pyarrow", "altair", "duckdb", "scipy", "pandas", "vl_convert", "jinja2"}
    assert not loaded & unwanted
