"""Mutation testing of ``math/`` and ``measure/``: a seeded sample of small faults; a test must find each.

``python -m tests.mutants --sample 300`` (``make mutants``) prints a line a mutant and the share that was
killed; exit status 1 below ``--goal``. Mutants come from cosmic-ray's operators, without those that only
break types (shifts, bit operations) and without annotations, which never run. Each mutant is tested by the
tests that run its line, as coverage recorded them, the quickest first; a default value
or a constant by the tests of its function or file.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import mutate_code

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "stemmatics"
ROOMS = ("math", "measure")
# the tests whose coverage is recorded, the quick ones first
SUITES = ("tests/math", "tests/measure", "tests/study", "tests/report")
TIMEOUT = 240.0
_ARITHMETIC = "Add|Sub|Mul|Div"
_COMPARISON = "Eq|NotEq|Lt|LtE|Gt|GtE"
OPERATORS = [
    name
    for name in plugins.operator_names()
    if re.fullmatch(
        rf"core/(ReplaceBinaryOperator_({_ARITHMETIC})_({_ARITHMETIC})"
        rf"|ReplaceComparisonOperator_({_COMPARISON})_({_COMPARISON})|ReplaceComparisonOperator_Is(Not)?_Is(Not)?"
        r"|ReplaceUnaryOperator_(USub_UAdd|Delete_USub|Delete_Not)|AddNot|ReplaceTrueWithFalse"
        r"|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue"
        r"|ReplaceContinueWithBreak|NumberReplacer|ZeroIterationForLoop)",
        name,
    )
]


# faults that no test found once: what they do, file, text, and the faulty text, with the tests that find them
KNOWN = [
    (
        "the floor's label taken from the wrong kind of noise",
        "measure/prior/floors.py",
        "LABEL_KIND = CENTRED",
        "LABEL_KIND = NOISE_KINDS[0]",
        "tests/measure/test_prior.py",
    ),
    (
        "a verdict from runs that all came out alike",
        "measure/recovery/verdict.py",
        "math.sqrt(squares / degrees) if squares else math.nan",
        "math.sqrt(squares / degrees)",
        "tests/measure/test_recovery_verdict.py",
    ),
    (
        "the sqrt(2) of two releases dropped",
        "measure/recovery/uncertainty.py",
        "* spread * math.sqrt(2)",
        "* spread",
        "tests/measure",
    ),
    (
        "the second bar dropped in what is distinguished",
        "measure/recovery/resolution.py",
        "bar_M[first] ** 2 + bar_M[second] ** 2 + paired_P**2",
        "bar_M[first] ** 2 + paired_P**2",
        "tests/measure/test_recovery_resolution.py",
    ),
    (
        "the base arm ignored in what a second pool moves",
        "measure/recovery/pairs.py",
        "(descendant.second_N - base.second_N) - first_N",
        "descendant.second_N - first_N",
        "tests/measure/test_recovery_pairs.py",
    ),
    (
        "the signed permutation without signs",
        "lm/crossing/cells.py",
        "np.array([-1.0, 1.0], dtype=np.float32)",
        "np.array([1.0, 1.0], dtype=np.float32)",
        "tests/lm",
    ),
    (
        "Shapley parts from the wrong share",
        "measure/prior/estimate.py",
        "(pair.net_gain(arm) for arm in HEADLINE)",
        "(pair.new.gain(arm) for arm in HEADLINE)",
        "tests/measure/test_prior.py",
    ),
    (
        "the Bayesian weights square-rooted",
        "math/prior/refit.py",
        "return num_documents * rng.dirichlet(np.ones(num_documents), size=num_replicates)",
        "return np.sqrt(num_documents * rng.dirichlet(np.ones(num_documents), size=num_replicates))",
        "tests/math",
    ),
]


@dataclass(frozen=True)
class Mutant:
    """One fault: the occurrence of an operator in a file, and the line that it changes."""

    path: str
    operator: str
    occurrence: int
    line: int


@dataclass(frozen=True)
class Outcome:
    """``killed``, ``survived``, ``timeout`` (counts as killed) or ``no test``, with the changed line."""

    mutant: Mutant
    status: str
    seconds: float
    before: str
    after: str


def candidates(path):
    """Every mutant of a file."""
    source = path.read_text(encoding="utf-8")
    skipped = _annotations(source)
    tree = get_ast(source)
    found = []
    for name in OPERATORS:
        operator = plugins.get_operator(name)()
        occurrence = 0
        for node in _walk(tree):
            for start, _stop in operator.mutation_positions(node):
                if not any(low <= start < high for low, high in skipped):
                    found.append(Mutant(str(path.relative_to(SOURCE)), name, occurrence, start[0]))
                occurrence += 1
    return found


def sample(mutants, size, seed):
    """A seeded sample of those that are valid Python."""
    shuffled = random.Random(seed).sample(mutants, len(mutants))
    kept = []
    for mutant in shuffled:
        if len(kept) == size:
            break
        try:
            compile(mutated_source(mutant), mutant.path, "exec")
        except SyntaxError:
            continue
        kept.append(mutant)
    return kept


def mutated_source(mutant):
    """The file with the fault."""
    source = (SOURCE / mutant.path).read_text(encoding="utf-8")
    return mutate_code(source, plugins.get_operator(mutant.operator)(), mutant.occurrence)


def _walk(node):
    yield node
    for child in getattr(node, "children", ()):
        yield from _walk(child)


def _annotations(source):
    """Ranges (start, end) of annotations and type aliases, which never run as arithmetic."""
    ranges = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            ranges.append(_range(node.annotation))
        elif isinstance(node, ast.FunctionDef) and node.returns is not None:
            ranges.append(_range(node.returns))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "TypeVar", "cast"}:
            ranges += [_range(argument) for argument in node.args[1:]]
    return ranges


def _range(node):
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def record_coverage(folder):
    """Which tests run which line: (path below the package, line) -> test ids; and each test's seconds."""
    data = folder / "coverage.db"
    settings = folder / "coverage.ini"
    settings.write_text(
        f"[run]\ndata_file = {data}\nsource_pkgs = stemmatics\ndynamic_context = test_function\n"
    )
    durations = folder / "durations.txt"
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *SUITES]
    command += ["-m", "not known", "-q", "--durations=0", "--durations-min=0.0", "-p", "no:cacheprovider"]
    with durations.open("w") as stream:
        subprocess.run(command, cwd=ROOT, stdout=stream, check=False)
    text = durations.read_text()
    if " failed" in text or " error" in text:
        sys.exit(f"the tests must pass before mutants are tried:\n{text[-2000:]}")
    seconds = Counter()
    for spent, test in re.findall(r"^\s*([\d.]+)s (?:call|setup)\s+(\S+)", text, re.MULTILINE):
        seconds[test.partition("[")[0]] += float(spent)
    return _tests_by_line(data, seconds), seconds


