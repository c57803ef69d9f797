# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a notebook from the first cell to the last; a cell that fails is an error.

usage: run_notebook.py NOTEBOOK [FOLDER | --store]

Prints how many pictures it draws. A warning is an error: it would be in front of who reads the notebook. The pictures go to
FOLDER, if there is one; with --store, the notebook is written with its results, which a code host then shows.
"""

import base64
import sys
from pathlib import Path

import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
said = [output["text"] for output in outputs if output.get("name") == "stderr"]
assert not said, said
pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
if sys.argv[2:] == ["--store"]:
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    text = nbformat.writes(notebook)
    assert len(text) <= 500_000, f"{len(text)} bytes are too many for a repository"
    Path(sys.argv[1]).write_text(text + "\n")
elif len(sys.argv) > 2:
    for number, picture in enumerate(pictures):
        Path(sys.argv[2], f"{Path(sys.argv[1]).stem}-{number}.png").write_bytes(base64.b64decode(picture))
print(len(pictures))
