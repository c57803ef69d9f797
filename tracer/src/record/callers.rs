//! Which direct calls lead to traced functions, by the addresses to which they return.
//!
//! A probe at a return address detects the return of a call. The probes for direct calls can be
//! placed before recording begins, because the code of the files says where these calls are:
//! `call FUNCTION` within a file, `call STUB` of the procedure linkage table, and `call *SLOT` of
//! files compiled with `-fno-plt`. Calls through pointers and virtual functions are not found.
//!
//! `links` decides which slots lead to traced functions, `process` reads the slots of a live
//! process, and `scan` finds the calls. Nothing is attached here. Whatever cannot be read is left
//! out: a call that is not found is one whose first return may go undetected, and no more than that.

mod beginning;
mod links;
mod process;
mod scan;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use foldhash::{HashMap, HashMapExt as _, HashSet};
use rtrace_code::arrival::Keeps;
use rtrace_code::flow::Joined;
use rtrace_code::parallel;
use rtrace_code::tails::Tails;
use rtrace_model::ExitPolicy;
use rtrace_plan::{Capture, PlannedLibrary, PlannedRegion};
use rtrace_symbolizer::address_space::FileId;
use rtrace_symbolizer::modules::Module;
use rtrace_symbolizer::{DynamicDefinition, Image, Stamp, linker};

use self::links::{Linkage, Word};
use self::process::LiveProcess;
use self::scan::Callees;
use crate::record::jump_candidates::{self, Candidate};
use crate::target;

/// The functions that load a library.
const LOADERS: [&str; 2] = ["dlopen", "dlmopen"];

/// A file with direct calls of traced functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerFile {
    /// Device number of the file, as `stat` reports it.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
    /// A path by which rtrace can open the file and attach probes.
    pub path: PathBuf,
    /// Which content of it was looked at.
    pub stamp: Option<Stamp>,
    /// Where these calls return to, by offset, each once.
    pub returns: Vec<Return>,
}

/// A return address of a direct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// What is read of the call when it has returned.
    pub keeps: Keeps,
    /// It is that of a direct call of a traced function, else of one through a pointer.
    pub is_direct: bool,
    /// Where others come along from there that do not make the call.
    pub joined: Joined,
}

/// The functions that are traced.
#[derive(Default)]
pub struct TracedFunctions<'a> {
    files: HashMap<FileId, FileFunctions<'a>>,
}

/// The traced functions of one file.
#[derive(Default)]
struct FileFunctions<'a> {
    /// By file offsets of their first instructions: what is read of their calls at a return.
    offsets: HashMap<u64, Keeps>,
    /// The same by all their names: an IFUNC is known by its name until a process has chosen its implementation.
    names: HashMap<&'a str, Keeps>,
}

