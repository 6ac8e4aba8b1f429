"""The checker `code`, which runs programs written by models against tests in sandboxes.

`checker` has the settings. `golds` and `completions` parse tests and programs. `trials` runs one
program in sandboxes (`sandboxes`). Inside a sandbox, `runner` starts each program, which
`isolation` isolates. `programs` loads the program, `testing` runs the tests, and `remote` connects
program and tests by `proxies`.
"""
