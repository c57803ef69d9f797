//! Records the calls that `gzip --version` makes to libc, as `rtrace run --lib libc.so -- gzip --version` does; as root.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rtrace::record::guard::Guard;
use rtrace::session::{FoundTarget, Options, TracedProgram};
use rtrace_exporters::TraceWriter;

fn main() -> anyhow::Result<()> {
    // First of all: it copies this process, which must have one thread still.
    let guard = Guard::start()?;
    let options = Options { libraries: vec!["libc.so".to_owned()], ..Options::default() };
    let command = ["gzip", "--version"].map(OsString::from);
    let found = FoundTarget::find(&guard, &options, TracedProgram::Command(&command))?;
    let ready = found.plan()?.start()?;
    let writer = TraceWriter::create(Path::new("gzip.rtrace"), None)?;
    let mut started = None;
    let summary = ready.record(vec![Box::new(writer)], &AtomicBool::new(false), |child| {
        started = child;
        Ok(())
    })?;
    let status = started.map(|mut child| child.wait()).transpose()?;
    println!("{summary}; the command ended with {status:?}");
    Ok(())
}
