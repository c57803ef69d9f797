# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs a notebook from the first cell to the last; a cell that fails is an error.

usage: run_notebook.py NOTEBOOK [FOLDER]

The pictures that it draws go to FOLDER, and how many there are to standard output.
"""

import base64
import sys
from pathlib import Path

import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
if len(sys.argv) > 2:
    for number, picture in enumerate(pictures):
        Path(sys.argv[2], f"{Path(sys.argv[1]).stem}-{number}.png").write_bytes(base64.b64decode(picture))
print(len(pictures))
