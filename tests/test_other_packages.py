"""Models and kernels of other packages: entry points and dotted paths; a checkpoint alone imports nothing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streamgp
from streamgp import registry
from streamgp.choice import part_name, read, written
from streamgp.errors import UsageError
from streamgp.sklearn import ExactGPRegressor
from streamgp.testing import check_kernel, check_model
from streamgp_pipelines.config import TrainConfig
from tests.pipelines.worlds import frame_of

KERNEL = '''
"""Cauchy: long tails."""
from pydantic import BaseModel, ConfigDict
from streamgp.kernels import Stationary

class Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    lengthscale: float = 1.0
    outputscale: float = 1.0

class Cauchy(Stationary):
    def __init__(self, config, dims):
        super().__init__(dims, config.lengthscale, config.outputscale)
        self.separable = dims == 1

    def correlation(self, x, z):
        return 1.0 / (1.0 + ((x / self.lengthscale)[:, None] - (z / self.lengthscale)).square().sum(-1))

def build(config, dims):
    return Cauchy(config, dims)
'''
MODEL = '''
"""Lazy: says the last value."""
from streamgp.models import persistence
from streamgp.model_config import ModelConfig

class Config(ModelConfig):
    memory: float | None = None

def build(config, shape):
    return persistence.build(persistence.Config(memory=config.memory), shape)
'''


def installed(site: Path, package: str, listed: bool = True) -> None:
    """A package with a kernel and a model, as pip would install it; listed: with entry points to them and to what is
    not there."""
    home, about = site / package, site / f"{package}-1.0.dist-info"
    home.mkdir(parents=True)
    about.mkdir()
    (home / "__init__.py").write_text("")
    (home / "cauchy.py").write_text(KERNEL)
    (home / "lazy.py").write_text(MODEL)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = f"[streamgp.kernels]\n{package}_cauchy = {package}.cauchy\n{package}_gone = {package}.gone\n"
    if listed:
        (about / "entry_points.txt").write_text(f"{points}[streamgp.models]\n{package}_lazy = {package}.lazy\n")


@pytest.mark.slow
def test_an_estimator_with_a_kernel_of_its_own_is_pickled(tmp_path: Path, site: Path) -> None:
    installed(site, "own4", listed=False)
    x = np.linspace(0, 6, 40)[:, None]
    fitted = ExactGPRegressor(kernel="own4.cauchy", random_state=0).fit(x, np.sin(x[:, 0]))
    (tmp_path / "fresh.pickle").write_bytes(pickle.dumps(ExactGPRegressor(kernel="own4.cauchy", random_state=0)))
    (tmp_path / "fitted.pickle").write_bytes(pickle.dumps(fitted))
    script = (
        "import pickle, sys, numpy as np\nx = np.linspace(0, 6, 40)[:, None]\n"
        "fresh, fitted = (pickle.load(open(path, 'rb')) for path in sys.argv[1:])\n"
        "print((fresh.fit(x, np.sin(x[:, 0])).predict(x) == fitted.predict(x)).all(), fitted.kernel_)"
    )
    words = [str(tmp_path / f"{name}.pickle") for name in ("fresh", "fitted")]
    paths = os.pathsep.join([str(site), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert run.stdout.startswith("True Cauchy("), run.stderr
    with pytest.raises(ValueError, match=r"own4\.gone cannot be imported") as refused:
        ExactGPRegressor(kernel="own4.gone").fit(x, x[:, 0])
    assert "--" not in str(refused.value)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture(autouse=True)
def _listed_again() -> object:
    registry.names.cache_clear()
    yield
    registry.names.cache_clear()


def test_entry_points_are_parts(site: Path) -> None:
    installed(site, "first")
    assert "first_cauchy" in registry.names("kernels") and "first_lazy" in registry.names("models")
    assert registry.docstring("models", "first_lazy") == "Lazy: says the last value."
    config = read("kernels", {"name": "first_cauchy", "lengthscale": 2.0})
    assert part_name(config) == "first_cauchy" and read("kernels", written(config)) == config
    options = {"kernel": "first_cauchy", "kernel.lengthscale": 2.0}
    forecaster = streamgp.Forecaster("y", season=24, every="1h", model="exact", options=options, warmup=60, lags=2)
    assert forecaster.learn(frame_of(120)).forecast().height == 1
    assert streamgp.Forecaster("y", every="1h", model="first_lazy", lags=2).learn(frame_of(120)).scores["rmse"] > 0
    with pytest.raises(UsageError):
        read("kernels", "first_gone")


def test_the_suites_check_them(site: Path) -> None:
    installed(site, "second")
    cauchy = registry.load("kernels", "second_cauchy")
    check_kernel(lambda dims: cauchy.build(cauchy.Config(), dims))
    lazy = registry.load("models", "second_lazy")
    check_model(lambda shape: lazy.build(lazy.Config(), shape))


def test_a_dotted_path_is_imported_if_the_user_names_it(site: Path, tmp_path: Path) -> None:
    installed(site, "third", listed=False)
    with pytest.raises(UsageError) as refused:
        registry.load("kernels", "third.cauchy")
    assert "STREAMGP_PARTS" in refused.value.hint and "third.cauchy" not in sys.modules
    given = {"model": "exact", "options": {"kernel": "third.cauchy"}, "lags": 2, "warmup": 60}
    streamgp.Forecaster("y", every="1h", **given).learn(frame_of(120)).save(tmp_path / "saved")
    assert streamgp.load(tmp_path / "saved").forecast().height == 1  # it is imported already


@pytest.mark.parametrize("name", ["fourth.nowhere", "json.decoder"])
def test_what_is_no_part_is_refused(site: Path, name: str) -> None:
    installed(site, "fourth")
    TrainConfig.read({"table": "t", "set": {"kernel": name}})
    with pytest.raises(UsageError):
        registry.load("kernels", name)


@pytest.mark.slow
def test_a_checkpoint_imports_nothing_that_was_not_named(site: Path, tmp_path: Path) -> None:
    installed(site, "fifth", listed=False)
    (site / "fifth" / "cauchy.py").write_text(KERNEL + f"\nopen({str(tmp_path / 'imported')!r}, 'a').close()\n")
    forecaster = streamgp.Forecaster("y", every="1h", model="exact", options={"kernel": "fifth.cauchy"}, lags=2)
    forecaster.learn(frame_of(120)).save(tmp_path / "saved")
    (tmp_path / "imported").unlink()
    script = f"import streamgp; print(streamgp.load({str(tmp_path / 'saved')!r}).forecast().height)"
    environment = os.environ | {"PYTHONPATH": str(site)}

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False)

    refused = run()
    assert refused.returncode != 0 and "fifth.cauchy is a module of another package" in refused.stderr
    assert not (tmp_path / "imported").exists()
    allowed = run(STREAMGP_PARTS="fifth.cauchy")
    assert allowed.stdout.strip() == "1" and (tmp_path / "imported").exists()
