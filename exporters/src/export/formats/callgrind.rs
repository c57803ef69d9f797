//! Callgrind's profile format: own time of every function, calls and inclusive time of every pair
//! of caller and callee. See <https://valgrind.org/docs/manual/cl-format.html>.

use std::borrow::Cow;
use std::io::{self, Write};

use rtrace_model::{RegionId, escape};

use super::super::format::{ExportFormat, Form};
use super::super::paths::ExportPaths;
use super::super::remarks::remarks;
use super::super::{Excerpt, ExportError};

pub(super) const FORMAT: ExportFormat = ExportFormat {
    name: "callgrind",
    summary: "Callgrind's profile: functions with callers and callees",
    extension: "callgrind",
    opens_in: "KCachegrind, QCachegrind, callgrind_annotate, gprof2dot",
    keeps: "number of calls, own and inclusive time in ns, and counters, by caller and callee; losses as remarks",
    omits: "processes, threads, times of single calls, endings; a recursive call's inclusive time counts at each level",
    untimed: "counted, no time",
    form: Form::File(write),
};

fn write(source: &Excerpt<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let (functions, pairs) = ExportPaths::graph(source)?;

    writeln!(output, "# callgrind format\nversion: 1\ncreator: rtrace {}", source.header().rtrace_version)?;
    writeln!(output, "cmd: {}", escape(&source.header().command_line.join(" ")))?;
    for (name, text) in remarks(source)? {
        writeln!(output, "desc: {name}: {}", escape(&text))?;
    }
    writeln!(output, "positions: line")?;
    write!(output, "event: ns : nanoseconds\nevents: ns")?;
    for metric in source.call_metrics() {
        write!(output, " {}", escape(&metric.name).replace(|c: char| !c.is_ascii_alphanumeric(), "_"))?;
    }
    writeln!(output)?;
    for (&caller, sum) in &functions {
        writeln!(output)?;
        position(source, output, ["ob", "fl", "fn"], caller)?;
        costs(output, sum.totals.exclusive, sum.counts.iter().map(|count| count.exclusive))?;
        for ((_, callee), sum) in pairs.range((caller, RegionId(0))..=(caller, RegionId(u32::MAX))) {
            position(source, output, ["cob", "cfi", "cfn"], *callee)?;
            writeln!(output, "calls={} 0", sum.totals.calls)?;
            costs(output, sum.totals.inclusive, sum.counts.iter().map(|count| count.inclusive))?;
        }
    }
    Ok(())
}

/// Says which library and function the next costs are of. Functions of one name are told apart by
/// their library; source files are not known.
fn position(source: &Excerpt<'_>, output: &mut dyn Write, keys: [&str; 3], region: RegionId) -> io::Result<()> {
    let [library_key, file_key, function_key] = keys;
    let (library, function) = (source.library_of(region), source.function(region));
    writeln!(output, "{library_key}={}\n{file_key}=???\n{function_key}={}", name(library), name(function))
}

/// A name in a line: a number in parentheses at its beginning would be that of a name given before.
fn name(name: &str) -> Cow<'_, str> {
    let name = escape(name);
    match name.strip_prefix('(') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => Cow::Owned(format!("\\x28{rest}")),
        _ => name,
    }
}

fn costs(output: &mut dyn Write, time: u64, counts: impl Iterator<Item = u64>) -> io::Result<()> {
    write!(output, "0 {time}")?;
    for count in counts {
        write!(output, " {count}")?;
    }
    writeln!(output)
}
