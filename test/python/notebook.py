"""Executes the cells of a JSON file in a notebook, and prints what each shows as JSON."""

import json
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sources = json.loads(Path(sys.argv[1]).read_text())
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def shown(output: dict) -> str:
    data = output.get("data", {})
    return "".join(output.get("text", "")) + "".join(data.get("text/html", data.get("text/plain", "")))


cells = [{"source": cell.source, "shown": "".join(shown(output) for output in cell.outputs)} for cell in notebook.cells]
print(json.dumps(cells))
