"""The product runs no code from what it reads: no loader in it can, and what it names is not run by a shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [file for top in ("streamgp", "pipelines", "cli") for file in sorted((ROOT / top).rglob("*.py"))]
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
CALLS = {
    "eval", "exec", "os.system", "os.popen", "torch.load", "np.load", "numpy.load", "pl.read_pickle", "pd.read_pickle",
    "yaml.load", "yaml.unsafe_load", "pl.LazyFrame.deserialize", "pl.DataFrame.deserialize",
}  # fmt: skip
UNPACK = {"extractall", "unpack_archive"}
WORDS = re.compile(rf"\b({'|'.join(sorted(MODULES | {name.split('.')[-1] for name in CALLS} | UNPACK | {'shell'}))})\b")
"""One of these is in whatever is found."""


def found(source: str) -> Iterator[str]:
    """What runs code, or writes where an archive says, in a source."""
    if not WORDS.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (name for name in names if name.split(".")[0] in MODULES)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS or called.split(".")[-1] in UNPACK:
                yield called
            shell = [word for word in node.keywords if word.arg == "shell"]
            if any(not (isinstance(word.value, ast.Constant) and word.value.value is False) for word in shell):
                yield f"{called}(shell)"


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from joblib import load", "torch.load(x)", "eval(x)", "subprocess.run(x, shell=True)",
     "tar.extractall(x)", "def f():\n    import dill.source", "run(x, shell=flag)"],
)  # fmt: skip
def test_each_is_seen(source: str) -> None:
    assert list(found(source))


def test_nothing_that_is_read_is_run() -> None:
    assert FILES
    assert {
        str(file.relative_to(ROOT)): list(found(file.read_text())) for file in FILES if list(found(file.read_text()))
    } == {}
