"""The page of a run: its numbers are those of the summary, of the Parquet and of the table."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from streamgp_data.moments import Moments
from streamgp_data.numbers import number
from streamgp_pipelines.config import ReportConfig
from streamgp_pipelines.describe import describe_table
from streamgp_pipelines.reporting.alarmed import alarm_section
from streamgp_pipelines.reporting.fans import fan, stretches, usual_step
from streamgp_pipelines.reporting.page import LARGEST, Figure, HtmlTable
from streamgp_pipelines.reporting.report import Report, report
from streamgp_pipelines.reporting.run import open_run
from tests.pipelines.worlds import frame_of, make_table
from tests.pipelines.worlds import run as run_of

from .reports import EVIL, LEVELS, Trained, drawn, figure, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def made(run: Trained, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str]:
    path = tmp_path_factory.mktemp("page") / "report.html"
    found = report(ReportConfig.read({"checkpoint": run.checkpoint, "output": path}))
    return found, path.read_text()


@pytest.fixture
def page(made: tuple[Report, str]) -> str:
    return made[1]


@pytest.fixture(scope="module")
def scored(run: Trained) -> pl.DataFrame:
    return pl.read_parquet(run.predictions)


def test_one_file_below_its_limit_that_fetches_nothing(made: tuple[Report, str]) -> None:
    found, page = made
    assert found.bytes == len(page.encode()) == found.path.stat().st_size < LARGEST
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "default-src 'none'" in page


def test_no_name_of_the_data_is_markup(page: str) -> None:
    assert EVIL not in page and "<img" not in page and "<b>" not in page
    assert page.count("<script") == page.count("</script>") == 3
    assert "&lt;img src=x" in page
    fans = figure(page, "Forecast beside")["fan"]["panels"]
    assert EVIL in {one["name"] for one in fans}


def test_scores_are_those_of_the_summary(run: Trained, page: str) -> None:
    for name in ("rmse", "mae", "mase", "calibrated_crps"):
        assert f"<td>{number(run.summary[name])}</td>" in page
    rmse, mae, *_ = figure(page, "Error by step")["data"]
    assert mae["y"] == pytest.approx([step["mae"] for step in run.summary["steps"]], rel=1e-5)
    assert rmse["y"] == pytest.approx([step["rmse"] for step in run.summary["steps"]], rel=1e-5)
    for one in run.summary["by_series"].values():
        cells = (one["scored"], one["mae"], one["mase"], one["naive_mae"], one["ratio"])
        assert "".join(f"<td>{number(cell)}</td>" for cell in cells) in page
    for line, level in zip(figure(page, "Coverage by step")["data"], LEVELS, strict=True):
        assert line["y"] == pytest.approx([step["coverage"][level] for step in run.summary["steps"]], rel=1e-5)
    phases = run.summary["coverage_by"]["phases"]
    for line, level in zip(figure(page, "Coverage by place")["data"], LEVELS, strict=True):
        assert line["y"] == pytest.approx([one["coverage"][level] for one in phases], rel=1e-5)


def test_errors_by_phase_are_those_of_the_parquet(page: str, scored: pl.DataFrame) -> None:
    (line,) = figure(page, "Error by place")["data"]
    error = (pl.col("y") - pl.col("seasonal_naive")).abs()
    wanted = scored.group_by(pl.col("ds").dt.hour() // 4).agg(error.mean()).sort("ds")
    assert line["y"] == pytest.approx(wanted["y"].to_list(), rel=1e-5)
    assert figure(page, "Error by place")["layout"]["xaxis"]["ticktext"][:2] == ["00:00", "04:00"]


def test_the_histogram_counts_truths_between_quantiles(page: str, scored: pl.DataFrame) -> None:
    (bars,) = figure(page, "PIT")["data"]
    ends = [pl.col(f"seasonal_naive-{side}") for side in ("lo-95", "lo-80", "hi-80", "hi-95")]
    counts = scored.select(pl.sum_horizontal(end < pl.col("y") for end in ends).alias("bin"))["bin"].value_counts()
    shares = dict(counts.with_columns(pl.col("count") / scored.height).iter_rows())
    promised = [0.025, 0.075, 0.8, 0.075, 0.025]
    assert bars["y"] == pytest.approx([shares.get(k, 0.0) / share for k, share in enumerate(promised)], rel=1e-5)
    assert bars["width"] == pytest.approx(promised)


def test_a_fan_is_the_forecast_that_was_issued(page: str, scored: pl.DataFrame) -> None:
    one = figure(page, "Forecast beside")
    assert re.search(r"366 of 1,\d{3} origins, evenly spaced, and the newest", page)
    for panel in one["fan"]["panels"]:
        views = panel["views"]
        assert len(views) == 366 and [view["issued"] for view in views] == sorted(view["issued"] for view in views)
        own = scored.filter(unique_id=panel["name"]).sort("ds")
        for view in (views[0], views[200], views[-1]):
            times = [datetime.fromisoformat(time) for time in view["t"]]
            issued = datetime.fromisoformat(view["issued"])
            first = own.filter(pl.col("cutoff") == issued)
            assert first.height == 3 and first["ds"].to_list() == times[:3] and len(times) > 20
            columns = [
                "seasonal_naive",
                *(f"seasonal_naive-{side}-{level}" for level in LEVELS for side in ("lo", "hi")),
            ]
            for values, name in zip(view["models"][0], columns, strict=True):
                assert values[:3] == pytest.approx(first[name].to_list(), rel=1e-4)
            assert view["y"][:3] == pytest.approx(first["y"].to_list(), rel=1e-4)
            assert all(datetime.fromisoformat(time) <= issued for time in view["before"]["t"])
        assert views[-1]["t"][-1] == own["ds"].max().strftime("%Y-%m-%d %H:%M")  # type: ignore[union-attr]


def test_residuals_stand_beside_the_input_of_their_time(page: str, scored: pl.DataFrame) -> None:
    (points,) = figure(page, "Residuals beside x&amp;y")["data"]
    hour = (pl.col("ds") - datetime(2020, 1, 1)).dt.total_hours()
    known = scored.filter(hour != 800).with_columns(x=hour % 5, r=pl.col("y") - pl.col("seasonal_naive"))
    wanted = known.group_by("x").agg(pl.col("r").median()).sort("x")
    assert points["x"] == pytest.approx(wanted["x"].to_list())
    assert points["y"] == pytest.approx(wanted["r"].to_list(), rel=1e-5)


def test_gaps_and_quarantine_are_those_that_describe_counts(run: Trained, page: str) -> None:
    about = describe_table(run.table)
    section = page[page.index("Rows, gaps and quarantine</h2>") :]
    assert about["gaps"] == 3 and "3 gaps." in section and "31h" in section
    for reason, count in about["quarantined"].items():  # type: ignore[union-attr]
        assert f'<th scope="row">{reason}</th><td>{count}</td>' in section
    rows = figure(page, "Rows of the table")["data"][0]["y"]
    assert sum(rows) == about["rows"]


def test_a_checkpoint_alone_shows_its_newest_forecasts(run: Trained, scored: pl.DataFrame, tmp_path: Path) -> None:
    """As issued, every third row, so that each value has one forecast; up to the newest truth."""
    plain = trained_without(run, tmp_path)
    found = report(ReportConfig.read({"checkpoint": plain, "output": tmp_path / "r.html"}))
    assert "Forecasts" in found.sections
    keys = ["unique_id", "ds", "cutoff"]
    for panel in figure((tmp_path / "r.html").read_text(), "Forecast beside")["fan"]["panels"]:
        own = scored.filter(unique_id=panel["name"])
        last = panel["views"][-1]
        assert datetime.fromisoformat(last["t"][-1]) >= own["ds"].max() - timedelta(hours=2)
        assert len(set(last["t"])) == len(last["t"]) >= 24
    newest = open_run(plain)
    kept = newest.newest.frame("windows", newest.learner.windows.names, newest.naming)
    assert kept.unique(["unique_id", "ds"]).height == kept.height == 2 * 28 * 24
    same = kept.select(keys).join(scored, on=keys, how="inner", validate="1:1")
    assert_frame_equal(kept, same.select(kept.columns), check_row_order=False, check_exact=True)


def test_what_is_not_known_is_named_with_its_remedy(run: Trained, tmp_path: Path) -> None:
    plain = trained_without(run, tmp_path)
    found = report(ReportConfig.read({"checkpoint": plain, "output": tmp_path / "r.html"}))
    assert "Scores" in found.sections
    assert any("--predictions" in line for line in found.missing)
    titles = [one["title"] for one in drawn((tmp_path / "r.html").read_text())]
    assert "Coverage by step" in titles and not any(name.startswith("PIT") for name in titles)


@pytest.mark.sampled
@pytest.mark.parametrize(("every", "why"), [(None, "its table no interval"), (100, "is not a whole number of 4 to")])
def test_why_there_is_no_place_in_a_cycle(every: int | None, why: str, tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    times = [start + timedelta(milliseconds=100 * row) for row in range(400)]
    data = frame_of(400).with_columns(t=pl.Series(times, dtype=pl.Datetime("us", "UTC")))
    make_table(tmp_path / "table", data, every_ns=None if every is None else every * 10**6)
    run_of(tmp_path / "table", tmp_path / "run", model="linear", season=())
    found = report(ReportConfig.read({"checkpoint": tmp_path / "run", "output": tmp_path / "r.html"}))
    (line,) = [line for line in found.missing if line.startswith("By place in the cycle")]
    assert why in line


@pytest.mark.sampled
@pytest.mark.parametrize("model", ["linear", "ensemble"])
def test_the_terms_of_the_newest_forecast_add_up_to_it(tmp_path: Path, model: str) -> None:
    make_table(tmp_path / "table", frame_of(500))
    more = {"set": {"experts": "linear,persistence,seasonal_naive"}} if model == "ensemble" else {}
    run_of(tmp_path / "table", tmp_path / "run", model=model, **more)
    found = report(ReportConfig.read({"checkpoint": tmp_path / "run", "output": tmp_path / "r.html"}))
    assert "What the forecast is made of" in found.sections
    page = (tmp_path / "r.html").read_text()
    forecast, reference = figure(page, "Forecast and its reference")["data"]
    added = figure(page, "What is added to the reference")["data"]
    assert len(forecast["y"]) == 3 and "own past" in {one["name"] for one in added}
    assert ("persistence" in {one["name"] for one in added}) == (model == "ensemble")
    total = [sum(values) for values in zip(reference["y"], *(one["y"] for one in added), strict=True)]
    assert total == pytest.approx(forecast["y"], rel=1e-4)

    run_of(tmp_path / "table", tmp_path / "known", model=model, known="k", **more)
    found = report(ReportConfig.read({"checkpoint": tmp_path / "known", "output": tmp_path / "k.html"}))
    assert "What the forecast is made of" in found.sections
    page = (tmp_path / "k.html").read_text()
    forecast, reference = figure(page, "Forecast and its reference")["data"]
    added = figure(page, "What is added to the reference")["data"]
    assert "known k" in {one["name"] for one in added} and "by the model as it is now" in page
    total = [sum(values) for values in zip(reference["y"], *(one["y"] for one in added), strict=True)]
    assert total == pytest.approx(forecast["y"], rel=1e-4)


def trained_without(run: Trained, room: Path) -> Path:
    """The run without its forecasts."""
    shutil.copytree(run.checkpoint, room / "run")
    shutil.rmtree(room / "run" / "predictions")
    return room / "run"


def test_forecasts_behind_the_checkpoint_are_left_out(run: Trained, tmp_path: Path) -> None:
    """Parts of a run that was killed before its checkpoint: their rows will come again."""
    shutil.copytree(run.checkpoint, tmp_path / "run")
    (part,) = (tmp_path / "run" / "predictions").glob("*.parquet")
    shutil.copy(part, part.with_name(f"{10**6:012d}-{10**6 + 64:012d}-{'0' * 32}.parquet"))
    scored = open_run(tmp_path / "run").scored
    assert scored is not None and scored.collect().height == run.summary["scored"]


def test_lines_are_broken_where_nothing_was_forecast() -> None:
    hours = [hour for hour in range(60) if not 40 <= hour < 50]
    ds = pl.Series("ds", [datetime(2024, 1, 1) + timedelta(hours=hour) for hour in hours])
    scored = pl.DataFrame({"unique_id": "y", "ds": ds, "cutoff": ds - timedelta(hours=1), "y": 1.0, "m": 1.0})
    bands = scored.with_columns(pl.lit(0.0).alias("m-lo-90"), pl.lit(2.0).alias("m-hi-90"))
    view = fan({"m": bands.lazy()}, {"m": "m"}, (90.0,), Moments(), "y").data["panels"][0]["views"][-1]
    assert [view["t"][cut] for cut in view["cuts"]] == ["2024-01-03 02:00"]
    judged = bands.with_columns(pl.lit(None, pl.String).alias("alarm"))
    counts = {"anomaly": 0, "change": 0, "stuck": 0, "silent": 0, "rows": 50, "rate": 0.01}
    (found,) = alarm_section(judged, judged.clear(), counts, "m", 90.0, Moments(), "y").parts
    assert isinstance(found, Figure)
    values = [trace for trace in found.data if trace["name"] == "value"]
    assert [len(trace["x"]) for trace in values] == [40, 10] and [one["showlegend"] for one in values] == [True, False]
    irregular = pl.Series([0, 1, 5, 6, 30, 31, 50])
    assert stretches(irregular, usual_step(irregular)) == []


def test_alarms_name_their_series_where_only_one_was_judged() -> None:
    ds = pl.Series("ds", [datetime(2024, 1, 1), datetime(2024, 1, 2)])
    judged = pl.DataFrame({"unique_id": "a", "ds": ds, "y": 1.0, "m": 1.0, "m-lo-90": 0.0, "m-hi-90": 2.0})
    judged = judged.with_columns(pl.lit(None, pl.String).alias("alarm"))
    raised = pl.DataFrame({"unique_id": ["a", "b"], "ds": ds, "y": None, "forecast": None, "p": None})
    raised = raised.with_columns(alarm=pl.lit("silent"), since=ds, ticks=pl.lit(3))
    counts = {"anomaly": 0, "change": 0, "stuck": 0, "silent": 2, "rows": 2, "rate": 0.01}
    table = alarm_section(judged, raised, counts, "m", 90.0, Moments(), "y").parts[-1]
    assert isinstance(table, HtmlTable) and [row[1] for row in table.rows] == ["b", "a"]
