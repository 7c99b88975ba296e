"""Run the tutorials and make pages of them: docs/tutorials/*.py are notebooks in jupytext's percent format.

    python docs/make_tutorials.py [NAME...]    # run, and say where the notebooks are

A notebook that was run is kept in build/tutorials until its source or the code of the packages changes, so that the
pages and the tests share one run. A cell tagged `scores` is no part of the page: it prints what the tests assert. A
cell that draws says in its metadata what the picture shows (`# %% alt="..."`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
KEPT = ROOT / "build" / "tutorials"
PACKAGES = ("streamgp", "pipelines/streamgp_data", "pipelines/streamgp_pipelines", "cli/streamgp_cli")
HIDDEN = "scores"


def executed(source: Path) -> Any:
    """The notebook with its outputs; run in an empty folder, with one thread and without tracking.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    kept = _kept(source)
    if kept.exists():
        return nbformat.read(kept, as_version=4)
    notebook = jupytext.read(source)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "OMP_NUM_THREADS": "1", "STREAMGP_TRACKING_URI": "none", "COLUMNS": "100"}
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=600,
            startup_timeout=300,
            extra_arguments=["--log-level=ERROR"],  # it would warn that cells and outputs go over loopback in the clear
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=os.environ | settings)
        for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
            if "text" in output:  # of a folder that is gone
                output.text = output.text.replace(f"{Path(folder).resolve()}/", "")
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{source.stem}-*.ipynb"):
        old.unlink()
    nbformat.write(notebook, kept)
    return notebook


def run_changed() -> None:
    """Run the notebooks whose source or code has changed, each in a process of its own, one a core.

    Raises:
        subprocess.CalledProcessError: a cell fails; which one is printed.
    """

    def run(source: Path) -> None:
        done = subprocess.run([sys.executable, __file__, source.stem], capture_output=True, text=True, check=False)
        if done.returncode:  # else what its processes say is theirs: a service that is ended says so
            sys.stderr.write(done.stderr)
            done.check_returncode()

    changed = [source for source in SOURCES if not _kept(source).exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, changed))


def page(source: Path) -> tuple[str, dict[str, bytes]]:
    """The page in Markdown, and its files by name: the pictures, and the notebook."""
    import nbformat

    notebook = executed(source)
    shown = [cell for cell in notebook.cells if HIDDEN not in cell.metadata.get("tags", [])]
    files: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in shown:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        is_shell = cell.source.startswith(("!", "%%bash"))
        code = re.sub(r"^(!|%%bash\n)", "", cell.source, flags=re.MULTILINE) if is_shell else cell.source
        parts.append(f"```{'sh' if is_shell else 'python'}\n{code}\n```")
        parts += [_output(output, cell, f"{source.stem}-", files) for output in cell.outputs]
    notebook.cells = shown
    files[f"{source.stem}.ipynb"] = nbformat.writes(notebook).encode()
    parts.append(f"[This page as a notebook]({source.stem}.ipynb)")
    return "\n\n".join(part for part in parts if part) + "\n", files


def _output(output: Any, cell: Any, name: str, files: dict[str, bytes]) -> str:
    """One output of a cell; a picture becomes a file."""
    if output.output_type == "stream":
        return "" if output.name == "stderr" else _text(output.text)
    data = output.data
    if "image/png" in data:
        file = f"{name}{len(files) + 1}.png"
        files[file] = base64.b64decode(data["image/png"])
        return f"![{cell.metadata['alt']}]({file})"
    if "text/html" in data:  # a frame, without the look that its library gives it
        table = re.sub(r"<style>.*?</style>|<small>.*?</small>", "", data["text/html"], flags=re.DOTALL)
        table = re.sub(r"</th></tr><tr>(<td>[^<]*</td>)+</tr></thead>", "</th></tr></thead>", table)
        return re.sub(r'<table border="1" class="dataframe">', "<table>", table).replace("&quot;", "")
    return _text(data["text/plain"])


def _text(text: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).rstrip()
    return f"```text\n{plain}\n```" if plain else ""


def _kept(source: Path) -> Path:
    return KEPT / f"{source.stem}-{_digest(source)}.ipynb"


def _digest(source: Path) -> str:
    """Of the source, and of all code that it may run."""
    found = hashlib.sha256()
    code = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    for path in (source, Path(__file__), ROOT / "constraints.txt", *code):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


if __name__ == "__main__":
    for source in SOURCES:
        if source.stem in (sys.argv[1:] or [source.stem]):
            began = time.perf_counter()
            executed(source)
            print(f"{source.stem}: {time.perf_counter() - began:.1f} s, {next(KEPT.glob(f'{source.stem}-*'))}")
