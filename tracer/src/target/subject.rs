//! What the user named, found: processes or a command, their libraries, and what is in the files.
//!
//! A file is known by its device and inode, never by its name: two processes may map different
//! files of one name, and a file may have been replaced since it was mapped.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtrace_code::{choices, parallel};
use rtrace_model::{Library, LibraryId, escape, text_of_os};
use rtrace_plan::LibrarySource;
use rtrace_symbolizer::address_space::{AddressSpace, FileId};
use rtrace_symbolizer::linker::{self, Environment};
use rtrace_symbolizer::modules::{self, Module};
use rtrace_symbolizer::{Exports, Image, Uses, debug_places, ifunc, parts, select, soname};

use crate::perf::mappings::CodeMapping;
use crate::target::code;
use crate::target::names;
use crate::target::translators;

/// The option by which node moves its code to huge pages.
const LARGE_PAGES: &str = "--use-largepages";

/// The word that names the program itself instead of a library.
pub(crate) const EXECUTABLE: &str = "exe";

/// Functions by which a program loads a library or starts another program.
const OPENERS: [&str; 15] = [
    "dlopen",
    "dlmopen",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "system",
];

/// What is to be traced.
#[derive(Default)]
pub struct Target {
    /// The libraries chosen, their ids counting up from 0.
    pub libraries: Vec<LibrarySource>,
    /// What a command will load, in the order of the dynamic linker, and the files that were chosen.
    pub files: Vec<PathBuf>,
    /// Names of libraries that a command may load from where nobody can know before.
    pub awaited: Vec<String>,
    /// What people should know of these.
    pub remarks: Vec<String>,
}

/// Which libraries are chosen, and which of their functions.
#[derive(Clone, Copy)]
pub struct LibraryChoice<'a> {
    /// Names, paths or globs.
    pub patterns: &'a [String],
    /// Whether functions that a library does not export are meant, too.
    pub statics: bool,
}

/// Why a target cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library goes by that name.
    #[error("failed to find library `{pattern}` in {place}")]
    NoSuchLibrary {
        /// What the user typed.
        pattern: String,
        /// Where it was looked for.
        place: String,
        /// Names that resemble it.
        near: Vec<String>,
    },
    /// No file that was chosen holds a function that could be traced; the first is named.
    #[error("failed to find functions in `{path}`: it exports none, and has no symbols of others")]
    NoFunctions {
        /// The file.
        path: String,
        /// Where debug files with its symbols were looked for; none where it has all symbols.
        places: Option<Vec<PathBuf>>,
    },
    /// A process executes the code of a file elsewhere than where it maps the file.
    #[error("failed to trace `{}` in process {pid}: the process executes its code elsewhere, where the kernel takes no probes", escape(&.path.display().to_string()))]
    NotInPlace {
        /// The file, as the process sees it.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// A command moves its code to where the kernel takes no probes.
    #[error("failed to trace `{0}`: {LARGE_PAGES} moves its code, and the breakpoints in it would end it")]
    Moves(String),
    /// Probes would harm what runs there.
    #[error(transparent)]
    Translated(#[from] translators::Error),
    /// A file, process or command could not be looked at.
    #[error(transparent)]
    Inspect(#[from] rtrace_symbolizer::Error),
}

impl Error {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::NoSuchLibrary { near, .. } => {
                let near = if near.is_empty() { String::new() } else { format!("did you mean {}? ", near.join(", ")) };
                Some(format!("{near}A library that is loaded later is named by its path, the program itself by `exe`"))
            }
            Error::NoFunctions { places: None, .. } => {
                Some("it has all its symbols, and none is a function's: it holds data alone".to_owned())
            }
            Error::NoFunctions { places: Some(places), .. } => {
                let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
                let looked = if places.is_empty() { "it names no debug file".to_owned() } else { places.join(", ") };
                Some(format!(
                    "it was stripped: install its debug symbols, or build it without `-s`. Looked for: {looked}"
                ))
            }
            Error::NotInPlace { .. } => Some(
                "start the program so that it leaves its code in place, as node does without --use-largepages"
                    .to_owned(),
            ),
            Error::Moves(_) => Some(format!("leave out {LARGE_PAGES}, also in NODE_OPTIONS")),
            Error::Translated(error) => Some(error.hint()),
            Error::Inspect(_) => None,
        }
    }
}

