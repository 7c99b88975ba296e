"""SVDGP options."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from streamgp.base import Shape
from streamgp.choice import OneOf
from streamgp.encoders import identity
from streamgp.likelihoods import gaussian
from streamgp.model_config import NUMBER
from streamgp.online.options import EvidenceOptions, StreamOptions

COPIES = 3
"""Of the state of a fleet, which is most of its memory: as it learns, as it looks ahead, and in a checkpoint."""


class GradientConfig(BaseModel):
    """Stochastic-gradient inference of an SVDGP."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mean_basis: int = Field(1024, ge=1, description="basis functions of the mean (beyond the covariance's, in hybrid)")
    covariance_basis: int = Field(256, ge=1, description="basis functions of the covariance")
    grow: int = Field(128, ge=1, description="rows of a batch that become basis functions, until the basis is full")
    batch: int = Field(512, ge=2, description="rows in a step of batch training; on a stream, replayed beside the new")
    steps: int = Field(8, ge=1, description="gradient steps for 512 new rows of a stream; an update takes at least one")
    rate: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = Field(
        "auto", description="initial step size of Adam; auto: 0.01, and 0.0001 with preconditioner=full"
    )
    start: Literal["evidence", "median"] = Field(
        "evidence",
        description="hyper-parameters to start from: the best marginal likelihood of thinned rows, or the median trick "
        "of the paper, which outcomes of 0 and 1 always have",
    )
    lengthscale: float = Field(1.0, ge=1e-6, le=1e6, description="factor on the initial lengthscale")


class Config(StreamOptions, EvidenceOptions):
    """Sparse variational GP with decoupled bases (Cheng & Boots 2017), online.

    The options under `gradient` belong to inference by stochastic gradients; `rebuild`, `learn`, `evidence_rows` and
    those of the basis to the closed form.
    """

    few: ClassVar[tuple[str, ...]] = (
        *("target", "memory", "temper", "rebuild", "learn", "limit"),
        *("basis", "linear", "likelihood", "encoder"),
    )
    """The options that matter first."""

    inference: Literal["auto", "conjugate", "gradient"] = Field(
        "auto", description="closed form, or stochastic gradients; auto: closed form wherever there is one"
    )
    likelihood: Annotated[BaseModel, OneOf("likelihoods")] = Field(
        gaussian.Config(), description="of a target around the function; logistic: outcomes of 0 and 1"
    )
    encoder: Annotated[BaseModel, OneOf("encoders", unnamed="mlp")] = Field(
        identity.Config(), description="in front of the kernel; mlp once an option of it is set without a name"
    )
    linear: bool = Field(
        True, description="add a linear part to the kernel; left out where a window has more columns than `basis`"
    )
    jumps: str = Field(
        "",
        description="inputs at whose sign the target may jump, as friction does with a velocity: names or patterns, "
        "'qd*,slip'; the model then sees (2/π) atan(20 x/s) beside each, s its standard deviation",
    )
    basis: int = Field(1024, ge=1, description="basis functions, of mean and covariance")
    mean_basis: int = Field(
        3072, ge=1, description="basis functions of the mean, when windows are fitted in more than one epoch"
    )
    covariance_basis: int | None = Field(
        None,
        ge=1,
        description="basis functions of the covariance in closed form, the first of the mean's (decoupled): fewer make "
        "a forecast cheaper and its band wider, and more than `basis` count in a fit of several epochs alone; none: as "
        "many as `basis`",
    )
    growth: float = Field(0.0625, gt=0, le=1, description="new basis functions a row learned, until the basis is full")
    online: Literal["rebuild", "transfer"] = Field(
        "rebuild",
        description="at a rebuild, learn the rows of the reservoir again, or carry the posterior through to the "
        "new hyper-parameters and basis (Bui, Nguyen & Turner 2017); the reservoir then serves to choose these",
    )
    parametrisation: Literal["orthogonal", "hybrid", "decoupled", "shared"] = Field(
        "orthogonal",
        description="of q, by gradients: orthogonal bases, natural gradients at the covariance's points (Salimbeni "
        "et al. 2018); hybrid, all by Adam (Cheng & Boots 2017, A.3); decoupled, a and B = LLᵀ (equations 7 to 9); "
        "shared, the same with the covariance's points among the mean's (A.2)",
    )
    basis_kernel: Literal["plain", "generalised"] = Field(
        "plain",
        description="basis functions, by gradients: those of the kernel, or with lengthscales of their own "
        "(generalised SE-ARD)",
    )
    preconditioner: Literal["none", "jacobi", "full"] = Field(
        "jacobi",
        description="of a and L (decoupled, shared): diagonal, or by the Gram matrices (of the mean: their Nyström "
        "approximation)",
    )
    gradient: GradientConfig = Field(GradientConfig(), description="inference by stochastic gradients")
    shared: bool = Field(
        False,
        description="with --fleet: hyper-parameters and basis are estimated on a sample of the series and shared by "
        "all, a tenth of the cost; the numbers of a series then depend on the others",
    )

    pooled: bool = Field(
        False,
        description="with shared=true: a linear regression of all series, each in its own units, is the prior mean of "
        "the linear part of each; how far series depart from it is estimated",
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        plain = isinstance(self.likelihood, gaussian.Config)
        if self.inference == "conjugate" and (not plain or self.encoder != identity.Config()):
            raise ValueError("inference=conjugate needs likelihood=gaussian and no encoder; use inference=gradient")
        if plain and self.likelihood != gaussian.Config() and not self.by_gradient:
            raise ValueError("the closed form finds the noise itself; likelihood.noise needs inference=gradient")
        if self.jumps and self.by_gradient:
            raise ValueError("jumps needs the closed form: likelihood=gaussian, no encoder, inference=auto")
        if self.by_gradient and self.evidence != "thinned":
            raise ValueError("evidence needs the closed form: gradients move the hyper-parameters too")
        for name in ("parametrisation", "basis_kernel", "preconditioner"):
            if not self.by_gradient and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} needs inference=gradient: the closed form has none")
        if self.covariance_basis is not None and (self.by_gradient or self.shared):
            raise ValueError("covariance_basis needs the closed form and shared=false; see gradient.covariance_basis")
        if self.parametrisation not in ("decoupled", "shared") and self.preconditioner != "jacobi":
            raise ValueError("preconditioner needs parametrisation=decoupled or shared: the others whiten")
        if self.online == "transfer":
            self._carried()
        if self.parametrisation == "shared" and self.gradient.mean_basis < self.gradient.covariance_basis:
            raise ValueError("parametrisation=shared needs gradient.mean_basis >= gradient.covariance_basis")
        if self.shared and self.by_gradient:
            raise ValueError("shared needs the closed form: likelihood=gaussian, no encoder, inference=auto")
        if self.pooled and not (self.shared and self.linear):
            raise ValueError("pooled needs shared=true and linear=true")
        return self

    def _carried(self) -> None:
        """See that what is carried through has precision, and that its points keep their meaning."""
        if self.shared:
            raise ValueError("online=transfer is of single series: it needs shared=false")
        if not self.by_gradient:
            return
        if self.parametrisation != "orthogonal" or self.basis_kernel != "plain":
            raise ValueError("online=transfer needs parametrisation=orthogonal and basis_kernel=plain")
        if self.encoder != identity.Config():
            raise ValueError("online=transfer needs the identity as encoder: a trained one moves all points")
        if self.gradient.mean_basis != GradientConfig().mean_basis:
            raise ValueError("online=transfer by gradients has no functions of the mean alone: set covariance_basis")

    @property
    def untuned(self) -> str:
        found = "finds its lengthscales along with its posterior where inference goes by gradients"
        return found if self.by_gradient else ""

    def functions(self, shape: Shape) -> int:
        """The basis, and the linear part."""
        width = shape.width + 1
        return self.basis + (width if self.linear and width <= self.basis else 0)

    def bytes_of(self, shape: Shape) -> int:
        """Of a series of a fleet on one kernel: two M × M matrices, 2 M · T, and the windows of a reservoir, as it
        learns, as it looks ahead, and in a checkpoint."""
        if not self.shared:
            return super().bytes_of(shape)
        functions = self.functions(shape)
        windows = self.reservoir * (shape.numbers + shape.columns + 2)
        return COPIES * (2 * functions * (functions + shape.columns) + windows) * NUMBER

    def levers(self, shape: Shape) -> dict[str, int]:
        return {"basis": self.basis} | ({"reservoir": self.reservoir} if self.shared else {})

    @property
    def beta(self) -> int:
        """M_β, basis functions of the covariance in closed form."""
        return self.basis if self.covariance_basis is None else self.covariance_basis

    @property
    def turning(self) -> list[str]:
        """Names and patterns of `jumps`."""
        return [name.strip() for name in self.jumps.split(",") if name.strip()]

    @property
    def by_gradient(self) -> bool:
        """Whether inference goes by gradients."""
        if self.inference != "auto":
            return self.inference == "gradient"
        return not isinstance(self.likelihood, gaussian.Config) or not isinstance(self.encoder, identity.Config)
