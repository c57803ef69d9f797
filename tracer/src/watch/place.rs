//! Where a variable is: in which file, and at which address of it.
//!
//! A library's exported variable may have its live place in the program: the linker makes a copy
//! there for programs that refer to it directly (a copy relocation), and all use that one. Whatever
//! the program exports under a name comes before what its libraries do.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rtrace_bpf::MAX_WATCHES;
use rtrace_symbolizer::address_space::AddressSpace;
use rtrace_symbolizer::linker;
use rtrace_symbolizer::modules::{self, Module};
use rtrace_symbolizer::{Image, Variable, select};

use super::{Error, Name, Watch, breakpoint};
use crate::target::{self, EXECUTABLE};

/// A file that may have the variable.
#[derive(Clone, Debug)]
pub struct VariableFile {
    /// Its path, as the process sees it.
    pub path: PathBuf,
    /// It is the program, not a library.
    pub is_program: bool,
    /// What is in it.
    pub image: Arc<Image>,
}

impl VariableFile {
    /// Whether a variable of that name is looked for in it; `libraries`: those that are traced.
    fn is_asked(&self, name: &Name, libraries: &[String]) -> bool {
        let is_named = |pattern: &String| match pattern.as_str() {
            EXECUTABLE => self.is_program,
            _ => select::names(pattern, &self.path, || self.image.soname().map(str::to_owned)),
        };
        match &name.library {
            Some(library) => is_named(library),
            None => self.is_program || libraries.iter().any(is_named),
        }
    }
}

/// The variable of that name and the place of its file; `None` where no file has it.
///
/// # Errors
/// The name stands for several, or for one that cannot be watched.
pub fn locate(name: &Name, libraries: &[String], files: &[VariableFile]) -> Result<Option<(usize, Variable)>, Error> {
    let mut found: Vec<(usize, Variable)> = Vec::new();
    for (place, file) in files.iter().enumerate().filter(|(_, file)| file.is_asked(name, libraries)) {
        let variables = file.image.variables(&name.symbol)?;
        if let [_, _, ..] = variables[..] {
            let (name, file) = (name.to_string(), file.path.display().to_string());
            return Err(Error::Several { name, file, count: variables.len() });
        }
        found.extend(variables.iter().map(|&variable| (place, variable)));
    }
    if found.iter().any(|(_, variable)| variable.is_exported) {
        let live = live_in_program(name, files)?;
        if let Some(live) = live {
            found.retain(|(_, variable)| !variable.is_exported);
            found.push(live);
        }
    }
    match found[..] {
        [] => Ok(None),
        [(place, variable)] => {
            let variable = part_of(name, variable)?;
            fit(name, variable).map(|()| Some((place, variable)))
        }
        _ => {
            let places: Vec<_> = found.iter().map(|&(place, _)| files[place].path.display().to_string()).collect();
            Err(Error::Ambiguous { name: name.to_string(), places: places.join(", ") })
        }
    }
}

/// What the program itself exports under the name.
fn live_in_program(name: &Name, files: &[VariableFile]) -> Result<Option<(usize, Variable)>, Error> {
    for (place, file) in files.iter().enumerate().filter(|(_, file)| file.is_program) {
        let exported = file.image.variables(&name.symbol)?.into_iter().find(|variable| variable.is_exported);
        if let Some(variable) = exported {
            return Ok(Some((place, variable)));
        }
    }
    Ok(None)
}

/// The part of a variable that is watched.
fn part_of(name: &Name, variable: Variable) -> Result<Variable, Error> {
    let Some((offset, size)) = name.part else { return Ok(variable) };
    if offset.checked_add(size).is_none_or(|end| end > variable.size) {
        let cause = format!("it has {} bytes, and the part ends behind them", variable.size);
        return Err(Error::Unfit { name: name.to_string(), cause });
    }
    Ok(Variable { address: variable.address + offset, size, ..variable })
}

/// What is watched where an address is said.
fn at_address(name: &Name) -> Result<Option<Variable>, Error> {
    let Some((address, (_, size))) = name.address.zip(name.part) else { return Ok(None) };
    let variable = Variable { address, size, is_exported: false, is_thread_local: false };
    fit(name, variable).map(|()| Some(variable))
}

fn fit(name: &Name, variable: Variable) -> Result<(), Error> {
    let unfit = |cause| Err(Error::Unfit { name: name.to_string(), cause });
    let Variable { address, size, is_thread_local, .. } = variable;
    if is_thread_local {
        return unfit("each thread has its own".to_owned());
    }
    if !matches!(size, 1 | 2 | 4 | 8) {
        return unfit(format!("it has {size} bytes, and the hardware watches 1, 2, 4 or 8"));
    }
    if address % size != 0 {
        return unfit(format!("it is not aligned to its {size} bytes"));
    }
    if name.values == Some(super::Number::Float) && size < 4 {
        return unfit(format!("it has {size} bytes, which is no floating-point number"));
    }
    Ok(())
}