/// Finds the libraries in running processes.
///
/// # Errors
/// A process cannot be inspected, or runs under a translator, or a pattern names nothing that any of them maps.
pub fn of_processes(pids: &[u32], wanted: LibraryChoice<'_>) -> Result<Target, Error> {
    pids.iter().try_for_each(|&pid| translators::check_process(pid))?;
    let mut modules = Vec::new();
    for &pid in pids {
        let program = identity(&program_of(pid)).ok();
        let mapped = modules::of_process(pid)?;
        modules.extend(mapped.into_iter().map(|module| (program == Some(module_id(&module)), module)));
    }
    let mut files = BTreeMap::<(u64, u64), ChosenFile<'_>>::new();
    for pattern in wanted.patterns {
        let is_chosen = |is_program: bool, module: &Module| match pattern.as_str() {
            EXECUTABLE => is_program,
            _ => module.is_named(pattern),
        };
        let file = |module| (module_id(module), ChosenFile::Mapped(module));
        let mapped = modules.iter().filter(|(is_program, module)| is_chosen(*is_program, module));
        let mut found: Vec<_> = mapped.map(|(_, module)| file(module)).collect();
        if found.is_empty() {
            let installed = installed(pattern);
            found = modules.iter().map(|(_, module)| file(module)).filter(|(id, _)| installed.contains(id)).collect();
        }
        if found.is_empty() && pattern.contains('/') && Path::new(pattern).is_file() {
            let path = Path::new(pattern).to_owned();
            found.push((identity(&path)?, ChosenFile::NotYetMapped(path)));
        }
        if let Some((pid, path)) = found.is_empty().then(|| not_executed(pids, pattern)).flatten() {
            return Err(Error::NotInPlace { path, pid });
        }
        if found.is_empty() {
            let names: Vec<&str> = modules.iter().map(|(_, module)| module.file_name()).collect();
            let place = format!("process {}", names::list(pids));
            let near = select::near_names(pattern, &names);
            return Err(Error::NoSuchLibrary { pattern: pattern.clone(), place, near });
        }
        for (id, file) in found {
            files.entry(id).or_insert(file);
        }
    }

    let mapped = modules.iter().map(|(_, module)| module_file(module));
    let chosen = files.iter().map(|(&id, file)| (id, file.name(), file.path()));
    let images = ImageCache::read(mapped.chain(chosen), wanted.statics, |id| files.contains_key(id));
    let files: Vec<_> = files.iter().zip(0..).collect();
    let libraries = parallel::map(&files, |&((&id, file), library)| {
        let module = match file {
            ChosenFile::Mapped(module) => Some(*module),
            ChosenFile::NotYetMapped(_) => None,
        };
        images.source(id, LibraryId(library), file.name(), &file.path(), module)
    });
    let mut libraries = libraries.into_iter().collect::<Result<Vec<_>, _>>()?;
    any_function(&libraries)?;
    let modules = modules.iter().map(|(_, module)| module);
    let moved = note_altered(&mut libraries, modules);
    match moved.first() {
        Some(module) if moved.len() == libraries.len() => {
            Err(Error::NotInPlace { path: module.path.clone(), pid: module.pid })
        }
        _ => Ok(Target { libraries, ..Target::default() }),
    }
}

/// The files that processes execute, each once.
///
/// # Errors
/// A process cannot be inspected, or runs under a translator.
pub fn files_of(pids: &[u32]) -> Result<Vec<Module>, Error> {
    let mut files = BTreeMap::new();
    for &pid in pids {
        translators::check_process(pid)?;
        for module in modules::of_process(pid)? {
            files.entry(module_id(&module)).or_insert(module);
        }
    }
    Ok(files.into_values().collect())
}

/// How many functions a file has, of which some cannot be probed; none where it cannot be read.
pub fn functions_of(module: &Module) -> Option<usize> {
    let image = Image::open(&module.open_path()).ok()?.with_debug_symbols(&module.path);
    Some(image.exports().ok()?.functions.len())
}

