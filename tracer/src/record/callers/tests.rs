//! Calls in files of a compiler, compared with what a disassembler shows, and in live processes.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use rtrace_code::testing::compile_to;

use super::*;

/// `f` and `g` can be replaced by other files, `hidden` cannot.
const LIBRARY: &str = "__attribute__((noinline)) int f(int x) { return x * 3; }
    __attribute__((noinline, visibility(\"hidden\"))) int hidden(int x) { __asm__(\"\"); return x * 5; }
    int g(int x) { return f(x) + hidden(x); }
    int h(int x) { return hidden(f(x + 1)); }";

/// Calls before it says a word, and when it is told to.
const PROGRAM: &str = "#include <stdio.h>
    int f(int); int g(int);
    static int (*volatile pointer)(int) = f;
    __attribute__((noinline)) static int own(int x) { __asm__(\"\"); return g(x) + f(x); }
    int main(int argc, char **argv) {
        int sum = argc > 5 ? own(argc) + f(argc) : 0;
        putchar('.'); fflush(stdout);
        if (getchar() != EOF) sum += own(1) + own(2) + f(3) + pointer(4);
        return sum == 0;
    }";

/// Files that are built for a test.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn new() -> Workshop {
        Workshop(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Builds a C library; none where there is no compiler.
    fn library(&self, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.path(name);
        compile_to(&path, "c", source, &[&["-shared", "-fPIC"], flags].concat()).then_some(path)
    }

    /// Builds a C program that needs these libraries.
    fn program(&self, source: &str, libraries: &[&Path], flags: &[&str]) -> Option<PathBuf> {
        let path = self.path("program");
        let libraries: Vec<&str> = libraries.iter().map(|library| library.to_str().unwrap()).collect();
        compile_to(&path, "c", source, &[&libraries, flags].concat()).then_some(path)
    }
}

/// The functions of a file that have one of these names.
fn traced(path: &Path, names: &[&'static str]) -> TracedFunctions<'static> {
    let (device, inode) = identity(path).unwrap();
    let mut traced = TracedFunctions::default();
    for function in Image::open(path).unwrap().exports().unwrap().functions {
        let bears = |name: &&&str| function.symbols.iter().any(|symbol| symbol.name == **name);
        if let Some(name) = names.iter().find(bears) {
            traced.add(device, inode, function.file_offset, [*name], Keeps::default());
        }
    }
    assert!(!traced.files.is_empty(), "{names:?} in {}", path.display());
    traced
}

/// The calls that were found in a file.
fn found(files: &[CallerFile], path: &Path) -> Vec<u64> {
    let id = identity(path).unwrap();
    let mut files = files.iter().filter(|file| (file.device, file.inode) == id);
    let returns = files.next().map(|file| &file.returns[..]).unwrap_or_default();
    let returns = returns.iter().filter(|call| call.is_direct).map(|call| call.offset).collect();
    assert!(files.next().is_none(), "each file once");
    returns
}

/// File offsets behind the direct calls of these functions, as a disassembler shows them.
fn shown(path: &Path, names: &[&str]) -> Option<Vec<u64>> {
    let mut objdump = Command::new("objdump");
    let output = match objdump.args(["-d", "--wide", "--no-show-raw-insn"]).arg(path).output() {
        Ok(output) => String::from_utf8(output.stdout).unwrap(),
        Err(error) => {
            eprintln!("skipped: objdump cannot be run: {error}");
            return None;
        }
    };
    let image = Image::open(path).unwrap();
    let instructions = output.lines().filter_map(|line| {
        let (address, text) = line.split_once(":\t")?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, text))
    });
    let instructions: Vec<(u64, &str)> = instructions.collect();
    let slots = image.slots();
    let name = |text: &'_ str| match text.split_once("# ") {
        Some((_, slot)) => {
            let slot = u64::from_str_radix(slot.split(' ').next()?, 16).ok()?;
            slots.iter().find(|named| named.address == slot).map(|slot| slot.name.to_owned())
        }
        None => text.split_once('<')?.1.split(['@', '>']).next().map(str::to_owned),
    };
    let is_wanted = |text: &str| text.contains("call") && name(text).is_some_and(|name| names.contains(&name.as_str()));
    let calls = instructions.windows(2).filter(|pair| is_wanted(pair[0].1));
    Some(calls.map(|pair| image.file_offset(pair[1].0).unwrap()).collect())
}

/// A live program; it ends with the test.
struct Running(Child);

impl Running {
    /// Returns when the program has begun.
    fn start(program: &Path, preload: Option<&Path>) -> Running {
        let mut command = Command::new(program);
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.stdin.take().unwrap().write_all(b"x");
        self.0.wait().unwrap();
    }
}

#[test]
fn calls_are_those_that_a_disassembler_shows() {
    // Of both files, and of the program alone.
    for (flags, of_program) in [
        (&["-Wl,-z,lazy"][..], &[][..]),
        (&["-Wl,-z,now"], &[]),
        (&["-fno-plt", "-Wl,-z,norelro"], &[]),
        (&["-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"], &[]),
        (&["-fcf-protection=full", "-Wl,-z,now"], &[]),
        (&["-Wl,-Bsymbolic"], &[]),
        (&["-Wl,-z,lazy"], &["-no-pie", "-fno-pie"]),
        (&["-fno-asynchronous-unwind-tables"], &[]),
        (&["-O0"], &[]),
        (&["-fuse-ld=gold"], &[]),
    ] {
        if flags.contains(&"-fuse-ld=gold") && !Path::new("/usr/bin/ld.gold").exists() {
            eprintln!("skipped: there is no other linker");
            continue;
        }
        let workshop = Workshop::new();
        let Some(library) = workshop.library("libx.so", LIBRARY, flags) else { return };
        let Some(program) = workshop.program(PROGRAM, &[&library], &[flags, of_program].concat()) else { return };
        let traced = traced(&library, &["f", "g"]);
        let files = of_command(&[program.clone(), library.clone()], &traced);
        let running = Running::start(&program, None);
        let live = of_processes(&[running.0.id()], &traced);
        for path in [&program, &library] {
            let Some(shown) = shown(path, &["f", "g"]) else { return };
            assert!(!shown.is_empty(), "{flags:?}");
            assert_eq!(found(&files, path), shown, "{} {flags:?}", path.display());
            assert_eq!(found(&live, path), shown, "{} {flags:?}, live", path.display());
        }
        assert_eq!(files.len(), 2);
    }
}

#[test]
fn a_program_calls_its_own_functions() {
    let source = format!("{LIBRARY}\n{PROGRAM}");
    for flags in [&["-fno-inline"][..], &["-fno-inline", "-static"], &["-fno-inline", "-static-pie"], &["-no-pie"]] {
        let workshop = Workshop::new();
        let Some(program) = workshop.program(&source, &[], flags) else { return };
        // `own` is among the local symbols.
        let names = ["f", "g", "hidden", "own"];
        let traced = traced(&program, &names);
        let Some(shown) = shown(&program, &names) else { return };
        assert!(shown.len() > 4);
        assert_eq!(found(&of_command(std::slice::from_ref(&program), &traced), &program), shown, "{flags:?}");
        let running = Running::start(&program, None);
        assert_eq!(found(&of_processes(&[running.0.id()], &traced), &program), shown, "{flags:?}");
    }
}

#[test]
fn the_first_definition_is_called() {
    let workshop = Workshop::new();
    let Some(library) = workshop.library("libx.so", LIBRARY, &["-Wl,-z,lazy"]) else { return };
    let preloaded = workshop.library("libpreloaded.so", "int f(int x) { return x; }", &[]).unwrap();
    let symbolic = workshop.library("libsymbolic.so", LIBRARY, &["-Wl,-z,lazy"]).unwrap();
    let program = workshop.program(PROGRAM, &[&library], &["-Wl,-z,lazy"]).unwrap();
    let files = [program.clone(), preloaded.clone(), library.clone(), symbolic];
    let running = Running::start(&program, Some(&preloaded));
    for (owner, names) in [(&preloaded, &["f"][..]), (&library, &["g"])] {
        let traced = traced(owner, &["f", "g"]);
        let (files, live) = (of_command(&files, &traced), of_processes(&[running.0.id()], &traced));
        for path in [&program, &library] {
            let Some(shown) = shown(path, names) else { return };
            assert_eq!(found(&files, path), shown, "{names:?} in {}", path.display());
            assert_eq!(found(&live, path), shown, "{names:?} in {}, live", path.display());
        }
    }
}

#[test]
fn a_library_may_ask_itself_first() {
    let workshop = Workshop::new();
    let Some(library) = workshop.library("libx.so", LIBRARY, &[]) else { return };
    let first = workshop.library("libfirst.so", "int f(int x) { return x; }", &[]).unwrap();
    let traced = traced(&library, &["f"]);
    let files = [first, library.clone()];
    assert_eq!(found(&of_command(&files, &traced), &library), Vec::<u64>::new());
    // The linker would resolve its calls at once: the flag is set in a library that leaves them open.
    let mut bytes = fs::read(&library).unwrap();
    let flag = dynamic_entry(&bytes, object::elf::DT_RELACOUNT).unwrap();
    bytes[flag..flag + 8].copy_from_slice(&(object::elf::DT_SYMBOLIC.0 as u64).to_le_bytes());
    fs::write(&library, bytes).unwrap();
    let Some(shown) = shown(&library, &["f"]) else { return };
    assert_eq!(found(&of_command(&files, &traced), &library), shown);
}

/// Where the entry with this tag stands in a file with a dynamic section.
fn dynamic_entry(bytes: &[u8], tag: object::elf::DynamicTag) -> Option<usize> {
    use object::LittleEndian;
    use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};

    let header = object::elf::FileHeader64::<LittleEndian>::parse(bytes).unwrap();
    let headers = header.program_headers(LittleEndian, bytes).unwrap();
    let section = headers.iter().find(|header| header.p_type(LittleEndian) == object::elf::PT_DYNAMIC).unwrap();
    let entries = section.dynamic(LittleEndian, bytes).unwrap().unwrap();
    let index = entries.iter().position(|entry| entry.tag(LittleEndian) == tag)?;
    Some(section.p_offset(LittleEndian) as usize + index * 16)
}

#[test]
fn a_version_is_called_by_those_who_ask_for_it() {
    const VERSIONED: &str = "__asm__(\".symver first, f@OLD\\n.symver second, f@@NEW\\n\");
        int first(int x) { return x; } int second(int x) { return x + 1; } int g(int x) { return x; }";
    let workshop = Workshop::new();
    let script = workshop.path("versions");
    fs::write(&script, "OLD { global: f; g; local: *; }; NEW { global: f; } OLD;").unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    let Some(library) = workshop.library("libx.so", VERSIONED, &[&script]) else { return };
    let functions = Image::open(&library).unwrap().exports().unwrap().functions;
    let of_version = |version: &str| {
        let bears =
            |symbol: &rtrace_symbolizer::Symbol| symbol.name == "f" && symbol.version.as_deref() == Some(version);
        let (device, inode) = identity(&library).unwrap();
        let mut traced = TracedFunctions::default();
        let function = functions.iter().find(|function| function.symbols.iter().any(bears)).unwrap();
        traced.add(device, inode, function.file_offset, ["f"], Keeps::default());
        traced
    };
    let asking = [
        ("__asm__(\".symver f, f@OLD\"); ", Some("OLD")),
        ("__asm__(\".symver f, f@NEW\"); ", Some("NEW")),
        ("", None),
    ];
    let source = "int f(int); int h(int x) { return f(x) + f(x + 1); }";
    for (number, (directive, version)) in asking.into_iter().enumerate() {
        // One that was built without the library asks for no version, and gets the default one.
        let needed: &[&str] = if version.is_some() { &[library.to_str().unwrap()] } else { &[] };
        let caller = workshop.library(&format!("lib{number}.so"), &format!("{directive}{source}"), needed).unwrap();
        for defined in ["OLD", "NEW"] {
            let files = of_command(&[caller.clone(), library.clone()], &of_version(defined));
            let expected = if version.unwrap_or("NEW") == defined { 2 } else { 0 };
            assert_eq!(found(&files, &caller).len(), expected, "{version:?} and {defined}");
        }
    }
}

#[test]
fn an_ifunc_is_called_by_its_name() {
    const CHOSEN: &str = "__attribute__((noinline)) static int chosen(int x) { return x + 1; }
        static int (*resolve(void))(int) { return chosen; }
        int f(int) __attribute__((ifunc(\"resolve\")));
        __attribute__((visibility(\"hidden\"))) int hidden(int) __attribute__((ifunc(\"resolve\")));
        int g(int x) { return f(x) + hidden(x + 1); }";
    for flags in ["-Wl,-z,lazy", "-Wl,-z,now"] {
        let workshop = Workshop::new();
        let Some(library) = workshop.library("libx.so", CHOSEN, &[flags]) else { return };
        let program = workshop.program(PROGRAM, &[&library], &[flags]).unwrap();
        let running = Running::start(&program, None);
        let modules = rtrace_symbolizer::modules::of_process(running.0.id()).unwrap();
        let image = Image::open(&library).unwrap();
        let exports = image.exports().unwrap();
        let module = modules.iter().find(|module| module.path == library).unwrap();
        let resolved = rtrace_symbolizer::ifunc::resolve(running.0.id(), module, &image, &exports);
        let implementation = image.file_offset(resolved[0].address).unwrap();

        let (device, inode) = identity(&library).unwrap();
        let mut traced = TracedFunctions::default();
        traced.add(device, inode, implementation, ["f"], Keeps::default());
        let files = of_command(&[program.clone(), library.clone()], &traced);
        let live = of_processes(&[running.0.id()], &traced);
        let Some(shown) = shown(&program, &["f"]) else { return };
        assert_eq!(found(&files, &program), shown, "{flags}");
        assert_eq!(found(&live, &program), shown, "{flags}, live");
        // Both of its IFUNCs have the implementation.
        assert_eq!(found(&files, &library).len(), 2, "{flags}");
        assert_eq!(found(&live, &library).len(), 2, "{flags}, live");
    }
}

#[test]
fn each_copy_of_a_library_is_looked_at() {
    // In the program's own namespace its `f` is called, in the new one that of the library.
    const LOADER: &str = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>
        int f(int x) { return x; } int g(int);
        int main(int argc, char **argv) {
            if (!dlmopen(LM_ID_NEWLM, LIBRARY, RTLD_NOW)) return 1;
            putchar('.'); fflush(stdout); getchar();
            return g(1) == 7;
        }";
    let workshop = Workshop::new();
    let Some(library) = workshop.library("libx.so", LIBRARY, &["-Wl,-z,now"]) else { return };
    let name = format!("-DLIBRARY=\"{}\"", library.display());
    let program = workshop.program(LOADER, &[&library], &[&name, "-rdynamic", "-ldl"]).unwrap();
    let traced = traced(&library, &["f"]);
    assert_eq!(found(&of_command(&[program.clone(), library.clone()], &traced), &library), Vec::<u64>::new());
    let running = Running::start(&program, None);
    let Some(shown) = shown(&library, &["f"]) else { return };
    assert_eq!(found(&of_processes(&[running.0.id()], &traced), &library), shown);
}

#[test]
fn several_processes_and_files_that_are_gone() {
    let workshop = Workshop::new();
    let Some(library) = workshop.library("libx.so", LIBRARY, &[]) else { return };
    let program = workshop.program(PROGRAM, &[&library], &[]).unwrap();
    let traced = traced(&library, &["f", "g"]);
    let running = [Running::start(&program, None), Running::start(&program, None)];
    let pids = [running[0].0.id(), u32::MAX, running[1].0.id()];
    let files = of_processes(&pids, &traced);
    assert_eq!(files, of_processes(&pids[..1], &traced));
    assert_eq!(files.len(), 3, "the program, the library, and the C library, which calls `main`");
    assert_eq!(of_processes(&[u32::MAX], &traced), []);

    if fs::File::open(&files[0].path).is_err() || !files[0].path.to_string_lossy().contains("map_files") {
        eprintln!("skipped: opening files of mappings takes a privilege");
        return;
    }
    fs::remove_file(&library).unwrap();
    fs::remove_file(&program).unwrap();
    let without_stamps = |mut files: Vec<CallerFile>| {
        files.iter_mut().for_each(|file| file.stamp = None);
        files
    };
    assert_eq!(without_stamps(files), without_stamps(of_processes(&pids, &traced)));
}

#[test]
fn files_of_any_kind_are_survived() {
    let workshop = Workshop::new();
    let Some(library) = workshop.library("libx.so", LIBRARY, &[]) else { return };
    let traced = traced(&library, &["f", "g"]);
    let missing = workshop.path("missing.so");
    let text = workshop.path("text");
    fs::write(&text, "#!/bin/sh").unwrap();
    let expected = of_command(std::slice::from_ref(&library), &traced);
    let others = [missing, workshop.0.path().to_owned(), PathBuf::from("/dev/zero"), text, library.clone()];
    assert_eq!(of_command(&others, &traced), expected);
    assert_eq!(of_command(&[], &traced), []);

    // The file keeps its numbers, so its functions stay traced.
    let bytes = fs::read(&library).unwrap();
    let is_header = |position: &usize| *position < 1024;
    for position in (0..bytes.len()).filter(|position| is_header(position) || position % 31 == 0) {
        let mut broken = bytes.clone();
        broken[position] ^= 1 << (position / 7 % 8);
        fs::write(&library, &broken).unwrap();
        of_command(std::slice::from_ref(&library), &traced);
    }
    for length in (0..bytes.len()).step_by(37) {
        fs::write(&library, &bytes[..length]).unwrap();
        of_command(std::slice::from_ref(&library), &traced);
    }
}
