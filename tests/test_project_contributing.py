"""The examples of CONTRIBUTING are whole files that pass the suites: a newcomer can start from them."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from streamgp.testing import check_kernel, check_model

PAGE = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def example(path: str) -> ModuleType:
    """The block under the name of the file, as a module."""
    found = re.search(rf"^`{re.escape(path)}`:\n\n```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"there is no {path}"
    module = ModuleType(path.removesuffix(".py").replace("/", "."))
    exec(compile(found[1], path, "exec"), vars(module))
    return module


def test_the_kernel_obeys_the_laws() -> None:
    module = example("streamgp/kernels/cauchy.py")
    check_kernel(lambda dims: module.build(module.Config(), dims))


def test_the_model_obeys_the_laws() -> None:
    module = example("streamgp/models/ridge.py")
    check_model(lambda shape: module.build(module.Config(reservoir=300, rebuild=500), shape))
