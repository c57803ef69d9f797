//! What a program that does not run yet will load.
//!
//! The rules are those of glibc's dynamic linker. Other C libraries search less; what they would
//! not find is then found all the same, which does no harm to a probe.

mod cache;
mod command;
mod hardware;
mod search;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rtrace_model::text_of;

pub use command::resolve_command;

use crate::{Error, Image, select};
use search::{Needs, Search};

/// A program that claims to need more names than this is not followed further.
const MAX_NAMES: usize = 1 << 14;

/// The variables that decide what is loaded.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// `LD_PRELOAD`.
    pub preload: Option<OsString>,
    /// `PATH`.
    pub path: Option<OsString>,
}

/// The executable, its interpreter (the dynamic linker), and what that loads, in this order and as found.
///
/// # Errors
/// [`Error::Read`] or [`Error::InFile`] for the executable itself; libraries that are missing are skipped.
pub fn closure(executable: &Path, env: &Environment) -> Result<Vec<PathBuf>, Error> {
    closure_with(executable, env, &Search::new(env))
}

/// The libraries that `pattern` names, by canonical path: among those that the executables load
/// (scripts load none), else among all that are installed, for a program may load them later.
///
/// # Errors
/// As [`closure`]; also if `pattern` is the path of a file that is no library.
pub fn find(pattern: &str, executables: &[PathBuf], env: &Environment) -> Result<Vec<PathBuf>, Error> {
    let search = Search::new(env);
    let mut found = Matches::new(pattern);
    for executable in executables {
        match load(executable, env, &search) {
            Ok(loading) => loading.files().for_each(|(path, soname)| found.add_loaded(path, soname)),
            Err(Error::InFile { source, .. }) if matches!(*source, Error::NotElf) => {}
            Err(error) => return Err(error),
        }
    }
    if found.paths.is_empty() && pattern.contains('/') {
        let path = &*select::path_of(pattern);
        if !select::is_glob(pattern) {
            Image::open_outline(path)?;
            found.add(path);
        } else if let Some(folder) = path.parent() {
            search::libraries_in(folder).iter().for_each(|path| found.add(path));
        }
    }
    if found.paths.is_empty() {
        search.installed().iter().for_each(|path| found.add(path));
    }
    Ok(found.paths)
}

/// All libraries that [`find`] looks at, for suggestions; what cannot be read is left out.
pub fn candidates(executables: &[PathBuf], env: &Environment) -> Vec<PathBuf> {
    let search = Search::new(env);
    let loaded = executables.iter().filter_map(|executable| closure_with(executable, env, &search).ok());
    let mut met = HashSet::new();
    loaded.flatten().chain(search.installed()).filter(|path| met.insert(path.clone())).collect()
}

fn closure_with(executable: &Path, env: &Environment, search: &Search) -> Result<Vec<PathBuf>, Error> {
    load(executable, env, search).map(|loading| loading.paths)
}

fn load(executable: &Path, env: &Environment, search: &Search) -> Result<Loading, Error> {
    let image = Image::open_outline(executable)?;
    let mut loading = Loading::new(executable, &image);
    if let Some(interpreter) = image.interpreter() {
        loading.load(interpreter, 0, search);
    }
    let preload = env.preload.as_deref().map(|names| text_of(names.as_bytes())).unwrap_or_default();
    for name in preload.split([' ', ':']).filter(|name| !name.is_empty()) {
        loading.load(name, 0, search);
    }
    while let Some(by) = loading.queue.pop_front() {
        for name in std::mem::take(&mut loading.linkages[by].needed) {
            loading.load(&name, by, search);
        }
    }
    Ok(loading)
}

/// The state of a breadth-first walk over what files need.
struct Loading {
    paths: Vec<PathBuf>,
    /// By index of `paths`.
    linkages: Vec<Needs>,
    /// Indexes of files whose needs have not been looked at.
    queue: VecDeque<usize>,
    names: HashSet<String>,
    files: HashSet<(u64, u64)>,
}

