//! Programs to trace: compiled from `tests/targets` when first used, and again when a source changes.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// How the library under test and its programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// With `endbr64` on every entry.
    Cet,
    /// Without.
    Plain,
    /// Without, and stripped of everything that running does not need.
    Stripped,
    /// The same without section headers, as `llvm-strip --strip-sections` leaves files.
    Sectionless,
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
    /// A copy in this folder, where the program finds its library beside it.
    pub fn copied_to(&self, folder: &Path) -> Target {
        let copy = |file: &Path| {
            let copy = folder.join(file.file_name().unwrap());
            fs::copy(file, &copy).unwrap();
            copy
        };
        Target { program: copy(&self.program), library: self.library.as_deref().map(copy) }
    }

    /// The program built from `tests/targets/<name>.*`, with its library.
    pub fn build(name: &str, flavour: Flavour) -> Target {
        let flags: &[&str] = match flavour {
            // These define what is traced.
            _ if OWN.contains(&name) => return build_own(name),
            Flavour::Cet => &["-fcf-protection=full"],
            Flavour::Plain => &["-fcf-protection=none"],
            Flavour::Stripped => &["-fcf-protection=none", "-s"],
            Flavour::Sectionless => return Target::build(name, Flavour::Stripped).without_sections(),
            Flavour::Static => return build_with_library_inside(name, flavour, &["-static"]),
            Flavour::Exporting => return build_with_library_inside(name, flavour, &["-rdynamic", "-s"]),
        };
        let folder = format!("{flavour:?}");
        let library = match name {
            "bare" => compile_bare(&folder, flags),
            "ways" | "throws" => compile_ways(&folder, flags),
            "early" => compile(&folder, "libearly.so", "libearly.c", &[flags, TRUTH_FLAGS].concat()),
            "names" => compile(&folder, "libnames.so", "libnames.c", &[flags, NAMES_FLAGS].concat()),
            "registers" => compile(&folder, "libregisters.so", "libregisters.c", &[flags, TRUTH_FLAGS].concat()),
            "stubs" => compile(&folder, "libstepped.so", "libstepped.c", &[flags, TRUTH_FLAGS].concat()),
            _ => compile(&folder, "libtruth.so", "truth.c", &[flags, TRUTH_FLAGS].concat()),
        };
        let link = match name {
            "bare" => "-lbare",
            "ways" | "throws" => "-lways",
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
            "many" => {
                compile(&folder, "libmany.so", "libmany.S", &["-shared"]);
                compile(&folder, name, "many.c", &[&search, link, "-pthread", ORIGIN])
            }
            "throws" => {
                let options = [&search, link, "-lbare", "-ltruth", ORIGIN, "-fnon-call-exceptions"];
                compile(&folder, name, "throws.cpp", &options)
            }
            "ways" => compile(&folder, name, "ways.c", &[&search, link, "-lbare", "-ltruth", "-pthread", ORIGIN]),
            // Bound at its start, so that a recorder that attaches finds the IFUNC resolved.
            "names" => compile(&folder, name, "names.c", &[&search, link, ORIGIN, "-Wl,-z,now"]),
            _ => compile(&folder, name, &format!("{name}.c"), &[&search, link, "-pthread", ORIGIN]),
        };
        Target { program, library: Some(library) }
    }

    /// A copy without section headers; they are needed to link a program.
    fn without_sections(self) -> Target {
        let copy = |file: &PathBuf| {
            let folder = file.ancestors().nth(2).expect("it lies in the folder of a flavour").join("Sectionless");
            let copy = folder.join(file.file_name().expect("it has a name"));
            if !copy.exists() {
                fs::create_dir_all(&folder).unwrap();
                let mut bytes = fs::read(file).unwrap();
                SECTION_HEADERS.into_iter().for_each(|field| bytes[field].fill(0));
                let unfinished = copy.with_extension(format!("{:?}", thread::current().id()));
                fs::copy(file, &unfinished).unwrap();
                fs::write(&unfinished, bytes).unwrap();
                fs::rename(&unfinished, &copy).unwrap();
            }
            copy
        };
        Target { library: self.library.as_ref().map(copy), program: copy(&self.program) }
    }

    /// The options of rtrace that select the functions under test.
    pub fn selection(&self) -> Vec<String> {
        match &self.library {
            Some(library) => {
                let is_of_ways = library.ends_with("libways.so");
                let others = if is_of_ways { &["libbare.so", "libtruth.so"][..] } else { &[] };
                let others = others.iter().map(|other| library.with_file_name(other));
                let libraries: Vec<String> =
                    [library.clone()].into_iter().chain(others).map(|library| library.display().to_string()).collect();
                let excluded = if is_of_ways || library.ends_with("libbare.so") { &["u_*"][..] } else { &[] };
                options("--lib", &libraries).chain(options("--exclude", excluded)).collect()
            }
            None => {
                let name = self.program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let is_own = name == "bare" || OWN.contains(&name);
                let functions = if is_own { &["w_*"] } else { TRUTH_FUNCTIONS };
                options("--lib", &["exe"]).chain(options("--func", functions)).collect()
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
pub const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");
const ORIGIN: &str = "-Wl,-rpath,$ORIGIN";
/// The functions of the library under test.
pub const TRUTH_FUNCTIONS: &[&str] =
    &["leaf", "next", "middle", "outer", "choose", "recurse", "ping", "pong", "tail", "visit"];
/// Where the header of an ELF file tells of section headers: their place; their size, number and names.
const SECTION_HEADERS: [Range<usize>; 2] = [40..48, 58..64];
const BARE: &[&str] = &["libbare.c", "libbare.S"];
/// Programs that need no library.
const OWN: &[&str] =
    &["cancelled", "counted_entry", "moved", "own_entry", "patched", "rewritten", "static_entry", "trapped"];
// Inlined calls would be no calls.
const TRUTH_FLAGS: &[&str] = &["-shared", "-fPIC", "-fno-inline"];
const NAMES_FLAGS: &[&str] = &["-shared", "-fPIC", "-Wl,--version-script=libnames.map"];

fn build_with_library_inside(name: &str, flavour: Flavour, link: &[&str]) -> Target {
    // Code that could be in a library calls its functions as it would there: not inlined.
    let library: &[&str] = if name == "bare" { BARE } else { &["truth.c"] };
    let flags = [library, &["-fPIC", "-fno-inline", "-pthread"], link].concat();
    Target { program: compile(&format!("{flavour:?}"), name, &format!("{name}.c"), &flags), library: None }
}

fn build_own(name: &str) -> Target {
    let (source, flags): (_, &[&str]) = match name {
        "cancelled" => ("cancelled.cpp", &["-static", "-pthread", "-fnon-call-exceptions"]),
        "counted_entry" => ("entry.c", &["-pg", "-DCOUNTS_CALLS"]),
        "moved" => ("moved.c", &[]),
        "patched" => ("patched.c", &[]),
        "rewritten" => ("rewritten.c", &[]),
        "trapped" => ("trapped.c", &[]),
        "static_entry" => ("entry.c", &["-static", "-Wl,-e,own_entry"]),
        _ => ("entry.c", &["-Wl,-e,own_entry"]),
    };
    Target { program: compile("Own", name, source, flags), library: None }
}

/// Compiles this C into a file of the folder.
pub fn compile_text(folder: &Path, source: &str, output: &str, flags: &[&str]) {
    let file = folder.join("source.c");
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(folder.join(output)).arg(&file).args(flags);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
}

/// Compiles each of these C texts into the file that is named behind it, with the libraries among those before it, and
/// gives their folder. It stays, so that kernels without a compiler find it.
pub fn compile_texts(texts: &[(&str, &str, &[&str])]) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    let folder = BUILD.join(format!("texts-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder).unwrap();
    let mut libraries = vec!["-L.".to_owned(), ORIGIN.to_owned()];
    for &(source, output, flags) in texts {
        if !folder.join(output).exists() {
            let unfinished = format!("{output}.unfinished");
            fs::write(folder.join(format!("{output}.c")), source).unwrap();
            let mut compiler = Command::new("cc");
            compiler.current_dir(&folder).args(["-o", &unfinished, &format!("{output}.c")]).args(flags);
            assert!(compiler.args(&libraries).status().unwrap().success(), "{compiler:?}");
            fs::rename(folder.join(unfinished), folder.join(output)).unwrap();
        }
        if output.ends_with(".so") {
            libraries.push(format!("-l:{output}"));
        }
    }
    folder
}

fn compile_bare(folder: &str, flags: &[&str]) -> PathBuf {
    compile(folder, "libbare.so", BARE[0], &[flags, TRUTH_FLAGS, &BARE[1..]].concat())
}

/// The library of all ways to leave a call, with those that it needs.
fn compile_ways(folder: &str, flags: &[&str]) -> PathBuf {
    compile_bare(folder, flags);
    let truth = compile(folder, "libtruth.so", "truth.c", &[flags, TRUTH_FLAGS].concat());
    let search = format!("-L{}", truth.parent().expect("it lies in a folder").display());
    let link = ["libways.S", "-fstack-protector-explicit", &search, "-lbare", "-ltruth", ORIGIN];
    compile(folder, "libways.so", "libways.c", &[flags, TRUTH_FLAGS, &link].concat())
}

/// An option of rtrace, for each value.
fn options(option: &str, values: &[impl AsRef<str>]) -> impl Iterator<Item = String> {
    values.iter().flat_map(move |value| [option.to_owned(), value.as_ref().to_owned()])
}

/// A library that defines `malloc` and has thread storage.
pub fn allocator() -> PathBuf {
    compile("Tools", "liballocator.so", "liballocator.c", &["-shared", "-fPIC", "-fno-builtin"])
}

/// The program in Go.
pub fn goroutines() -> PathBuf {
    compile("Tools", "goroutines", "goroutines.go", &[])
}

/// The program whose ranks log their messages, by the compiler of an MPI.
pub fn mpi_messages(compiler: &str) -> PathBuf {
    compile_by(
        compiler,
        compiler,
        "mpi_messages",
        "mpi_messages.c",
        &["-pthread", "-fno-inline", "-fno-optimize-sibling-calls"],
    )
}

/// The program in Fortran whose ranks log their messages, by the compiler of an MPI: with `MPIF`, its header, with
/// `MODULE` or with `F08`, the modules.
pub fn mpi_fortran(compiler: &str, way: &str) -> PathBuf {
    let flags = ["-cpp", "-fallow-argument-mismatch", &format!("-D{way}")];
    compile_by(compiler, &format!("{compiler}-{way}"), "mpi_fortran", "mpi_fortran.F90", &flags)
}

/// The program whose processing elements log their accesses, where OpenSHMEM is installed.
pub fn shmem_accesses() -> PathBuf {
    compile_by("oshcc", "oshcc", "shmem_accesses", "shmem_accesses.c", &[])
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

/// The program of several ranks, where Open MPI is installed.
pub fn job() -> Option<PathBuf> {
    let flags = ["compile", "link"].map(|step| Command::new("mpicc").arg(format!("--showme:{step}")).output());
    let [Ok(compile_flags), Ok(link)] = flags else { return None };
    let flags = String::from_utf8([compile_flags.stdout, b" ".to_vec(), link.stdout].concat()).expect("options");
    Some(compile("Tools", "job", "job.c", &flags.split_whitespace().collect::<Vec<_>>()))
}

/// The program of a team of threads.
pub fn team() -> PathBuf {
    compile("Tools", "team", "team.c", &["-fopenmp"])
}

/// What is compiled, which changes its name when any source changes.
static BUILD: LazyLock<PathBuf> =
    LazyLock::new(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("targets-{:016x}", hash(&sources()))));

/// Compiles `source` into `folder/output`, with a name that changes when any source changes.
fn compile(folder: &str, output: &str, source: &str, flags: &[&str]) -> PathBuf {
    compile_by("gcc", folder, output, source, flags)
}

/// The same, with this compiler where the source is C.
fn compile_by(c: &str, folder: &str, output: &str, source: &str, flags: &[&str]) -> PathBuf {
    static COMPILER: Mutex<()> = Mutex::new(());
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
        Some("go") => go_compiler(&folder),
        Some("F90") => {
            let mut compiler = Command::new(c);
            compiler.args(["-O2", "-g", "-J"]).arg(&folder);
            compiler
        }
        _ => c_compiler(c),
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

fn go_compiler(folder: &Path) -> Command {
    let mut compiler = Command::new("go");
    compiler.arg("build").env("GOCACHE", folder.join("cache")).env("CGO_ENABLED", "1");
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
