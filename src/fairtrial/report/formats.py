"""The formats that a result can be given in, and the file suffixes that choose them."""

FORMATS = ("text", "json", "csv", "markdown", "latex")
SUFFIXES = {".json": "json", ".csv": "csv", ".md": "markdown", ".tex": "latex", ".txt": "text"}
CHART_SUFFIXES = (".png", ".svg", ".pdf")