impl Loading {
    fn new(executable: &Path, image: &Image) -> Loading {
        let mut loading = Loading {
            paths: Vec::new(),
            linkages: Vec::new(),
            queue: VecDeque::new(),
            names: HashSet::new(),
            files: identity(executable).into_iter().collect(),
        };
        loading.push(executable.to_owned(), image, None);
        loading
    }

    /// Each file with its `DT_SONAME`.
    fn files(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        let sonames = self.linkages.iter().map(|linkage| linkage.soname.as_deref());
        self.paths.iter().map(PathBuf::as_path).zip(sonames)
    }

    fn push(&mut self, path: PathBuf, image: &Image, by: Option<usize>) {
        let linkage = Needs::read(&path, image, by);
        self.names.extend(linkage.soname.clone());
        self.queue.push_back(self.paths.len());
        self.linkages.push(linkage);
        self.paths.push(path);
    }

    /// Loads what `name` stands for in the eyes of the file with index `by`, unless that has happened.
    fn load(&mut self, name: &str, by: usize, search: &Search) {
        if self.names.len() >= MAX_NAMES || !self.names.insert(name.to_owned()) {
            return;
        }
        for path in search.places(name, &self.linkages, by) {
            let Some(file) = identity(&path) else { continue };
            if self.files.contains(&file) {
                return;
            }
            // The dynamic linker also goes on when it finds a library for another machine.
            if let Ok(image) = Image::open_outline(&path) {
                self.files.insert(file);
                self.push(path, &image, Some(by));
                return;
            }
        }
    }
}

/// The files that a pattern names, each once.
struct Matches<'a> {
    pattern: &'a str,
    paths: Vec<PathBuf>,
    met: HashSet<(u64, u64)>,
}

impl Matches<'_> {
    fn new(pattern: &str) -> Matches<'_> {
        Matches { pattern, paths: Vec::new(), met: HashSet::new() }
    }

    fn add(&mut self, path: &Path) {
        self.add_loaded(path, None);
    }

    /// `soname`: by which the dynamic linker knows the file.
    fn add_loaded(&mut self, path: &Path, soname: Option<&str>) {
        let Ok(canonical) = path.canonicalize() else { return };
        if (select::names(self.pattern, path, || soname.map(str::to_owned))
            || select::matches(self.pattern, &canonical))
            && identity(&canonical).is_some_and(|file| self.met.insert(file))
            && Image::open_outline(&canonical).is_ok()
        {
            self.paths.push(canonical);
        }
    }
}

