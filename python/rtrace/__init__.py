# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Reads traces of rtrace: directories of Parquet files, which SCHEMA.md describes.

    import rtrace
    calls = rtrace.open("out.rtrace").calls(to="pandas")
"""

from ._trace import NotATrace, Recording, Trace

__all__ = ["NotATrace", "Recording", "Trace", "open"]


def open(directory):
    """Opens a trace directory, or one of a parallel job, which contains several."""
    return Trace(directory)
