"""The exact model's L-BFGS reaches a marginal likelihood that GPyTorch's Adam has not reached after 100 steps, in less
time of the processor; and at the same hyper-parameters both give the same likelihood and predictions.

1,000 rows of UCI sets, standardised, SE-ARD kernel, one noise, zero mean; float64, one thread. GPyTorch is used as in
its own example of exact regression: Adam 0.1, Cholesky factors throughout (the rows are few). Printed per set: negative
log marginal likelihood a row, processor seconds, evaluations, RMSE and NLPD of 1,000 rows held out in standardised
units, and the largest difference of the two at the hyper-parameters that our default prior finds. Plain maximum
likelihood goes on to outputscales and lengthscales of 10⁴ and more where a set is nearly linear, and on such matrices
no two implementations agree to 1e-6. Restarts show whether there are other maxima.

    python benchmarks/exact_reaches_a_better_likelihood_than_gpytorch_sooner.py [--sets bike,elevators] [--rows 1000]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from typing import Any, NamedTuple

import torch
from _report import Claim, report
from _uci import Split, load, path, scores, windows
from torch import Tensor

from streamgp.models import exact
from streamgp.models.exact.hyper import Hyperparameters
from streamgp.models.exact.posterior import ExactPosterior
from streamgp.online.model import StreamModel

with warnings.catch_warnings():  # it still uses torch.jit
    warnings.simplefilter("ignore")
    import gpytorch

STEPS = 100
PLAIN: dict[str, Any] = {"linear": False, "rescale": False, "limit": None, "evidence_rows": None, "rows": 50_000}


class Twin(gpytorch.models.ExactGP):
    """GPyTorch's exact GP."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))
        self.double()

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def loss(self) -> Tensor:
        """() negative log marginal likelihood a row."""
        self.train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self)
        found: Tensor = -objective(self(*self.train_inputs), self.train_targets)
        return found

    @torch.no_grad()
    def told(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N,), (N,) mean and variance of observations."""
        issued = self.eval().likelihood(self(x))
        return issued.mean, issued.variance


class Found(NamedTuple):
    """Loss a row, processor seconds, evaluations; RMSE and NLPD of rows held out, standardised."""

    loss: float
    seconds: float
    evaluations: int
    rmse: float
    nlpd: float

    def __str__(self) -> str:
        told = f"nlml {self.loss:8.4f}  {self.seconds:6.2f} s  {self.evaluations:4d} evaluations"
        return f"{told}  rmse {self.rmse:.4f}  nlpd {self.nlpd:7.4f}"


def ours(rows: Split, **training: Any) -> tuple[StreamModel, Hyperparameters, Found]:
    """Our model, and what became of it."""
    options = {"prior": None, "evaluations": 1000, **training}
    model = exact.build(exact.Config(**PLAIN, training=options), rows.shape)
    began = time.process_time()
    step = next(model.fit(windows(rows.x), rows.y, 1))
    spent = time.process_time() - began
    scale = float(model.outputs.scale)
    held = scores(model.predict(windows(rows.held)), rows.truth)
    assert isinstance(model.posterior, ExactPosterior)
    hyper = model.posterior.hyper
    return model, hyper, Found(step.loss, spent, hyper.evaluations, held.rmse / scale, held.mnlp - math.log(scale))


def theirs(z: Tensor, r: Tensor, at: Tensor, truth: Tensor, start: Twin) -> Found:
    """GPyTorch's Adam, from the hyper-parameters that our search starts from."""
    optimiser = torch.optim.Adam(start.parameters(), lr=0.1)
    began = time.process_time()
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = start.loss()
        loss.backward()
        optimiser.step()
    spent = time.process_time() - began
    mean, variance = start.told(at)
    nlpd = 0.5 * ((truth - mean).square() / variance + (2 * math.pi * variance).log()).mean()
    return Found(start.loss().item(), spent, STEPS, (truth - mean).square().mean().sqrt().item(), nlpd.item())


