//! How busy each thread was over time, and how often it called, as a page has it.

use std::cmp::Reverse;

use foldhash::HashMap;
use rtrace_model::LocationId;
use serde_json::{Value, json};

use crate::overview::{Activity, Overview};

/// The `most` lanes with most time, and one of all other threads where there are some; with the place on the page of
/// each thread's lane. Times are in thousandths of a slice.
pub(super) fn told(overview: &Overview, most: usize) -> (Value, HashMap<LocationId, usize>) {
    let axis = overview.activity_axis();
    let time = |activity: &Activity| activity.told().iter().fold(0, |sum: u64, slice| sum.saturating_add(slice.busy));
    let mut used: Vec<(LocationId, &Activity)> =
        overview.threads().filter(|(_, activity)| activity.told().iter().any(|slice| slice.calls > 0)).collect();
    used.sort_by_key(|&(location, activity)| (Reverse(time(activity)), location));
    let end = used.len().min(most);
    let (shown, others) = used.split_at_mut(end);
    shown.sort_unstable_by_key(|&(location, _)| location);
    let slices = used_slices(overview);
    let lane = |activities: &[(LocationId, &Activity)], location: Option<LocationId>| {
        let (mut calls, mut busy) = (vec![0_u64; slices], vec![0_u64; slices]);
        for slice in activities.iter().flat_map(|(_, activity)| activity.told()) {
            let place = slice.number as usize;
            calls[place] = calls[place].saturating_add(slice.calls);
            busy[place] = busy[place].saturating_add(slice.busy);
        }
        let part = |time: u64| (u128::from(time) * 1_000 / u128::from(axis.width())).min(1_000_000) as u64;
        json!({
            "location": location.map(|location| location.0),
            "threads": activities.len(),
            "busy": busy.into_iter().map(part).collect::<Vec<_>>(),
            "calls": calls,
        })
    };
    let mut told: Vec<Value> = shown.iter().map(|of| lane(&[*of], Some(of.0))).collect();
    let mut places: HashMap<LocationId, usize> =
        shown.iter().enumerate().map(|(place, &(location, _))| (location, place)).collect();
    if !others.is_empty() {
        places.extend(others.iter().map(|&(location, _)| (location, told.len())));
        told.push(lane(others, None));
    }
    (json!({ "width": axis.width(), "slices": slices, "lanes": told }), places)
}

/// Slices up to the last one in which something was.
fn used_slices(overview: &Overview) -> usize {
    let last = overview.threads().filter_map(|(_, activity)| activity.told().last()).map(|slice| slice.number);
    last.max().map_or(0, |last| last as usize + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{Call, Timestamp};

    use super::*;
    use crate::testing::script;

    /// Thousandths of a slice, and calls, of the only lane; slices are a nanosecond as long as the recording is short.
    fn of(calls: &[Call]) -> (u64, Vec<u64>, Vec<u64>) {
        let mut overview = Overview::new(Timestamp(0));
        calls.iter().rev().for_each(|call| overview.add(call, call.depth == 0));
        let (told, places) = told(&overview, 1);
        assert_eq!(told["lanes"].as_array().unwrap().len(), 1);
        assert_eq!(places.len(), 1);
        let numbers =
            |key: &str| told["lanes"][0][key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        (told["width"].as_u64().unwrap(), numbers("busy"), numbers("calls"))
    }

    #[test]
    fn time_is_in_the_slices_in_which_it_passed_and_calls_where_they_began() {
        let mut calls = script("thread 1\n a 5 35\n  b 10 30\n b 40 41\n c 99 ?");
        for call in &mut calls {
            (call.start.0, call.duration) = (call.start.0 * 128, call.duration.map(|duration| duration * 128));
        }
        let (width, busy, calls) = of(&calls);
        assert_eq!((width, busy.len()), (16, 99 * 8 + 1));
        assert_eq!(busy.iter().sum::<u64>(), 31 * 8 * 1000);
        assert!(busy[5 * 8..35 * 8].iter().chain(&busy[40 * 8..41 * 8]).all(|&part| part == 1000));
        let began: Vec<usize> = calls.iter().enumerate().filter(|&(_, &calls)| calls > 0).map(|(at, _)| at).collect();
        assert_eq!(began, [5 * 8, 10 * 8, 40 * 8, 99 * 8]);
    }

    #[test]
    fn threads_without_a_lane_share_one() {
        let mut overview = Overview::new(Timestamp(0));
        for call in script("thread 1\n a 0 7\nthread 2\n a 0 3\n b 4 8\nthread 3\n a 0 2\nthread 4\n a 0 8") {
            overview.add(&call, true);
        }
        let (told, places) = told(&overview, 2);
        let lanes = told["lanes"].as_array().unwrap();
        let calls =
            |lane: usize| lanes[lane]["calls"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
        assert_eq!([0, 1, 2].map(calls), [1, 1, 3]);
        assert_eq!([1, 4, 2, 3].map(|id| places[&LocationId(id)]), [0, 1, 2, 2]);
        assert_eq!((&lanes[1]["location"], &lanes[2]["location"]), (&json!(4), &Value::Null));
        assert_eq!(lanes[2]["threads"], 2);
    }
}
