# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Prints the calls and samples of an OTF2 archive as JSON. Of each call: location, function, canonical name, enter,
leave, depth, ending, its parameters, and how much each counter grew between. Of each sample: metric, mode, kind and name of what it
belongs to, time, value.

usage: read_otf2.py ARCHIVE/traces.otf2
"""

import json
import sys

import otf2
from otf2.definitions import MetricInstance
from otf2.enums import LocationType, MetricOccurrence
from otf2.events import Enter, Leave, Metric, ParameterInt, ParameterString

calls, samples = [], []
with otf2.reader.open(sys.argv[1]) as trace:
    resolution = trace.definitions.clock_properties.timer_resolution
    assert resolution == 1_000_000_000, resolution
    for location in trace.definitions.locations:
        assert location.group.name and location.group.system_tree_parent.class_name == "node"
    stacks, counters = {}, {}
    for location, event in trace.events:
        place = int(location._ref)
        stack = stacks.setdefault(place, [])
        if isinstance(event, Metric) and isinstance(event.metric, MetricInstance):
            instance, [value] = event.metric, event.values
            assert instance.recorder._ref == place and location.type == LocationType.METRIC
            metric_class = instance.metric_class
            [member] = metric_class.members
            assert metric_class.occurrence == MetricOccurrence.ASYNCHRONOUS
            mode, scope = (str(kind).split(".")[-1] for kind in (member.metric_mode, instance.metric_scope))
            samples.append([member.name, mode, scope, instance.scope.name, event.time, value])
        elif isinstance(event, Metric):
            assert event.metric.occurrence == MetricOccurrence.SYNCHRONOUS_STRICT
            counters[place] = (event.time, event.values)
        elif isinstance(event, Enter):
            stack.append((event, counters.get(place), []))
        elif isinstance(event, (ParameterInt, ParameterString)):
            value = event.value if isinstance(event, ParameterInt) else event.string
            stack[-1][2].append((event.parameter.name, value))
        elif isinstance(event, Leave):
            enter, at_enter, parameters = stack.pop()
            grown = []
            if at_enter:
                assert at_enter[0] == enter.time and counters[place][0] == event.time
                grown = [after - before for before, after in zip(at_enter[1], counters[place][1], strict=True)]
            assert enter.region == event.region
            endings = [value for attribute, value in (event.attributes or {}).items() if attribute.name == "ending"]
            names = (event.region.name, event.region.canonical_name)
            calls.append([place, *names, enter.time, event.time, len(stack), endings[0] if endings else "returned", parameters, grown])
    assert not any(stacks.values()), "calls without leave"
json.dump({"calls": calls, "samples": samples}, sys.stdout)
