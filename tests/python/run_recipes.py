# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs every block of SQL and Python in a document, in the current folder.

usage: run_recipes.py DOCUMENT

Prints how many there were.
"""

import re
import sys
from pathlib import Path

import duckdb

blocks = re.findall(r"^```(sql|python)\n(.*?)^```$", Path(sys.argv[1]).read_text(), re.MULTILINE | re.DOTALL)
for language, text in blocks:
    if language == "python":
        exec(compile(text, sys.argv[1], "exec"), {})
    else:
        result = duckdb.sql(text)
        rows = result.fetchall() if result is not None else []
        print(text, *rows[:5], sep="\n", file=sys.stderr)
print(len(blocks))
