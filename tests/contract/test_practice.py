"""Models that practise: exact resume, kills, Ctrl-C, whose latents act, terminal states, refusals."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killing import run
from same_run import assert_same_run

import zol
from zol import checkpoint
from zol.cli import main
from zol.collect.practice import NOBODY, Practice, PracticeConfig
from zol.common.errors import ZolError
from zol.common.tensors import read_metadata
from zol.data import Dataset
from zol.models.prior_features import MODEL, PriorFeaturesConfig, PriorFeaturesLearner
from zol.testing import check_dataset
from zol.train import TrainConfig, fit, pretrain, pretrain_by_practice
from zol.train.run_folder import STATE
from zol.worlds.base import World
from zol.worlds.donut import Donut
from zol.worlds.tabular import corridor

NETWORK: dict[str, Any] = {"z_dim": 5, "hidden": 16, "backward_hidden": 16, "rewards": 32}
PRIOR: dict[str, Any] = {"first_rewards": 8, "reward_doubling": 10, "feature_steps": 2}
LOOP: dict[str, Any] = {"batch_size": 32, "log_every": 5, "save_every": 5}
ACTING: dict[str, Any] = {
    "envs": 4,
    "episode_length": 20,
    "latent_steps": 10,
    "steps_per_update": 8,
    "random_steps": 100,
    "place_every": 4,
    "restarts": 0.25,
}
ALL = NETWORK | PRIOR | LOOP | ACTING


def flags(values: dict[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def make(world: World, folder: Path, quantities: tuple[str, ...], **change: Any) -> tuple[Any, Practice]:
    sizes: dict[str, Any] = {"obs_dim": world.layout.obs_dim, "action_dim": world.action_dim}
    config = PriorFeaturesConfig(quantities=quantities, **sizes | NETWORK | PRIOR)
    learner = MODEL.learner(MODEL.network(config, torch.Generator().manual_seed(1)), config)
    assert isinstance(learner, PriorFeaturesLearner)
    return learner, Practice(learner, world, PracticeConfig(**ACTING | change), folder=folder, seed=0)


def test_batches_hold_the_latents_of_the_rewards_that_acted(tmp_path: Path) -> None:
    learner, feed = make(Donut(), tmp_path / "set", ("position:0", "position:1"), own_share=1.0)
    fit(learner, feed.begun, TrainConfig(steps=25, **LOOP), feed=feed)
    data = feed.collected()
    check_dataset(data)
    first = feed.begun.episodes
    for number in range(first):
        assert (data.episode(number)["reward_number"][:-1] == NOBODY).all(), "the first rounds act at random"
    played = [data.episode(k)["reward_number"][:-1, 0] for k in range(first, data.episodes)]
    assert len(played) == 2 * 4, "a round of 4 environments every 10 updates, but for the first"
    for episode in played:
        assert len(episode) == 20
        assert len(set(episode[:10].tolist())) == len(set(episode[10:].tolist())) == 1
        assert (episode >= 0).all()
    batch = feed.draw(learner.batches, 64, torch.Generator())
    assert batch.z is not None
    known = learner.space.latents[: int(learner.space.count)]
    assert bool((batch.z.unsqueeze(1) == known).all(-1).any(-1).all())
    assert int(learner.space.count) > 8, "the pool grows"
    feed.close()


def test_stretches_end_with_their_episode(tmp_path: Path) -> None:
    learner, feed = make(Donut(), tmp_path / "set", ("position:0", "position:1"))
    batch = feed.draw(learner.batches, 400, torch.Generator())
    assert batch.path_obs is not None
    assert batch.path_length is not None
    assert batch.path_obs.shape == (400, 3, 2)
    assert set(batch.path_length.tolist()) == {1, 2, 3}
    assert torch.equal(batch.path_obs[:, 0], batch.next_obs)
    feed.close()


def test_some_episodes_begin_in_states_that_were_visited(tmp_path: Path) -> None:
    learner, feed = make(Donut(), tmp_path / "set", ("position:0", "position:1"), restarts=0.5)
    fit(learner, feed.begun, TrainConfig(steps=25, **LOOP), feed=feed)
    data = feed.collected()
    first = [torch.tensor(data.episode(k)["obs"][0]) for k in range(feed.begun.episodes, data.episodes)]
    before = torch.cat([torch.tensor(data.episode(k)["obs"]) for k in range(data.episodes - 4)])
    again = [bool((before == obs).all(-1).any()) for obs in first[-4:]]
    assert sum(again) == 2, "half of the four environments of the last round"
    feed.close()


def test_worlds_with_terminal_states(tmp_path: Path) -> None:
    world = corridor()
    name = world.layout.names[0]
    learner, feed = make(world, tmp_path / "set", (f"{name}:0", f"{name}:1"))
    fit(learner, feed.begun, TrainConfig(steps=25, **LOOP), feed=feed)
    data = feed.collected()
    check_dataset(data)
    assert bool(data.columns["terminated"].any())
    assert int(data.lengths.min()) < 20
    batch = feed.draw(learner.batches, 200, torch.Generator())
    assert bool(batch.terminated.any())
    feed.close()


def train(say: Any, out: Path, steps: int = 40, save_every: int = 5) -> None:
    """A run that says a word at every update, so that it can be killed at a chosen one."""
    original = PriorFeaturesLearner.update

    def talking(self: PriorFeaturesLearner, *args: Any) -> Any:
        say("update")
        return original(self, *args)

    PriorFeaturesLearner.update = talking  # type: ignore[method-assign, assignment]
    settings = ALL | {"save_every": save_every}
    pretrain_by_practice(
        "prior_features", "donut", out=out, steps=steps, episodes=1, eval_every=10, **settings
    )


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calm") / "run"
    run(train, path)
    return path


def test_kills_at_random_moments_leave_no_trace(calm: Path, tmp_path: Path) -> None:
    path, choose, saved = tmp_path / "run", random.Random(0), [0]
    for _ in range(4):
        run(train, path, 40, 3, kill_after=choose.uniform(0, 0.05), words=choose.randint(1, 12))
        if (path / STATE).exists():
            saved.append(int(read_metadata(path / STATE)["step"]))
    assert saved == sorted(saved)
    assert 0 < saved[-1] < 40
    run(train, path, 40, 3)
    assert_same_run(path, calm, "practice")


def test_a_run_is_continued_with_the_same_settings_only(calm: Path) -> None:
    with pytest.raises(ZolError, match="begun with other settings of practice"):
        pretrain_by_practice("prior_features", "donut", out=calm, steps=50, **ALL | {"envs": 5})
    with pytest.raises(ZolError, match="whitening"):
        pretrain_by_practice("prior_features", "donut", out=calm, steps=50, **ALL | {"whitening": 0.9})


def test_what_was_practised_is_labelled(calm: Path) -> None:
    found = checkpoint.load(calm)
    assert found.facts["practice"]["envs"] == 4
    assert Dataset.open(calm / "practice").provenance["source"] == "practice"
    assert len(found.prompt["obs"]) > 0


def test_its_own_prompt_is_the_default(calm: Path) -> None:
    agent = zol.load(calm)
    assert agent.method() == agent.method("plain") == "least-squares"
    found = agent.adapt("cross").latent
    assert found.method == "least-squares"
    assert torch.equal(found.z, agent.adapt("cross", "least-squares").latent.z)
    assert not torch.equal(found.z, agent.adapt("cross", "fb").latent.z)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train, show, adapt and train a learned world on what was practised: as a user types them."""
    run_folder = str(tmp_path / "run")
    words = ["--world", "donut", "--out", run_folder, "--steps", "20", "--episodes", "1"]
    main(["train", "prior_features", *words, *flags(ALL)])
    main(["train", "show", run_folder])
    said = capsys.readouterr().out
    assert all(title in said for title in MODEL.metrics)
    main(["adapt", run_folder, "--task", "cross", "--method", "zol", "--steps", "2", "--episodes", "1"])
    assert "cross" in capsys.readouterr().out
    assert "| model | prior_features |" in (tmp_path / "run" / "README.md").read_text()


def test_what_cannot_work_is_said_first(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ZolError, match="practises in a world: --world NAME"):
        main_error(["train", "prior_features", "--out", str(out)])
    with pytest.raises(ZolError, match="no quantity of this world called 'hight'"):
        pretrain_by_practice("prior_features", "donut", out=out, **ALL | {"quantities": ("hight",)})
    with pytest.raises(ZolError, match="no setting of prior_features or its training called 'envz'"):
        pretrain_by_practice("prior_features", "donut", out=out, envz=3)
    with pytest.raises(ZolError, match=r"pretrain_by_practice\(name, world\)"):
        pretrain(Dataset.from_arrays(np.zeros((4, 2)), np.zeros((4, 2)), np.ones((4, 2))), "prior_features")
    assert not out.exists()


def main_error(words: list[str]) -> None:
    """Run a command whose error is wanted as it is raised."""
    from zol.cli.train import train_command

    command, _ = train_command(words[1], words[2:])
    command(out=Path(words[-1]))
