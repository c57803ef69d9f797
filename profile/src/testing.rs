//! Made-up calls for tests.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

use std::collections::HashMap;

use rtrace_model::{Call, Ending, LocationId, Measured, RegionId, Timestamp};

/// The calls with nothing measured, by location and id.
pub fn in_order(calls: &[Call]) -> Vec<Measured> {
    let mut measured: Vec<Measured> =
        calls.iter().map(|&call| Measured { call, readings: Box::default(), values: None }).collect();
    measured.sort_by_key(|of| (of.call.location, of.call.id));
    measured
}

/// Calls in the order of their ends from lines of `function start end`, nested by indentation, and
/// lines of `thread location`. The functions are `a` to `f`. A call that was not timed has `?` for its
/// end.
pub fn script(text: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut location = LocationId(0);
    // Indentation and place in `calls` of the open calls.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["thread", id] => {
                location = LocationId(id.parse().unwrap());
                stack.clear();
            }
            [function, start, end] => {
                while stack.last().is_some_and(|&(outer, _)| outer >= indent) {
                    stack.pop();
                }
                let start: u64 = start.parse().unwrap();
                let duration = (end != "?").then(|| end.parse::<u64>().unwrap() - start);
                let parent = stack.last().map_or(0, |&(_, caller)| calls[caller].id);
                for &(_, caller) in stack.iter().rev() {
                    calls[caller].child += duration.unwrap_or(0);
                    if calls[caller].is_timed() {
                        break;
                    }
                }
                let before = calls.iter().filter(|call| call.location == location).count();
                calls.push(Call {
                    location,
                    region: RegionId(u32::from(function.as_bytes()[0] - b'a')),
                    id: before as u64 + 1,
                    parent,
                    depth: stack.len() as u32,
                    start: Timestamp(start),
                    duration,
                    ending: if duration.is_some() { Ending::Returned } else { Ending::Unseen },
                    ..Call::default()
                });
                stack.push((indent, calls.len() - 1));
            }
            _ => panic!("not understood: {line}"),
        }
    }
    in_order_of_ends(calls)
}

/// Calls that were not timed come when their last callees have ended.
fn in_order_of_ends(mut calls: Vec<Call>) -> Vec<Call> {
    let mut ends: HashMap<(LocationId, u64), Timestamp> = HashMap::new();
    for place in (0..calls.len()).rev() {
        let Call { location, id, parent, .. } = calls[place];
        let of_callees = ends.get(&(location, id)).copied().filter(|_| !calls[place].is_timed());
        let end = calls[place].known_until().max(of_callees.unwrap_or_default());
        let of_caller = ends.entry((location, parent)).or_default();
        *of_caller = end.max(*of_caller);
        ends.insert((location, id), end);
    }
    calls.sort_by_key(|call| (ends[&(call.location, call.id)], std::cmp::Reverse(call.id)));
    calls
}

/// Calls from a shape: for each the location, and how many calls end before it begins.
pub fn nested(shape: &[(u32, usize)]) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut stacks: Vec<Vec<usize>> = vec![Vec::new(); 8];
    let mut entered = [0; 8];
    let mut clock = 0;
    let end = |calls: &mut Vec<Call>, stack: &mut Vec<usize>, clock: u64| {
        let Some(place) = stack.pop() else { return };
        let duration = clock - calls[place].start.0;
        calls[place].duration = Some(duration);
        if let Some(&caller) = stack.last() {
            calls[caller].child += duration;
        }
    };
    for &(location, ends) in shape {
        let stack = &mut stacks[location as usize];
        for _ in 0..ends {
            clock += 3;
            end(&mut calls, stack, clock);
        }
        clock += 2;
        entered[location as usize] += 1;
        calls.push(Call {
            location: LocationId(location),
            region: RegionId(clock as u32 % 5),
            id: entered[location as usize],
            parent: stack.last().map_or(0, |&caller| calls[caller].id),
            depth: stack.len() as u32,
            start: Timestamp(clock),
            ..Call::default()
        });
        stack.push(calls.len() - 1);
    }
    for stack in &mut stacks {
        while !stack.is_empty() {
            clock += 1;
            end(&mut calls, stack, clock);
        }
    }
    in_order_of_ends(calls)
}
