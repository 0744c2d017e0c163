"""Settings of the ant expert's training."""

from pydantic import Field

from zol.common.config import Config


class AntConfig(Config):
    """How the expert is trained."""

    steps: int = Field(default=1_000_000, ge=1)
    """environment steps altogether"""
    envs: int = Field(default=64, ge=1)
    """ants stepped together"""
    updates: int = Field(default=4, ge=1)
    """updates per step of all ants"""
    batch_size: int = Field(default=256, ge=2)
    """transitions per update"""
    hidden: int = Field(default=128, ge=1)
    """width of actor and critics"""
    learning_rate: float = Field(default=3e-4, gt=0)
    """of actor and critics"""
    discount: float = Field(default=0.98, ge=0, lt=1)
    """per step of 0.1 s"""
    target_rate: float = Field(default=0.005, gt=0, le=1)
    """how fast target critics follow"""
    noise: float = Field(default=0.2, ge=0)
    """of exploring actions, and of actions inside targets"""
    noise_clip: float = Field(default=0.5, ge=0)
    """bound of the noise inside targets"""
    random_steps: int = Field(default=10_000, ge=0)
    """environment steps with uniform actions at the beginning"""
    command_steps: int = Field(default=100, ge=1)
    """steps after which a command changes"""
    episode_steps: int = Field(default=200, ge=1)
    """steps after which an ant is put back, if it has not fallen before"""
    seed: int = 0
    """of ants, networks and noise"""
    save_every: int = Field(default=50_000, ge=1)
    """environment steps between saves"""
