//! The source files in which functions are defined, where functions are selected by them.

use std::path::{Path, PathBuf};

use foldhash::HashSet;
use rtrace_model::counted;
use rtrace_plan::{LibrarySource, PlanOptions};
use rtrace_symbolizer::{Sources, debug_files};

/// Source files that are named as examples.
const EXAMPLES: usize = 3;

/// Why functions cannot be selected by their source files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Of no library is anything known.
    #[error("failed to select functions by source file: `{path}` has no debug information")]
    NoDebugInformation {
        /// The first library.
        path: String,
        /// The build id of its file, if it has one.
        build_id: Option<String>,
    },
    /// Something is known, but selects nothing.
    #[error("failed to select functions by source file: no function of the libraries is left")]
    NothingSelected {
        /// Some files in which functions of the libraries are defined.
        examples: Vec<String>,
        /// How many there are beside these.
        others: usize,
    },
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Error::NoDebugInformation { build_id: None, .. } => "compile it with `-g`".to_owned(),
            Error::NoDebugInformation { build_id: Some(id), .. } => {
                let places: Vec<String> = debug_files(Some(id)).iter().map(|path| path.display().to_string()).collect();
                format!(
                    "compile it with `-g`, install its debug package (`-dbgsym`, `-debuginfo`), or fetch it with \
                     `debuginfod-find debuginfo {id}`; rtrace looks for {}",
                    places.join(" and ")
                )
            }
            Error::NothingSelected { examples, others } => {
                let more =
                    if *others > 0 { format!(" and {}", counted(*others as u64, "other file")) } else { String::new() };
                format!("their functions are defined in {}{more}", examples.join(", "))
            }
        }
    }
}

/// Looks up the source files of the functions of these libraries, if it takes them to select functions. Gives the paths
/// of libraries that have no debug information.
///
/// # Errors
/// Of no library is anything known, or no function is selected.
pub fn read(libraries: &mut [LibrarySource], options: &PlanOptions) -> Result<Vec<String>, Error> {
    if !options.needs_sources() {
        return Ok(Vec::new());
    }
    libraries.iter_mut().for_each(read_one);
    let path = |source: &LibrarySource| source.library.path.clone();
    let without: Vec<String> = libraries.iter().filter(|source| source.sources.is_none()).map(path).collect();
    match libraries.first() {
        Some(first) if without.len() == libraries.len() => {
            Err(Error::NoDebugInformation { path: path(first), build_id: first.image.build_id() })
        }
        _ if libraries.iter().any(|source| selects_any(source, options)) => Ok(without),
        _ => {
            let mut examples: Vec<&String> =
                libraries.iter().filter_map(|source| Some(source.sources.as_ref()?.files())).flatten().collect();
            examples.dedup();
            let others = examples.len().saturating_sub(EXAMPLES);
            let examples = examples.into_iter().take(EXAMPLES).cloned().collect();
            Err(Error::NothingSelected { examples, others })
        }
    }
}

/// The same for libraries that are loaded while others are recorded: gives those of whose functions nothing can be said.
pub fn read_late(libraries: &mut [LibrarySource], options: &PlanOptions) -> Vec<String> {
    if options.needs_sources() {
        libraries.iter_mut().for_each(read_one);
    }
    let is_unknown = |source: &&LibrarySource| options.needs_sources() && source.sources.is_none();
    libraries.iter().filter(is_unknown).map(|source| source.library.path.clone()).collect()
}

fn read_one(source: &mut LibrarySource) {
    let addresses: HashSet<u64> = source.addresses().collect();
    let path = PathBuf::from(&source.library.path);
    source.sources = Sources::read(&path, Path::new(&source.attach_path), &source.image, &addresses);
}

fn selects_any(source: &LibrarySource, options: &PlanOptions) -> bool {
    let functions = source.exports.functions.iter().chain(&source.exports.untyped);
    let own = functions.map(|function| (function, function.address));
    let resolved = source
        .ifuncs
        .iter()
        .filter_map(|resolved| Some((source.exports.functions.get(resolved.function)?, resolved.address)));
    own.chain(resolved).any(|(function, address)| options.selects(&source.subject(function, address)))
}