def _tests_by_line(data, seconds):
    from coverage.numbits import numbits_to_nums

    by_context = {test.replace("/", ".").replace(".py::", ".").replace("::", "."): test for test in seconds}
    found = {}
    with sqlite3.connect(data) as base:
        rows = base.execute(
            "select file.path, context.context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, numbits in rows:
            test = by_context.get(context)
            if test is not None and "/stemmatics/" in path:
                below = path.rpartition("/stemmatics/")[2]
                for line in numbits_to_nums(numbits):
                    found.setdefault((below, line), set()).add(test)
    return found


def chosen_tests(mutant, tests_by_line, seconds):
    """The tests that run a mutant's line, quickest suites and tests first.

    A default value or a constant runs once, at the import: its tests are those of the function or file.
    """
    tests = tests_by_line.get((mutant.path, mutant.line), set())
    if not tests:
        lines = _lines_of_function(mutant)
        tests = set().union(
            *(
                of_line
                for (path, line), of_line in tests_by_line.items()
                if path == mutant.path and (lines is None or line in lines)
            )
        )

    def rank(test):
        suite = next(number for number, name in enumerate(SUITES) if test.startswith(name))
        return suite, seconds[test]

    return sorted(tests, key=rank)


def _lines_of_function(mutant):
    """The lines of the innermost function that holds a mutant; None for a constant of the file."""
    source = (SOURCE / mutant.path).read_text(encoding="utf-8")
    functions = [
        range(node.lineno, node.end_lineno + 1)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= node.end_lineno
    ]
    return min(functions, key=len, default=None)


def try_mutant(mutant, tests, copy):
    """Run the tests on a copy of the package that has the fault."""
    original = (SOURCE / mutant.path).read_text(encoding="utf-8")
    mutated = mutated_source(mutant)
    before, after = _changed(original, mutated)
    if not tests:
        return Outcome(mutant, "no test", 0.0, before, after)
    target = copy / "src" / "stemmatics" / mutant.path
    target.write_text(mutated, encoding="utf-8")
    started = time.monotonic()
    try:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--no-header",
            *tests,
        ]
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        ran = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        )
        status = "survived" if ran.returncode == 0 else "killed"
    except subprocess.TimeoutExpired:
        status = "timeout"
    finally:
        target.write_text(original, encoding="utf-8")
    return Outcome(mutant, status, time.monotonic() - started, before, after)