/// The installed libraries that a name stands for, also where it is that of a link to them.
fn installed(name: &str) -> HashSet<FileId> {
    let found = linker::find(name, &[], &Environment::default()).unwrap_or_default();
    found.iter().filter_map(|path| identity(path).ok()).collect()
}

/// A path that leads to the program of a process.
pub fn program_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// A file that a pattern names and that a process maps, but not to execute it there, with that process.
fn not_executed(pids: &[u32], pattern: &str) -> Option<(u32, PathBuf)> {
    pids.iter().find_map(|&pid| {
        let program = std::fs::read_link(program_of(pid)).unwrap_or_default();
        let space = AddressSpace::of(pid).ok()?;
        let mut named = space.files().map(|file| file.path()).filter(|path| match pattern {
            EXECUTABLE => *path == program,
            _ => select::matches(pattern, path),
        });
        named.next().map(|path| (pid, path))
    })
}

/// A file without functions is nothing to trace, but no reason to leave out those that a glob names beside it.
fn any_function(libraries: &[LibrarySource]) -> Result<(), Error> {
    match libraries.first() {
        Some(first) if libraries.iter().all(|source| source.exports.is_empty()) => {
            let path = first.library.path.clone();
            let is_stripped = !first.image.has_all_names();
            let places = is_stripped.then(|| debug_places(Path::new(&path), &first.image));
            Err(Error::NoFunctions { path, places })
        }
        _ => Ok(()),
    }
}

/// Notes where the code of these libraries is not the file's any more in the processes that map them; gives those that
/// are executed elsewhere, at least in part, each by one process.
fn note_altered<'m>(libraries: &mut [LibrarySource], modules: impl Iterator<Item = &'m Module>) -> Vec<&'m Module> {
    let ids: HashSet<FileId> = libraries.iter().map(|source| (source.library.device, source.library.inode)).collect();
    let modules: Vec<&Module> = modules.filter(|module| ids.contains(&(module.device, module.inode))).collect();
    let mut altered = code::by_file(modules.iter().copied());
    let mut moved = Vec::new();
    for source in libraries {
        let id = (source.library.device, source.library.inode);
        let mut parts = altered.remove(&id).unwrap_or_default();
        let of_file = modules.iter().filter(|module| (module.device, module.inode) == id);
        let elsewhere = of_file.map(|module| (*module, code::moved(module, &source.image)));
        let elsewhere: Vec<_> = elsewhere.filter(|(_, parts)| !parts.is_empty()).collect();
        moved.extend(elsewhere.first().map(|(module, _)| *module));
        parts.extend(elsewhere.into_iter().flat_map(|(_, parts)| parts));
        source.altered = parts::union(parts);
    }
    moved
}

/// Finds the libraries that processes have loaded meanwhile: files that a pattern names and that
/// are not in `known`, to which they are added. Their ids count up from `first`.
///
/// Processes that have ended, and files that cannot be traced, are passed over.
pub fn late_loads(
    pids: &[u32],
    wanted: LibraryChoice<'_>,
    known: &mut HashSet<(u64, u64)>,
    first: LibraryId,
) -> Target {
    let is_wanted = |module: &Module| wanted.patterns.iter().any(|pattern| module.is_named(pattern));
    loaded((pids, wanted.statics), is_wanted, known, first)
}

/// As [`late_loads`], for the one file that was mapped, whatever its name.
pub fn copied(mapping: &CodeMapping, statics: bool, known: &mut HashSet<(u64, u64)>, first: LibraryId) -> Target {
    loaded((&[mapping.pid], statics), |module| module_id(module) == mapping.file, known, first)
}

fn loaded(
    (pids, statics): (&[u32], bool),
    is_wanted: impl Fn(&Module) -> bool,
    known: &mut HashSet<(u64, u64)>,
    first: LibraryId,
) -> Target {
    let modules: Vec<Module> = pids.iter().filter_map(|&pid| modules::of_process(pid).ok()).flatten().collect();
    let is_new = |module: &&Module| is_wanted(module) && known.insert(module_id(module));
    let new: Vec<&Module> = modules.iter().filter(is_new).collect();
    let judged: &[Module] = if new.is_empty() { &[] } else { &modules };
    let is_new = |id: &FileId| new.iter().any(|module| module_id(module) == *id);
    let images = ImageCache::read(judged.iter().map(module_file), statics, is_new);
    let mut libraries = Vec::new();
    for module in new {
        let library = LibraryId(first.0 + libraries.len() as u32);
        let id = module_id(module);
        match images.source(id, library, &module.path, &module.open_path(), Some(module)) {
            Ok(source) => libraries.extend(Some(source).filter(|source| !source.exports.is_empty())),
            // The process may have ended meanwhile: there may be another way to the file.
            Err(_) => _ = known.remove(&id),
        }
    }
    note_altered(&mut libraries, modules.iter());
    Target { libraries, ..Target::default() }
}

