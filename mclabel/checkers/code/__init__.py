"""The checker `code`, which runs programs written by models against tests in sandboxes.

`checker` has the settings; `golds` and `completions` parse tests and programs; `trials` runs one
program in `boxes`. Inside a box, `runner` starts each program behind its `fence`, `programs` loads
it, `testing` runs tests, and `remote` connects the two by `proxies`.
"""
