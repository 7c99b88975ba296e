"""Each cost grows as its law says: exponents over at least four sizes, least squares in logarithms, on one thread.

a row of a stream         against the rows seen, `linear` and `svdgp` (basis 128): flat
a step of qsgp            against the functions of its basis, 10⁴ to 10⁷: flat
a gradient step of svdgp  against the functions of its mean: linear
an epoch of KISS-GP       against the rows, mlp and lstm in front: linear
a fleet                   against the series, `linear` and `svdgp` with shared=true: linear

Processor time. Claimed: an exponent at most 0.1 above the law's; fixed costs only lower it.

    python benchmarks/costs_follow_their_laws.py [--parts rows qsgp svdgp kiss fleet]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from _report import Claim, report
from step_cost_is_linear_in_mean_functions import SIZES as FUNCTIONS
from step_cost_is_linear_in_mean_functions import slope, step_seconds

from streamgp.base import FLOAT, Inputs, Model, Shape

ABOVE = 0.1
STEPS = 400
"""Of each series of a fleet."""
Law = tuple[str, str, int, Sequence[int], list[float]]
"""What, against what, the exponent claimed, the sizes, and the seconds at each."""


def rows() -> list[Law]:
    """CPU-seconds a row, in the last quarter of so many rows."""
    from streamgp.models import linear, svdgp

    shape = Shape(targets=("y",), horizon=3, lags=24, past=("y",), future=())
    sizes = (2_500, 5_000, 10_000, 20_000, 40_000)
    y = _stream(sizes[-1] + 27)
    past = y[:-3].unfold(0, 24, 1)[: sizes[-1]].contiguous()[..., None]
    truth = y[24:].unfold(0, 3, 1)[: sizes[-1]].contiguous()
    found = list[Law]()
    models: dict[str, Model] = {
        "`linear`": linear.build(linear.Config(), shape),
        "`svdgp`": svdgp.build(svdgp.Config(basis=128, reservoir=1024, evidence_rows=100, rebuild=500), shape),
    }
    for name, model in models.items():
        spent, done = [0.0], 0
        while done < sizes[-1]:
            part = slice(done, done + 250)
            x = Inputs(past[part], y.new_zeros(len(past[part]), 3, 0))
            began = time.process_time()
            issued = model.predict(x)
            model.update(x, truth[part], issued)
            spent.append(spent[-1] + time.process_time() - began)
            done += 250
        taken = [(spent[size // 250] - spent[size * 3 // 4 // 250]) / (size / 4) for size in sizes]
        found.append((f"a row, {name}", "rows seen", 0, sizes, taken))
    return found


def _stream(count: int) -> torch.Tensor:
    """(N,) a day and an autoregressive rest."""
    generator = torch.Generator().manual_seed(0)
    noise, value, rest = torch.randn(count, generator=generator, dtype=FLOAT).tolist(), 0.0, list[float]()
    for shock in noise:
        value = 0.8 * value + shock
        rest.append(value)
    return torch.tensor(rest, dtype=FLOAT) + 3 * torch.sin(torch.arange(count) * 2 * torch.pi / 24)


def qsgp() -> list[Law]:
    """A step on blocks of the basis, each size in a process of its own."""
    from step_cost_is_flat_in_the_basis import apart

    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    seconds = [min(apart(size)[0] for _ in range(2)) for size in sizes]
    return [("a step of `qsgp`", "functions", 0, sizes, seconds)]


def svdgp() -> list[Law]:
    """A gradient step."""
    return [("a gradient step of `svdgp`", "functions of the mean", 1, FUNCTIONS, [step_seconds(m) for m in FUNCTIONS])]


def kiss() -> list[Law]:
    """An epoch of the deep kernel, behind one that is not counted."""
    from _speed import Ours, seconds
    from _speed import rows as made

    sizes = (2_500, 5_000, 10_000, 20_000, 40_000)
    return [
        (
            f"an epoch of KISS-GP, {net}",
            "rows",
            1,
            sizes,
            [statistics.median(seconds(Ours(made(size), net, 128).epoch, 3)) for size in sizes],
        )
        for net in ("mlp", "lstm")
    ]


def fleet() -> list[Law]:
    """A fleet's pass, each size in a process of its own."""
    from fleet_costs_a_fraction_of_single_runs import apart

    sizes = (250, 500, 1_000, 2_000)
    names = {"linear": "`linear`", "shared": "`svdgp`, shared"}
    return [
        (f"a fleet of {name}", "series", 1, sizes, [apart(what, size, STEPS)["cpu"] for size in sizes])
        for what, name in names.items()
    ]


PARTS: dict[str, Callable[[], list[Law]]] = {
    "rows": rows,
    "qsgp": qsgp,
    "svdgp": svdgp,
    "kiss": kiss,
    "fleet": fleet,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first loads PyTorch's compiler
    cells, missed = list[list[str]](), list[str]()
    for part in asked.parts:
        for what, against, law, sizes, seconds in PARTS[part]():
            found = slope(tuple(sizes), seconds)
            ends = f"{sizes[0]:,} to {sizes[-1]:,}"
            costs = ", ".join(f"{1e3 * value:.3g}" for value in seconds)
            cells.append([what, f"{against}, {ends}", str(law), f"{found:.2f}", costs])
            print("  ".join(cells[-1]), flush=True)
            if found > law + ABOVE:
                missed.append(f"{what}: {found:.2f}")
    text = (
        "Exponents of processor time over four or five sizes, by least squares in logarithms, one thread. Claimed: at "
        f"most {ABOVE} above the law; fixed costs only lower it. Rows: in the last quarter of those seen, 3 steps "
        f"ahead, micro-batches of 250. Fleets: passes of {STEPS} steps a series."
    )
    columns = ["cost", "against", "law", "exponent", "CPU-ms at each size"]
    report(__file__, Claim("Laws of costs", text, columns, cells, missed))
    if missed:
        raise SystemExit(f"missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
