"""Compare the README's scores of the demo with what a run of it printed.

python3 .ci/readme_is_true.py README.md LOG    # exit 1 where a number differs in a digit that the README prints
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

COLUMNS = {  # of the README -> of the demo
    "RMSE": "rmse",
    "MAE": "mae",
    "calibrated CRPS": "calibrated crps",
    "coverage of the 95 % band": "coverage 95 %",
    "width of the 95 % band": "width 95 %",
}
COUNT = re.compile(r"([\d,]+) forecasts, each made before")


def promised(page: str) -> dict[tuple[str, str], str]:
    """(model, column of the demo) -> the number, as the README prints it."""
    found = {}
    head, _, *rows = re.findall(r"^\|.*\|$", page[page.index("|model|RMSE|") :].split("\n\n")[0], re.MULTILINE)
    columns = head.strip("|").split("|")[1:]
    for row in rows:
        name, *cells = row.strip("|").split("|")
        model = re.sub(r"[,(].*|`", "", name).strip().replace(" ", "_")
        for column, cell in zip(columns, cells, strict=True):
            found[model, COLUMNS[column]] = cell.split()[0]
    return found


def printed(log: str) -> dict[tuple[str, str], str]:
    """(model, column) -> the number, as the demo prints it."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in log[COUNT.search(log).end() :].splitlines()]  # type: ignore[union-attr]
    at = next(i for i, line in enumerate(lines) if line[0] == "model")
    rows = [line for line in lines[at + 1 :] if len(line) == len(lines[at])]
    return {(row[0], column): cell for row in rows for column, cell in zip(lines[at][1:], row[1:], strict=True)}


def last(number: str) -> float:
    """Half a unit of the last digit."""
    return 0.5 * 10.0 ** -len(number.partition(".")[2])


def differences(page: str, log: str) -> list[str]:
    """What the README says that the run did not show."""
    said, shown = promised(page), printed(log)
    found = [
        f"README: {column} of {model} is {number}; the demo printed {shown.get((model, column))}"
        for (model, column), number in said.items()
        if (model, column) not in shown
        or abs(float(number) - float(shown[model, column])) > 1.000001 * (last(number) + last(shown[model, column]))
    ]
    counts = [COUNT.search(" ".join(text.split())) for text in (page, log)]
    numbers = [match and match[1] for match in counts]
    return found + ([f"forecasts: README, demo: {numbers}"] if len(set(numbers)) != 1 or None in numbers else [])


if __name__ == "__main__":
    texts = [Path(name).read_text() for name in sys.argv[1:3]]
    wrong = differences(*texts)
    print("\n".join(wrong) if wrong else f"README: {len(promised(texts[0]))} scores of the demo are those of this run")
    sys.exit(1 if wrong else 0)
