"""A generative PRM: a language model that verifies a solution in words, behind a PRM's interface.

`questions` has what the built-in templates ask, and reads the probability of a verdict at its
token; `chains` asks for one verification and reads it; `scorer` samples as many as are needed.
Settings are declared in `mclabel.prm.scoring.scorer`.
"""
