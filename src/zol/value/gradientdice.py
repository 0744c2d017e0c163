r"""The value of a latent by GradientDICE (Zhang, Liu, Whiteson, 2020), from the data or from the model.

    min_ζ max_{g, u}  L(ζ, g) − E_β[g²]/2 + u (E_β[ζ] − 1) − u²/2                  L as in zol.value.dice

The best g is how much the flow equation is violated at (s, a), so that ζ descends in the squared violation.
The problem is convex in ζ and concave in g and u, and converges in linear classes. GenDICE (Zhang, Dai, Li,
Schuurmans, 2020) has the same constraints with a divergence that needs ζ ≥ 0 by a nonlinear output, which
loses that; GradientDICE was written to replace it, and does here.

``warmdice`` is the same, begun at the ratio that the model's own features give (zol.value.lstd) instead of at
ζ = 1: a low-rank ratio plus a small learned residual.
"""

from zol.value.base import Estimator
from zol.value.dice import DICESettings, by_dice

ESTIMATOR = Estimator(
    by_dice,
    formula="Σζr/Σζ, ζ by GradientDICE's saddle point",
    interval="transitions and ensemble members",
    cost="four small networks per latent, trained for 200 steps",
    needs_transitions=True,
    settings=DICESettings(penalty=1.0),
)
WARM = Estimator(
    by_dice,
    formula="Σζr/Σζ, ζ = lstd's ratio + a residual by GradientDICE",
    interval="transitions and ensemble members",
    cost="lstd, and four small networks per latent, trained for 200 steps",
    needs_transitions=True,
    settings=DICESettings(penalty=1.0, warm=True),
)