/// Whether a process maps a library, as far as we may know.
pub fn maps(pid: u32, library: &Library) -> bool {
    let modules = modules::of_process(pid).unwrap_or_default();
    modules.iter().any(|module| (module.device, module.inode) == (library.device, library.inode))
}

/// A file that was chosen in running processes.
enum ChosenFile<'a> {
    Mapped(&'a Module),
    /// Named by its path: probes are in before it is loaded.
    NotYetMapped(PathBuf),
}

impl ChosenFile<'_> {
    /// The path as the processes see it.
    fn name(&self) -> &Path {
        match self {
            ChosenFile::Mapped(module) => &module.path,
            ChosenFile::NotYetMapped(path) => path,
        }
    }

    /// A path by which we reach the file.
    fn path(&self) -> PathBuf {
        match self {
            ChosenFile::Mapped(module) => module.open_path(),
            ChosenFile::NotYetMapped(path) => path.clone(),
        }
    }
}

/// As [`late_loads`], for a mapping that the kernel told of: also if the process has given it up
/// again, as the file's path is known.
pub fn mapped(
    mapping: &CodeMapping,
    wanted: LibraryChoice<'_>,
    known: &mut HashSet<(u64, u64)>,
    first: LibraryId,
) -> Target {
    let target = late_loads(&[mapping.pid], wanted, known, first);
    if !target.libraries.is_empty() {
        return target;
    }
    let mut libraries = Vec::new();
    for path in &places(mapping) {
        let Ok(id) = identity(path) else { continue };
        if !known.insert(id) {
            break;
        }
        let modules = modules::of_process(mapping.pid).unwrap_or_default();
        let files = modules.iter().map(module_file).chain([(id, &*mapping.path, path.clone())]);
        let images = ImageCache::read(files, wanted.statics, |file| *file == id);
        if let Ok(source) = images.source(id, first, &mapping.path, path, None) {
            libraries.extend(Some(source).filter(|source| !source.exports.is_empty()));
            break;
        }
        // The process may have ended meanwhile, and its root is out of reach.
        known.remove(&id);
    }
    Target { libraries, ..Target::default() }
}

/// Whether one of these patterns names the file that was mapped; code of the kernel (`[vdso]`, `[uprobes]`) and generated code
/// are none.
pub fn is_named(mapping: &CodeMapping, patterns: &[String]) -> bool {
    let soname = || places(mapping).iter().find_map(|path| soname(path));
    let is_file = mapping.file.1 != 0;
    is_file && patterns.iter().any(|pattern| select::names(pattern, &mapping.path, soname))
}

/// Where the file that was mapped may be in reach: in the root folder of its process, or in ours.
fn places(mapping: &CodeMapping) -> [PathBuf; 2] {
    let in_its_root = format!("/proc/{}/root{}", mapping.pid, mapping.path.display());
    [PathBuf::from(in_its_root), mapping.path.clone()]
}

