"""QSGP options."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.features import fourier, inducing
from streamgp.likelihoods import gaussian, laplace, logistic, student_t
from streamgp.model_config import FUNCTIONS
from streamgp.online.options import EvidenceOptions, StreamOptions

MANY = 200_000
"""Features up to which every block can have its turn."""
EXACT = 4096
"""Features up to which the covariance is that of the posterior, by one Cholesky factor of a matrix of all."""
DENSE = 8192
"""Features up to which such a matrix is made where it is asked for."""
STEPS, QUADRUPLE = 200, 500
"""Steps of an epoch where none are named, of the solvers that draw blocks."""
BATCH, STREAM = fourier.Config(size=4096, width=512), fourier.Config(size=2048, width=512)
"""Where none are named: a stream factorises its matrix at every update, and 2048 take an eighth of the time."""


class Config(StreamOptions, EvidenceOptions):
    """Gaussian process on very many basis functions, learned block by block (Evans & Nair 2020), online."""

    few: ClassVar[tuple[str, ...]] = (
        *("features", "kernel", "likelihood", "solver", "covariance"),
        *("target", "memory", "rebuild", "learn", "limit"),
    )
    """The options that matter first."""

    features: Annotated[BaseModel | None, OneOf("features", unnamed="fourier", optional=True)] = Field(
        None,
        description="basis functions: random Fourier features, or with solver=quadruple inducing ones, k(x, z_j) on "
        "rows z_j; none: fourier, 2048 with lags and 4096 without, in blocks of 512",
    )
    augment: bool = Field(
        True,
        description="add the variance of a function at the test point, which grows away from the rows "
        "(features=inducing)",
    )
    kernel: Annotated[BaseModel | None, OneOf("kernels", optional=True)] = Field(
        None,
        description="any that is a function of one scaled distance; none: squared exponential with lags, and without "
        "them the one with the best evidence among it and the Matérn ones",
    )
    likelihood: Annotated[BaseModel, OneOf("likelihoods")] = Field(
        gaussian.Config(), description="of a target around the function; logistic: outcomes of 0 and 1"
    )
    solver: Literal["auto", "block", "stochastic", "quadruple"] = Field(
        "auto",
        description="block: every block in turn, from rows whose residuals are kept; stochastic: steps whose cost is "
        "independent of rows and features, with a Gaussian likelihood; quadruple: those of the paper, which sample "
        "rows and, three times, features, with any likelihood here; auto: block up to 200,000 features",
    )
    linear: bool | Literal["auto"] = Field(
        "auto",
        description="add a linear part; auto: with the block and the quadruple solver, where a window has no more "
        "columns than features.width, and features are random",
    )
    covariance: Literal["auto", "exact", "head", "none", "diagonal", "chevron"] = Field(
        "auto",
        description="of the weights, for the variance of predictions: that of the posterior, by one Cholesky factor of "
        "all functions, which gives the means too (exact, at most 8192); that of the first block for all (head); or "
        "none; auto: exact up to 4096 functions, then head, and none for outcomes of 0 and 1; of the quadruple solver "
        "diagonal, its auto, or chevron, whose first `columns` columns are dense",
    )
    columns: int = Field(10, ge=1, description="dense columns of covariance=chevron")
    steps: int | None = Field(
        None,
        ge=1,
        description="steps of an epoch, and for 512 new rows of a stream (stochastic, quadruple); none: 200 stochastic "
        "and 500 quadruple ones; of the latter a fifth where they are preconditioned, which go further",
    )
    batch: int = Field(500, ge=1, description="rows of a step (quadruple)")
    cells: int = Field(
        4,
        ge=1,
        description="blocks of features that a step draws, with a likelihood that is not Gaussian (quadruple): what is "
        "learned is a lower bound, the lower the smaller a part of the features that is",
    )
    form: Literal["tight", "theorem"] = Field(
        "tight",
        description="of that bound (quadruple); theorem: the paper's, by three draws of blocks; tight: by one, ours",
    )
    control_variates: int = Field(
        500,
        ge=0,
        description="support rows of the control variates, which take away most of the noise of sampled "
        "features; 0: none (quadruple, with a Gaussian likelihood)",
    )
    optimiser: Literal["auto", "adagrad", "preconditioned"] = Field(
        "auto",
        description="adagrad: the paper's, a rate for every weight; preconditioned: the inverse of a block's curvature "
        "on the rows of the step; auto: adagrad with learn=elbo, else preconditioned (quadruple)",
    )
    rate: float | None = Field(
        None,
        gt=0,
        le=10,
        description="step size (quadruple); none: 0.1 of adagrad, 0.02 of preconditioned, 0.2 of that with one block "
        "of functions, 0.5 of that with another likelihood",
    )
    learn: Literal["rebuild", "once", "elbo"] = Field(  # type: ignore[assignment]
        "rebuild",
        description="hyper-parameters: estimate them at every rebuild, or once; those of --init stay with once; elbo: "
        "estimate them once, then move them and the noise with every step, along the gradient of the sampled bound "
        "(quadruple, without optimiser=preconditioned)",
    )
    evidence_rows: Annotated[int, Field(ge=2)] | Literal["auto"] = Field(  # type: ignore[assignment]
        "auto",
        description="most rows, thinned in time, to estimate hyper-parameters from; auto: 400 with lags, 1000 without",
    )
    limit: float | None = Field(
        5.0,
        gt=0,
        description="winsorise a target at this many predictive standard deviations before it is learned, with a "
        "Gaussian likelihood; none: never",
    )

    @field_validator("kernel", mode="before")
    @classmethod
    def _named(cls, kernel: object) -> object:
        return None if kernel in ("auto", "none") else kernel

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if isinstance(self.likelihood, student_t.Config):
            raise ValueError("qsgp needs a likelihood that is concave in log f; use likelihood=laplace, or model svdgp")
        if not isinstance(self.likelihood, gaussian.Config | laplace.Config | logistic.Config):
            raise ValueError("qsgp knows the likelihoods gaussian, laplace and logistic")
        if self.likelihood != type(self.likelihood)():
            raise ValueError("qsgp finds the noise itself; leave out likelihood.noise")
        if not isinstance(self.likelihood, gaussian.Config) and self.limit not in (5.0, None):
            raise ValueError("limit is for likelihood=gaussian; leave out limit")
        self._fitting_the_solver()
        if self.learn == "once" and not self.rebuild:
            raise ValueError("without rebuilds hyper-parameters are estimated once; leave out learn")
        return self

    def _fitting_the_solver(self) -> None:
        """No option may be set that the solver does not look at."""
        default = {name: field.default for name, field in type(self).model_fields.items()}
        ordinary = isinstance(self.likelihood, gaussian.Config)
        if self.solver == "stochastic" and not ordinary:
            raise ValueError("solver=stochastic is for likelihood=gaussian; leave out solver, or set solver=quadruple")
        quadruple = self.solver == "quadruple"
        ours, theirs = ("auto", "exact", "head", "none"), ("auto", "diagonal", "chevron")
        if self.covariance not in (theirs if quadruple else ("auto",) if self.by_steps else ours):
            wanted = "quadruple" if self.covariance in theirs else "block"
            raise ValueError(f"covariance={self.covariance} is for solver={wanted}; set that, or leave out covariance")
        if not self.by_steps and self.steps != default["steps"]:
            raise ValueError("steps is for solver=stochastic or quadruple; set one, or leave out steps")
        for name in ("batch", "control_variates", "optimiser", "rate"):
            if not quadruple and getattr(self, name) != default[name]:
                raise ValueError(f"{name} is for solver=quadruple; set that, or leave out {name}")
        if not ordinary and self.control_variates != default["control_variates"]:
            raise ValueError("control_variates is for likelihood=gaussian; leave out control_variates")
        for name in ("cells", "form"):
            if (ordinary or not quadruple) and getattr(self, name) != default[name]:
                raise ValueError(
                    f"{name} is for solver=quadruple with likelihood=logistic or laplace; leave out {name}"
                )
        if self.learn == "elbo" and not (
            ordinary and quadruple and self.optimiser != "preconditioned" and self.covariance != "chevron"
        ):
            raise ValueError(
                "learn=elbo needs solver=quadruple, likelihood=gaussian, and neither optimiser=preconditioned nor "
                "covariance=chevron"
            )
        if self.covariance != "chevron" and self.columns != default["columns"]:
            raise ValueError("columns is for covariance=chevron; set that, or leave out columns")
        if self.covariance == "chevron" and ordinary and not self.control_variates:
            raise ValueError("covariance=chevron needs control_variates")
        if self.by_steps and not quadruple and self.linear is True:
            raise ValueError("linear=true needs solver=block or quadruple")
        if self.placed:
            if not (quadruple and ordinary):
                raise ValueError("features=inducing is for solver=quadruple and likelihood=gaussian; set these")
            if self.covariance == "chevron" or self.learn == "elbo" or self.linear is True:
                raise ValueError("features=inducing takes no covariance=chevron, learn=elbo or linear=true")
        elif not self.augment:
            raise ValueError("augment is for features=inducing; leave out augment")
        if self.covariance == "exact" and self._size > DENSE:
            raise ValueError(f"covariance=exact makes a matrix of all features: at most {DENSE}")

    @property
    def placed(self) -> bool:
        """Whether functions stand on rows."""
        return isinstance(self.features, inducing.Config)

    @property
    def _size(self) -> int:
        return int(getattr(self.features or BATCH, "size", 0))

    def basis(self, shape: Shape) -> BaseModel:
        """The Config of the features."""
        return self.features or (STREAM if shape.lags else BATCH)

    @property
    def by_steps(self) -> bool:
        """Whether blocks are drawn."""
        many = self._size > MANY and isinstance(self.likelihood, gaussian.Config)
        return self.solver in ("stochastic", "quadruple") or (self.solver == "auto" and many)

    @property
    def outcomes(self) -> bool:
        """Whether targets are 0 and 1."""
        return isinstance(self.likelihood, logistic.Config)

    @property
    def family(self) -> str:
        """The covariance that `auto` stands for."""
        if self.covariance != "auto":
            return self.covariance
        if self._size <= EXACT:
            return "exact"
        return "none" if self.outcomes else "head"

    @property
    def untuned(self) -> str:
        return ""

    def functions(self, shape: Shape) -> int:
        """All of them where they are solved together, else those of a block."""
        basis: Any = self.basis(shape)
        together = self.family == "exact" and not self.by_steps
        return int(basis.size) if together else min(int(basis.size), FUNCTIONS)

    def levers(self, shape: Shape) -> dict[str, int]:
        basis: Any = self.basis(shape)
        return {"features.size": int(basis.size)}

    def thinned(self, shape: Shape) -> int:
        """Rows at most that estimate hyper-parameters."""
        return (400 if shape.lags else 1000) if self.evidence_rows == "auto" else self.evidence_rows
