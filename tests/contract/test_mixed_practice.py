"""Practice beside data: whose rows batches hold, exact resume, kills, labels, refusals."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from killing import run
from same_run import assert_same_run

from zol import checkpoint
from zol.cli import main
from zol.collect.donut import collect
from zol.collect.mixed_practice import MixedPractice, MixedPracticeConfig
from zol.collect.rounds import LatentPolicy
from zol.common import parallel
from zol.common.errors import ZolError
from zol.common.tensors import read_metadata
from zol.data import Dataset
from zol.fields import States
from zol.models import MODELS
from zol.models.base import model_hash
from zol.models.fb import FBLearner
from zol.testing import check_dataset
from zol.train import TrainConfig, fit, pretrain
from zol.train.run_folder import STATE
from zol.worlds.base import World
from zol.worlds.donut import Donut
from zol.worlds.tabular import corridor

NETWORK: dict[str, Any] = {"z_dim": 5, "hidden": 16, "backward_hidden": 16}
LOOP: dict[str, Any] = {"batch_size": 32, "log_every": 5, "save_every": 5, "anneal": 0.0, "dynamics_steps": 0}
ACTING: dict[str, Any] = {"envs": 4, "episode_length": 20, "latent_steps": 8, "steps_per_update": 8}
ALL = NETWORK | LOOP | ACTING
OFFLINE = [name for name in MODELS if not MODELS[name].online]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return collect(500, torch.Generator().manual_seed(0))


def make(name: str, world: World, data: Dataset, folder: Path | None, **change: Any) -> tuple[Any, Any]:
    entry = MODELS[name]
    config = entry.config(obs_dim=data.obs_dim, action_dim=data.action_dim, **NETWORK)
    learner = entry.learner(entry.network(config, torch.Generator().manual_seed(1)), config)
    acting = MixedPracticeConfig(**ACTING | change)
    return learner, MixedPractice(learner, world, data, acting, folder=folder, seed=0)


def rows_in(rows: torch.Tensor, data: Dataset) -> torch.Tensor:
    """Which of these states are states that the set leads to, ``[N]``."""
    return (rows.unsqueeze(1) == data.transitions().next_obs).all(-1).any(-1)


def test_a_share_of_every_batch_is_what_the_model_visited(data: Dataset, tmp_path: Path) -> None:
    learner, feed = make("fb", Donut(), data, tmp_path / "set", own_data_share=0.25)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        assert bool(rows_in(feed.draw(learner.batches, 32, generator).next_obs, data).all())
    batch = feed.draw(learner.batches, 32, generator)  # a round was played after 4 × 20 / 8 updates
    visited = Dataset.open(tmp_path / "set")
    check_dataset(visited)
    assert visited.lengths.tolist() == [20] * 4
    assert visited.provenance["how"] == visited.provenance["source"] == "practice"
    assert visited.provenance["beside"] == data.fingerprint()
    assert "physics" in visited.columns
    assert bool(rows_in(batch.next_obs[:24], data).all())
    assert bool(rows_in(batch.next_obs[24:], visited).all())
    sample = feed.prompt_sample(0)
    assert len(sample["obs"]) == len(data)
    assert int(rows_in(sample["obs"], visited).sum()) == round(0.25 * len(data))
    feed.close()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_prompts_of_one_set_alone(data: Dataset, share: float) -> None:
    learner, feed = make("fb", Donut(), data, None, own_data_share=share)
    for _ in range(11):
        feed.draw(learner.batches, 8, torch.Generator().manual_seed(0))
    expected = feed.collected() if share else data
    assert bool(rows_in(feed.prompt_sample(0)["obs"], expected).all())
    feed.close()


def test_latents_change_on_time_and_noise_differs() -> None:
    config = MODELS["fb"].config(obs_dim=2, action_dim=2, **NETWORK)
    model = MODELS["fb"].network(config, torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(0)
    latents, obs = torch.randn(3, 2, 5, generator=g), torch.randn(3, 2, generator=g)
    calm = LatentPolicy(model, latents, 4, (0.0, 0.0), g)
    for t in range(8):
        action = calm(States(obs, Donut.layout))
        assert torch.equal(action, model.act(obs, latents[:, t // 4]))
    noisy = LatentPolicy(model, latents.repeat(1, 100, 1), 4, (0.0, 0.2), g)
    actions = torch.stack([noisy(States(obs, Donut.layout)) for _ in range(4)])
    assert torch.equal(actions[0, 0], actions[3, 0])
    assert not torch.equal(actions[0, 2], actions[3, 2])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_latents_to_act_with_are_those_of_training(data: Dataset, share: float) -> None:
    """Without goals they are uniform; with goals alone each is that of a state, in the learner's own way."""
    for name in OFFLINE:
        learner, feed = make(name, Donut(), data, None)
        learner.config = learner.config.updated(goal_share=share)
        goals = data.transitions().next_obs[:20]
        z = learner.practice_latents(goals, torch.Generator().manual_seed(3))
        known = learner.model.project(learner.goal_latents(goals))
        near = torch.cdist(z, known).amin(1) < 1e-4
        assert bool(near.all()) if share else not bool(near.any()), name
        assert torch.allclose(z.norm(dim=1), torch.tensor(5.0).sqrt(), atol=1e-4)
        feed.close()


