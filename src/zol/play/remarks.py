"""What the sample says about a reward, in words: what is never rewarded, and what was never seen."""

import torch
from torch import Tensor

from zol.fields import States
from zol.play.reward import unit_of
from zol.tasks.expression import wanted_values

RARE = 0.01  # a reward that fewer of the sampled states earn is called rare
ENDS = (0.001, 0.999)  # what lies outside of these quantiles was hardly ever seen


def remarks(text: str, rewards: Tensor, states: States) -> list[str]:
    """Sentences about a reward and its values ``[N]`` on the sample; none if there is nothing to say."""
    found = []
    count, best = len(rewards), float(rewards.max())
    if float(rewards.min()) == best:
        found.append(
            f"the reward is {best:.3g} in all {count:,} sampled states: every behaviour earns the same"
        )
    elif best > 0:
        share = float((rewards > best / 2).float().mean())
        if share < RARE:
            found.append(
                f"only {share:.2%} of the {count:,} sampled states earn more than half of the best, "
                f"{best:.3g}: the latent rests on few states"
            )
    return found + never_seen(text, states)


def never_seen(text: str, states: States) -> list[str]:
    """Values that the expression asks for and the sample hardly has."""
    found = []
    for name, index, value in wanted_values(text):
        if name not in states.layout.names:
            continue
        column = states[name] if index is None else states[name][..., index]
        if column.shape != states.obs.shape[:-1]:
            continue
        low, high = torch.quantile(column.double(), torch.tensor(ENDS, dtype=torch.float64)).tolist()
        unit = f" {unit_of(states.layout, name)}".rstrip()
        shown = name if index is None else f"{name}[{index}]"
        if value > high:
            found.append(
                f"the model has hardly ever seen {shown} above {high:.3g}{unit}, and {value:g} is asked for"
            )
        elif value < low:
            found.append(
                f"the model has hardly ever seen {shown} below {low:.3g}{unit}, and {value:g} is asked for"
            )
    return list(dict.fromkeys(found))
