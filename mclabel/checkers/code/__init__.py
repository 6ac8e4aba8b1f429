"""The checker `code`: programs of models, run against tests in boxes.

`checker` has the settings; `golds` and `completions` read what there is to run; `trials` runs one
solution, in `boxes`. `codec`, `fence`, `programs` and `runner` also run inside a box.
"""
