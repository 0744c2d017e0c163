r"""The value of a latent by DualDICE (Nachum, Chow, Dai, Li, 2019), with f(x) = x²/2.

    min_ν  E_β[(ν(s, a) − γ'ν(s', a'))²] / 2 − (1 − γ) E_0[ν(s0, a0)],        ratio ζ = ν − γ'ν'

The square of an expectation over s' becomes a maximum over a second function, ζ(s, a):

    min_ν max_ζ  E_β[ζ (ν − γ'ν') − ζ²/2] − (1 − γ) E_0[ν(s0, a0)]

which is the saddle point of :mod:`zol.value.dice` with α = 1.
"""

from zol.value.base import Estimator
from zol.value.dice import DICESettings, by_dice

ESTIMATOR = Estimator(
    by_dice,
    formula="Σζr/Σζ, ζ by DualDICE's saddle point",
    interval="transitions and ensemble members",
    cost="four small networks per latent, trained for 200 steps",
    needs_transitions=True,
    settings=DICESettings(alpha=1.0),
)
