"""A format: the table of a result as HTML. `fairtrial runs list --output runs.html`"""

from html import escape

from fairtrial.plugins import OutputFormat


def as_table(_document, rows):
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[escape(str(row.get(name, ""))) for name in columns] for row in rows]
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in line) + "</tr>" for line in cells)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>\n"


HTML = OutputFormat(as_table, suffix=".html")