/// Finds the libraries that a command will load, or may load later.
///
/// # Errors
/// The command cannot be found, or starts a translator, or a pattern names no library on this machine.
pub fn of_command(command: &[OsString], wanted: LibraryChoice<'_>) -> Result<Target, Error> {
    let environment = environment();
    let name = name_of(command);
    let executables = linker::resolve_command(word_of(command), environment.path.as_deref())?;
    translators::check_command(&name, &executables)?;

    let mut files = BTreeMap::<(u64, u64), PathBuf>::new();
    let (mut awaited, mut remarks) = (Vec::new(), Vec::new());
    for pattern in wanted.patterns {
        let found = match pattern.as_str() {
            EXECUTABLE => executables.last().cloned().into_iter().collect(),
            _ => match linker::find(pattern, &executables, &environment) {
                // In another root folder it may be there.
                Err(rtrace_symbolizer::Error::Read { source, .. })
                    if pattern.starts_with('/') && source.kind() == ErrorKind::NotFound =>
                {
                    Vec::new()
                }
                found => found?,
            },
        };
        if found.is_empty() {
            let candidates = linker::candidates(&executables, &environment);
            let names: Vec<&str> = candidates.iter().filter_map(|path| path.file_name()?.to_str()).collect();
            let near = select::near_names(pattern, &names);
            let may_come = pattern != EXECUTABLE && (!pattern.contains('/') || pattern.starts_with('/'));
            if may_come && may_load_more(&executables, &environment) {
                let near = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
                remarks
                    .push(format!("no library `{pattern}` is found before a program loads it: waiting for one{near}"));
                awaited.push(pattern.clone());
                continue;
            }
            let place = format!("what `{name}` loads, or among the installed libraries");
            return Err(Error::NoSuchLibrary { pattern: pattern.clone(), place, near });
        }
        for path in found {
            files.insert(identity(&path)?, path);
        }
    }

    if files.values().any(|path| path.ends_with("node")) && moves_code(command, std::env::var_os("NODE_OPTIONS")) {
        return Err(Error::Moves(name));
    }
    let (mut modules, mut loaded) = (Vec::new(), Vec::new());
    for executable in executables.iter().filter(|path| Image::open_outline(path).is_ok()) {
        loaded = linker::closure(executable, &environment)?;
        loaded.extend(files.values().cloned());
        for path in loaded.iter().chain([executable]) {
            modules.push((identity(path)?, path.clone()));
        }
    }
    let modules = modules.iter().map(|(id, path)| (*id, path.as_path(), path.clone()));
    let images = ImageCache::read(modules, wanted.statics, |id| files.contains_key(id));
    // A process of ours that maps the same file has the same implementations of its IFUNCs.
    let own = modules::of_process(std::process::id())?;
    let mut libraries = Vec::new();
    for (id, path) in files {
        let module = own.iter().find(|module| (module.device, module.inode) == id);
        let library = LibraryId(libraries.len() as u32);
        libraries.push(images.source(id, library, &path, &path, module)?);
    }
    any_function(&libraries)?;
    Ok(Target { libraries, files: loaded, awaited, remarks })
}

/// Whether a command may load what nobody knows before it does: scripts start other programs, and so does a program that
/// calls one of these functions, or calls nothing that we know because it is static.
fn may_load_more(executables: &[PathBuf], environment: &Environment) -> bool {
    let loads_more = |path: &PathBuf| {
        let image = Image::open_outline(path);
        image.is_ok_and(|image| image.imports().iter().any(|name| OPENERS.contains(name)))
    };
    let [program] = executables else { return true };
    let is_static = Image::open_outline(program).is_ok_and(|image| image.interpreter().is_none());
    is_static || linker::closure(program, environment).is_ok_and(|files| files.iter().any(loads_more))
}

/// Whether a node that a command starts moves its code to huge pages; `options`: those that it has from the environment.
fn moves_code(command: &[OsString], options: Option<OsString>) -> bool {
    let words: Vec<String> = command.iter().chain(&options).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut words = words.iter().flat_map(|word| word.split_ascii_whitespace());
    words.any(|word| word.strip_prefix(LARGE_PAGES).is_some_and(|value| value != "=off"))
}

/// What a command is called by, as text.
pub(crate) fn name_of(command: &[OsString]) -> String {
    text_of_os(word_of(command)).into_owned()
}

/// The same as it was typed.
pub(crate) fn word_of(command: &[OsString]) -> &OsStr {
    command.first().map(OsString::as_os_str).unwrap_or_default()
}

/// What a command inherits from us that decides which files it loads.
pub fn environment() -> Environment {
    Environment {
        library_path: std::env::var_os("LD_LIBRARY_PATH"),
        preload: std::env::var_os("LD_PRELOAD"),
        path: std::env::var_os("PATH"),
    }
}

