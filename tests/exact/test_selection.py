"""What choosing by test returns buys: on pure noise a gain, and none on the other half of the episodes."""

import numpy as np

from zol.bench.ablation import best_by_test, chosen_on_other_half


def test_an_oracle_gains_on_noise_and_the_other_half_does_not() -> None:
    noise = np.random.default_rng(0).normal(size=(72, 5, 4, 100))
    assert best_by_test(noise).mean() > 0.2  # about 2.4 standard errors of a mean of 100
    assert abs(chosen_on_other_half(noise).mean()) < 0.08


def test_a_configuration_that_is_really_better_survives_both() -> None:
    values = np.random.default_rng(1).normal(size=(8, 2, 3, 20))
    values[3] += 5.0
    for chosen in (best_by_test(values), chosen_on_other_half(values)):
        assert np.array_equal(chosen, values[3])
