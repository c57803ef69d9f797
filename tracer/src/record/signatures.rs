//! What is known of the arguments and results of the functions of a plan.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use rtrace_code::errno::{self, Errno};
use rtrace_model::Region;
use rtrace_plan::{Capture, Captures, LibrarySource, Plan, PlanOptions, PlannedLibrary};
use rtrace_signatures::{Asked, Book, Error, Lookup, Signature, TracedLibrary, leave_out_errno};

/// Programs that may call what is traced: those of processes, or files that a command will load.
pub fn callers(pids: &[u32], files: &[PathBuf]) -> Vec<PathBuf> {
    let program = |pid: &u32| {
        let executable = PathBuf::from(format!("/proc/{pid}/exe"));
        let identity = |path: &PathBuf| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        // People know it by its path, if that still leads to it.
        let named = fs::read_link(&executable).ok().filter(|path| identity(path) == identity(&executable));
        named.unwrap_or(executable)
    };
    match pids {
        [] => files.to_vec(),
        pids => pids.iter().map(program).collect(),
    }
}

/// Looks up what is known of the functions that are selected, and which of their values are fetched. `callers`:
/// programs that may call them.
///
/// # Errors
/// What is asked for, or the user's table, makes no sense.
pub fn capture(
    book: &Book,
    sources: &mut [LibrarySource],
    options: &PlanOptions,
    callers: &[PathBuf],
) -> Result<(), Error> {
    for source in sources {
        source.captures = captures(book, source, options, callers)?;
    }
    Ok(())
}

fn captures(
    book: &Book,
    source: &LibrarySource,
    options: &PlanOptions,
    callers: &[PathBuf],
) -> Result<Captures, Error> {
    let functions = &source.exports.functions;
    let own =
        (0..functions.len()).filter(|&index| !functions[index].ifunc).map(|index| (index, functions[index].address));
    let chosen = source.ifuncs.iter().map(|resolved| (resolved.function, resolved.address));
    let selected =
        own.chain(chosen).filter(|&(index, address)| options.selects(&source.subject(&functions[index], address)));
    let symbols = |index: usize| functions[index].symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    let places = source.exports.markers.iter().map(|marker| &marker.place);
    let places = places.filter(|place| options.selects(&source.subject(place, place.address)));
    let places = places.map(|place| (vec![place.name.as_str()], place.address));
    let asked = selected.map(|(index, address)| (symbols(index), address)).chain(places);
    let asked: Vec<(Vec<&str>, u64)> = asked.collect();
    let known = of_library(book, source, &asked, callers)?;
    let errno = errno(source);
    let captures = asked.iter().zip(known).filter_map(|((_, address), known)| match known {
        Lookup::Signature(signature, program) => {
            let capture = Capture { signature: *signature, program, address: *address, errno };
            let Signature { columns, metrics, event, .. } = &capture.signature;
            let has_any = !columns.is_empty() || !metrics.is_empty() || event.is_some();
            has_any.then(|| (*address, Arc::new(capture)))
        }
        Lookup::Nothing(_) | Lookup::Unasked => None,
    });
    Ok(captures.collect())
}

/// What is known of each function of a plan: by library, then in the order of its regions.
///
/// # Errors
/// What the user asks for, or says, makes no sense for one of them.
pub fn of_plan(
    book: &Book,
    libraries: &[LibrarySource],
    plan: &Plan,
    callers: &[PathBuf],
) -> Result<Vec<Vec<Lookup>>, Error> {
    let of_planned = |(source, planned): (&LibrarySource, &PlannedLibrary)| {
        let functions = planned.regions.iter().map(|planned| {
            let address = source.image.address(planned.region.file_offset).unwrap_or(0);
            (symbols(&planned.region), address)
        });
        of_library(book, source, &functions.collect::<Vec<_>>(), callers)
    };
    libraries.iter().zip(&plan.libraries).map(of_planned).collect()
}

/// What is known of functions of a library, which are given by their symbols and addresses.
///
/// # Errors
/// What the user asks for, or says, makes no sense for one of them.
pub fn of_library(
    book: &Book,
    source: &LibrarySource,
    functions: &[(Vec<&str>, u64)],
    callers: &[PathBuf],
) -> Result<Vec<Lookup>, Error> {
    let path = PathBuf::from(&source.library.path);
    let subject = TracedLibrary { path: &path, open: &source.attach_path, image: &source.image, callers };
    let markers = &source.exports.markers;
    let note = |address: u64| {
        let marker = markers.iter().find(|marker| marker.place.address == address)?;
        Some(marker.arguments.as_str())
    };
    let asked = functions.iter().map(|(symbols, address)| Asked { symbols, address: *address, note: note(*address) });
    let mut known = book.of_library(&subject, &asked.collect::<Vec<_>>())?;
    if errno(source).is_none() {
        for known in &mut known {
            if let Lookup::Signature(signature, program) = known {
                leave_out_errno(signature, program);
            }
        }
    }
    Ok(known)
}

/// Where a library has the thread's `errno`, if it is the C library.
pub fn errno(source: &LibrarySource) -> Option<Errno> {
    let mut functions = source.exports.functions.iter();
    let function = functions.find(|function| function.symbols.iter().any(|symbol| symbol.name == errno::FUNCTION))?;
    Errno::of(&source.image, function.address)
}

/// Parts of the selection that name no function of a plan.
pub fn unmatched(book: &Book, plan: &Plan) -> Vec<String> {
    let regions = plan.libraries.iter().flat_map(|library| &library.regions);
    let names: Vec<&str> = regions.flat_map(|planned| symbols(&planned.region)).collect();
    book.unmatched(&names).into_iter().map(str::to_owned).collect()
}

fn symbols(region: &Region) -> Vec<&str> {
    region.symbols.iter().map(|symbol| symbol.symbol.as_str()).collect()
}
