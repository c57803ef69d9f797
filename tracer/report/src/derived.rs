//! Figures that follow from counters: a row adds one.

use std::borrow::Cow;

use rtrace_model::counter;

/// The name by which a formula asks for a call's duration in nanoseconds.
pub const DURATION: &str = "duration";

/// Computes a figure from its two inputs.
pub type Formula = fn(f64, f64) -> f64;

/// A figure with its formula.
#[derive(Clone, Debug)]
pub struct Derived {
    /// Its name in CSV and JSON.
    pub key: Cow<'static, str>,
    /// Its heading.
    pub title: Cow<'static, str>,
    /// What it is computed from: counters, or [`DURATION`].
    pub inputs: [&'static str; 2],
    /// The figure; it is none where the second input is 0.
    pub formula: Formula,
}

/// Bytes that one miss of the last cache moves on x86-64.
const CACHE_LINE: f64 = 64.0;

/// All figures.
pub const DERIVED: [Derived; 7] = [
    Derived {
        key: Cow::Borrowed("cpus_used"),
        title: Cow::Borrowed("CPUs used"),
        inputs: ["task-clock", DURATION],
        formula: |on_cpu, duration| on_cpu / duration,
    },
    Derived {
        key: Cow::Borrowed("instructions_per_cycle"),
        title: Cow::Borrowed("IPC"),
        inputs: ["instructions", "cpu-cycles"],
        formula: |instructions, cycles| instructions / cycles,
    },
    Derived {
        key: Cow::Borrowed("gigahertz"),
        title: Cow::Borrowed("GHz"),
        inputs: ["cpu-cycles", "task-clock"],
        formula: |cycles, nanoseconds| cycles / nanoseconds,
    },
    Derived {
        key: Cow::Borrowed("cache_misses_per_1000_instructions"),
        title: Cow::Borrowed("misses/1000"),
        inputs: ["cache-misses", "instructions"],
        formula: |misses, instructions| misses / instructions * 1e3,
    },
    Derived {
        key: Cow::Borrowed("branch_misses_per_1000_instructions"),
        title: Cow::Borrowed("mispredicted/1000"),
        inputs: ["branch-misses", "instructions"],
        formula: |misses, instructions| misses / instructions * 1e3,
    },
    Derived {
        key: Cow::Borrowed("missed_megabytes_per_second"),
        title: Cow::Borrowed("missed MB/s"),
        inputs: ["cache-misses", "task-clock"],
        formula: |misses, nanoseconds| misses * CACHE_LINE / nanoseconds * 1e3,
    },
    Derived {
        key: Cow::Borrowed("flops_per_byte"),
        title: Cow::Borrowed("flops/byte"),
        inputs: ["flops", "operand_bytes"],
        formula: |operations, bytes| operations / bytes,
    },
];

/// Where a figure finds one of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The counter at this place.
    Counter(usize),
    /// The duration.
    Duration,
    /// The duration of calls with operations, with their callees.
    Computing,
}

impl Derived {
    /// Where its inputs are among counters of these names, if all are there. Counters that only
    /// count in one mode are not mixed with others.
    pub fn inputs(&self, counters: &[&str]) -> Option<[Input; 2]> {
        let find = |input: &str| {
            if input == DURATION {
                return Some(Input::Duration);
            }
            let place = counters.iter().position(|name| {
                let known = counter::find(name).map(|known| known.name);
                known.unwrap_or(name) == input
            });
            place.map(Input::Counter)
        };
        Some([find(self.inputs[0])?, find(self.inputs[1])?])
    }

    /// The figure for these inputs; `None` where it would be a division by 0.
    pub fn value(&self, inputs: [u64; 2]) -> Option<f64> {
        (inputs[1] != 0).then(|| (self.formula)(inputs[0] as f64, inputs[1] as f64))
    }
}

/// The figures that counters of these names have, with the places of their inputs.
pub fn of(counters: &[&str]) -> Vec<(Derived, [Input; 2])> {
    let known = DERIVED.into_iter().filter_map(|derived| {
        let inputs = derived.inputs(counters)?;
        Some((derived, inputs))
    });
    let rates = counters.iter().enumerate().filter_map(|(place, name)| {
        let &(unit, key, title, formula, time) = RATES.iter().find(|(unit, ..)| name.ends_with(unit))?;
        let stem = name.strip_suffix(unit)?;
        let of = stem.trim_end_matches('_');
        let title = if of.is_empty() { title.to_owned() } else { format!("{of} {title}") };
        let (key, title) = (Cow::Owned(format!("{stem}{key}")), Cow::Owned(title));
        let rate = Derived { key, title, inputs: ["", DURATION], formula };
        Some((rate, [Input::Counter(place), time]))
    });
    known.chain(rates).collect()
}

/// How a rate comes from what values of calls add up to, and from a time of these calls.
type Rate = (&'static str, &'static str, &'static str, Formula, Input);

/// By the end of the metric's name. In MB/s, three decimals show both a slow file and a fast network. Operations are those
/// of a call with all that it calls: a library computes in functions of its own, of which no operations are known.
const RATES: [Rate; 2] = [
    ("bytes", "megabytes_per_second", "MB/s", |bytes, nanoseconds| bytes / nanoseconds * 1e3, Input::Duration),
    ("flops", "gigaflops_per_second", "GF/s", |operations, nanoseconds| operations / nanoseconds, Input::Computing),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_there_when_its_inputs_are() {
        let found =
            |counters: &[&str]| -> Vec<_> { of(counters).into_iter().map(|(derived, _)| derived.title).collect() };
        assert_eq!(found(&["page-faults"]), Vec::<&str>::new());
        assert_eq!(found(&["io_bytes", "flops", "bytes_read"]), ["io MB/s", "GF/s"]);
        assert_eq!(found(&["task-clock"]), ["CPUs used"]);
        assert_eq!(found(&["cycles", "instructions", "task-clock"]), ["CPUs used", "IPC", "GHz"]);
        assert_eq!(found(&["cycles:u", "instructions"]), Vec::<&str>::new());
    }

    #[test]
    fn formulas_give_what_their_titles_say() {
        let value = |title, inputs| DERIVED.iter().find(|derived| derived.title == title)?.value(inputs);
        assert_eq!(value("IPC", [30, 10]), Some(3.0));
        assert_eq!(value("GHz", [30, 10]), Some(3.0));
        assert_eq!(value("misses/1000", [5, 1000]), Some(5.0));
        assert_eq!(value("missed MB/s", [1, 64]), Some(1e3));
        assert_eq!(value("CPUs used", [1, 0]), None);
    }
}
