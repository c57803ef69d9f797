# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints the calls of an OTF2 archive as JSON: lists of location, function, canonical name, enter, leave, depth, ending.

usage: read_otf2.py ARCHIVE/traces.otf2
"""

import json
import sys

import otf2
from otf2.events import Enter, Leave

calls = []
with otf2.reader.open(sys.argv[1]) as trace:
    resolution = trace.definitions.clock_properties.timer_resolution
    assert resolution == 1_000_000_000, resolution
    for location in trace.definitions.locations:
        assert location.group.name and location.group.system_tree_parent.class_name == "node"
    stacks = {}
    for location, event in trace.events:
        place = int(location._ref)
        stack = stacks.setdefault(place, [])
        if isinstance(event, Enter):
            stack.append(event)
        elif isinstance(event, Leave):
            enter = stack.pop()
            assert enter.region == event.region
            endings = [value for attribute, value in (event.attributes or {}).items() if attribute.name == "ending"]
            names = (event.region.name, event.region.canonical_name)
            calls.append([place, *names, enter.time, event.time, len(stack), endings[0] if endings else "returned"])
    assert not any(stacks.values()), "calls without leave"
json.dump(calls, sys.stdout)
