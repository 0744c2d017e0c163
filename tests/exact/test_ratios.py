"""``zol bench ratios``: overlaps, rollouts, judgements and what is published."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from zol.bench import ratios
from zol.bench.conditions import Conditions, open_model
from zol.bench.occupancy import CELLS, PROJECTIONS, gathered, overlap, supported
from zol.bench.ratios_controls import Estimated
from zol.bench.ratios_intervals import bounds, held_out
from zol.bench.ratios_judge import FEW_MOVES, FEW_TASKS, RANDOM, interval, judge, pool
from zol.bench.true_behaviour import TrueBehaviour, play
from zol.common.errors import ZolError
from zol.fields import States
from zol.models.fb import FBConfig, fb_network
from zol.value import ValueEstimate, accuracy
from zol.worlds import make
from zol.worlds.donut import Donut


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_overlap_is_one_minus_total_variation() -> None:
    p, q = torch.rand(2, 5, 40, generator=seeded()).double().softmax(-1)
    torch.testing.assert_close(overlap(p, q), 1 - 0.5 * (p - q).abs().sum(-1))
    assert overlap(p, p).tolist() == pytest.approx([1.0] * 5)
    sample = torch.zeros(40, dtype=torch.float64)
    sample[:10] = 0.1
    torch.testing.assert_close(supported(p, sample), p[:, :10].sum(-1))
    # Weights on the sample reach that bound, and never more.
    best = torch.where(sample > 0, p, 0.0) / p[:, :10].sum(-1, keepdim=True)
    assert (overlap(p, best) <= supported(p, sample) + 1e-12).all()
    torch.testing.assert_close(overlap(p, best), supported(p, sample))


def test_weights_are_summed_per_cell() -> None:
    cells = torch.tensor([0, 3, 3, CELLS * CELLS - 1])
    found = gathered(cells, torch.tensor([[1.0, 2.0, 1.0, 4.0], [0.0, 0.0, 0.0, 0.0]]))
    assert found[0, [0, 3, -1]].tolist() == [1 / 8, 3 / 8, 4 / 8]
    assert found[1].sum() == 0  # no weight anywhere: zeros, not NaN


@pytest.mark.parametrize("name", PROJECTIONS)
def test_every_projection_reads_its_world(name: str) -> None:
    world = make(name)
    states = world.reset(50, seeded())
    for _ in range(20):
        states = world.step(2 * torch.rand(50, world.action_dim, generator=seeded()) - 1)
    cells = PROJECTIONS[name].cells(states)
    assert cells.shape == (50,)
    assert len(cells.unique()) > 3
    assert ((cells >= 0) & (cells < CELLS**2)).all()


def test_rollouts_equal_one_latent_in_one_environment_at_a_time() -> None:
    world, projection = Donut(), PROJECTIONS["donut"]
    model = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=6, hidden=16, discount=0.9), seeded()).eval()
    z, tasks = torch.randn(3, 6, generator=seeded(1)), list(world.tasks.values())[:2]
    played = play(world, model, z, tasks, projection, episodes=4, generator=seeded(2))
    starts = world.reset(4, seeded(2)).obs.clone()
    steps = 44  # 0.9^44 < 0.01
    weight = 0.9 ** torch.arange(steps, dtype=torch.float64)
    weight /= weight.sum()
    histogram = torch.zeros(2, 3, CELLS**2, dtype=torch.float64)
    features = torch.zeros(3, 6, dtype=torch.float64)
    for k in range(3):
        for e in range(4):
            world.set_physics(starts[e : e + 1])
            total = torch.zeros(2, 2, dtype=torch.float64)
            for t in range(steps):
                with torch.no_grad():
                    states = world.step(model.act(world.physics, z[k : k + 1]))
                    features[k] += weight[t] * model.backward(states.obs)[0] / 4
                r = torch.tensor([float(task(states)) for task in tasks], dtype=torch.float64)
                total += torch.stack([weight[t] * r, r / steps])
                histogram[e // 2, k, projection.cells(States(states.obs, world.layout))] += weight[t] / 2
            torch.testing.assert_close(played.discounted[k, :, e], total[0])
            torch.testing.assert_close(played.undiscounted[k, :, e], total[1])
    torch.testing.assert_close(played.occupancy, histogram)
    torch.testing.assert_close(played.where, histogram.mean(0))
    torch.testing.assert_close(played.features, features, atol=1e-5, rtol=1e-5)


def test_judgements_are_in_true_reward(tiny_checkpoint: Path) -> None:
    """Two tasks' worth of hand-made truth: one estimator is right, the other has the order upside down."""
    subject = open_model(tiny_checkpoint, Conditions(name="ratios"))
    tasks = len(subject.evidence.tasks)
    latents = pool(subject.problem())
    near, K = latents.near.shape[1], len(latents.z)
    assert latents.z[latents.near[:, 0]].equal(subject.problem().start)
    assert tasks * near + RANDOM == K
    rank = torch.arange(K, dtype=torch.float64)
    truth = rank.reshape(K, 1, 1).expand(K, tasks, 4)
    cells = torch.zeros(K, CELLS**2, dtype=torch.float64)
    cells[:, 0] = 1.0
    behaviour = TrueBehaviour(truth, 2 * truth, torch.stack([cells, cells]), torch.zeros(K, 8))
    right = ValueEstimate(truth[..., 0], torch.ones(K, tasks))
    wrong = ValueEstimate(-truth[..., 0] - 1, torch.zeros(K, tasks))
    found = {
        "right": Estimated(right, cells, 2.0 * K),
        "wrong": Estimated(wrong, 0 * cells, 0.0),
    }
    lines = judge(subject, latents, behaviour, found, cells[0])
    assert len(lines) == 2 * tasks
    good, bad = lines[0], lines[tasks]
    assert (good.spearman_global, good.spearman_near, good.overlap, good.support) == pytest.approx(
        (1, 1, 1, 1)
    )
    assert (good.regret, good.bias, good.mean_abs_error, good.coverage, good.seconds) == (0, 0, 0, 1, 2)
    assert good.plain_regret == near - 1
    assert good.off_near == (0,) * near
    assert bad.off_near == tuple(2.0 * k + 1 for k in range(near))
    assert (bad.spearman_global, bad.spearman_near) == pytest.approx((-1, -1))
    assert bad.overlap is None  # no weight anywhere says nothing about where it goes
    assert (bad.regret, bad.regret_undiscounted) == (near - 1, 2 * (near - 1))
    assert (bad.mean_abs_error, bad.coverage) == (K, 0)
    assert bad.bias == -K


