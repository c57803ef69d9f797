//! Which functions were not timed, and why: the sums over times leave their calls out, so a report
//! must say whose time is not in it.

use std::cmp::Reverse;

use foldhash::HashMap;
use rtrace_exporters::TraceSet;
use rtrace_model::{LocationId, RegionId, Scope, Totals, Untimed, escape, grouped, names};

use super::Error;
use super::people::Note;

/// Functions that are named, and cells of each name.
const NAMED: usize = 3;
const NAME: usize = 60;

/// The part of a function's calls, from 0 to 1, above which it is worth a word that they were not timed.
const WORTH_A_WORD: f64 = 0.01;

/// By function and thread.
pub(super) type Shares = HashMap<(RegionId, LocationId), Totals>;

/// The part of calls that was not timed.
fn share(calls: Totals) -> f64 {
    calls.untimed as f64 / calls.calls.max(1) as f64
}

/// Names the functions of which a part worth a word was not timed.
///
/// # Errors
/// The events of the trace cannot be read.
pub(super) fn note(shares: &Shares, trace: &TraceSet, is_part: bool) -> Result<Option<Note>, Error> {
    let mut of_functions: HashMap<RegionId, Totals> = HashMap::default();
    for (&(region, _), &totals) in shares {
        of_functions.entry(region).or_default().add(totals);
    }
    let mut worst: Vec<(RegionId, Totals)> = of_functions.into_iter().collect();
    worst.retain(|&(_, calls)| share(calls) > WORTH_A_WORD);
    if worst.is_empty() {
        return Ok(None);
    }
    worst.sort_by_key(|&(region, calls)| (Reverse(calls.untimed), region));
    let named = worst.iter().take(NAMED).map(|&(region, calls)| {
        let name = trace.function(region).unwrap_or("[unknown]".into());
        format!("{} ({:.1} % of its calls)", names::short(&escape(&name), NAME), 100.0 * share(calls))
    });
    let counts = trace.metrics().iter().any(|metric| metric.scope == Scope::Call);
    let missing = if counts { "neither their time nor what they counted is here" } else { "their time is not here" };
    let mut note = format!("not timed, so {missing}: {}", named.collect::<Vec<_>>().join(", "));
    if worst.len() > NAMED {
        note.push_str(&format!(" and {} more", worst.len() - NAMED));
    }
    let is_meant = |untimed: &&Untimed| untimed.region.is_none_or(|of| worst.iter().any(|&(region, _)| region == of));
    // They are those of the whole recording.
    let reasons = if is_part { Vec::new() } else { Untimed::by_reason(trace.untimed()?.iter().filter(is_meant)) };
    let reasons: Vec<String> =
        reasons.iter().map(|&(reason, count)| format!("{}: {}", reason.name(), grouped(count))).collect();
    if !reasons.is_empty() {
        note.push_str(&format!("; {}", reasons.join(", ")));
    }
    Ok(Some(Note::plain(note)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_model::{
        Base, Definition, Event, EventKind, Metric, MetricId, PathId, PathProfile, Sink, Span, Summary, Timestamp,
        UntimedReason,
    };

    use super::*;
    use crate::testing::{script, writer};
    use crate::{By, Format, Options, run};

    /// The notes of a report by thread of a trace with these calls of `a` to `f`: timed and not.
    fn notes(calls: [(usize, usize); 6], untimed: &[Untimed], is_finished: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let mut lines = vec!["thread 1".to_owned()];
        for (function, (timed, untimed)) in ('a'..='f').zip(calls) {
            lines.extend(vec![format!(" {function} 10 20"); timed]);
            lines.extend(vec![format!(" {function} 10 ?"); untimed]);
        }
        writer.calls(&script(&lines.join("\n")).into()).unwrap();
        for &untimed in untimed {
            let kind = EventKind::Untimed(untimed);
            writer.event(&Event { time: Timestamp(1), pid: None, tid: None, kind }).unwrap();
        }
        if is_finished {
            writer.finish(&Summary { untimed: untimed.to_vec(), ..Summary::default() }).unwrap();
        } else {
            std::thread::sleep(std::time::Duration::from_secs(1));
            writer.tick().unwrap();
        }
        let mut out = Vec::new();
        let options = Options { by: By::Thread, format: Format::Json, ..Options::default() };
        run(folder.path(), &options, &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let notes = value["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned());
        notes.filter(|note| note.starts_with("not timed")).collect()
    }

    fn untimed(reason: UntimedReason, region: Option<u32>, count: u64) -> Untimed {
        Untimed { reason, region: region.map(RegionId), count }
    }

    #[test]
    fn the_worst_functions_are_named_with_their_reasons() {
        let told = [
            untimed(UntimedReason::SiteDropped, Some(2), 5),
            untimed(UntimedReason::NotYetPlaced, Some(0), 2),
            untimed(UntimedReason::NotYetPlaced, Some(5), 100),
            untimed(UntimedReason::OverwrittenByOther, None, 1),
        ];
        let calls = [(2, 2), (0, 1), (1, 5), (9, 1), (1, 1), (100, 1)];
        for is_finished in [true, false] {
            assert_eq!(
                notes(calls, &told, is_finished),
                ["not timed, so their time is not here: c (83.3 % of its calls), a (50.0 % of its calls), \
                  b (100.0 % of its calls) and 2 more; return site not yet placed: 2, return site dropped: 5, \
                  frame lost: 1"]
            );
        }
    }

    #[test]
    fn a_call_in_a_hundred_is_not_worth_a_word() {
        let one_in_hundred = (99, 1);
        assert_eq!(notes([one_in_hundred; 6], &[], true), [""; 0]);
        let more = notes([one_in_hundred, (98, 1), (1, 0), (1, 0), (1, 0), (1, 0)], &[], true);
        assert_eq!(more, ["not timed, so their time is not here: b (1.0 % of its calls)"]);
    }

    #[test]
    fn what_they_counted_is_missing_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path());
        let flops = Metric {
            id: MetricId(1),
            name: "flops".to_owned(),
            unit: "flop".to_owned(),
            base: Base::Decimal,
            exponent: 0,
            scope: Scope::Call,
            span: Span::SinceStart,
        };
        writer.define(&Definition::Metric(flops)).unwrap();
        writer.finish(&Summary::default()).unwrap();
        let trace = TraceSet::open(folder.path()).unwrap();
        let shares = Shares::from_iter([((RegionId(0), LocationId(1)), Totals::of(&script("thread 1\n a 10 ?")[0]))]);
        let note = note(&shares, &trace, false).unwrap().unwrap().text;
        assert!(
            note.starts_with("not timed, so neither their time nor what they counted is here: a (100.0 %"),
            "{note}"
        );
    }

    #[test]
    fn folded_calls_count_like_others() {
        let path = PathProfile {
            path: PathId(1),
            region: RegionId(0),
            location: LocationId(1),
            calls: 4,
            open: 1,
            unseen: 3,
            ..PathProfile::default()
        };
        let shares = Shares::from_iter([((RegionId(0), LocationId(1)), Totals::of_path(&path))]);
        let note = note(&shares, &crate::testing::definitions(), false).unwrap();
        assert_eq!(
            note.map(|note| note.text).as_deref(),
            Some("not timed, so their time is not here: a (75.0 % of its calls)")
        );
    }
}