impl<'a> TracedFunctions<'a> {
    /// The functions of a plan whose returns are to be seen.
    pub fn of(libraries: &'a [PlannedLibrary]) -> TracedFunctions<'a> {
        let mut traced = TracedFunctions::default();
        for PlannedLibrary { library, regions, .. } in libraries {
            let keeps = kept_at_return(regions);
            let timed = regions.iter().filter(|planned| planned.region.exit != ExitPolicy::EntryOnly);
            for region in timed.map(|planned| &planned.region) {
                let names = region.symbols.iter().map(|symbol| symbol.symbol.as_str());
                traced.add(library.device, library.inode, region.file_offset, names, keeps[&region.file_offset]);
            }
        }
        traced
    }

    /// Adds a function of the file with these numbers: the file offset of its first instruction,
    /// its names as the linker knows them, and what is read of its calls at a return.
    pub fn add(
        &mut self,
        device: u64,
        inode: u64,
        file_offset: u64,
        names: impl IntoIterator<Item = &'a str>,
        keeps: Keeps,
    ) {
        let functions = self.files.entry((device, inode)).or_default();
        functions.offsets.insert(file_offset, keeps);
        for name in names {
            add_keeps(&mut functions.names, name, keeps);
        }
    }

    /// What is read at returns of the function at this offset of a file; none where it is not traced.
    fn keeps(&self, file: FileId, file_offset: u64) -> Option<Keeps> {
        self.files.get(&file)?.offsets.get(&file_offset).copied()
    }

    /// The same of the function that those call who are given this definition of a file.
    fn keeps_behind(&self, file: FileId, image: &Image, definition: &DynamicDefinition) -> Option<Keeps> {
        let functions = self.files.get(&file)?;
        let by_name = functions.names.get(definition.name).filter(|_| definition.is_ifunc);
        by_name.copied().or_else(|| self.keeps(file, image.file_offset(definition.address)?))
    }
}

/// Adds what is read of one of the calls that lead by the same way.
fn add_keeps<K: std::hash::Hash + Eq>(all: &mut HashMap<K, Keeps>, way: K, keeps: Keeps) {
    let known = all.entry(way).or_default();
    *known = known.or(keeps);
}

/// What is read at returns of each region of a library, by its file offset: of its own calls, and of those that return to
/// the same address, as it ends in them by a jump or only returns behind them.
fn kept_at_return(regions: &[PlannedRegion]) -> HashMap<u64, Keeps> {
    let own = |planned: &PlannedRegion| match planned.tails {
        _ if planned.passes_on => Keeps::READABLE,
        Tails::Anywhere => Keeps::READABLE,
        Tails::Never | Tails::To(_) => planned.capture.as_deref().map(Capture::keeps_at_return).unwrap_or_default(),
    };
    let mut keeps: HashMap<u64, Keeps> =
        regions.iter().map(|planned| (planned.region.file_offset, own(planned))).collect();
    loop {
        let mut has_changed = false;
        for planned in regions {
            let Tails::To(tails) = &planned.tails else { continue };
            let place = planned.region.file_offset;
            let of_tails = tails.iter().filter_map(|tail| keeps.get(tail)).fold(keeps[&place], |all, &one| all.or(one));
            has_changed |= keeps.insert(place, of_tails) != Some(of_tails);
        }
        if !has_changed {
            return keeps;
        }
    }
}

/// The files with direct calls of traced functions that these processes map now.
///
/// Where a slot leads is read in the memory of the process; where the dynamic linker has not filled
/// it, it is found by name, as in [`of_command`]. A process that ends meanwhile is passed over.
pub fn of_processes(pids: &[u32], traced: &TracedFunctions) -> Vec<CallerFile> {
    let processes: Vec<LiveProcess> = pids.iter().filter_map(|&pid| LiveProcess::inspect(pid)).collect();
    let modules = processes.iter().flat_map(|process| &process.modules);
    let files = Files::read(modules.map(|module| ((module.device, module.inode), module.open_path())), traced);
    let names = OnceLock::new();
    let mut slots = vec![HashMap::default(); files.all.len()];
    for process in &processes {
        let linkage = Linkage::new(&files, traced, &names, process.load_order(&files));
        let found = parallel::map(&process.modules, |module| process.slots(module, &linkage));
        for (file, found) in found.into_iter().flatten() {
            found.into_iter().for_each(|(slot, keeps)| add_keeps(&mut slots[file], slot, keeps));
        }
    }
    let mut programs = HashSet::default();
    processes.iter().fold(files.scan(slots), |callers, process| {
        let is_program = |module: &&Module| Some((module.device, module.inode)) == process.program;
        let (first, others): (Vec<&Module>, Vec<&Module>) = process.modules.iter().partition(is_program);
        let files: Vec<PathBuf> = first.into_iter().chain(others).map(Module::open_path).collect();
        if programs.insert(process.program) { with_beginning(callers, &files) } else { callers }
    })
}

/// The files with direct calls of traced functions among those that a program will load.
///
/// `files` are in the order of [`closure`](rtrace_symbolizer::linker::closure): the program, its
/// interpreter, and what that loads. Files that may be loaded later come last.
pub fn of_command(files: &[PathBuf], traced: &TracedFunctions) -> Vec<CallerFile> {
    with_beginning(of_files(files, traced), files)
}

/// These, with the call of `main` in the program that comes first among these files.
fn with_beginning(mut callers: Vec<CallerFile>, files: &[PathBuf]) -> Vec<CallerFile> {
    let Some((path, image, behind)) = beginning::of(files) else { return callers };
    let Some((device, inode)) = identity(path) else { return callers };
    let begins = |offset| Return { offset, keeps: Keeps::READABLE, is_direct: false, joined: Joined::default() };
    let new = || CallerFile { device, inode, path: path.to_owned(), stamp: image.stamp(), returns: Vec::new() };
    let index = callers.iter().position(|file| (file.device, file.inode) == (device, inode)).unwrap_or_else(|| {
        callers.push(new());
        callers.len() - 1
    });
    let returns = &mut callers[index].returns;
    returns.extend(behind.into_iter().map(begins));
    returns.sort_unstable_by_key(|call| (call.offset, !call.is_direct));
    returns.dedup_by_key(|call| call.offset);
    callers
}

/// Those of these files that a program may load; the first is the program. What it does not need from its beginning on it
/// cannot load where nothing of that calls `dlopen`, as most shells.
pub fn loadable(files: &[PathBuf]) -> Vec<PathBuf> {
    let needed = files.first().and_then(|program| linker::closure(program, &target::environment()).ok());
    let Some(needed) = needed else { return files.to_vec() };
    let calls_dlopen = |path: &PathBuf| {
        let image = Image::open_outline(path);
        image.is_ok_and(|image| image.slots().iter().any(|slot| LOADERS.contains(&slot.name)))
    };
    match needed.iter().any(calls_dlopen) {
        true => files.to_vec(),
        false => {
            let needed: Vec<FileId> = needed.iter().filter_map(|path| identity(path)).collect();
            let is_needed = |file: &&PathBuf| identity(file).is_some_and(|id| needed.contains(&id));
            files.iter().filter(is_needed).cloned().collect()
        }
    }
}

fn of_files(files: &[PathBuf], traced: &TracedFunctions) -> Vec<CallerFile> {
    let identified = files.iter().filter_map(|path| Some((identity(path)?, path.clone())));
    let files = Files::read(identified, traced);
    let names = OnceLock::new();
    let mut order: Vec<usize> = (0..files.all.len()).collect();
    // The C library needs the interpreter, so names are looked for in it after most other files.
    let interpreter = files.all.first().and_then(|program| identity(Path::new(program.image.interpreter()?)));
    order.sort_by_key(|&file| Some(files.all[file].id) == interpreter);
    let linkage = Linkage::new(&files, traced, &names, order);
    let all: Vec<usize> = (0..files.all.len()).collect();
    let slots = parallel::map(&all, |&file| linkage.slots(file, &files.all[file].image.slots(), |_| Word::Unknown));
    files.scan(slots.into_iter().map(HashMap::from_iter).collect())
}

/// What matters of files, by the program that a command executes and that loads them.
#[derive(Default)]
pub struct Executed<'a> {
    traced: TracedFunctions<'a>,
    /// Where traced functions are: a program may load one of these files later.
    libraries: Vec<PathBuf>,
    known: HashMap<FileId, LoadedFiles>,
}

