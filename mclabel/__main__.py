"""`python -m mclabel` is the `mclabel` command."""

from mclabel.cli import main

main()
