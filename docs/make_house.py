"""Write docs/house.md: how large the code is, and how much of it one update runs, beside the goals of its design.

    python docs/make_house.py    (half a minute)

Lines are those of the files as they are; the files that an update runs are noted by a profiler in a process of its own.
The figures of the start are of commit e37fb9f3 (23 November 2026), counted in the same way.
"""

from __future__ import annotations

import ast
import datetime
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "house.md"
PRODUCT = ("streamgp", "pipelines", "cli")
LONG_FUNCTION, LONG_CLASS = 60, 400
START = {  # what the page shows -> at the start, goal
    "streamgp, without papers/": ("46,690", "31,000"),
    "streamgp/papers": ("-", "not counted"),
    "streamgp_data": ("within streamgp: 10,694", "12,600"),
    "streamgp_pipelines": ("23,285", "18,800"),
    "streamgp_cli": ("2,297", "2,200"),
    "product, without papers/": ("72,272", "62,000"),
}
FILES = {"svdgp": 17, "qsgp": 30, "gp_lstm": 38, "ensemble": 29, "train --online": 119}
"""What runs -> files that it ran at the start."""
OPTIONS = {"of commands": 249, "of models": 380, "of parts": 67}
"""Options -> how many there were at the start."""
WORDS = {"behind": 286, "goes on": 42, "so many": 69}
"""Words that a sentence should do without -> lines of Python that had them at the start."""
REASONS = {
    "Forecaster": "the user's class: more than half is docstrings and typed arguments",
    "Learner": "one order of steps, for panels and fleets alike; its parts are in files of their own",
    "Bands": "one distribution; shape, volatility, point masses, outages and caps are in files of their own",
    "GradientPosterior": "one posterior, whose bases, steps and priors share the optimiser and its average",
    "IngestionRun": "reads one source into the table, and keeps the position, the counts and the report of that run",
    "StreamModel": "the shell of every family, in place of one in each",
    "Asking": "one question: lags, seasons, known inputs and what stands in for missing ones look at the same rows",
    "Windows": "the state of a stream, which every row passes",
}
"""Class -> why it is longer than LONG_CLASS lines."""
STATES = {
    "Arrivals": "waiting rows are Arrow data",
    "Collector": "what another one continues from: the states of its two parts",
    "Curves": "lists of numbers are one table of tensors, by the names of the curves",
    "DirectFleet": "stacks of series, by which inputs they know of",
    "DirectRegression": "its sums have the shapes of what the first rows say",
    "Faults": "the owner says how many series there are",
    "Generations": "declared, but made for the generations that a state has",
    "LastKnown": "the owner says how many series there are",
    "Ledger": "open questions alone, without the free slots between them; 11 checks",
    "LostInputs": "the owner says how many series there are; nothing where no input was ever missing",
    "NewestScored": "parts are joined first, and cut to what is kept",
    "PartialBatches": "waiting rows are Arrow data",
    "PhaseRegression": "made from the penalties in a state",
    "PooledPrior": "as many roots as there are generations",
    "PooledRegression": "as many sums as wait",
    "Separate": "tensors of models of one shape are stacked",
    "SeriesNames": "names of series, which the windows take",
    "Stacked": "declared, but for symmetric matrices, half of which are kept",
    "Tail": "rows are Arrow data",
    "TruthsApart": "JSON alone, by series and step",
    "WarmUp": "windows that wait, some parts of which may be missing",
    "Windows": "series that there are, without the room for more",
}
"""Class -> why its state is written by hand."""
GROWTH = {
    "systems of the papers: `qsgp`'s quadruple solver, `kiss_cg`, transfer, Algorithm 1, `wiski`, QSRVM, SCGD "
    "(partly in papers/)": 6800,
    "reading: columns of hours, dates in two columns, units, headers, several series in a file, dubious numbers": 5100,
    "streams as they are: outages, lost inputs, spikes, sentinels, events, caps, short streams, new regimes": 3800,
    "Python: `Forecaster` for users of data frames, scikit-learn, kernels and terms in the columns' units": 2700,
    "alarms, report, live page, peers of `compare`, checks": 2400,
    "the steps of the design, and smaller changes": 3100,
}
"""Subject of changes since the start -> lines of the product that they added, less those that they took away."""
NO_REASON = "**none is given**"
PROBE = """
import sys, threading, warnings
from pathlib import Path
warnings.simplefilter("ignore")
root, what, folder = sys.argv[1:]
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
found = set()
def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1 and frame.f_code.co_filename.startswith(root):  # no module's body
        found.add(frame.f_code.co_filename)
def begin():
    threading.setprofile(note)
    sys.setprofile(note)
y = torch.sin(torch.arange(1000.0, dtype=torch.float64) / 5) + 0.1 * torch.randn(1000, dtype=torch.float64)
if what == "train --online":
    from typer.testing import CliRunner
    from streamgp_cli.app import app
    def run(*words):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    path = Path(folder) / "a.csv"
    path.write_text("ds,y\\n" + "".join(f"{row},{float(v)}\\n" for row, v in enumerate(y)))
    run("ingest", str(path), "--table", f"{folder}/table", "--time", "ds")
    begin()
    run("train", "--table", f"{folder}/table", "--target", "y", "--online", "--checkpoint", f"{folder}/saved",
        "--tracking-uri", "none")
else:
    from streamgp import registry
    from streamgp.base import Inputs, Shape
    module = registry.load("models", what)
    model = module.build(module.Config(), Shape(targets=("y",), horizon=2, lags=4, past=("y",), future=()))
    x = torch.stack([y[i : i + 4] for i in range(332)])[..., None]
    inputs = lambda a, b: Inputs(past=x[a:b], future=torch.zeros(b - a, 2, 0, dtype=torch.float64))
    truth = torch.stack([y[i + 4 : i + 6] for i in range(332)])
    for _ in model.fit(inputs(0, 300), truth[:300], 2): pass
    begin()
    model.update(inputs(300, 332), truth[300:])
sys.setprofile(None)
own = [name for name in sys.modules if name.partition(".")[0].startswith("streamgp")]
print("@", len(found), len(own))
"""


