"""OGBench's environments as batched worlds: mazes for a point and for an ant, and a table with a robot arm.

MuJoCo models are read at run time from the installed package ``ogbench`` (the extra ``ogbench``),
which is located and never imported; everything that moves, observes and rewards is written here for n
environments at once. The package is what the tests compare these worlds with, step by step.
"""
