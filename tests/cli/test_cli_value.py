"""``zol value`` as a user types it."""

from pathlib import Path

import pytest
import torch

from zol import checkpoint
from zol.cli import main
from zol.collect.donut import collect
from zol.models.fb import FBConfig, fb_network
from zol.train import prompt_sample


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained donut model, with whole transitions."""
    path = tmp_path_factory.mktemp("value") / "donut"
    data = collect(2000, torch.Generator().manual_seed(0))
    network = fb_network(FBConfig(obs_dim=2, action_dim=2, z_dim=8, discount=0.9, hidden=16))
    checkpoint.save(network, path, prompt=prompt_sample(data, 0), facts={"world": "donut"})
    return path


def test_estimates_of_a_task_fit_into_eighty_columns(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["value", str(model), "--task", "square", "--by", "ratio", "lstd", "imagination"])
    said = capsys.readouterr().out
    table = said[: said.index("Which of them")] if "Which of them" in said else said[: said.index("Believe")]
    for name in ("ratio", "lstd"):
        row = next(line for line in table.splitlines() if line.strip().startswith(name))
        assert len(row.replace(" to ", "-").split()) == 9  # nothing was folded
    assert "square by fb: offline estimates" in said
    assert "imagination needs a learned world" in said
    assert all(len(line) <= 80 for line in table.splitlines())


def test_a_latent_from_a_file_is_valued_on_its_own_task_or_on_another(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["adapt", str(model), "--task", "cross", "--method", "fb", "--out", str(tmp_path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "estimate: mean reward per step, offline, never measured; by ratio" in said
    file = str(tmp_path / "cross.json")
    main(["value", str(model), "--latent", file, "--by", "value"])
    assert "cross by fb: offline estimates" in capsys.readouterr().out
    main(["value", str(model), "--latent", file, "--task", "square", "--by", "value"])
    assert "square by fb: offline estimates" in capsys.readouterr().out


def test_what_acts_may_be_more_than_the_latent_that_was_estimated(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--steps", "5", "--samples", "2", "--hidden", "8"]
    main(["adapt", str(model), "--task", "square", "--method", "supported", *quick])
    said = " ".join(capsys.readouterr().out.split())
    assert "estimates are of the latent alone; what supported does may earn more or less" in said
    main(["adapt", str(model), "--task", "square", "--method", "fb"])
    assert "of the latent alone" not in " ".join(capsys.readouterr().out.split())


def test_a_reward_may_be_typed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["value", str(model), "--reward", "radius > 1", "--by", "value"])
    assert "radius > 1 by fb: offline estimates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to value"),
        (["--task", "square", "--by", "lsdt"], "did you mean 'lstd'"),
        (["--task", "square", "cross", "--latent", "x.json"], "on one task"),
    ],
)
def test_mistakes_are_explained(
    model: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["value", str(model), *words])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
