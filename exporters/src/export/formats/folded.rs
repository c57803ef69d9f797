//! Folded stacks: a line per call path, its steps separated by semicolons, then the nanoseconds
//! spent there without callees and tracing. See <https://github.com/brendangregg/FlameGraph>.

use std::io::Write;

use rtrace_model::escape;

use super::super::format::{ExportFormat, Form};
use super::super::paths::ExportPaths;
use super::super::step::PathStep;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "folded",
    summary: "Folded stacks: call paths with their own time",
    extension: "folded",
    opens_in: "flamegraph.pl, inferno, speedscope, any text tool",
    keeps: "exclusive time in ns, without tracing, of every call path, by process and thread; by process CPU time beside traced calls, by samples with stacks",
    omits: "number and times of single calls, endings, losses, counters",
    untimed: "left out: no time",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let paths = ExportPaths::of_threads(source)?;
    for place in 0..paths.all.len() {
        if paths.all[place].figures.totals.exclusive == 0 {
            continue;
        }
        let time = paths.all[place].figures.own();
        let mut steps: Vec<String> = paths.upward(place).map(|path| step(source, path.step)).collect();
        steps.reverse();
        writeln!(output, "{} {time}", steps.join(";"))?;
    }
    // Samples are of the whole program.
    let sampled = if source.is_selection() { Vec::new() } else { source.sampled() };
    for (program, steps, time) in sampled {
        let steps: Vec<String> = program.into_iter().chain(steps).map(|at| step(source, at)).collect();
        writeln!(output, "{} [sampled] {time}", steps.join(";"))?;
    }
    Ok(())
}

/// The name of a step, without what separates steps.
fn step(source: &Excerpt<'_>, step: PathStep) -> String {
    escape(&source.step(step)).replace(';', ":")
}
