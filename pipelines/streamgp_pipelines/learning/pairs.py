"""Forecasts beside their truths: some of them, and those of several pieces as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from streamgp.base import Due


def select(due: Due, keep: Tensor) -> Due:
    """The pairs where `keep` (R,) is true; the complete windows stay."""
    if bool(keep.all()):
        return due
    family, rows = type(due.predictive), keep.nonzero()[:, 0]
    return due._replace(
        series=due.series[rows],
        position=due.position[rows],
        cutoff=due.cutoff[rows],
        ds=due.ds[rows],
        column=due.column[rows],
        y=due.y[rows],
        predictive=family.from_parameters(_columns(due.predictive.parameters(), rows)),
        quantiles=_columns(due.quantiles, rows),
        features=_columns(due.features, rows),
        tail=None if due.tail is None else due.tail[rows],
        alarm=None if due.alarm is None else due.alarm[rows],
        aged=None if due.aged is None else due.aged[rows],
    )


def by_truth(due: Due, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs (R) as a row for each of the N truths, in their order, with all that was forecast of it.

    Args:
        due: the pairs, those of a row of a series together.
        columns: T output columns.

    Returns:
        parameters (P, N, T), 0 where there is none; truths (N, T), NaN where there is no forecast; (N,) series.
    """
    begins = torch.ones(len(due.y), dtype=torch.bool)
    begins[1:] = (due.series[1:] != due.series[:-1]) | (due.ds[1:] != due.ds[:-1])
    row, given = begins.cumsum(0) - 1, due.parameters
    parameters = given.new_zeros(len(given), int(begins.sum()), columns)
    parameters[:, row, due.column] = given
    y = due.y.new_full(parameters.shape[1:], torch.nan)
    y[row, due.column] = due.y
    return parameters, y, due.series[begins]


def alone(due: Due) -> Due:
    """Without the windows, of which those of all rounds would be held until the last."""
    x, issued, none = due.x.rows(torch.zeros(0, dtype=torch.int64)), due.issued[:, :0].clone(), due.target[:0].clone()
    return due._replace(x=x, target=none, issued=issued, features=due.features[:0].clone(), whole=None)


def joined(found: Sequence[Due]) -> Due:
    """The pairs of all, at least one; of several without what only the calibration looks at."""
    if len(found) == 1:
        return found[0]
    known = [due.predictive for due in found if len(due.y)] or [found[0].predictive]  # one of nothing is of any family
    issued = [predictive.parameters() for predictive in known]
    columns = zip(*(due[:6] for due in found), strict=True)
    series, position, cutoff, ds, column, y = (torch.cat(parts) for parts in columns)
    quantiles = torch.cat([due.quantiles for due in found], 1)
    judged = any(due.alarm is not None for due in found)
    tails = [y.new_full(due.y.shape, torch.nan) if due.tail is None else due.tail for due in found]
    alarms = [torch.zeros_like(due.column) if due.alarm is None else due.alarm for due in found]
    return found[-1]._replace(
        series=series,
        position=position,
        cutoff=cutoff,
        ds=ds,
        column=column,
        y=y,
        predictive=type(known[0]).from_parameters(torch.cat(issued, 1)),
        quantiles=quantiles,
        features=quantiles[:0],
        aged=None,
        tail=torch.cat(tails) if judged else None,
        alarm=torch.cat(alarms) if judged else None,
    )


def _columns(values: Tensor, rows: Tensor) -> Tensor:
    """(K, R, ...) at these rows; NumPy takes them in a third of torch's time."""
    return torch.from_numpy(values.numpy().take(rows.numpy(), 1))