/// What matters of the files that a program loads.
#[derive(Default)]
pub struct LoadedFiles {
    /// The program; none where it is no program that loads files, such as a script: its interpreter is executed, too.
    pub program: Option<FileId>,
    /// All of them, each with a path.
    pub files: Vec<(FileId, PathBuf)>,
    /// Those with direct calls of traced functions.
    pub callers: Vec<CallerFile>,
    /// The same of those that it may load later, and mostly never does.
    pub later: Vec<CallerFile>,
    /// Those by which control may leave functions without a return.
    pub jumps: Vec<Candidate>,
}

impl<'a> Executed<'a> {
    /// Of no program yet.
    pub fn new(libraries: &'a [PlannedLibrary]) -> Executed<'a> {
        let paths = libraries.iter().map(|planned| planned.attach_path.clone()).collect();
        Executed { traced: TracedFunctions::of(libraries), libraries: paths, known: HashMap::new() }
    }

    /// Those of a program, which is looked at when it is first named.
    pub fn of(&mut self, program: &Path) -> &LoadedFiles {
        const NOTHING: &LoadedFiles = &LoadedFiles {
            program: None,
            files: Vec::new(),
            callers: Vec::new(),
            later: Vec::new(),
            jumps: Vec::new(),
        };
        let Executed { traced, libraries, known } = self;
        let look = |id| {
            let Ok(mut files) = linker::closure(program, &target::environment()) else { return LoadedFiles::default() };
            let ids = |files: &[PathBuf]| {
                files.iter().filter_map(|path| Some((identity(path)?, path.clone()))).collect::<Vec<_>>()
            };
            let needed = ids(&files);
            files.extend_from_slice(libraries);
            let files = loadable(&files);
            let is_needed = |file: &CallerFile| needed.iter().any(|(id, _)| *id == (file.device, file.inode));
            let (callers, later) = of_command(&files, traced).into_iter().partition(is_needed);
            let jumps = jump_candidates::among_files(&files);
            LoadedFiles { program: Some(id), files: [needed, ids(libraries)].concat(), callers, later, jumps }
        };
        match identity(program) {
            Some(id) => known.entry(id).or_insert_with(|| look(id)),
            None => NOTHING,
        }
    }
}

fn identity(path: &Path) -> Option<FileId> {
    target::identity(path).ok()
}

/// Files that may hold calls, each once; those that cannot be read are left out.
struct Files {
    all: Vec<CodeFile>,
    by_id: HashMap<FileId, usize>,
}

/// A file that may hold calls.
struct CodeFile {
    id: FileId,
    path: PathBuf,
    /// Its tables; the bytes of its code are not among them.
    image: Image,
    /// All of it, once that is asked for; none where it cannot be read, or has changed.
    whole: OnceLock<Option<Image>>,
    /// Its own traced functions by virtual address, with what is read of their calls at a return.
    entries: HashMap<u64, Keeps>,
}

impl CodeFile {
    fn whole(&self) -> Option<&Image> {
        let open = || Image::open(&self.path).ok().filter(|whole| whole.stamp() == self.image.stamp());
        self.whole.get_or_init(open).as_ref()
    }
}

impl Files {
    fn read(files: impl Iterator<Item = (FileId, PathBuf)>, traced: &TracedFunctions) -> Files {
        let mut met = HashSet::default();
        let files: Vec<_> = files.filter(|(id, _)| met.insert(*id)).collect();
        let read = parallel::map(&files, |(id, path)| {
            let image = Image::open_outline(path).ok()?;
            let own = traced.files.get(id).into_iter().flat_map(|functions| &functions.offsets);
            let entries = own.filter_map(|(&place, &keeps)| Some((image.address(place)?, keeps))).collect();
            Some(CodeFile { id: *id, path: path.clone(), image, whole: OnceLock::new(), entries })
        });
        let mut by_id = HashMap::with_capacity(read.len());
        let mut all = Vec::with_capacity(read.len());
        for file in read.into_iter().flatten() {
            by_id.insert(file.id, all.len());
            all.push(file);
        }
        Files { all, by_id }
    }

    /// Looks for calls of the files' own traced functions, and of those behind these slots of each file.
    fn scan(&self, slots: Vec<HashMap<u64, Keeps>>) -> Vec<CallerFile> {
        let callers: Vec<_> = self.all.iter().zip(slots).collect();
        let callees = parallel::map(&callers, |(file, slots)| Callees::of(file, slots));
        let callees: Vec<Callees> = callees.into_iter().flatten().collect();
        let pieces: Vec<_> = callees.iter().enumerate().flat_map(|(index, callees)| callees.pieces(index)).collect();
        let found = parallel::map(&pieces, |piece| callees[piece.file].returns(piece));
        let mut files: Vec<CallerFile> = callees.iter().map(Callees::file).collect();
        for (piece, returns) in pieces.iter().zip(found) {
            files[piece.file].returns.extend(returns);
        }
        for file in &mut files {
            file.returns.sort_unstable_by_key(|call| call.offset);
            file.returns.dedup_by(|next, call| {
                let is_same = next.offset == call.offset;
                if is_same {
                    call.keeps = call.keeps.or(next.keeps);
                }
                is_same
            });
        }
        files.retain(|file| !file.returns.is_empty());
        files
    }
}
