"""Entry point for `python -m fairtrial`."""

from fairtrial.cli.app import main

main()