/// What is to be watched in running processes.
///
/// # Errors
/// [`Error`] names the first variable that cannot be watched, and why.
pub fn of_processes(names: &[Name], libraries: &[String], pids: &[u32]) -> Result<Vec<Watch>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    for (name, address) in names.iter().filter_map(|name| Some((name, name.address?))) {
        for &pid in pids {
            let space = AddressSpace::of(pid)?;
            if !space.areas().any(|area| area.mapping.contains(address)) {
                let cause = format!("process {pid} has no memory there");
                return Err(Error::Unfit { name: name.to_string(), cause });
            }
        }
    }
    // What cannot be read is no file that a variable could be found in.
    let image_of = |module: &Module| Image::open(&module.open_path()).ok().map(Arc::new);
    let files_of = |&pid: &u32| Ok(files_of(pid, image_of)?.into_iter().map(|(_, file)| file).collect());
    sized(names, libraries, &pids.iter().map(files_of).collect::<Result<Vec<_>, Error>>()?)
}

/// The files that a process maps and of which there is an image, and how it maps them.
///
/// # Errors
/// The process is gone, or not to be looked at.
pub fn files_of(
    pid: u32,
    mut image_of: impl FnMut(&Module) -> Option<Arc<Image>>,
) -> Result<Vec<(Module, VariableFile)>, Error> {
    let program = modules::executable(pid)?;
    let file = |module: Module| {
        let is_program = (module.device, module.inode) == (program.device, program.inode);
        let file = VariableFile { path: module.path.clone(), is_program, image: image_of(&module)? };
        Some((module, file))
    };
    Ok(modules::of_process(pid)?.into_iter().filter_map(file).collect())
}

/// What is to be watched in a command.
///
/// # Errors
/// As [`of_processes`].
pub fn of_command(names: &[Name], libraries: &[String], command: &[OsString]) -> Result<Vec<Watch>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(name) = names.iter().find(|name| name.address.is_some()) {
        let cause = "only a running process says what is at an address: attach to it".to_owned();
        return Err(Error::Unfit { name: name.to_string(), cause });
    }
    let environment = target::environment();
    let executables = linker::resolve_command(target::word_of(command), environment.path.as_deref())?;
    let mut files: Vec<VariableFile> = Vec::new();
    if let Some(program) = executables.last() {
        let mut paths = linker::closure(program, &environment)?;
        paths.push(program.clone());
        let program = target::identity(program).ok();
        let mut known = HashSet::new();
        for path in paths {
            let Some(id) = target::identity(&path).ok().filter(|&id| known.insert(id)) else { continue };
            let is_program = program == Some(id);
            files.extend(Image::open(&path).ok().map(|image| VariableFile {
                path,
                is_program,
                image: Arc::new(image),
            }));
        }
    }
    sized(names, libraries, &[files])
}

/// Each variable with its size, from the first process that has it, or from the file that is to be loaded later.
fn sized(names: &[Name], libraries: &[String], processes: &[Vec<VariableFile>]) -> Result<Vec<Watch>, Error> {
    if names.len() > MAX_WATCHES {
        return Err(Error::TooMany { count: names.len() });
    }
    let mut watches: Vec<Watch> = Vec::new();
    for name in names {
        if watches.iter().any(|known| {
            (&known.name.library, &known.name.symbol, known.name.part) == (&name.library, &name.symbol, name.part)
        }) {
            return Err(Error::Twice(name.to_string()));
        }
        let mut found = at_address(name)?;
        for files in processes {
            found = found.or(locate(name, libraries, files)?.map(|(_, variable)| variable));
        }
        if found.is_none() {
            found = locate(name, libraries, &loaded_later(name, libraries))?.map(|(_, variable)| variable);
        }
        let variable = found.ok_or_else(|| Error::NotFound(name.to_string()))?;
        let size = u8::try_from(variable.size).expect("it is 8 at most");
        watches.push(Watch { name: name.clone(), size });
    }
    breakpoint::try_out(&watches)?;
    Ok(watches)
}

/// Files named by their path: no process maps them yet.
fn loaded_later(name: &Name, libraries: &[String]) -> Vec<VariableFile> {
    let named = name.library.as_ref().map_or(libraries, std::slice::from_ref);
    let paths = named.iter().map(Path::new).filter(|path| path.components().count() > 1 && path.is_file());
    let read = |path: &Path| {
        let image = Arc::new(Image::open(path).ok()?);
        Some(VariableFile { path: path.to_owned(), is_program: false, image })
    };
    paths.filter_map(read).collect()
}
