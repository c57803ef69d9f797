//! `rtrace info`: what a trace holds, on standard output.

use rtrace_exporters::TraceSet;
use rtrace_report::Look;

use super::args::InfoArgs;
use super::{Outcome, screen, spinner};

/// Prints what there is to know.
pub fn info(options: &InfoArgs) -> anyhow::Result<Outcome> {
    if options.sql {
        let views = rtrace_exporters::views(&TraceSet::open(&options.directory)?)?;
        screen::show(views.as_bytes(), options.display)?;
        return Ok(Outcome::Complete);
    }
    let look = || rtrace_report::info::Info::of(&options.directory);
    let info = spinner::reading(&[&options.directory], look)?;
    let mut text = Vec::new();
    if options.format.is_json() {
        serde_json::to_writer_pretty(&mut text, &info)?;
        text.push(b'\n');
    } else {
        info.write(&Look { full_names: true, ..screen::look(options.display) }, &mut text)?;
    }
    screen::show(&text, options.display)?;
    Ok(Outcome::Complete)
}
