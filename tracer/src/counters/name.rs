//! What a counter's name stands for.
//!
//! Names are those of `perf`: `page-faults`, `cycles:u`, `LLC-load-misses`, `r01c2`,
//! `cpu/event=0x3c,umask=0/u`, `msr/tsc/`, `sched:sched_switch`.

use perf_event_open_sys::bindings::{PERF_TYPE_RAW, PERF_TYPE_TRACEPOINT};

use rtrace_model::counter::{self, CounterUnit};

use super::error::Error;
use super::tracepoint::Tracepoints;
use super::{CounterEvent, EventCode, cache, pmu};

/// Where the counter of that name is read, and in which unit.
pub(super) fn parse(name: &str) -> Result<(CounterEvent, CounterUnit), Error> {
    if let Some((unit, rest)) = name.split_once('/') {
        return of_unit(name, unit, rest).map(counted);
    }
    let (base, modes) = match name.rsplit_once(':') {
        Some((base, modes)) if is_modes(modes) => (base, modes),
        _ => (name, ""),
    };
    if let Some(known) = counter::find(base) {
        let source = match CounterEvent::from(known.source) {
            CounterEvent::Event(event) => CounterEvent::Event(limited(event, modes)),
            source @ CounterEvent::Kernel(_) if modes.is_empty() => source,
            CounterEvent::Kernel(_) => {
                return Err(Error::unknown(name, "the kernel does not tell user mode from its own here".to_owned()));
            }
        };
        return Ok((source, known.unit));
    }
    if let Some(event) = cache::find(base).or_else(|| raw(base)) {
        return Ok(counted(limited(event, modes)));
    }
    match base.split_once(':') {
        Some((group, event)) => tracepoint(name, group, event).map(counted),
        None => Err(Error::unknown(name, "no counter has this name".to_owned())),
    }
}

fn counted(event: EventCode) -> (CounterEvent, CounterUnit) {
    (CounterEvent::Event(event), CounterUnit::COUNT)
}

/// `u`, `k` or both, as after the name of an event.
fn is_modes(text: &str) -> bool {
    matches!(text, "u" | "k" | "uk" | "ku")
}

/// The event in these modes only.
fn limited(event: EventCode, modes: &str) -> EventCode {
    let (user, kernel) = (modes.contains('u'), modes.contains('k'));
    EventCode { exclude_user: kernel && !user, exclude_kernel: user && !kernel, ..event }
}

/// `rNNNN`: a code in hexadecimal.
fn raw(name: &str) -> Option<EventCode> {
    let digits = name.strip_prefix('r').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    Some(EventCode::new(PERF_TYPE_RAW, u64::from_str_radix(digits, 16).ok()?))
}

/// `unit/terms/modes`.
fn of_unit(name: &str, unit: &str, rest: &str) -> Result<EventCode, Error> {
    let (terms, modes) = rest.rsplit_once('/').unwrap_or((rest, ""));
    if !modes.is_empty() && !is_modes(modes) {
        return Err(Error::unknown(name, format!("`{modes}` is no mode: u or k")));
    }
    let event = pmu::PmuUnit::find(unit).and_then(|unit| unit.event(terms));
    event.map(|event| limited(event, modes)).map_err(|problem| Error::unknown(name, problem.to_string()))
}

fn tracepoint(name: &str, group: &str, event: &str) -> Result<EventCode, Error> {
    if [group, event].iter().any(|part| part.is_empty() || part.contains(['/', '.'])) {
        return Err(Error::unknown(name, "no tracepoint has this name".to_owned()));
    }
    let id = Tracepoints::find().and_then(|tracepoints| tracepoints.id(group, event));
    let cause = "this kernel has no such tracepoint, or does not show it";
    let id = id.ok_or_else(|| Error::unknown(name, cause.to_owned()))?;
    Ok(EventCode::new(PERF_TYPE_TRACEPOINT, id))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rtrace_bpf::wire::CountCode;

    use super::*;

    fn event(name: &str) -> EventCode {
        match parse(name).unwrap() {
            (CounterEvent::Event(event), _) => event,
            source => panic!("{source:?}"),
        }
    }

    #[test]
    fn names_of_perf_are_understood() {
        assert_eq!(
            parse("faults").unwrap(),
            (CounterEvent::Kernel(CountCode::RT_COUNT_PAGE_FAULTS), CounterUnit::COUNT)
        );
        assert_eq!(parse("task-clock").unwrap().1, CounterUnit::NANOSECONDS);
        assert_eq!(event("cycles"), event("cpu-cycles"));
        assert_eq!(event("instructions").config, 1);
        assert_eq!(event("LLC-load-misses").config, 0x1_0002);
        assert_eq!(event("r01c2"), EventCode::new(PERF_TYPE_RAW, 0x1c2));
    }

    #[test]
    fn a_mode_leaves_the_other_out() {
        let excluded = |name| {
            let event = event(name);
            (event.exclude_user, event.exclude_kernel)
        };
        assert_eq!(excluded("cycles"), (false, false));
        assert_eq!(excluded("cycles:u"), (false, true));
        assert_eq!(excluded("r1:k"), (true, false));
        assert_eq!(excluded("cycles:uk"), (false, false));
    }

    #[test]
    fn other_names_are_refused_with_the_cause() {
        let refusal = |name| parse(name).unwrap_err().to_string();
        assert_eq!(refusal("cycels"), "failed to count `cycels`: no counter has this name");
        assert_eq!(refusal("r"), "failed to count `r`: no counter has this name");
        assert!(refusal("page-faults:u").ends_with("the kernel does not tell user mode from its own here"));
        assert!(refusal("no:such").contains("no such tracepoint"));
        assert!(refusal("..:y").contains("no tracepoint"));
        assert!(refusal("gpu/busy/").contains("this machine has no unit `gpu`"));
        assert!(refusal("msr/tsc/x").ends_with("`x` is no mode: u or k"));
        assert_eq!(refusal("a\u{1b}b"), "failed to count `a\\x1bb`: no counter has this name");
    }
}
