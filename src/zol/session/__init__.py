"""The library in the words of a user: load an agent, ask it for a skill, act, and see what that earns.

    agent = zol.load("walker")                                  # a name of the zoo, a folder, or hf://org/name
    skill = agent.adapt(lambda s: s["torso_height"] > 1.2)      # a function of states, a Task or its name
    action = skill.act(observation)                             # NumPy in, NumPy out; batches, too
    print(agent.evaluate(skill, episodes=20))                   # beside random actions, with an interval
    print(agent.value(skill))                                   # what it would earn, without trying it

An :class:`Agent` is a checkpoint, the world that it names (if it names one) and a sample of states that
rewards are applied to. Command line, benchmark and users share what is here: opening a checkpoint, turning
wishes into tasks, labelling the sample, and running a method of the registry (zol.adapt.METHODS).
"""

from zol.session.agent import AUTO, Agent, load
from zol.session.appraisal import Appraisal
from zol.session.evaluation import Evaluation
from zol.session.opened import STARTS
from zol.session.skill import Skill, Skills
from zol.session.wishes import Wish

__all__ = ["AUTO", "STARTS", "Agent", "Appraisal", "Evaluation", "Skill", "Skills", "Wish", "load"]
