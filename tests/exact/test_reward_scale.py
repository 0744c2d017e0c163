"""The unit of a reward changes no latent, from 1e-30 to 1e30; rewards that are no numbers are refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from zol import prompt
from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.fields import Layout, States
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.session.wishes import as_reward
from zol.tasks import Task
from zol.tasks.from_file import task_from_file
from zol.value import ESTIMATORS, ValueProblem

SCALES = [1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30]
POWERS = [-100, -41, -20, -5, 5, 20, 41, 100]
OBS = torch.randn(500, 3, generator=torch.Generator().manual_seed(1))
REWARDS = torch.stack([(OBS[:, 0] > 0).float(), OBS[:, 1], (OBS[:, 2] > 2.5).float()])


def network(**settings: bool) -> Network:
    config = FBConfig(obs_dim=3, action_dim=2, z_dim=6, hidden=16, backward_hidden=16)
    model = fb_network(config, torch.Generator().manual_seed(0))
    return Network(model.config.updated(**settings)) if settings else model


MODEL = network()


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("how", ["correlation", "ridge", "least_squares"])
def test_powers_of_two_change_no_bit_and_other_scales_no_more_than_rounding(
    how: prompt.RewardPrompt, centre: bool
) -> None:
    expected = prompt.reward(MODEL, OBS, REWARDS, how, centre=centre)
    for power in POWERS:
        got = prompt.reward(MODEL, OBS, REWARDS * 2.0**power, how, centre=centre)
        assert torch.equal(got, expected), power
    for scale in SCALES:
        got = prompt.reward(MODEL, OBS, REWARDS * scale, how, centre=centre)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for scale in (1e-300, 5e-324 * 2**30, 1e300):  # rewards of double precision, and subnormal ones
        got = prompt.reward(MODEL, OBS, REWARDS.double().sign() * scale, how, centre=centre)
        signs = prompt.reward(MODEL, OBS, REWARDS.sign(), how, centre=centre)
        torch.testing.assert_close(got, signs, rtol=1e-3, atol=1e-4)


def test_tasks_of_different_scales_do_not_disturb_each_other() -> None:
    factors = torch.tensor([[2.0**100], [1.0], [2.0**-100]])
    assert torch.equal(prompt.reward(MODEL, OBS, REWARDS * factors), prompt.reward(MODEL, OBS, REWARDS))


def test_rewards_of_ordinary_size_are_used_as_they_are() -> None:
    for power in (-20, 0, 20):
        table = REWARDS / REWARDS.abs().amax(-1, keepdim=True) * 0.75 * 2.0**power
        found, exponent = prompt.ordinary_scale(table)
        assert found is table
        assert not exponent.any()


@pytest.mark.parametrize("scale", [*SCALES, 1e38])
def test_weighted_prompts_know_a_unit_and_their_limits_are_defined(scale: float) -> None:
    """Small rewards weigh all states alike, large ones the best state alone."""
    rewards = OBS[:, 1] / OBS[:, 1].abs().max()
    got = prompt.reward(MODEL, OBS, rewards * scale, "weighted")
    small, best = prompt.reward(MODEL, OBS, rewards), prompt.goal(MODEL, OBS[OBS[:, 1].argmax()])
    torch.testing.assert_close(got, small if scale < 1 else best, rtol=1e-3, atol=1e-3)


def test_a_model_whose_latents_have_a_length_keeps_it() -> None:
    model = network(project=False)
    expected = prompt.reward(model, OBS, REWARDS)
    for power in (-100, 100):
        assert torch.equal(prompt.reward(model, OBS, REWARDS * 2.0**power), expected * 2.0**power)


@pytest.mark.parametrize("power", [-100, 100])
def test_moments_are_in_the_rewards_unit(power: int) -> None:
    expected = prompt.reward_moments(MODEL, OBS, REWARDS)
    got = prompt.reward_moments(MODEL, OBS, REWARDS * 2.0**power)
    for name in ("moment", "weights", "mean"):
        assert torch.equal(getattr(got, name), getattr(expected, name) * 2.0**power)
    huge = prompt.reward_moments(MODEL, OBS, torch.full((1, 500), 3e38))
    assert huge.mean.tolist() == pytest.approx([3e38])  # the sum is no number


@pytest.mark.parametrize("power", [-60, 60])
def test_the_error_of_a_ratio_is_in_the_rewards_unit(power: int) -> None:
    evidence = Evidence(("a", "b", "c"), OBS, REWARDS, OBS[:10])
    z = MODEL.project(torch.randn(4, 6, generator=torch.Generator().manual_seed(2)))
    expected = ESTIMATORS["ratio"].estimate(ValueProblem(MODEL, evidence), z)
    large = replace(evidence, rewards=REWARDS * 2.0**power)
    got = ESTIMATORS["ratio"].estimate(ValueProblem(MODEL, large), z)
    assert torch.equal(got.mean, expected.mean * 2.0**power)
    torch.testing.assert_close(got.error, expected.error * 2.0**power, rtol=1e-5, atol=0)


def test_constant_and_empty_rewards_keep_their_results() -> None:
    for scale in (1e-30, 1.0, 1e30):
        constant = torch.full((500,), scale)
        torch.testing.assert_close(
            prompt.reward(MODEL, OBS, constant),
            prompt.reward(MODEL, OBS, torch.ones(500)),
            rtol=1e-4,
            atol=1e-5,
        )
    with pytest.raises(DataError, match="is zero on all 500"):
        prompt.reward(MODEL, OBS, torch.zeros(500))
    for scale in (2.0**-90, 1.0, 2.0**90):
        with pytest.raises(DataError, match="is constant on all 500"):
            prompt.reward(MODEL, OBS, torch.full((500,), scale), centre=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8, torch.float64])
def test_whole_numbers_and_truth_values_are_numbers(dtype: torch.dtype) -> None:
    given = (OBS[:, 0] > 0).to(dtype)
    for how in ("correlation", "ridge", "weighted"):
        expected = prompt.reward(MODEL, OBS, given.float(), how)
        torch.testing.assert_close(prompt.reward(MODEL, OBS, given, how), expected, rtol=1e-4, atol=1e-5)


STATES = States(OBS, Layout.plain(3))


@pytest.mark.parametrize(
    "given",
    [
        torch.ones(500, dtype=torch.complex64),
        np.ones(500, dtype=complex),
        np.array(["a"] * 500),
        np.array([None] * 500),
        np.zeros(500, dtype=[("a", "f4")]),
        "much",
        None,
        1j,
    ],
)
def test_what_is_no_number_is_refused(given: object) -> None:
    with pytest.raises(DataError, match="one number per state"):
        as_reward(lambda s: given)(STATES)
    with pytest.raises(DataError, match="one number per state"):
        Task("own", lambda s: given)(STATES)  # type: ignore[arg-type, return-value]
    if isinstance(given, Tensor):
        with pytest.raises(DataError, match="real numbers"):
            prompt.reward(MODEL, OBS, given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys\nsys.exit(0)\ndef f(s): return s['obs'][..., 0]", "cannot be run in line 2: SystemExit"),
        ("def f(s): raise SystemExit", "failed in line 1: SystemExit"),
        ("def f(s): return s['obs'][..., 0] + 1j", "real numbers"),
        ("def f(s): return 'much'", "gave a str"),
    ],
)
def test_a_file_that_ends_the_program_or_gives_no_numbers_is_a_sentence(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "r.py").write_text(text)
    with pytest.raises(DataError, match=expected):
        task_from_file(f"{tmp_path}/r.py:f")(STATES)


@pytest.mark.parametrize(
    "text",
    [
        "np.where(s['obs'][:, 0] > 0, 2.0, 0.0)",
        "2 * (s['obs'][:, 0] > 0).astype(np.float32)",
        "np.sum(2 * (s['obs'][:, :1] > 0), axis=-1)",
    ],
)
def test_a_file_may_be_written_in_numpy(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.py").write_text(f"import numpy as np\ndef f(s): return {text}\n")
    reward = task_from_file(f"{tmp_path}/r.py:f")
    expected = 2 * (STATES.obs[..., 0] > 0).float()
    assert torch.equal(reward(STATES).float(), expected)
    boxed = States(STATES.obs.reshape(2, -1, STATES.obs.shape[-1]), STATES.layout)
    assert torch.equal(reward(boxed).float(), expected.reshape(2, -1))


def test_a_reward_file_that_exits_does_not_look_like_success(tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text("import sys\nsys.exit(0)\n")
    words = ["adapt", str(tiny_checkpoint), "--reward", f"{tmp_path}/r.py:f"]
    done = subprocess.run([sys.executable, "-m", "zol", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert "SystemExit" in done.stderr
