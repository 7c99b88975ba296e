"""`streamgp forecast --follow`: a new forecast whenever rows have come."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event

from streamgp.errors import StreamgpError
from streamgp_data.remote import refresh, shown
from streamgp_data.retry import Retry, Stored
from streamgp_data.table import Table
from streamgp_pipelines.config import ForecastConfig
from streamgp_pipelines.forecasting.forecast import forecast
from streamgp_pipelines.forecasting.results import Forecast

POLL_SECONDS = 1.0


def follow(
    config: ForecastConfig,
    publish: Callable[[Forecast], None],
    warn: Callable[[StreamgpError], None],
    wait: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Forecast now, and again when the table, the checkpoint or the file of `--future` has changed, without end.

    Args:
        config: of the forecast.
        publish: called with each forecast, which is written by then.
        warn: called with what kept a later forecast from being made, once for the same message in a row; it is tried
            again.
        wait: sleeps between two looks.
        say: called when the store of the table or the checkpoint does not answer, and when it does again.

    Raises:
        StreamgpError: the first forecast cannot be made.
    """
    before, trouble = None, ""
    assert config.checkpoint is not None
    retry = Retry(shown(config.checkpoint), say, Event(), Stored())
    while True:
        seen = retry.wait_for(partial(_seen, config))
        if seen != before:
            try:
                found = retry.wait_for(partial(forecast, config))
            except StreamgpError as error:
                if before is None:
                    raise
                if error.message != trouble:
                    warn(error)
                trouble = error.message
            else:
                publish(found)
                before, trouble = seen, ""
        wait(POLL_SECONDS)


def _seen(config: ForecastConfig) -> tuple[object, ...]:
    """What a forecast depends on, as it can be compared without being read."""
    assert config.checkpoint is not None
    refresh(config.checkpoint)
    names = sorted(path.name for path in config.checkpoint.glob("[0-9]*"))
    table = None if config.table is None else Table.open(config.table).version
    try:
        future = None if config.future is None else config.future.stat().st_mtime_ns
    except OSError:  # being replaced: seen again later
        future = -1
    return names[-1:], table, future
