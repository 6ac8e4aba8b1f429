"""The checker `code`: programs of models, run against tests in boxes.

`checker` has the settings; `golds` and `completions` read what there is to run; `trials` runs one
program, in `boxes`. Inside a box, `runner` starts each program behind its `fence`; `programs` loads
it, `testing` runs tests, and `remote` carries what they use of each other.
"""
