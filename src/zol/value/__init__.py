"""What a latent is worth, offline, with an interval. One file per estimator, one line per file below.

    problem = ValueProblem(model, evidence, tasks, layout, learned_world)
    ESTIMATORS["ratio"].estimate(problem, z)      # latents [K, d] → ValueEstimate of [K, T]

``zol bench ranking`` compares all of them with what latents truly earn.
"""

from zol.common.registry import Entry, Registry
from zol.value.base import Estimator, ValueEstimate, ValueProblem

ESTIMATORS: Registry[Estimator] = Registry(
    "estimator",
    "zol.estimators",
    {
        "ratio": Entry("zol.value.ratio:ESTIMATOR", "importance sampling with the model's density ratio"),
        "value": Entry("zol.value.own_value:ESTIMATOR", "the model's own value at the start states"),
        "lstd": Entry("zol.value.lstd:ESTIMATOR", "the model's own value, corrected by one d×d system"),
        "fqe": Entry("zol.value.fqe:ESTIMATOR", "fitted Q evaluation, networks for every latent"),
        "task_critic": Entry(
            "zol.value.task_critic:ESTIMATOR",
            "one critic Q(s, a, z) of the task for all latents, pessimistic",
        ),
        "dualdice": Entry("zol.value.dualdice:ESTIMATOR", "a ratio learned for every latent by DualDICE"),
        "gradientdice": Entry("zol.value.gradientdice:ESTIMATOR", "a ratio learned by GradientDICE"),
        "warmdice": Entry("zol.value.gradientdice:WARM", "lstd's ratio plus a residual by GradientDICE"),
        "algaedice": Entry("zol.value.algaedice:ESTIMATOR", "a ratio learned by AlgaeDICE, for every task"),
        "imagination": Entry(
            "zol.value.imagination:ESTIMATOR", "the mean reward of rollouts in the learned world"
        ),
        "episodes": Entry(
            "zol.value.imagination:EPISODES", "the mean reward of whole episodes in the learned world"
        ),
    },
)

__all__ = ["ESTIMATORS", "Estimator", "ValueEstimate", "ValueProblem"]