def try_known(copy):
    """Names of the known faults that no test finds."""
    survivors = []
    for name, path, before, after, tests in KNOWN:
        target = copy / "src" / "stemmatics" / path
        original = target.read_text(encoding="utf-8")
        assert original.count(before) == 1, f"{path} no longer reads {before!r}: bring the list up to date"
        target.write_text(original.replace(before, after), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-m",
            "not known",
            "-p",
            "no:cacheprovider",
            tests,
        ]
        ran = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        target.write_text(original, encoding="utf-8")
        killed = ran.returncode == 1 and "FAILED" in ran.stdout
        print(f"{'killed' if killed else 'survived':9} {name}", flush=True)
        survivors += [] if killed else [name]
    return survivors


def _changed(original, mutated):
    for before, after in zip(original.splitlines(), mutated.splitlines(), strict=False):
        if before != after:
            return before.strip(), after.strip()
    return "", ""


def make_copy(folder):
    """The package and its tests, to be changed freely."""
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def run(mutants, tests_by_line, seconds, *, workers):
    """Outcomes of all mutants; each worker has its own copy."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        copies = [make_copy(Path(scratch) / str(number)) for number in range(workers)]
        free = list(copies)

        def attempt(mutant):
            copy = free.pop()
            try:
                return try_mutant(mutant, chosen_tests(mutant, tests_by_line, seconds), copy)
            finally:
                free.append(copy)

        with ThreadPoolExecutor(workers) as pool:
            for outcome in pool.map(attempt, mutants):
                where = f"{outcome.mutant.path}:{outcome.mutant.line}"
                print(f"{outcome.status:9} {outcome.seconds:5.1f} s  {where}  {outcome.after}", flush=True)
                yield outcome


def main():
    """Sample, run, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--goal", type=float, default=0.85)
    parser.add_argument("--under", default="", help="only files whose path starts so, e.g. measure/prior")
    parser.add_argument("--known", action="store_true", help="only the faults that no test found once")
    parser.add_argument("--json", type=Path, help="write all outcomes there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        survivors = try_known(make_copy(Path(scratch) / "known"))
    if given.known or survivors:
        sys.exit(bool(survivors))
    files = sorted(path for room in ROOMS for path in (SOURCE / room).rglob("*.py"))
    everything = [
        mutant
        for path in files
        if str(path.relative_to(SOURCE)).startswith(given.under)
        for mutant in candidates(path)
    ]
    mutants = sample(everything, given.sample, given.seed)
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        tests_by_line, seconds = record_coverage(Path(folder))
    outcomes = list(run(mutants, tests_by_line, seconds, workers=given.workers))
    if given.json:
        given.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    counts = Counter(outcome.status for outcome in outcomes)
    share = (counts["killed"] + counts["timeout"]) / len(outcomes)
    print(f"\n{len(everything)} mutants, {len(outcomes)} tried: {dict(counts)}; killed {share:.1%}")
    for outcome in outcomes:
        if outcome.status in {"survived", "no test"}:
            where = f"{outcome.mutant.path}:{outcome.mutant.line}"
            print(f"{outcome.status}: {where}: {outcome.before}  ->  {outcome.after}")
    sys.exit(share < given.goal)


if __name__ == "__main__":
    main()
