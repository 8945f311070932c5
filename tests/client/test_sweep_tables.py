"""Tables for ``sweep=NAME`` of other packages, by the methods that they document."""

from __future__ import annotations

from typing import Any

from jupyter_slurm.client.submission.sweep_keyword import _sweep_from_value

ROWS = [{"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 2}]


class Polars:
    """Part of polars.DataFrame, as its documentation tells."""

    columns = ("lr", "seed")

    def to_dict(self, *, as_series: bool = True) -> dict[str, Any]:
        return {"lr": [0.1, 0.2], "seed": [1, 2]}

    def to_dicts(self) -> list[dict[str, Any]]:
        return ROWS


class Pandas:
    """Part of pandas.DataFrame, as its documentation tells."""

    columns = ("lr", "seed")

    def to_dict(self, orient: str = "dict") -> Any:
        assert orient == "records"
        return ROWS


def test_the_rows_of_a_table_are_tasks() -> None:
    for table in (Polars(), Pandas(), ROWS):
        sweep = _sweep_from_value("grid", table, zipped=False)
        assert (sweep.names, sweep.rows) == (("lr", "seed"), (("0.1", "1"), ("0.2", "2")))
