"""Every way of pretraining in the registry does what any other does: nothing outside knows which it is."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from circles import SMALL_ONLINE, circles

from zol import adapt, checkpoint
from zol.cli import main
from zol.collect.donut import collect
from zol.collect.online import OnlineConfig
from zol.collect.practice import PracticeConfig
from zol.common.errors import ZolError
from zol.common.registry import Registry
from zol.data import Dataset
from zol.data.sampling import Sampler
from zol.evidence import Evidence
from zol.models import MODELS
from zol.models.base import HasFixedLatents, HasLayout, HasRegressors, Learner, Model, identity, model_hash
from zol.models.pretraining import Pretraining
from zol.models.prior_features import PriorFeaturesLearner
from zol.session import Agent
from zol.testing import check_model
from zol.train import TrainConfig, fit, presets, pretrain, pretrain_by_practice, pretrain_online
from zol.worlds.donut import Donut

SMALL: dict[str, Any] = {"z_dim": 6, "hidden": 16, "backward_hidden": 16}
FLOW: dict[str, Any] = {"actor": "flow", "bc": 0.5, "flow_hidden": 16, "flow_layers": 2}
SMALL_PRACTICE: dict[str, Any] = {"envs": 4, "episode_length": 20, "random_steps": 100, "rewards": 16}
LOOP: dict[str, Any] = {"steps": 20, "batch_size": 32, "log_every": 10, "save_every": 10}


# test_fb_cpr_online.py and test_practice.py resume and kill the others.
OFFLINE = [name for name in MODELS if not MODELS[name].online]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    circles(tmp_path_factory.mktemp("shown") / "set")
    return tmp_path_factory.getbasetemp() / "shown0" / "set"


def trained(entry: Pretraining, data: Dataset, shown: Path, out: Path | None, **more: Any) -> Agent:
    """An agent from data, or from the donut itself: beside demonstrations, or by practice."""
    if entry.online == "practice":
        return pretrain_by_practice(entry.name, "donut", out=out, **SMALL | LOOP | SMALL_PRACTICE | more)
    if entry.online:
        return pretrain_online(entry.name, "donut", shown, out=out, **SMALL | LOOP | SMALL_ONLINE | more)
    return pretrain(data, entry.name, out=out, **SMALL | LOOP | {"dynamics_steps": 0} | more)


@pytest.fixture(params=OFFLINE)
def offline(request: pytest.FixtureRequest) -> Pretraining:
    return MODELS[request.param]


@pytest.fixture(params=MODELS)
def entry(request: pytest.FixtureRequest) -> Pretraining:
    return MODELS[request.param]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return collect(2_000, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"discrete": True},
        {"members": 1},
        {"normalise_obs": True, "fourier": 2},
        FLOW | {"residual": True},
    ],
    ids=str,
)
def test_its_networks_keep_the_contract(entry: Pretraining, change: dict) -> None:
    if change.get("actor") == "flow" and entry.name == "fb_cpr":
        pytest.skip("its actor is held to demonstrations: test_fb_cpr.py has the sentence that says so")
    if change.get("discrete") and entry.online:
        pytest.skip("its policies are actors: test_fb_cpr.py has the sentence that says so")
    model = entry.network(entry.config(obs_dim=5, action_dim=3, **SMALL | change))
    assert isinstance(model, Model | HasFixedLatents)
    assert isinstance(model, HasRegressors)
    assert isinstance(model, HasLayout)
    check_model(model)


def test_its_presets_are_settings_that_it_has(entry: Pretraining) -> None:
    known = presets.read(entry.presets)
    published = set() if entry.online == "practice" else {"paper"}
    assert {"cpu"} | published <= set(known)
    acting = set(OnlineConfig.model_fields) | set(PracticeConfig.model_fields) if entry.online else set()
    for name, table in known.items():
        for world in [*table.get("worlds", {}), *([] if table.get("listed_worlds_only") else [None])]:
            values = presets.settings(known, name, world)
            loop = {key: values.pop(key) for key in list(values) if key in TrainConfig.model_fields}
            assert entry.online or values.pop("dynamics_steps") >= 0
            values = {key: value for key, value in values.items() if key not in acting}
            assert TrainConfig(**loop).steps > 0
            config = entry.config(obs_dim=100, action_dim=3, **values)
            entry.learner.accept(entry.learner.architecture(config))


def test_sphered_features_are_saved_and_prompted_like_fb(tmp_path: Path, data: Dataset) -> None:
    trained = pretrain(data, "hilp", out=tmp_path / "run", sphered=True, dynamics_steps=0, **SMALL, **LOOP)
    opened = checkpoint.load(tmp_path / "run")
    states = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    check_model(opened.model)
    assert opened.default_prompt == "correlation"
    with torch.no_grad():
        phi = opened.model.regressors(states)
        assert torch.equal(phi, trained.model.regressors(states))
        assert torch.equal(phi, opened.model.backward(states))


@pytest.mark.parametrize("encoder", ["shallow", "deep"])
@pytest.mark.parametrize("change", [{}, {"discrete": True}], ids=str)
def test_fb_with_an_encoder_keeps_the_contract(encoder: str, change: dict, data: Dataset) -> None:
    entry = MODELS["fb"]
    settings: dict[str, Any] = {"obs_dim": 2, "action_dim": 2, "encoder": encoder, **SMALL, **change}
    config = entry.config(**settings)
    model = entry.network(config, torch.Generator().manual_seed(0))
    check_model(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fit(entry.learner(model, config), data, TrainConfig(**LOOP))
    assert not torch.equal(model.state_dict()["left.net.0.weight"], before["left.net.0.weight"])


@pytest.mark.parametrize("change", [{}, {"discrete": True}, FLOW], ids=str)
def test_it_resumes_bit_for_bit(offline: Pretraining, data: Dataset, tmp_path: Path, change: dict) -> None:
    entry = offline
    config = entry.config(obs_dim=2, action_dim=2, normalise_obs=True, **SMALL | change)

    def train(steps: int, name: str) -> Learner:
        network = entry.network(config, torch.Generator().manual_seed(1))
        learner = entry.learner(network, config)
        fit(learner, data, TrainConfig(**LOOP | {"steps": steps}), tmp_path / name)
        return learner

    whole, _, resumed = train(20, "whole"), train(10, "parts"), train(20, "parts")
    assert model_hash(whole.model) == model_hash(resumed.model)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_autocast_keeps_weights_and_losses_in_single_precision(
    entry: Pretraining, data: Dataset, shown: Path
) -> None:
    prior = {"quantities": ("position:0", "position:1")} if entry.online == "practice" else {}
    config = entry.config(obs_dim=2, action_dim=2, **SMALL | prior)
    learner = entry.learner(entry.network(config), config, autocast=torch.bfloat16)
    g = torch.Generator().manual_seed(0)
    demonstrations = Dataset.open(shown)
    batch = Sampler(data, torch.device("cpu"), learner.batches, demonstrations).draw(learner.batches, 64, g)
    batch = replace(batch, z=torch.randn(64, 6, generator=g))
    if isinstance(learner, PriorFeaturesLearner):
        learner.use_layout(Donut().layout)
    terms = learner.update(batch, g)
    assert {p.dtype for p in learner.model.parameters()} == {torch.float32}
    assert {term.dtype for term in terms.values()} == {torch.float32}
    assert all(bool(term.isfinite()) for term in terms.values())


def test_it_is_pretrained_saved_loaded_prompted_and_adapted(
    entry: Pretraining, data: Dataset, shown: Path, tmp_path: Path
) -> None:
    agent = trained(entry, data, shown, tmp_path / "run", episodes=1)
    assert set(entry.metrics.values()) <= set(json.loads(last_line(tmp_path / "run")))
    loaded = checkpoint.load(tmp_path / "run")
    assert loaded.facts["model"] == entry.name
    assert loaded.default_prompt == entry.prompt
    assert entry.config(**loaded.facts["settings"]).z_dim == 6
    assert identity(loaded.model) == identity(agent.model)
    check_model(loaded.model, loaded.prompt["obs"][:7])
    world = Donut()
    labelled = Evidence.label(loaded.sample(world.layout), world.tasks, loaded.prompt["starts"][:64], "")
    evidence, unrewarded = labelled.rewarded_tasks()
    assert entry.online or not unrewarded  # a few steps online do not see every corner
    plain = adapt.prompted(loaded.model, evidence, loaded.default_prompt)
    found = adapt.zol_search(
        loaded.model,
        evidence,
        plain.z[0],
        adapt.ZOLConfig(steps=10, learning_rate=0.005, chi_square=0.0, trust_region=0.0),
    )
    assert bool((found.distance > 0).any())


def test_without_a_folder_the_checkpoint_stays_in_memory(
    entry: Pretraining, data: Dataset, shown: Path
) -> None:
    agent = trained(entry, data, shown, None, **{} if entry.online else {"dynamics_steps": 5})
    assert agent.facts["weights"] == model_hash(agent.model)
    assert agent.checkpoint.prompt["obs"].shape[1] == 2
    assert (agent.dynamics is None) == bool(entry.online)
    assert not any(p.requires_grad for p in agent.model.parameters())


def test_its_commands(
    offline: Pretraining, data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = offline
    data.save(tmp_path / "data")
    run = str(tmp_path / "run")
    flags = [
        "--steps",
        "10",
        "--batch-size",
        "32",
        "--hidden",
        "16",
        "--backward-hidden",
        "16",
        "--z-dim",
        "6",
        "--log-every",
        "10",
    ]
    flags += ["--episodes", "1", "--dynamics-steps", "0"]
    main(["train", entry.name, "--data", str(tmp_path / "data"), "--out", run, *flags])
    main(["train", "show", run])
    said = capsys.readouterr().out
    assert all(title in said for title in entry.metrics)
    main(["adapt", run, "--task", "cross", "--method", "zol", "--steps", "2", "--episodes", "1"])
    assert "cross" in capsys.readouterr().out
    assert f"| model | {entry.name} |" in (tmp_path / "run" / "README.md").read_text()


def test_an_unknown_model_is_answered_with_the_nearest(data: Dataset) -> None:
    with pytest.raises(ZolError, match="no model called 'laplcian'; did you mean 'laplacian'"):
        pretrain(data, "laplcian")


LOOKING_AHEAD: dict[str, dict[str, Any]] = {
    "hilp": {},
    "one_step_fb": {},
    "successor_features icvf": {"features": "icvf"},
    "successor_features rldp": {"features": "rldp"},
    "successor_features byol_gamma": {"features": "byol_gamma"},
}


@pytest.mark.parametrize("name", LOOKING_AHEAD)
def test_models_that_look_ahead_need_episodes(name: str, data: Dataset) -> None:
    steps = data.transitions()
    columns = (steps.obs.numpy(), steps.action.numpy(), steps.next_obs.numpy())
    shuffled = Dataset.from_arrays(*columns, truncated=torch.ones(len(steps), dtype=torch.bool).numpy())
    with pytest.raises(ZolError, match="no episode of these data has two steps"):
        pretrain(shuffled, name.split()[0], **SMALL | LOOP | LOOKING_AHEAD[name])


@pytest.mark.parametrize("features", ["icvf", "rldp", "byol", "byol_gamma", "random"])
def test_successor_features_of_every_name_resume_bit_for_bit(
    features: str, data: Dataset, tmp_path: Path
) -> None:
    entry = MODELS["successor_features"]
    settings: dict[str, Any] = {"obs_dim": 2, "action_dim": 2, "features": features, "centred": True}
    config = entry.config(**settings | SMALL)

    def train(steps: int, name: str) -> Learner:
        learner = entry.learner(entry.network(config, torch.Generator().manual_seed(1)), config)
        fit(learner, data, TrainConfig(**LOOP | {"steps": steps}), tmp_path / name)
        return learner

    whole, _, resumed = train(20, "whole"), train(10, "parts"), train(20, "parts")
    assert model_hash(whole.model) == model_hash(resumed.model)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


# FB is what test_bench.py is about; of its relatives one has to do in the quick suite.
BENCHED = [
    pytest.param(name, marks=() if name == "laplacian" else pytest.mark.slow)
    for name in OFFLINE
    if name != "fb"
]


@pytest.mark.parametrize("name", BENCHED)
def test_it_is_benched(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    explored = ["--steps", "2000", "--how", "random", "--out", str(tmp_path / "data")]
    main(["explore", "point_mass_maze", *explored])
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in (SMALL | LOOP).items()]
    flags += ["--episodes", "0", "--dynamics-steps", "0", "--fourier", "0"]
    run = str(tmp_path / "run")
    main(["train", name, "--data", str(tmp_path / "data"), "--out", run, *flags])
    words = ["bench", "exorl", run, "--store", str(tmp_path / "s.sqlite"), "--workers", "1"]
    main([*words, "--episodes", "2", "--steps", "5", "--methods", "fb", "ridge", "zol"])
    assert "cells are in" in capsys.readouterr().out


PLUGIN = """
from zol.models.fb import FBConfig, FBLearner
from zol.models.pretraining import Pretraining
from zol.models.settings import plain_network

