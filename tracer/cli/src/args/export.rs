//! What to export of a trace, in which format, and where to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rtrace_exporters::{Destination, ExportFormat, FORMATS, Owner};
use rtrace_plan::Pattern;

use super::quantity::parse_time;

/// Options of `rtrace export`.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Export {
    /// Trace directory, or directory of a parallel job
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Format to write
    #[arg(short, long, value_name = "FORMAT", value_parser = format())]
    pub format: &'static ExportFormat,

    /// File to write, `-` for stdout [default: the name of DIR with the extension of the format]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Overwrite an existing export
    #[arg(long)]
    force: bool,

    /// Export only calls that were running later than this after the start of the recording, such as 1.5s
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub from: Option<Duration>,

    /// Export only calls that started earlier than this after the start of the recording
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to: Option<Duration>,

    /// Export only matching functions: a name, a glob or a /regex/; may be repeated
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

fn format() -> impl TypedValueParser<Value = &'static ExportFormat> {
    let words = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.summary));
    PossibleValuesParser::new(words)
        .map(|name| ExportFormat::by_name(&name).expect("the parser lets only names of formats pass"))
}

pub(super) const EXAMPLES: &str = "\
EXAMPLES:
    # Write a timeline for ui.perfetto.dev
    rtrace export out.rtrace --format perfetto

    # Write an archive for Vampir
    rtrace export out.rtrace --format otf2 -o out.otf2

    # Print calls of some functions in the third second as CSV
    rtrace export out.rtrace --format csv --from 2s --to 3s --func 'deflate*' -o - | head";

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