def sources(*tops: str) -> list[Path]:
    """The Python files below these folders."""
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def lines(paths: Sequence[Path]) -> int:
    """Lines of these files."""
    return sum(path.read_text("utf-8").count("\n") for path in paths)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    shown = [[f"{one:,}" if isinstance(one, int) else str(one) for one in row] for row in rows]
    return "\n".join(f"|{'|'.join(row)}|" for row in [list(columns), ["-"] * len(columns), *shown])


def sizes() -> list[list[object]]:
    """Rows of the table of lines."""
    papers = lines(sources("streamgp/papers"))
    counted = {
        "streamgp, without papers/": lines(sources("streamgp")) - papers,
        "streamgp/papers": papers,
        "streamgp_data": lines(sources("pipelines/streamgp_data")),
        "streamgp_pipelines": lines(sources("pipelines/streamgp_pipelines")),
        "streamgp_cli": lines(sources("cli")),
        "product, without papers/": lines(sources(*PRODUCT)) - papers,
    }
    rest = [[name, "", "", lines(sources(name))] for name in ("tests", "benchmarks")]
    return [[name, *START[name], today] for name, today in counted.items()] + rest


def options() -> dict[str, int]:
    """Options that a user can type: of commands, of models, each listed once, and of parts."""
    from streamgp import registry
    from streamgp_cli.models import PARTS, once, options_of
    from streamgp_pipelines import config
    from streamgp_pipelines.config.settings import Settings

    commands = [one for name, one in vars(config).items() if isinstance(one, type) and issubclass(one, Settings)]
    own = [one for one in commands if not any(issubclass(other, one) for other in commands if other is not one)]
    models = [registry.load("models", name).Config for name in registry.names("models")]
    parts = [registry.load(kind, name).Config for kind in PARTS for name in registry.names(kind)]
    return {
        "of commands": sum(len(one.model_fields) for one in own),
        "of models": sum(len(once(options_of(one, parts=False))) for one in models),
        "of parts": sum(len(once(options_of(one))) for one in parts),
    }


