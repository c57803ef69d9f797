//! Programs to trace: compiled from `tests/targets` when first used, and again when a source changes.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// How the library under test and its programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// With `endbr64` on every entry.
    Cet,
    /// Without.
    Plain,
    /// Without, and stripped of everything that running does not need.
    Stripped,
    /// One static program with the library inside.
    Static,
    /// A stripped program with the library inside, which exports its functions.
    Exporting,
}

/// A program that tells the truth about itself.
#[derive(Clone, Debug)]
pub struct Target {
    /// The program.
    pub program: PathBuf,
    /// The library under test; `None` where it is inside the program.
    pub library: Option<PathBuf>,
}

impl Target {
    /// The program built from `tests/targets/<name>.*`, with its library.
    pub fn build(name: &str, flavour: Flavour) -> Target {
        let flags: &[&str] = match flavour {
            Flavour::Cet => &["-fcf-protection=full"],
            Flavour::Plain => &["-fcf-protection=none"],
            Flavour::Stripped => &["-fcf-protection=none", "-s"],
            Flavour::Static => return build_with_library_inside(name, flavour, &["-static"]),
            Flavour::Exporting => return build_with_library_inside(name, flavour, &["-rdynamic", "-s"]),
        };
        let folder = format!("{flavour:?}");
        let library = match name {
            "early" => compile(&folder, "libearly.so", "libearly.c", &[flags, TRUTH_FLAGS].concat()),
            "names" => compile(&folder, "libnames.so", "libnames.c", &[flags, NAMES_FLAGS].concat()),
            "registers" => compile(&folder, "libregisters.so", "libregisters.c", &[flags, TRUTH_FLAGS].concat()),
            "stubs" => compile(&folder, "libstepped.so", "libstepped.c", &[flags, TRUTH_FLAGS].concat()),
            _ => compile(&folder, "libtruth.so", "truth.c", &[flags, TRUTH_FLAGS].concat()),
        };
        let link = match name {
            "early" => "-learly",
            "names" => "-lnames",
            "registers" => "-lregisters",
            "stubs" => "-lstepped",
            _ => "-ltruth",
        };
        let search = format!("-L{}", library.parent().expect("it lies in a folder").display());
        let program = match name {
            "exceptions" => compile(&folder, name, "exceptions.cpp", &[&search, link, ORIGIN]),
            "panic" => {
                compile(&folder, name, "panic.rs", &["-O", "--edition=2024", &search, "-Clink-arg=-Wl,-rpath,$ORIGIN"])
            }
            "loading" => compile(&folder, name, "loading.c", &[]),
            // Bound at its start, so that a recorder that attaches finds the IFUNC resolved.
            "names" => compile(&folder, name, "names.c", &[&search, link, ORIGIN, "-Wl,-z,now"]),
            _ => compile(&folder, name, &format!("{name}.c"), &[&search, link, "-pthread", ORIGIN]),
        };
        Target { program, library: Some(library) }
    }

    /// The options of rtrace that select the functions under test.
    pub fn selection(&self) -> Vec<String> {
        match &self.library {
            Some(library) => vec!["--lib".into(), library.display().to_string()],
            None => {
                let functions = TRUTH_FUNCTIONS.iter().flat_map(|name| ["--func".into(), (*name).into()]);
                ["--lib".into(), "exe".into()].into_iter().chain(functions).collect()
            }
        }
    }

    /// A command that runs one of the program's scenarios.
    pub fn command(&self, scenario: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(scenario);
        command
    }
}

/// The folder of all tests.
pub const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests");
const ORIGIN: &str = "-Wl,-rpath,$ORIGIN";
/// The functions of the library under test.
pub const TRUTH_FUNCTIONS: &[&str] =
    &["leaf", "next", "middle", "outer", "choose", "recurse", "ping", "pong", "tail", "visit"];
// Inlined calls would be no calls.
const TRUTH_FLAGS: &[&str] = &["-shared", "-fPIC", "-fno-inline"];
const NAMES_FLAGS: &[&str] = &["-shared", "-fPIC", "-Wl,--version-script=libnames.map"];

fn build_with_library_inside(name: &str, flavour: Flavour, link: &[&str]) -> Target {
    // Code that could be in a library calls its functions as it would there: not inlined.
    let flags = [&["truth.c", "-fPIC", "-fno-inline", "-pthread"], link].concat();
    Target { program: compile(&format!("{flavour:?}"), name, &format!("{name}.c"), &flags), library: None }
}

/// A library that defines `malloc` and has thread storage.
pub fn allocator() -> PathBuf {
    compile("Tools", "liballocator.so", "liballocator.c", &["-shared", "-fPIC", "-fno-builtin"])
}

/// The oracle program.
pub fn count_calls() -> PathBuf {
    compile("Tools", "count_calls", "count_calls.c", &[])
}

/// The Qt program, where Qt's headers are installed.
pub fn qt_app() -> Option<PathBuf> {
    let config = Command::new("pkg-config").args(["--cflags", "--libs", "Qt5Widgets"]).output().ok()?;
    if !config.status.success() {
        return None;
    }
    let config = String::from_utf8(config.stdout).expect("pkg-config prints options");
    let flags: Vec<&str> = ["-fPIC"].into_iter().chain(config.split_whitespace()).collect();
    Some(compile("Tools", "qt_app", "qt_app.cpp", &flags))
}

/// Compiles `source` into `folder/output`, with a name that changes when any source changes.
fn compile(folder: &str, output: &str, source: &str, flags: &[&str]) -> PathBuf {
    static COMPILER: Mutex<()> = Mutex::new(());
    static BUILD: LazyLock<PathBuf> =
        LazyLock::new(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("targets-{:016x}", hash(&sources()))));

    let _one_at_a_time = COMPILER.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = BUILD.join(folder);
    let file = folder.join(output);
    if file.exists() {
        return file;
    }
    fs::create_dir_all(&folder).unwrap();
    let unfinished = folder.join(format!("{output}.unfinished"));
    let mut command = match Path::new(source).extension().and_then(|extension| extension.to_str()) {
        Some("rs") => Command::new("rustc"),
        Some("cpp") => c_compiler("g++"),
        _ => c_compiler("gcc"),
    };
    // What needs a library comes before it.
    command.current_dir(sources()).arg("-o").arg(&unfinished).arg(source).args(flags);
    let result = command.output().unwrap_or_else(|error| panic!("failed to run {command:?}: {error}"));
    assert!(result.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&result.stderr));
    fs::rename(&unfinished, &file).unwrap();
    file
}

fn c_compiler(name: &str) -> Command {
    let mut compiler = Command::new(name);
    compiler.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]);
    compiler
}

/// The folder of the sources.
pub fn sources() -> PathBuf {
    Path::new(TESTS).join("targets")
}

fn hash(folder: &Path) -> u64 {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(Path::new(TESTS).join("common/target.rs"));
    files.sort_unstable();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.hash(&mut hasher);
        fs::read(&file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}