/// Device and inode of a file.
pub(crate) fn identity(path: &Path) -> Result<(u64, u64), Error> {
    let metadata =
        std::fs::metadata(path).map_err(|source| rtrace_symbolizer::Error::Read { path: path.to_owned(), source })?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Implementations of IFUNCs: those that a process which maps the file has chosen, and those that may be chosen yet.
pub(crate) fn implementations(mapped: Option<&Module>, image: &Image, exports: &Exports) -> Vec<ifunc::Resolved> {
    let chosen = mapped.map(|module| ifunc::resolve(module.pid, module, image, exports)).unwrap_or_default();
    let mut known: Vec<_> = choices::of(image, exports).into_iter().chain(chosen).collect();
    known.sort_unstable_by_key(|resolved| (resolved.function, resolved.address));
    known.dedup_by_key(|resolved| (resolved.function, resolved.address));
    known
}

/// A file with its name, and a path at which we reach it.
type NamedFile<'a> = (FileId, &'a Path, PathBuf);

fn module_id(module: &Module) -> FileId {
    (module.device, module.inode)
}

fn module_file(module: &Module) -> NamedFile<'_> {
    (module_id(module), &module.path, module.open_path())
}

/// Every file once; one that cannot be read is left out, as it cannot be judged.
#[derive(Default)]
struct ImageCache {
    images: BTreeMap<FileId, (String, Option<Arc<Image>>)>,
    /// Whether functions that a file does not export are meant, too.
    statics: bool,
}

impl ImageCache {
    /// Reads these files; of those that are not `chosen` no more than they are judged by.
    fn read<'a>(
        files: impl IntoIterator<Item = NamedFile<'a>>,
        statics: bool,
        is_chosen: impl Fn(&FileId) -> bool + Sync,
    ) -> ImageCache {
        let mut wanted = BTreeMap::new();
        for (id, name, path) in files {
            wanted.entry(id).or_insert((name, path));
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let images = parallel::map(&wanted, |(id, (name, path))| {
            let whole = || Image::open(path).map(|image| image.with_debug_symbols(name));
            let image = if is_chosen(id) { whole() } else { Image::open_outline(path) };
            (*id, (name.display().to_string(), image.ok().map(Arc::new)))
        });
        ImageCache { images: images.into_iter().collect(), statics }
    }

    /// A chosen file, by its device and inode; `mapped`: how a process maps it.
    ///
    /// # Errors
    /// It cannot be read.
    fn source(
        &self,
        file: FileId,
        id: LibraryId,
        path: &Path,
        attach_path: &Path,
        mapped: Option<&Module>,
    ) -> Result<LibrarySource, Error> {
        let image = match self.images.get(&file) {
            Some((_, Some(image))) => Arc::clone(image),
            _ => Arc::new(Image::open(attach_path)?.with_debug_symbols(path)),
        };
        let mut exports = if self.statics { image.all_functions()? } else { image.exports()? };
        let others = self.images.iter().filter(|(id, _)| **id != file);
        let uses = Uses::of(others.filter_map(|(_, (_, image))| image.as_deref()), &exports);
        exports.accept(|function| function.has_name_in(&uses.called));
        let (device, inode) = identity(attach_path)?;
        let library =
            Library { id, path: text_of_os(path).into_owned(), apart: None, build_id: image.build_id(), device, inode };
        let ifuncs = implementations(mapped, &image, &exports);
        let source = LibrarySource::new(library, attach_path.to_owned(), image, exports, ifuncs);
        Ok(LibrarySource { uses, ..source })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    /// A process may map files with any names.
    #[test]
    fn a_file_that_is_not_executed_is_found_among_names_that_are_no_text() {
        let folder = tempfile::tempdir().unwrap();
        for name in [&b"\xff\xfe"[..], b"new\nline", b"libunused.so.1"] {
            let path = folder.path().join(OsStr::from_bytes(name));
            std::fs::write(&path, [0; 4096]).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            // SAFETY: a fresh mapping that nothing else refers to.
            unsafe { mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE, &file, 0).unwrap() };
        }
        let pid = std::process::id();
        let found = not_executed(&[pid], "libunused");
        assert_eq!(found, Some((pid, folder.path().join("libunused.so.1"))));
        assert_eq!(not_executed(&[pid], "libused"), None);
    }
}
