"""Four control domains (walker, cheetah, quadruped, point-mass maze) on batched MuJoCo."""