def compare(name: str, rows: int) -> tuple[list[str], list[str]]:
    """One set: what does not hold, and the row of the results page."""
    whole = load(path(name))
    drawn = torch.randperm(len(whole.y), generator=torch.Generator().manual_seed(0))[:rows]
    part = Split(whole.x[drawn], whole.y[drawn], whole.held[:1000], whole.truth[:1000])
    print(f"{name}: {rows} rows, {part.x.shape[1]} columns")
    *_, found = ours(part)
    print(f"  L-BFGS             {found}", flush=True)
    *_, again = ours(part, restarts=2)
    print(f"  L-BFGS, 2 restarts {again}", flush=True)
    model, hyper, held = ours(part, prior=2.0)
    print(f"  L-BFGS, prior 2    {held}", flush=True)
    *_, adam = ours(part, method="adam", evaluations=STEPS)
    print(f"  our Adam 0.1       {adam}", flush=True)
    z, at = model.inputs(windows(part.x)), model.inputs(windows(part.held))
    location, scale = model.outputs.location, model.outputs.scale
    r, truth = ((one - location)[:, 0] / scale for one in (part.y, part.truth))
    twin = Twin(z, r)
    with torch.no_grad():
        twin.covar_module.base_kernel.lengthscale = math.sqrt(z.shape[1])
        twin.covar_module.outputscale, twin.likelihood.noise = 1.0, math.exp(-2.3)
    peer = theirs(z, r, at, truth, twin)
    print(f"  GPyTorch, Adam 0.1 {peer}", flush=True)
    values = dict(hyper.kernel.named_parameters())
    with torch.no_grad():
        twin.covar_module.base_kernel.lengthscale = values["log_lengthscale"].exp()[None]
        twin.covar_module.outputscale = values["log_outputscale"].exp()
        twin.likelihood.noise = hyper.log_noise.exp()
    mean, variance = twin.told(at)
    issued = model.predict(windows(part.held))
    gaps = (
        abs(twin.loss().item() - held.loss),
        float(((issued.mean[:, 0] - location) / scale - mean).abs().max()),
        float((issued.variance[:, 0] / scale.square() / variance - 1).abs().max()),
    )
    print(f"  at the same hyper-parameters: nlml {gaps[0]:.1e}, mean {gaps[1]:.1e}, variance {gaps[2]:.1e} (relative)")
    failed = [f"{name}: another likelihood than GPyTorch's"] if max(gaps) > 1e-6 else []
    failed += [f"{name}: nlml {found.loss:.4f} > {peer.loss:.4f}"] if found.loss > peer.loss else []
    failed += [f"{name}: {found.seconds:.1f} s > {peer.seconds:.1f} s"] if found.seconds > peer.seconds else []
    both = [f"{mine:.3f} / {other:.3f}" for mine, other in ((found.rmse, peer.rmse), (found.nlpd, peer.nlpd))]
    likelihoods = [
        f"{found.loss:.3f}",
        f"{found.seconds:.1f} ({found.evaluations})",
        f"{peer.loss:.3f}",
        f"{peer.seconds:.1f}",
    ]
    return failed, [name, *likelihoods, *both]


def main(sets: list[str], rows: int) -> int:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # loads PyTorch's compiler, 2 s, before anything is timed
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore")
        found = [compare(name, rows) for name in sets]
    failed = [line for wrong, _ in found for line in wrong]
    print("holds" if not failed else "does not hold: " + "; ".join(failed))
    text = (
        f"{rows:,} rows a set, SE-ARD, float64: L-BFGS reaches a lower NLML a row, in less time, than {STEPS} Adam "
        "steps of GPyTorch; at the same hyper-parameters both differ by 1e-6 at most. RMSE and NLPD: L-BFGS / "
        "GPyTorch. The default prior is not used."
    )
    columns = ["set", "NLML, L-BFGS", "CPU-s (evaluations)", "NLML, GPyTorch", "CPU-s", "RMSE", "NLPD"]
    page = [cells for _, cells in found]
    report(__file__, Claim("Marginal likelihood, beside GPyTorch", text, columns, page, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="bike,elevators,kin40k,protein,pol")
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    sys.exit(main(given.sets.split(","), given.rows))