def test_what_nobody_draws_from_changes_nothing(data: Dataset) -> None:
    """With a share of 0 the weights are those of offline training: acting has a generator of its own."""
    offline = pretrain(data, "fb", steps=25, **NETWORK | LOOP)
    practised = pretrain(data, "fb", steps=25, practise="donut", **ALL, own_data_share=0.0)
    assert model_hash(offline.model) == model_hash(practised.model)
    half = pretrain(data, "fb", steps=25, practise=Donut(), **ALL)
    assert model_hash(half.model) != model_hash(offline.model)


@pytest.mark.parametrize("name", OFFLINE)
def test_every_offline_model_practises_and_resumes(name: str, data: Dataset, tmp_path: Path) -> None:
    def train(steps: int, folder: str) -> Any:
        agent = pretrain(
            data, name, out=tmp_path / folder, steps=steps, practise="donut", restarts=0.5, **ALL
        )
        return agent.model

    whole, _, resumed = train(25, "whole"), train(13, "parts"), train(25, "parts")
    assert model_hash(whole) == model_hash(resumed)
    visited = [Dataset.open(tmp_path / folder / "practice") for folder in ("whole", "parts")]
    assert visited[0].fingerprint() == visited[1].fingerprint()
    assert visited[0].episodes == 8, "rounds of 4 after 10 and 20 updates"


def test_worlds_with_terminal_states(tmp_path: Path) -> None:
    """Episodes may begin in states that were visited, terminal ones among them; those have no steps."""
    from zol.collect.explore import ExploreConfig, explore

    world = corridor()
    data = explore(world, tmp_path / "data", ExploreConfig(steps=300, envs=5, how="random"))
    learner, feed = make("fb", world, data, tmp_path / "set", restarts=1.0)
    fit(learner, data, TrainConfig(steps=45, batch_size=32, log_every=20), feed=feed)
    visited = feed.collected()
    check_dataset(visited)
    assert bool(visited.columns["terminated"].any())
    assert 1 <= int(visited.lengths.min()) < 20
    feed.close()


def train(say: Any, out: Path, save_every: int = 5) -> None:
    """A run that says a word at every update, so that it can be killed at a chosen one."""
    original = FBLearner.update

    def talking(self: FBLearner, *args: Any) -> Any:
        say("update")
        return original(self, *args)

    FBLearner.update = talking  # type: ignore[method-assign, assignment]
    given = collect(500, torch.Generator().manual_seed(0))
    settings = ALL | {"save_every": save_every}
    pretrain(given, "fb", out=out, steps=40, practise="donut", episodes=1, eval_every=20, **settings)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    run(train, path)
    return path


def test_kills_at_random_moments_leave_no_trace(calm: Path, tmp_path: Path) -> None:
    path, choose, saved = tmp_path / "run", random.Random(0), [0]
    for _ in range(3):
        run(train, path, 3, kill_after=choose.uniform(0, 0.05), words=choose.randint(4, 14))
        saved.append(int(read_metadata(path / STATE)["step"]))
    assert saved == sorted(saved)
    assert 0 < saved[-1] < 40
    run(train, path, 3)
    assert_same_run(path, calm, "practice")


def test_what_was_practised_is_labelled(calm: Path, data: Dataset) -> None:
    found = checkpoint.load(calm)
    assert found.facts["practice"]["world"] == "donut"
    assert found.facts["practice"]["own_data_share"] == 0.5
    assert found.facts["data"] == data.fingerprint()
    card = (calm / "README.md").read_text()
    assert "Not learned offline: its own policies acted in the world donut" in card
    assert "240 transitions of its own policies" in card


def test_a_run_is_continued_with_the_same_settings_only(calm: Path, data: Dataset) -> None:
    with pytest.raises(ZolError, match="begun with other settings of practice"):
        pretrain(data, "fb", out=calm, steps=50, practise="donut", **ALL | {"envs": 5})
    with pytest.raises(ZolError, match="practice"):
        pretrain(data, "fb", out=calm, steps=50, **NETWORK | LOOP)


def test_commands(data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a user types them: train with practice, and read what was visited."""
    data.save(tmp_path / "data")
    words = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--steps", "15"]
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in ALL.items()]
    main(["train", "fb", *words, *flags, "--practise", "donut", "--own-data-share", "0.4", "--episodes", "1"])
    main(["data", "show", str(tmp_path / "run" / "practice")])
    assert "how: practice" in capsys.readouterr().out


def test_what_cannot_work_is_said_first(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with pytest.raises(ZolError, match="24 observation and 6 action columns, the model 2 and 2"):
        pretrain(data, "fb", out=out, practise="walker", **ALL)
    with pytest.raises(ZolError, match="no setting of fb or its training called 'envs'"):
        pretrain(data, "fb", out=out, **ALL)
    with pytest.raises(ZolError, match=r"pretrain_by_practice\(name, world\)"):
        pretrain(data, "prior_features", out=out, practise="donut", z_dim=5)
    data.save(tmp_path / "data")
    for name, words, sentence in (
        ("fb_cpr", ["--practise", "donut"], "acts in its world anyway"),
        ("prior_features", ["--practise", "donut"], "acts in its world anyway"),
        ("fb", ["--data", str(tmp_path / "data"), "--own-data-share", "0.3"], "--practise WORLD"),
    ):
        with pytest.raises(SystemExit):
            main(["train", name, "--out", str(out), *words])
        assert sentence in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(parallel, "size", lambda: 2)
    with pytest.raises(ZolError, match="run it without torchrun"):
        pretrain(data, "fb", out=out, practise="donut", **ALL)
    assert not out.exists()
