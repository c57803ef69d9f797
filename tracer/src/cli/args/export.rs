//! What of a trace is exported, in which format, and where to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rtrace_exporters::{Destination, FORMATS, Format, Owner};
use rtrace_plan::Pattern;

use super::quantity::parse_duration;

/// Options of `rtrace export`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Export {
    /// Directory of the trace
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Format to write
    #[arg(short, long, value_name = "FORMAT", value_parser = format())]
    pub format: &'static Format,

    /// File to write, `-` for standard output [default: DIR with the format's extension]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Replace an older export
    #[arg(long)]
    force: bool,

    /// Only calls that ran later than this after the recording began, such as 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub from: Option<Duration>,

    /// Only calls that began earlier than this after the recording began
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub to: Option<Duration>,

    /// Only these threads, by id or name; may be repeated
    #[arg(long = "thread", value_name = "THREAD")]
    pub threads: Vec<Pattern>,

    /// Only these processes, by id or name; may be repeated
    #[arg(long = "process", value_name = "PROCESS")]
    pub processes: Vec<Pattern>,

    /// Only these functions: names, globs or /regular expressions/; may be repeated
    #[arg(long = "func", value_name = "PATTERN")]
    pub functions: Vec<Pattern>,
}

impl Export {
    /// Where the export goes; a file that is made belongs to `owner`.
    pub fn destination(&self, owner: Option<Owner>) -> Destination {
        let path = match &self.output {
            Some(path) if path == Path::new("-") => return Destination::Stdout,
            Some(path) => path.clone(),
            None => beside(&self.directory, self.format.extension),
        };
        Destination::Path { path, force: self.force, owner }
    }
}

/// The trace's name with that extension in place of `rtrace`, in the current directory.
fn beside(directory: &Path, extension: &str) -> PathBuf {
    let name = directory.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy().into_owned());
    let stem = name.strip_suffix(".rtrace").unwrap_or(&name);
    PathBuf::from(format!("{stem}.{extension}"))
}

fn format() -> impl TypedValueParser<Value = &'static Format> {
    let words = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.summary));
    PossibleValuesParser::new(words)
        .map(|name| Format::by_name(&name).expect("the parser lets only names of formats pass"))
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # A timeline to open in ui.perfetto.dev
    rtrace export out.rtrace --format perfetto

    # An archive for Vampir
    rtrace export out.rtrace --format otf2 -o out.otf2

    # The third second of two threads, for a script
    rtrace export out.rtrace --format csv --from 2s --to 3s --thread 4711 --thread 4712 -o - | head";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_is_named_after_the_trace() {
        assert_eq!(beside(Path::new("/a/z.rtrace/"), "svg"), Path::new("z.svg"));
        assert_eq!(beside(Path::new("trace"), "svg"), Path::new("trace.svg"));
        assert_eq!(beside(Path::new("."), "svg"), Path::new("trace.svg"));
    }
}
