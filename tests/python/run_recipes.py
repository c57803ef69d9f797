# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs every block of SQL and Python in a document, in the current folder.

SQL runs on the views of `out.rtrace`, or of the trace that a comment in its first line names. Needs the Python package on
PYTHONPATH, and rtrace as $RTRACE.

usage: run_recipes.py DOCUMENT

Prints how many there were.
"""

import re
import sys
from pathlib import Path

import rtrace

blocks = re.findall(r"^```(sql|python)\n(.*?)^```$", Path(sys.argv[1]).read_text(), re.MULTILINE | re.DOTALL)
views = {}
for language, text in blocks:
    if language == "python":
        exec(compile(text, sys.argv[1], "exec"), {})
    else:
        named = re.match(r"-- (\S+\.rtrace)\n", text)
        trace = named[1] if named else "out.rtrace"
        if trace not in views:
            views[trace] = rtrace.open(trace).duckdb()
        result = views[trace].sql(text)
        rows = result.fetchall() if result is not None else []
        print(text, *rows[:5], sep="\n", file=sys.stderr)
print(len(blocks))