def run_by(what: str) -> tuple[int, int]:
    """Files with a function that an update of a model, or `train --online`, calls; modules of ours that it imports."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", PROBE, str(ROOT), what, folder]
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    return tuple(map(int, done.stdout.rpartition("@")[2].split()))  # type: ignore[return-value]


def long_ones() -> tuple[list[str], list[list[object]]]:
    """Functions with more than LONG_FUNCTION lines of code; classes with more than LONG_CLASS lines, and why."""
    functions, classes = [], []
    for path in sources(*PRODUCT):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and (code := len(set(_code(node)))) > LONG_FUNCTION:
                functions.append(f"`{path.relative_to(ROOT)}`: `{node.name}`, {code}")
            if isinstance(node, ast.ClassDef) and (long := (node.end_lineno or 0) - node.lineno + 1) > LONG_CLASS:
                code = len(set(_code(node)))
                place = f"`{path.relative_to(ROOT)}`"
                classes.append([f"`{node.name}`", place, long, code, REASONS.get(node.name, NO_REASON)])
    return functions, classes


def by_hand() -> list[list[str]]:
    """Classes with a `state` of their own that takes more than a line, in place of a declaration; and why."""
    found = []
    for path in sources(*PRODUCT):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ClassDef) or node.name == "Declared":
                continue
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name == "state" and _returns(inner):
                    found.append([f"`{node.name}`", f"`{path.relative_to(ROOT)}`", STATES.get(node.name, NO_REASON)])
    return sorted(found)


def _returns(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Return) for one in ast.walk(function))


def _code(node: ast.AST) -> Iterator[int]:
    """Numbers of the lines that hold code, without docstrings, comments and empty lines."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            continue
        if isinstance(inner, ast.stmt | ast.expr | ast.arg):
            yield inner.lineno
            yield inner.end_lineno or inner.lineno
        yield from _code(inner)


def worded(word: str) -> int:
    """Lines of the product that have a word."""
    found = re.compile(rf"\b{word}\b")
    return sum(bool(found.search(line)) for path in sources(*PRODUCT) for line in path.read_text("utf-8").splitlines())


def render() -> str:
    """The page."""
    functions, classes = long_ones()
    typed = options()
    run = [[what, before, "fewer", *run_by(what)] for what, before in FILES.items()]
    grown = [str(name) for name, before, _, today, _ in run if today > before]
    parts = [
        "# The code in figures",
        "How large the code is beside the goals of its design, in which one basis, one regression and one learner "
        "serve panels and fleets alike. The start is 23 November 2026; today is "
        f"{datetime.date.today():%d %B %Y}, as `python docs/make_house.py` counted.",
        "## Lines",
        table(["", "start", "goal", "today"], sizes()),
        "**Missed.** What a user can do was never to be removed for it, and more was added. Changes that made the "
        "product smaller took away about 500 lines in all; the others added, by subject and roughly:",
        table(["added since the start", "lines"], list(map(list, GROWTH.items()))),
        "The data library takes from the pipelines the types of two arguments of `ingest`, the options "
        "(`IngestConfig`) and `Health`, and imports neither when it runs: the options of all commands are declared in "
        "one place.",
        "## Options",
        table(
            ["", "start", "today"],
            [[name, OPTIONS[name], today] for name, today in typed.items()]
            + [["all", sum(OPTIONS.values()), sum(typed.values())]],
        ),
        "Each is counted once a command, once a model, or once a part (kernels, features, likelihoods, encoders, "
        "solvers). The goal was a cut from 905 to 560, counted in another way. **Missed**: no option that a guide uses "
        "was removed, and what was added has options. An option is declared once, however.",
        "## Files that one update runs",
        table(["", "start", "goal", "today", "modules imported"], run),
        "Files with a function that an update of 32 windows calls; `train --online` is a whole run of the default "
        "model on 1,000 rows. "
        + (f"**Missed for {', '.join(grown)}**: " if grown else "**Reached.** ")
        + "what a model did by itself is in files that several share, such as `regression/additive.py`, `state.py`, "
        "`recalled.py` and `online/stacked.py`.",
        "## Long functions and classes",
        f"Functions with more than {LONG_FUNCTION} lines of code: {'; '.join(functions) or 'none'}. Classes with more "
        f"than {LONG_CLASS} lines, and why:",
        table(["class", "file", "lines", "of code", "why"], classes),
        "## State that is written by hand",
        "A part of a checkpoint declares its fields (`streamgp/state.py`). These do not:",
        table(["class", "file", "why"], by_hand()),
        "## Words",
        table(["lines with", "start", "today"], [[f'"{w}"', n, worded(w)] for w, n in WORDS.items()]),
        '"Behind" stays where it means a place, and as the name of variables.',
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "pipelines"), str(ROOT / "cli")]
    PAGE.write_text(render(), "utf-8")