class Learner(FBLearner):
    @staticmethod
    def architecture(config):
        return plain_network(config, "mine")

MODEL = Pretraining("mine", "my own", FBConfig, Learner, "my_package:presets.toml")
"""


def test_another_package_adds_a_model(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One module, one file of presets and one entry point; its checkpoints open where it is not installed."""
    package, facts = tmp_path / "site" / "my_package", tmp_path / "site" / "my_package-1.dist-info"
    package.mkdir(parents=True)
    facts.mkdir()
    (package / "__init__.py").write_text(PLUGIN)
    (package / "presets.toml").write_text("[cpu]\nsteps = 7\nbatch_size = 32\nz_dim = 5\nhidden = 16\n")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[zol.models]\nmine = my_package:MODEL\n")
    data.save(tmp_path / "data")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "site")
        installed: Registry[Any] = Registry("model", "zol.models", MODELS.own)
        patch.setattr("zol.train.planning.MODELS", installed)
        patch.setattr("zol.cli.MODELS", installed)
        places = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "run")]
        main(["train", "mine", *places, "--episodes", "0"])
        main(["train"])
        assert "train mine" in capsys.readouterr().out
    loaded = checkpoint.load(tmp_path / "run")
    assert (loaded.facts["model"], loaded.facts["steps"], loaded.model.z_dim) == ("mine", 7, 5)


def last_line(run: Path) -> str:
    return (run / "metrics.jsonl").read_text().splitlines()[-1]
