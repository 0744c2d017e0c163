"""Statistics: intervals that cover, pairing that helps, tables that say what they are."""

import io
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from zol import report
from zol.common.errors import DataError
from zol.report import Scores, bootstrap_all, statistics
from zol.report.html import page


def scores(runs: int = 3, episodes: int = 20, gain: float = 0.05) -> Scores:
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 1, (runs, 4, episodes))
    return Scores(("a", "b", "c", "d"), {"fb": base, "zol": base + gain + rng.normal(0, 0.01, base.shape)})


def test_paired_interval_is_far_tighter_than_the_unpaired_one() -> None:
    s = scores()
    paired = report.paired(s, "zol", "fb")
    alone = report.bootstrap(s.values["zol"])
    assert paired.low > 0.04
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)


def test_interval_covers_the_truth_about_95_percent_of_the_time() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        interval = report.bootstrap(rng.normal(0.0, 1.0, (1, 2, 40)), resamples=300)
        hits += interval.low <= 0.0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_runs_widen_the_interval() -> None:
    """Two seeds that disagree make the mean uncertain, however many episodes each has."""
    agreed = np.zeros((2, 3, 500))
    split = agreed.copy()
    split[1] += 1.0
    assert report.bootstrap(agreed).high == 0.0
    wide = report.bootstrap(split)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_round_trip(tmp_path: Path) -> None:
    s = scores()
    s.save(tmp_path / "scores")
    again = Scores.load(tmp_path / "scores")
    assert again.tasks == s.tasks
    np.testing.assert_array_equal(again.values["zol"], s.values["zol"])


def test_tables_have_every_method_and_the_caveat() -> None:
    s = scores(runs=1)
    header, rows = report.summary(s, "fb", {"extra": ["x", "y"]})
    assert [row[0] for row in rows] == ["fb", "zol"]
    assert header[-1] == "extra"
    assert rows[0][2] == ""  # no difference to itself
    assert "start states only" in report.caveat(s)
    assert "resample seeds" in report.caveat(scores())
    assert report.markdown(report.per_task(s)).count("\n") == 6


def test_unpaired_shapes_are_refused() -> None:
    with pytest.raises(DataError, match="one shape"):
        Scores(("a",), {"fb": np.zeros((1, 1, 3)), "zol": np.zeros((1, 1, 4))})
    with pytest.raises(DataError, match="do not fit"):
        Scores(("a", "b"), {"fb": np.zeros((1, 1, 3))})


def domain(runs: int, mean: float, gain: float, seed: int) -> np.ndarray:
    """Method and baseline [2, runs, 2 tasks, 40 episodes]."""
    base = np.random.default_rng(seed).normal(mean, 1.0, (runs, 2, 40))
    return np.stack([base + gain, base])


def test_every_domain_counts_the_same_however_many_seeds_it_has() -> None:
    found = bootstrap_all(
        [domain(5, 100.0, 10.0, 0), domain(1, 300.0, -2.0, 1)],
        {"difference": statistics.difference, "relative": statistics.relative},
    )
    assert found["difference"].value == pytest.approx((10.0 - 2.0) / 2)
    assert found["relative"].value == pytest.approx(100 * 4.0 / 200.0, rel=0.01)
    assert found["difference"].low == pytest.approx(
        4.0
    )  # the same gain in every episode: nothing to resample


def test_interquartile_mean_ignores_wild_cells_and_agrees_with_scipy() -> None:
    from scipy.stats import trim_mean

    values = np.random.default_rng(0).normal(size=(4, 4, 30))
    values[0, 0] += 1e6
    expected = trim_mean(values.mean(-1).ravel(), 0.25)
    assert float(statistics.interquartile_mean([values])) == pytest.approx(expected)
    # Two copies of a seed change nothing, because a domain weighs the same.
    twice = np.concatenate([values, values])
    assert float(statistics.interquartile_mean([twice])) == pytest.approx(expected)


def test_probability_of_improvement_counts_ties_half() -> None:
    method, base = np.zeros((1, 1, 4)), np.array([[[1.0, -1.0, 0.0, -1.0]]])
    assert float(statistics.improvement([np.stack([method, base])])) == (0 + 1 + 0.5 + 1) / 4


def test_resamples_keep_pairs_together() -> None:
    """A constant gain has an interval of width zero, whatever the noise that both sides share."""
    found = bootstrap_all([domain(3, 0.0, 0.25, 2)], {"difference": statistics.difference})["difference"]
    assert found.high - found.low < 1e-9


CELLS = (["task", "Δ fb [95 %]"], [["walk_back", "+1.0 % [−2, 3]"], ["a,b & <c>", "0"]])


def test_renderers_escape_what_their_format_would_eat() -> None:
    tex = report.latex(CELLS, "100 % of it", "tab:x")
    assert r"walk\_back & +1.0 \% [$-$2, 3] \\" in tex
    assert r"\caption{100 \% of it}" in tex
    assert '"a,b & <c>",0' in report.csv_text(CELLS)
    section = SimpleNamespace(
        title="<h1>",
        text="So & so:\n\n- a < b",
        verdict="1 < 2 & done",
        tables=[("x", "<i>", CELLS)],
        figures=[],
    )
    html = page("benchmark", title="A & B", sections=[section], facts={"<k>": "v"})
    for shown in ("A &amp; B", "a,b &amp; &lt;c&gt;", "&lt;h1&gt;", "a &lt; b", "&lt;i&gt;", "&lt;k&gt;: v"):
        assert shown in html
    assert "<c>" not in html
    assert html.index("1 &lt; 2 &amp; done") < html.index("<h2>")  # what came out stands on top
    assert "<li><small>a &lt; b</small></li>" in html  # a point, not a dash
    assert "- a" not in html
    assert "overflow-x: auto" in html  # a table wider than the window can be moved instead of being cut


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_that_are_too_wide_go_on_below_and_break_no_word(width: int) -> None:
    columns = ["task", "return of 10", "random", *(f"diagnostic_{k}" for k in range(6))]
    rows = [[f"reach_bottom_{k}", "641.25 [603.11, 688.02]", "0.312", *["0.00417"] * 6] for k in (1, 2)]
    text = io.StringIO()
    report.print_table(Console(width=width, file=text), (columns, rows), "a title")
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for word in [*" ".join(columns).split(), "reach_bottom_1", "641.25", "[603.11,"]:
        assert word in shown
    assert shown.count("reach_bottom_1") == shown.count("task")  # in front of every part
    assert (shown.count("task") == 1) == (width == 200)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_narrow_terminals_cut_no_number(width: int) -> None:
    columns = ["task", "return of 10", "estimate", "imagined gain", "doubt"]
    row = ["reach_bottom_right", "641.25 [603.11, 688.02]", "0.312", "0.00417", "0.05"]
    paper = io.StringIO()
    Console(width=width, file=paper).print(report.table((columns, [row])))
    shown = paper.getvalue()
    assert "…" not in shown
    for number in ("641.25", "603.11", "688.02", "0.312", "0.00417", "0.05"):
        assert number in shown
