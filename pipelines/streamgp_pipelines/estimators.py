"""The models as scikit-learn regressors: a matrix in, means with standard deviations out. See `streamgp.sklearn`.

A row is a window without lags: its F columns are the inputs, its T targets the outputs. `fit` is a model's batch
training, `partial_fit` its online update: rows are learned once, as they arrive, and the hyper-parameters are estimated
again from a sample of all rows now and then, as on a stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from streamgp import registry
from streamgp.base import FLOAT, Inputs, Json, Model, Predictive, Shape
from streamgp.errors import StreamgpError, StreamgpWarning
from streamgp.online.column_kernel import ColumnKernel
from streamgp.online.model import StreamModel
from streamgp.online.winsorise import FAR
from streamgp_pipelines.assembly import build_model, find_device, flatten
from streamgp_pipelines.learned import LearnedModel
from streamgp_pipelines.wording import in_python

Array = NDArray[np.float64]

LEAST = 2
"""Rows that can be standardised."""
INNER = "options__"
"""What the parameters of a search begin with that are options of the model."""
LARGEST = 1e100
"""Absolute values beyond it are refused: products of a few of them overflow float64."""


class StreamRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """What the regressors have in common; see each for its parameters.

    Attributes:
        n_features_in_: F. feature_names_in_: of a data frame's columns.
        model_: the model, a `streamgp.base.Model`: posterior, inducing points and all.
        kernel_: the prior covariance of the function, in the units of the columns; it prints its hyper-parameters, and
            kernel_(X, Z) -> (N, M) are covariances.
        hyperparameters_: those of the kernel, such as lengthscale (F,) in the units of the columns of X and outputscale
            () in those of y squared; noise (T,) of predictions, standard deviations in those of y.
        inducing_points_: (M, F) in the units of the columns, of `SVDGPRegressor` and `SVGPRegressor`; of `RVMRegressor`
            its relevance vectors. The others have none.
        elbo_trace_: (E,) objective a row after each epoch of `fit`, of standardised targets: log evidence, of
            `SVGPRegressor` a bound on it, of `SVDGPRegressor` that of the process projected onto its basis, no bound.
    """

    _name: ClassVar[str]
    _given: ClassVar[tuple[str, ...]]
    options: Mapping[str, Any] | None
    model_: Model

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn all rows, from the beginning.

        Args:
            X: (N, F) finite numbers, N >= 2.
            y: (N,) or (N, T).

        Raises:
            ValueError: the rows or the options do not fit.
        """
        x, target = self._rows(X, y, first=True)
        self._build(target)
        with self._as_value_error(), _apart():
            epochs = self.epochs or self.model_.epochs_for(len(x))
            steps = list(self.model_.fit(self._windows(x), self._targets(target), epochs))
        self.elbo_trace_ = -np.array([step.loss for step in steps])
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn rows once, as they arrive, after those before; the first ones are fitted.

        Args:
            X: (N, F); the first time N >= 2.
            y: (N,) or (N, T), as the first time.

        Raises:
            ValueError: as `fit`.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        x, target = self._rows(X, y, first=False)
        with self._as_value_error(), _apart():
            self.model_.update(self._windows(x), self._targets(target))
        return self

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Array | tuple[Array, Array]:
        """Means (N,) or (N, T) of y; with `return_std` also standard deviations, the noise of an observation included;
        with `return_cov` the covariances (N, N) or (N, N, T) of all rows together, whose diagonal is their square.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was learned.
            RuntimeError: both are wanted.
            ValueError: the likelihood or the inference of the model leaves no covariance in closed form.

        Warns:
            StreamgpWarning: a value is so far out that it is taken for a glitch.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        issued = self._issued(X)
        mean = self._out(issued.mean)
        if return_cov:
            return mean, self._out(self._covariance(X).movedim(0, -1))
        return (mean, self._out(issued.variance.sqrt())) if return_std else mean

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike = (0.025, 0.5, 0.975)) -> Array:
        """Quantiles of y, (N, Q) or (N, Q, T): the first and the last are the ends of a 95 % band.

        Raises:
            ValueError: a quantile is not between 0 and 1.
        """
        wanted = torch.tensor(np.atleast_1d(np.asarray(quantiles, float)))
        if not bool(((wanted > 0) & (wanted < 1)).all()):
            raise ValueError(f"quantiles are probabilities between 0 and 1, not {wanted.tolist()}")
        found = self._issued(X).quantile(wanted).movedim(0, 1)
        return self._out(found)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draws of y, (N, S) or (N, T, S), of each row by itself: rows are not drawn together."""
        drawn = self._issued(X).sample(n_samples, torch.Generator().manual_seed(_seed(random_state)))
        return self._out(drawn.movedim(0, -1), -2)

    def log_prob(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Log predictive density of each y, (N,) or (N, T); minus its mean is the NLPD."""
        x, target = self._rows(X, y, first=False)
        return self._out(self.model_.predict(self._windows(x)).log_prob(self._targets(target)))

    @property
    def kernel_(self) -> ColumnKernel:
        """See the class.

        Raises:
            sklearn.exceptions.NotFittedError: nothing was learned.

        Example:
            >>> from streamgp.sklearn import ExactGPRegressor
            >>> X = np.linspace(0, 6, 50)[:, None]
            >>> fitted = ExactGPRegressor(random_state=0, options={"linear": False}).fit(X, np.sin(X[:, 0]))
            >>> kernel = fitted.kernel_
            >>> str(kernel).partition("=")[0], kernel(X[:3], X).shape, bool((kernel.diag(X) > 0.1).all())
            ('SquaredExponential(lengthscale', (3, 50), True)
        """
        check_is_fitted(self, "model_")
        kernel = self.model_.kernel if isinstance(self.model_, StreamModel) else None
        assert kernel is not None, "the models of the estimators have one"
        return kernel

    @property
    def hyperparameters_(self) -> dict[str, Array]:
        """See the class."""
        check_is_fitted(self, "model_")
        return {name: value.detach().cpu().numpy() for name, value in self.model_.hyperparameters().items()}

    @property
    def inducing_points_(self) -> Array:
        """See the class.

        Raises:
            AttributeError: the model has none.
        """
        check_is_fitted(self, "model_")
        return LearnedModel(self._name, self.model_).inducing_points

    def set_params(self, **params: Any) -> Self:
        """As of any estimator; options__NAME is the option NAME of the model: {"options__kernel.nu": 1.5}."""
        inner = {name.removeprefix(INNER): value for name, value in params.items() if name.startswith(INNER)}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(INNER)})
        if inner:
            self.options = {**(self.options or {}), **inner}
        return self

    def _build(self, target: Array) -> None:
        outputs = 1 if target.ndim == 1 else target.shape[1]
        targets = ("y",) if outputs == 1 else tuple(f"y{at}" for at in range(outputs))
        inputs = tuple(f"x{at}" for at in range(self.n_features_in_))
        self._flat, shape = target.ndim == 1, Shape(targets, 1, 0, (*targets, *inputs), inputs)
        with self._as_value_error(), _apart():
            options = self._options()
            registry.trust(str(options))  # the user named them
            self._built: tuple[Mapping[str, Json], Shape, int] = options, shape, _seed(self.random_state)
            self.model_ = build_model(self._name, options, shape, find_device(self.device), self._built[2])

    def _options(self) -> dict[str, Any]:
        """Of the model: the arguments that are its options, and `options`.

        Raises:
            ValueError: one says something else than the other, or `options` is no mapping.
        """
        if not isinstance(self.options, Mapping | None):
            raise ValueError(f'options is a mapping such as {{"rebuild": 1000}}, not {self.options!r}')
        given = {name: value for name in self._given if (value := getattr(self, name)) is not None}
        flat = flatten(self.options or {})
        named = {**given, "epochs": self.epochs, "seed": self.random_state}
        for name, value in named.items():
            own = flat.get(name, flat.get(f"{name}.name"))
            if value is not None and own is not None and own != value:
                argument = "random_state" if name == "seed" else name
                raise ValueError(f"{argument}={value!r} contradicts options={{{name!r}: {own!r}}}: give one of them")
        return {**given, **(self.options or {})}

    def _rows(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[Array, Array]:
        if not first:
            check_is_fitted(self, "model_")
        rules: dict[str, Any] = {"dtype": np.float64, "multi_output": True, "y_numeric": True}
        x, target = validate_data(self, X, y, reset=first, ensure_min_samples=LEAST if first else 1, **rules)
        target = np.asarray(target, np.float64)
        self._refuse_large(x)
        if (far := np.abs(target.reshape(len(x), -1)).max(0) > LARGEST).any():
            which = "" if target.ndim == 1 else f", column {int(far.argmax())}"
            raise ValueError(f"y{which} has values beyond {LARGEST:.0e}: rescale it")
        return x, target

    def _checked(self, X: ArrayLike) -> Array:
        x = np.asarray(validate_data(self, X, dtype=np.float64, reset=False))
        self._refuse_large(x)
        return x

    def _refuse_large(self, x: Array) -> None:
        """See that float64 can compute with what is given.

        Raises:
            ValueError: it cannot.
        """
        if (far := np.abs(x).max(0) > LARGEST).any():
            at = int(far.argmax())
            name = repr(self.feature_names_in_[at]) if hasattr(self, "feature_names_in_") else str(at)
            raise ValueError(f"X, column {name} has values beyond {LARGEST:.0e}: rescale it")

    def _issued(self, X: ArrayLike) -> Predictive:
        check_is_fitted(self, "model_")
        x = self._windows(self._checked(X))
        if isinstance(self.model_, StreamModel) and (far := int(self.model_.glitches(x).sum())):
            warnings.warn(
                f"{far} rows of X have a value beyond {FAR:,.0f} standard deviations of its column: it is taken for a "
                "glitch, and the column's mean stands in its place",
                StreamgpWarning,
                stacklevel=3,
            )
        return self.model_.predict(x)

    def _covariance(self, X: ArrayLike) -> Tensor:
        """(T, N, N)"""
        found = (
            self.model_.covariance(self._windows(self._checked(X))) if isinstance(self.model_, StreamModel) else None
        )
        if found is None:
            raise ValueError(
                f"{type(self).__name__} has no joint covariance with these options: return_std=True has the deviation "
                "of each row; return_cov=True needs a Gaussian likelihood and no inference by stochastic gradients"
            )
        return found

    def _windows(self, x: Array) -> Inputs:
        """(N, F) as windows without a past."""
        values = torch.tensor(x, dtype=FLOAT)  # a copy: what is given may be read-only
        past = values.new_zeros(len(values), 0, len(self._built[1].past))
        return Inputs(past, values[:, None, :]).to(find_device(self.device))

    def _targets(self, target: Array) -> Tensor:
        values = torch.tensor(target, dtype=FLOAT).reshape(len(target), -1)
        if values.shape[1] != self._built[1].columns:
            raise ValueError(f"y has {values.shape[1]} columns, and was fitted with {self._built[1].columns}")
        return values.to(find_device(self.device))

    def _out(self, found: Tensor, column: int = -1) -> Array:
        """As an array, without the column of the only target where y had none."""
        values = found.detach().cpu()
        return np.asarray((values.squeeze(column) if self._flat else values).numpy())

    @contextmanager
    def _as_value_error(self) -> Iterator[None]:
        """What scikit-learn raises where data or options do not fit, in the words of this estimator."""
        try:
            yield
        except StreamgpError as error:
            text = f"{error.message}; {error.hint}" if error.hint else error.message
            raise ValueError(in_python(text, type(self).__name__)) from error

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """The model as what it is built from, and its state; modules of other packages by their names."""
        held: dict[str, Any] = dict(super().__getstate__())
        if "model_" in held:
            held["model_"] = held["model_"].state()
        return held

    def __setstate__(self, held: dict[str, Any]) -> None:
        saved = held.pop("model_", None)
        super().__setstate__(held)
        if saved is not None:
            options, shape, seed = self._built
            registry.trust(str(options))  # which the user named where this was fitted
            with self._as_value_error(), _apart():
                self.model_ = build_model(self._name, options, shape, find_device(self.device), seed)
            self.model_.restore(*saved)


class SVDGPRegressor(StreamRegressor):
    """A sparse variational Gaussian process with decoupled bases, exact in its basis (Cheng & Boots 2017).

    k(x, x') = ρ² exp(−½ Σ_f (x_f − x'_f)²/ℓ_f²), and a linear part. One epoch costs O(N M² + M³), memory is O(M²) and
    that of a sample of the rows; a prediction costs O(M²).

    Args:
        basis: M, functions at most; by default 1,024.
        likelihood: of y around the function: "gaussian", "student_t", "laplace", or "logistic" for outcomes of 0 and 1,
            whose mean is a probability; by default Gaussian.
        encoder: in front of the kernel: "identity" or "mlp"; by default none.
        options: others of the model, dotted, as `streamgp models svdgp` lists them: {"growth": 0.1}.
        epochs: of `fit`; None: as many as the model asks for: one, but 1,000 mini-batches where stochastic gradients
            find all of the posterior, as with {"inference": "gradient", "parametrisation": "decoupled"}.
        device: "cpu", "cuda" or "auto".
        random_state: an int makes runs repeatable.

    Example:
        >>> import numpy as np
        >>> from streamgp.sklearn import SVDGPRegressor
        >>> X = np.linspace(0, 6, 200)[:, None]
        >>> fitted = SVDGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = fitted.predict([[1.0]], return_std=True)
        >>> mean.round(2).tolist(), bool(std[0] < 0.05)
        ([0.84], True)
    """

    _name, _given = "svdgp", ("basis", "likelihood", "encoder")

    def __init__(
        self,
        *,
        basis: int | None = None,
        likelihood: str | None = None,
        encoder: str | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.basis, self.likelihood, self.encoder = basis, likelihood, encoder
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


class QSGPRegressor(StreamRegressor):
    """A Gaussian process on very many Fourier features, one block of them at a time (Evans & Nair 2020).

    Args:
        kernel: such as "squared_exponential" or "matern"; by default the one with the better evidence.
        likelihood: "gaussian", "student_t" or "laplace"; by default Gaussian.
        solver: "auto", "block" or "stochastic"; see `streamgp models qsgp`.
        options: others of the model, dotted: {"features.size": 20_000}.
        epochs: as of `SVDGPRegressor`.
        device: as of `SVDGPRegressor`.
        random_state: as of `SVDGPRegressor`.
    """

    _name, _given = "qsgp", ("kernel", "likelihood", "solver")

    def __init__(
        self,
        *,
        kernel: str | None = None,
        likelihood: str | None = None,
        solver: str | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.kernel, self.likelihood, self.solver = kernel, likelihood, solver
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


class ExactGPRegressor(StreamRegressor):
    """The exact Gaussian process: O(N³) to fit, O(N²) a prediction; online it keeps `rows` rows.

    Args:
        kernel: such as "squared_exponential", "matern" or "periodic"; by default the first.
        rows: of the posterior at most; by default 3,000.
        options: others of the model, dotted: {"kernel.nu": 1.5}.
        epochs: as of `SVDGPRegressor`.
        device: as of `SVDGPRegressor`.
        random_state: as of `SVDGPRegressor`.
    """

    _name, _given = "exact", ("kernel", "rows")

    def __init__(
        self,
        *,
        kernel: str | None = None,
        rows: int | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.kernel, self.rows = kernel, rows
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


class SVGPRegressor(StreamRegressor):
    """A sparse variational Gaussian process on inducing points (Titsias 2009; Hensman et al. 2013, 2015).

    Args:
        kernel: such as "squared_exponential" or "matern"; by default the one with the best evidence.
        points: inducing points at most; by default 512.
        likelihood: as of `SVDGPRegressor`.
        encoder: as of `SVDGPRegressor`.
        options: others of the model, dotted: {"training.batch": 256}.
        epochs: as of `SVDGPRegressor`; by default 1,000 mini-batches in at most 60 epochs.
        device: as of `SVDGPRegressor`.
        random_state: as of `SVDGPRegressor`.
    """

    _name, _given = "svgp", ("kernel", "points", "likelihood", "encoder")

    def __init__(
        self,
        *,
        kernel: str | None = None,
        points: int | None = None,
        likelihood: str | None = None,
        encoder: str | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.kernel, self.points, self.likelihood, self.encoder = kernel, points, likelihood, encoder
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


class FiniteRKHSRegressor(StreamRegressor):
    """A Gaussian process on a learned kernel of finite dimension: trained features, exact regression on them.

    Args:
        kernel: on the encoder's output; by default "squared_exponential" on X itself, "linear" behind an encoder.
        encoder: in front of the kernel: "identity" or "mlp"; by default none.
        options: others of the model, dotted: {"fourier.size": 256}.
        epochs: as of `SVDGPRegressor`; by default 8,000 mini-batches in 8 to 100 epochs, fewer where validation rows
            stop it.
        device: as of `SVDGPRegressor`.
        random_state: as of `SVDGPRegressor`.
    """

    _name, _given = "finite_rkhs", ("kernel", "encoder")

    def __init__(
        self,
        *,
        kernel: str | None = None,
        encoder: str | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.kernel, self.encoder = kernel, encoder
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


class RVMRegressor(StreamRegressor):
    """A relevance vector machine: few functions, chosen from very many by the evidence (Tipping 2001).

    Args:
        basis: functions at most that are kept; by default 500.
        dictionary: functions that are chosen from; by default 2,000.
        options: others of the model, dotted.
        epochs: as of `SVDGPRegressor`.
        device: as of `SVDGPRegressor`.
        random_state: as of `SVDGPRegressor`.
    """

    _name, _given = "rvm", ("basis", "dictionary")

    def __init__(
        self,
        *,
        basis: int | None = None,
        dictionary: int | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.basis, self.dictionary = basis, dictionary
        self.options, self.epochs, self.device, self.random_state = options, epochs, device, random_state


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def _apart() -> Iterator[None]:
    """Random numbers of torch that others draw stay as they were."""
    with torch.random.fork_rng():
        yield