/// Device and inode of a file that is there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::fixture;

    /// What `ldd` says that a program loads.
    fn ldd(program: &Path) -> Option<HashSet<PathBuf>> {
        let output = match Command::new("ldd").arg(program).output() {
            Ok(output) if output.status.success() => output.stdout,
            other => {
                eprintln!("skipped: ldd: {other:?}");
                return None;
            }
        };
        let text = String::from_utf8(output).unwrap();
        let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
        Some(text.lines().filter_map(path).collect())
    }

    #[test]
    fn programs_load_what_ldd_says() {
        for program in ["/usr/bin/python3", "/bin/sh", "/usr/bin/gdb", "/usr/bin/git"].map(Path::new) {
            let Some(expected) = program.exists().then(|| ldd(program)).flatten() else { continue };
            let closure = closure(program, &Environment::default()).unwrap();
            assert_eq!(closure[0], program);
            assert_eq!(closure[1..].iter().cloned().collect::<HashSet<_>>(), expected);
            assert_eq!(closure.len(), expected.len() + 1, "nothing twice in {closure:?}");
        }
    }

    /// A program that needs `libneeded.so`, which lies beside it in `sub`.
    struct Program {
        folder: tempfile::TempDir,
        program: PathBuf,
    }

    impl Program {
        fn build(flags: &[&str]) -> Option<Program> {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("sub")).unwrap();
            let library = folder.path().join("sub/libneeded.so");
            let program = folder.path().join("program");
            if !fixture::compile_to("gcc", "int f(void) { return 1; }", &["-shared", "-fPIC"], &library) {
                return None;
            }
            let source = "int f(void); int main(void) { return f(); }";
            let sub = format!("-L{}", folder.path().join("sub").display());
            let flags = [&[sub.as_str(), "-lneeded"], flags].concat();
            fixture::compile_to("gcc", source, &flags, &program).then_some(Program { folder, program })
        }

        fn library(&self) -> PathBuf {
            self.folder.path().join("sub/libneeded.so").canonicalize().unwrap()
        }

        fn finds(&self, pattern: &str, env: &Environment) -> Vec<PathBuf> {
            find(pattern, std::slice::from_ref(&self.program), env).unwrap()
        }
    }

    #[test]
    fn folders_that_a_program_or_its_user_names() {
        for flag in ["-Wl,--enable-new-dtags,-rpath,$ORIGIN/sub", "-Wl,--disable-new-dtags,-rpath,${ORIGIN}/sub"] {
            let Some(program) = Program::build(&[flag]) else { return };
            assert_eq!(program.finds("libneeded", &Environment::default()), [program.library()], "{flag}");
        }

        let Some(program) = Program::build(&[]) else { return };
        assert!(program.finds("libneeded", &Environment::default()).is_empty());
        let sub = program.folder.path().join("sub").into_os_string();
        let env = Environment { library_path: Some(sub), ..Environment::default() };
        assert_eq!(program.finds("libneeded.so", &env), [program.library()]);
        let env = Environment { preload: Some(program.library().into_os_string()), ..Environment::default() };
        assert_eq!(program.finds("libneeded.so", &env), [program.library()]);
        assert_eq!(closure(&program.program, &env).unwrap()[2], program.library());
    }

    #[test]
    fn a_library_by_the_name_that_the_linker_knows() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("real-0.3.so");
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libknown.so.0"];
        if !fixture::compile_to("gcc", "int f(void) { return 1; }", &flags, &library) {
            return;
        }
        let env = Environment { preload: Some(library.clone().into_os_string()), ..Environment::default() };
        let library = library.canonicalize().unwrap();
        for pattern in ["libknown", "libknown.so.0", "real-0.3.so"] {
            assert_eq!(find(pattern, &[PathBuf::from("/bin/sh")], &env).unwrap(), [library.as_path()], "{pattern}");
        }
    }

    #[test]
    fn libraries_by_path_and_before_they_are_loaded() {
        let Some(program) = Program::build(&[]) else { return };
        let env = Environment::default();
        let path = program.library();
        assert_eq!(program.finds(path.to_str().unwrap(), &env), [path.as_path()]);
        let glob = path.with_file_name("lib*.so");
        assert_eq!(program.finds(glob.to_str().unwrap(), &env), [path.as_path()]);
        assert_eq!(program.finds("program", &env), [program.program.canonicalize().unwrap()]);
        // A library that the program does not need may be loaded later.
        let stdcxx = program.finds("libstdc++", &env);
        assert!(stdcxx.iter().all(|path| path.to_str().unwrap().contains("libstdc++.so")));
        assert!(!stdcxx.is_empty() || !candidates(&[], &env).iter().any(|path| path.ends_with("libstdc++.so.6")));
        assert!(program.finds("libnot_there", &env).is_empty());

        let text = program.folder.path().join("text");
        fs::write(&text, "#!/bin/sh").unwrap();
        assert!(find("libz", std::slice::from_ref(&text), &env).is_ok());
        assert!(matches!(find(text.to_str().unwrap(), &[], &env), Err(Error::InFile { .. })));
        assert!(matches!(find("/not/there.so", &[], &env), Err(Error::Read { .. })));
    }

    #[test]
    fn candidates_hold_the_c_library() {
        let candidates = candidates(&[PathBuf::from("/bin/sh"), PathBuf::from("/not/there")], &Environment::default());
        assert!(candidates.iter().any(|path| path.ends_with("libc.so.6")));
    }
}
