"""How estimators are judged: rank correlation, regret and calibration, and what is written about them."""

import csv
import sys
from pathlib import Path

import pytest
import torch

from zol.adapt.problem import Problem
from zol.bench import ranking
from zol.bench.ranking_figure import draw
from zol.common.errors import MissingExtra
from zol.evidence import Evidence
from zol.fields import Layout
from zol.tasks import Task
from zol.testing.exact import ExactFB
from zol.value import ValueEstimate
from zol.worlds.tabular import chain


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def problem() -> Problem:
    """An exact model without a learned world."""
    mdp, eye = chain(6), torch.eye(6, dtype=torch.float64)
    model = ExactFB(mdp, eye.mean(0), generator=seeded())
    evidence = Evidence(("a", "b"), eye, torch.rand(2, 6, generator=seeded(1)).double(), eye[:2])
    tasks = {name: Task(name, lambda s: s["obs"][..., 0]) for name in evidence.tasks}
    return Problem(model, evidence, "chain", tasks, Layout.plain(6))


def test_rank_correlation_shares_ranks_between_ties() -> None:
    x, y = torch.tensor([1.0, 2.0, 2.0, 4.0]), torch.tensor([10.0, 30.0, 20.0, 40.0])
    ranks = torch.tensor([[0.0, 1.5, 1.5, 3.0], [0.0, 2.0, 1.0, 3.0]])
    assert ranking.spearman(x, y) == pytest.approx(float(torch.corrcoef(ranks)[0, 1]))
    assert ranking.spearman(x, -x) == pytest.approx(-1)


def test_a_constant_side_correlates_with_nothing() -> None:
    x = torch.randn(30, generator=seeded())
    assert ranking.spearman(x, torch.ones(30)) == 0.0
    assert ranking.spearman(torch.ones(30), x) == 0.0


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingExtra, match=r"needs scipy.*\[ranking\]"):
        ranking.spearman(torch.rand(3), torch.rand(3))


def test_estimators_that_lack_something_are_left_out() -> None:
    question = problem().value_problem("ranking rollouts")
    found = ranking.estimates(question, torch.randn(2, 3, 6, generator=seeded(2)).double())
    assert set(found) == {"ratio", "value"}  # the evidence has neither transitions nor a learned world
    assert all(estimate.mean.shape == (2, 3) for estimate in found.values())


def test_judgement_is_in_true_reward() -> None:
    """The first choice of task a is its second best latent, task b is judged perfectly."""
    truth = torch.tensor([[0.2, 0.5, 0.9, 0.1], [0.0, 1.0, 2.0, 3.0]])
    guess = torch.tensor([[0.3, 0.8, 0.7, 0.2], [0.0, 1.0, 2.0, 3.0]])
    error = torch.tensor([[0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.0, 0.0]])
    a, b = ranking.judge(problem(), {"ratio": ValueEstimate(guess, error)}, truth)
    assert (a.task, a.estimator, b.task) == ("a", "ratio", "b")
    assert (a.regret, a.plain_regret) == pytest.approx((0.4, 0.7))
    assert (a.bias, a.error) == pytest.approx((0.075, 0.175))
    assert (a.coverage, b.coverage) == (0.5, 1.0)
    assert (a.spearman, b.spearman) == pytest.approx((0.8, 1.0))
    assert (b.regret, b.plain_regret, b.bias, b.error) == (0.0, 3.0, 0.0, 0.0)
    assert ranking.means([a, b], "ratio", "coverage") == 0.75


def test_models_without_an_estimator_leave_its_column_empty(tmp_path: Path) -> None:
    facts = {"domain": "walker", "task": "run", "true": 0.5, "ratio": 0.4}
    points = [facts | {"imagination": 0.6}, facts | {"domain": "cheetah"}]
    ranking.write_table(tmp_path / "points.csv", {"seed": 0}, points)
    told, *table = (tmp_path / "points.csv").read_text().splitlines()
    assert told == "# seed: 0"
    assert [row["imagination"] for row in csv.DictReader(table)] == ["0.6", ""]
    draw(points, ["ratio", "imagination"], tmp_path / "points.png")
    assert (tmp_path / "points.png").stat().st_size > 5_000
