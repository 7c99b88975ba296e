"""Every registered kernel obeys the laws of a covariance function."""

from __future__ import annotations

import pytest

from streamgp import registry
from streamgp.testing import check_kernel


@pytest.mark.parametrize("name", registry.names("kernels"))
def test_laws(name: str) -> None:
    module = registry.load("kernels", name)
    check_kernel(lambda dims: module.build(module.Config(), dims))
