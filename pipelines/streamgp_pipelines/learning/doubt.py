"""How much uncertain known inputs add to the variance of forecasts."""

from __future__ import annotations

from collections.abc import Callable

import torch

from streamgp.base import Predictive
from streamgp.windows.windows import Asks, Windows


def blurred(windows: Windows, asks: Asks, issued: Predictive, predict: Callable[[Asks], Predictive]) -> Asks:
    """The questions with `blur`: the root mean square error of their means for uncertain known inputs.

    An input adds the mean square of how far the means `issued` move if it is a standard deviation higher, and
    lower, at all steps (Julier & Uhlmann 1997, with two sigma points an input). Of a linear model that is the
    variance; half the difference of both would be 0 where the model turns, as a load does between heating and
    cooling.
    """
    some = torch.nonzero((asks.doubt > 0).flatten(1).any(1))[:, 0]
    if not len(some) or issued.binary:
        return asks
    few = asks.rows(some)
    mean, square = issued.mean[some], torch.zeros_like(few.blur)
    for column in range(asks.doubt.shape[2]):
        if bool((few.doubt[:, :, column] > 0).any()):
            shifted = [few._replace(x=windows.shifted(few, column, sign)) for sign in (1.0, -1.0)]
            square += sum((predict(one).mean - mean).square() for one in shifted) / 2
    blur = asks.blur.clone()
    blur[some] = square.sqrt()
    return asks._replace(blur=blur)