def test_the_few_latents_are_those_of_the_first_tasks(tiny_checkpoint: Path) -> None:
    """The same prompt first, the same moves and the same truth as in the whole pool."""
    subject = open_model(tiny_checkpoint, Conditions(name="ratios"))
    latents = pool(subject.problem())
    few, rows = latents.few()
    assert few.z.equal(latents.z[rows])
    assert few.near.shape == (FEW_TASKS, 1 + FEW_MOVES)
    for t in range(FEW_TASKS):
        assert few.z[few.near[t]].equal(latents.z[latents.near[t, : 1 + FEW_MOVES]])
    assert few.z[few.near.numel() :].equal(subject.problem().start[FEW_TASKS:])
    K, T = len(latents.z), len(subject.evidence.tasks)
    truth = torch.rand(K, T, 4, generator=seeded()).double()
    cells = torch.rand(2, K, CELLS**2, generator=seeded(1)).double()
    whole = TrueBehaviour(truth, 2 * truth, cells, torch.rand(K, 8, generator=seeded(2)).double())
    part = whole.at(rows, FEW_TASKS)
    assert part.discounted.equal(truth[rows][:, :FEW_TASKS])
    assert part.where.equal(whole.where[rows])
    guess = Estimated(ValueEstimate(truth[..., 0], torch.ones(K, T)), cells[0], 2.0 * K)
    line = judge(subject, few, part, {"some": guess.at(rows, FEW_TASKS)}, None, "few")[0]
    assert (line.pool, line.task, line.seconds) == ("few", subject.evidence.tasks[0], 2.0)
    own = latents.near[0, : 1 + FEW_MOVES]
    best, chosen = truth[own, 0].mean(-1).max(), own[truth[own, 0, 0].argmax()]
    assert line.regret == pytest.approx(float(best - truth[chosen, 0].mean()))


