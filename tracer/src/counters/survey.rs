//! Which counters this machine has: each is tried on one CPU.

use rtrace_model::counter::{self, NamedCounter, TABLE};
use rtrace_model::words;

use super::tracepoint::Tracepoints;
use super::{CounterEvent, EventCode, cache, error, name, pmu};

words! {
    /// A kind of counters, for a heading.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    CounterGroup {
        /// Counted by the kernel, for every thread.
        Kernel = "kernel",
        /// Events of the kernel.
        Software = "software",
        /// Events of the CPU that most CPUs have.
        Hardware = "hardware",
        /// Accesses to caches.
        Cache = "cache",
        /// Events that a unit names.
        Unit = "unit",
        /// Any event of a unit, by its code.
        Raw = "raw",
        /// Places in the kernel.
        Tracepoint = "tracepoint",
    }
}

/// A counter, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub group: CounterGroup,
    /// Its name, or a pattern of names.
    pub name: String,
    /// Another name.
    pub alias: Option<&'static str>,
    /// What it counts.
    pub what: String,
    /// Why it does not work here.
    pub refusal: Option<String>,
}

/// Tries every counter that has a name; of raw codes and tracepoints, only whether there are any.
pub fn survey() -> Vec<Finding> {
    let mut findings: Vec<Finding> = TABLE.iter().map(of_table).collect();
    findings.extend(cache::all().map(|(name, event)| Finding {
        group: CounterGroup::Cache,
        what: "accesses to a cache".to_owned(),
        alias: None,
        name,
        refusal: refusal(event),
    }));
    for unit in pmu::units() {
        findings.extend(of_unit(&unit));
    }
    let raw = |name: &str, what: &str, example: &str| Finding {
        group: CounterGroup::Raw,
        name: name.to_owned(),
        alias: None,
        what: what.to_owned(),
        refusal: try_name(example),
    };
    findings.push(raw("rNNNN", "a code in hexadecimal", "r3c"));
    findings.push(raw("cpu/event=0x..,umask=0x../", "terms of a unit's format", "cpu/event=0x3c/"));
    findings.push(Finding {
        group: CounterGroup::Tracepoint,
        name: "GROUP:EVENT".to_owned(),
        alias: None,
        what: format!("one of {} places in the kernel, such as sched:sched_switch", tracepoints()),
        refusal: try_name("sched:sched_switch"),
    });
    findings
}

fn of_table(known: &NamedCounter) -> Finding {
    let group = match known.source {
        counter::CounterSource::Kernel(_) => CounterGroup::Kernel,
        counter::CounterSource::Software(_) => CounterGroup::Software,
        counter::CounterSource::Hardware(_) => CounterGroup::Hardware,
    };
    let refusal = match CounterEvent::from(known.source) {
        CounterEvent::Kernel(_) => None,
        CounterEvent::Event(event) => refusal(event),
    };
    Finding { group, name: known.name.to_owned(), alias: known.alias, what: known.what.to_owned(), refusal }
}

fn of_unit(unit: &str) -> Vec<Finding> {
    let Ok(found) = pmu::PmuUnit::find(unit) else { return Vec::new() };
    let finding = |event: String| {
        let name = format!("{unit}/{event}/");
        let refusal = try_name(&name);
        Finding { group: CounterGroup::Unit, what: format!("{event} of the unit {unit}"), alias: None, name, refusal }
    };
    found.events().into_iter().map(finding).collect()
}

fn try_name(name: &str) -> Option<String> {
    match name::parse(name) {
        Ok((CounterEvent::Event(event), _)) => refusal(event),
        Ok((CounterEvent::Kernel(_), _)) => None,
        Err(error::Error::Unknown { cause, .. }) => Some(cause),
        Err(error) => Some(error.to_string()),
    }
}

fn refusal(event: EventCode) -> Option<String> {
    event.open(0).err().map(|refused| error::cause(event, &refused))
}

fn tracepoints() -> usize {
    Tracepoints::find().map_or(0, |tracepoints| tracepoints.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_counts_itself_works_everywhere() {
        let findings = survey();
        let kernel: Vec<&Finding> = findings.iter().filter(|finding| finding.group == CounterGroup::Kernel).collect();
        assert_eq!(kernel.len(), 6);
        assert!(kernel.iter().all(|finding| finding.refusal.is_none()));
        assert!(findings.iter().any(|finding| finding.name == "LLC-load-misses"));
    }
}
