//! Durations: what a target measured with its own clock, in the form that `targets/ways.h` describes,
//! against what is on record.

use std::collections::BTreeMap;

use rtrace_model::{Call, Ending};

use super::recording::Recording;

/// What a window outside a call may be longer by, beside the part of both traps in which no clock is read.
const SLACK_NS: u64 = 2_000;
/// And for each call inside, as calls that end together are all put down before control goes on.
const NESTED_NS: u64 = 2_000;

/// What a single step may take at most, in parts of what it took beside the recording.
const STEP_PERCENT: u64 = 150;

/// Compares every window of an output with the call that it is of.
///
/// A window outside holds the call, and hardly more: that is a matter of the machine's quiet, so it is
/// asked of the median over the windows of a function, and the error tells what the median was. A
/// window inside is held by its call, always.
///
/// # Errors
///
/// Where a function's median is off.
///
/// # Panics
///
/// On a call that is not as long as its window inside, or longer than that outside.
pub fn check(recording: &Recording, stdout: &[u8]) -> Result<(), String> {
    let mut excess: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    // Where a return site is single-stepped, as no cheap instruction follows that cannot fault.
    let is_stepped = recording.summary().return_sites.single_stepped > 0;
    let step = if is_stepped { recording.cost_of_step() * STEP_PERCENT / 100 } else { 0 };
    let allowed_outside = SLACK_NS + recording.cost_outside() + step;
    let text = String::from_utf8_lossy(stdout);
    for Window { line, thread, name, is_inside, begin, end } in windows(&text) {
        let calls = calls(recording, thread, name);
        if is_inside {
            let call = calls.iter().rfind(|call| call.start.0 <= begin);
            let call = call.unwrap_or_else(|| panic!("no call of {line}"));
            assert!(call.ending != Ending::Returned || call.known_until().0 >= end, "{line} is longer than {call:?}");
            continue;
        }
        let call = calls.iter().find(|call| call.start.0 >= begin);
        let call = call.filter(|call| call.start.0 <= end).unwrap_or_else(|| panic!("no call in {line}"));
        if let (Ending::Returned, Some(duration)) = (call.ending, call.duration) {
            assert!(call.known_until().0 <= end, "{line} is shorter than {call:?}");
            let nested = recording.calls_during(call).count() as u64;
            let allowed = (allowed_outside + NESTED_NS * nested).max((end - begin) / 100);
            excess.entry(name).or_default().push((end - begin - duration, allowed));
        }
    }
    let off = |(name, windows): (&str, Vec<(u64, u64)>)| {
        let (excess, allowed) = median(windows);
        (excess > allowed).then(|| format!("{name}: {excess} ns shorter than measured, {allowed} ns allowed"))
    };
    let off: Vec<String> = excess.into_iter().filter_map(off).collect();
    if off.is_empty() { Ok(()) } else { Err(off.join("; ")) }
}

/// Some calls were left, and each ended before control was where it went on, as the windows outside them say.
pub fn assert_left_soon(recording: &Recording, stdout: &[u8]) {
    let text = String::from_utf8_lossy(stdout);
    let left = windows(&text).inspect(|Window { line, thread, name, begin, end, .. }| {
        let calls = calls(recording, *thread, name);
        let call = calls.iter().find(|call| call.start.0 >= *begin).unwrap_or_else(|| panic!("no call in {line}"));
        let is_left = call.ending == Ending::Unwound && call.duration.is_some();
        assert!(is_left && call.known_until().0 <= *end, "{line} is shorter than {call:?}");
    });
    assert!(left.count() > 0);
}

/// What a target says of a call, in `line`.
struct Window<'a> {
    line: &'a str,
    thread: u32,
    name: &'a str,
    is_inside: bool,
    begin: u64,
    end: u64,
}

fn windows(text: &str) -> impl Iterator<Item = Window<'_>> {
    text.lines().filter(|line| line.starts_with("span ")).map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, thread, name, kind, begin, end] = words[..] else { panic!("`{line}`") };
        let [begin, end] = [begin, end].map(|time| time.parse().unwrap());
        Window { line, thread: thread.parse().unwrap(), name, is_inside: kind == "inside", begin, end }
    })
}

fn median(mut windows: Vec<(u64, u64)>) -> (u64, u64) {
    windows.sort_unstable_by_key(|&(excess, allowed)| i128::from(excess) - i128::from(allowed));
    windows[windows.len() / 2]
}

fn calls<'a>(recording: &'a Recording, thread: u32, name: &str) -> Vec<&'a Call> {
    let of_thread = |((_, tid), calls): ((u32, u32), Vec<(&'a Call, _)>)| (tid == thread).then_some(calls);
    recording.counted(name).into_iter().filter_map(of_thread).flatten().map(|(call, _)| call).collect()
}