def test_a_killed_run_goes_on_and_quotes_its_accuracies(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ratios.RatioOptions(
        estimators=("ratio", "value", "fqe"),
        network_steps=3,
        episodes=4,
        out=tmp_path / "out",
        work=tmp_path / "work",
        publish=tmp_path / "accuracy.json",
    )
    quiet = Console(quiet=True)
    first = ratios.run([str(tiny_checkpoint)], options, quiet)
    (next((tmp_path / "work").rglob("value.safetensors"))).unlink()  # as if it had been killed before it

    part = replace(options, finished=True, out=tmp_path / "half")
    halfway = ratios.run([str(tiny_checkpoint)], part, quiet)
    assert {line.estimator for line in first} - {line.estimator for line in halfway} == {"value"}

    def again(*_: object, **__: object) -> None:
        pytest.fail("finished rollouts were played again")

    monkeypatch.setattr(ratios, "play", again)
    second = ratios.run([str(tiny_checkpoint)], options, quiet)
    strip = [(line.task, line.estimator, line.spearman_near, line.bias) for line in first]
    assert strip == [(line.task, line.estimator, line.spearman_near, line.bias) for line in second]
    everybody = {"data", "exact F", "rollouts", "ratio", "value"}
    assert {line.estimator for line in first if line.pool == "all"} == everybody
    few = [line for line in first if line.pool == "few"]
    assert {line.estimator for line in few} == everybody | {"fqe"}
    assert {line.task for line in few} == {first[0].task}  # and on the first task only

    quoted = json.loads((tmp_path / "accuracy.json").read_text())
    assert quoted == json.loads((tmp_path / "out" / "ratios.json").read_text())
    ratio = [line for line in second if line.estimator == "ratio" and line.pool == "all"]
    expected = interval(ratio, "spearman_near")
    assert expected is not None
    assert quoted["all"]["ratio"]["donut"]["spearman_near"] == pytest.approx(expected.value, abs=1e-4)
    assert quoted["all"]["value"]["donut"]["overlap"] is None
    assert "fqe" not in quoted["all"]
    assert quoted["few"]["fqe"]["donut"]["seeds"] == 1
    assert quoted["protocol"]["true episodes per latent"] == "4"
    errors = [off for line in ratio for off in line.off_near]
    assert quoted["near"]["ratio"]["mean_abs_error"]["donut"] == pytest.approx(
        sum(map(abs, errors)) / len(errors), abs=1e-4
    )
    assert quoted["near"]["ratio"]["held_out"] == {}  # there is no other world
    rows = (tmp_path / "out" / "ratios.csv").read_text().splitlines()
    table = list(csv.DictReader(row for row in rows if not row.startswith("#")))
    assert len(table) == len(second)
    assert [float(off) for off in table[0]["off_near"].split()] == list(second[0].off_near)
    assert "## donut" in (tmp_path / "out" / "ratios.md").read_text()
    for picture in ("ratios.png", "ratios-occupancy.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 5_000


def test_bounds_of_errors_are_tried_in_worlds_that_gave_none() -> None:
    """Every world weighs the same, and every model of one; a world's share comes from the others' bounds."""
    steps, level = np.arange(1.0, 101.0), 0.895
    errors = {"a": [steps, steps, steps], "b": [10 * steps]}
    # Half of the weight is in a, none of it above 100; the 11th and the 190th of 200 equal parts are these.
    assert bounds(errors, level) == (10.0, 900.0)
    assert bounds({"b": [10 * steps]}, level) == (60.0, 950.0)
    assert held_out(errors, level) == pytest.approx({"a": 0.41, "b": 0.09})
    assert held_out({"a": [steps]}, level) == {}


def test_the_published_table_is_the_one_that_zol_quotes() -> None:
    """Numbers beside estimates are those of results/, and near errors say how many models they rest on."""
    results = Path(__file__).parents[2] / "results" / "ratios.json"
    assert json.loads(results.read_text()) == json.loads(accuracy.FILE.read_text())
    for name in ("ratio", "value", "lstd", "imagination"):
        found = accuracy.bounds(name)
        assert found is not None
        assert set(found.held_out) == {"donut", "point_mass_maze", "walker", "cheetah"}
        assert found.hold == (min(found.held_out.values()) >= 0.8)
        assert ("no interval" in str(found)) != found.hold


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ZolError, match="no model"):
        ratios.run([])
    with pytest.raises(ZolError, match="even number"):
        ratios.run(["walker"], ratios.RatioOptions(episodes=5, out=tmp_path, work=tmp_path))
    with pytest.raises(ZolError, match="did you mean 'ratio'"):
        ratios.run(["walker"], ratios.RatioOptions(estimators=("ratoi",), out=tmp_path, work=tmp_path))
