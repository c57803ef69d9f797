//! Where calls come from, compared with what `addr2line` and `nm` of the binutils say.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use rtrace_model::{CallSite, SourceLine};
use rtrace_symbolizer::Image;
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::{Turn, installed};
use crate::common::target::compile_text;

/// Call sites of the program.
const SITES: usize = 1_000;

/// A program that calls a function of the C library from many lines: of functions, of those inlined in them, and of
/// those inlined in these.
fn source() -> String {
    let mut text = "#include <unistd.h>\nstatic volatile int sum;\n".to_owned();
    let inline = "static inline __attribute__((always_inline)) void";
    for number in 0..SITES / 4 {
        let blank = "\n".repeat(number % 7);
        let calls = "    sum += getppid();\n";
        write!(
            text,
            "{inline} deep{number}(void)\n{{\n{calls}}}\n{blank}{inline} inner{number}(void)\n{{\n{calls}    \
             deep{number}();\n{calls}}}\n__attribute__((noinline)) void outer{number}(void)\n{{\n    \
             inner{number}();{blank}\n{calls}}}\n"
        )
        .unwrap();
    }
    text.push_str("int main(void)\n{\n");
    (0..SITES / 4).for_each(|number| writeln!(text, "    outer{number}();").unwrap());
    text + "    return sum == 0;\n}\n"
}

/// The program compiled with these flags, and its recorded call sites.
fn record(folder: &Path, flags: &[&str]) -> (Recording, Vec<CallSite>) {
    compile_text(folder, &source(), "program", flags);
    let options = ["--lib", "libc.so.6", "--func", "getppid"].map(str::to_owned);
    let (_, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
    let sites = recording.call_sites().to_vec();
    (recording, sites)
}

/// What a tool of the binutils prints of the program at these addresses.
fn ask(tool: &mut Command, folder: &Path) -> String {
    let output = tool.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{tool:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The calls themselves, as addresses of the program's file.
fn addresses(folder: &Path, sites: &[CallSite]) -> Vec<u64> {
    let image = Image::open(&folder.join("program")).unwrap();
    sites.iter().map(|site| image.mapped_address(site.offset).expect("it is code") - 1).collect()
}

/// Functions with the lines in them, the innermost first, as `addr2line -fi` prints them.
fn frames(site: &CallSite) -> Vec<(String, String)> {
    let line = |source: &Option<SourceLine>| {
        source.as_ref().map_or_else(|| "??:0".to_owned(), |line| format!("{}:{}", line.file, line.line))
    };
    let mut at = site.source.clone();
    let mut frames = Vec::new();
    for inlined in site.inlined.iter().rev() {
        frames.push((inlined.function.clone(), line(&std::mem::replace(&mut at, inlined.called_at.clone()))));
    }
    frames.push((site.function.clone().expect("it has a name"), line(&at)));
    frames
}

#[test]
fn lines_and_inlined_functions_are_those_that_addr2line_tells() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc", "addr2line"])) else { return };
    let folder = TempDir::new().unwrap();
    let (recording, sites) = record(folder.path(), &["-O2", "-g"]);
    assert_eq!(sites.len(), SITES, "each call is from another place");
    assert!(recording.calls().all(|call| call.call_site.is_some()));
    let addresses = addresses(folder.path(), &sites);
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["-fia", "-e", "program"]).args(addresses.iter().map(|address| format!("{address:#x}")));
    let told = ask(&mut addr2line, folder.path());
    let mut of_address: HashMap<u64, Vec<(String, String)>> = HashMap::new();
    let mut lines = told.lines();
    let mut address = 0;
    while let Some(line) = lines.next() {
        if let Some(hexadecimal) = line.strip_prefix("0x") {
            address = u64::from_str_radix(hexadecimal, 16).unwrap();
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split_once(" (discriminator").map_or(place, |(place, _)| place);
        of_address.entry(address).or_default().push((line.to_owned(), place.to_owned()));
    }
    for (site, address) in sites.iter().zip(&addresses) {
        assert_eq!(frames(site), of_address[address], "{site:?}");
    }
    assert_eq!(sites.iter().filter(|site| site.inlined.len() == 2).count(), SITES / 4);
}

/// With what is inlined at its begin, and of functions that are called.
#[test]
fn functions_have_the_places_that_addr2line_tells() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc", "addr2line"])) else { return };
    let folder = TempDir::new().unwrap();
    let unused = "int unused(void)\n{\n    return 1;\n}\n";
    compile_text(folder.path(), &(source() + unused), "program", &["-O2", "-g"]);
    let options = ["--lib", "exe", "--func", "outer1*", "--func", "unused"].map(str::to_owned);
    let (_, recording) = rtrace::run(&options, &Command::new(folder.path().join("program")));
    let image = Image::open(&folder.path().join("program")).unwrap();
    let (mut called, mut others) = (0, 0);
    for region in recording.regions() {
        let Some(line) = region.source_line else {
            assert_eq!((region.name.as_str(), &region.source_file), ("unused", &None));
            others += 1;
            continue;
        };
        let address = format!("{:#x}", image.mapped_address(region.file_offset).unwrap());
        let told = ask(Command::new("addr2line").args(["-i", "-e", "program", &address]), folder.path());
        let place = told.lines().last().unwrap();
        let place = place.split_once(" (discriminator").map_or(place, |(place, _)| place);
        assert_eq!(format!("{}:{line}", region.source_file.as_ref().unwrap()), place, "{}", region.name);
        called += 1;
    }
    assert_eq!((called, others), (111, 1));
}

#[test]
fn without_debug_information_there_is_the_symbol_and_without_that_the_offset() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc", "nm"])) else { return };
    let folder = TempDir::new().unwrap();
    let (_, sites) = record(folder.path(), &["-O2"]);
    let told = ask(Command::new("nm").args(["--defined-only", "program"]), folder.path());
    let symbol = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    let symbols: HashMap<String, u64> = told.lines().filter_map(symbol).collect();
    for (site, address) in sites.iter().zip(addresses(folder.path(), &sites)) {
        let function = site.function.as_ref().expect("the symbol table names it");
        assert!(function.starts_with("outer") && site.source.is_none() && site.inlined.is_empty(), "{site:?}");
        assert_eq!(symbols[function] + site.function_offset.unwrap(), address + 1);
    }
    let (recording, sites) = record(folder.path(), &["-O2", "-s"]);
    assert_eq!((sites.len(), recording.calls().count()), (SITES, SITES));
    for site in sites {
        let path = folder.path().join("program");
        assert_eq!((site.file.as_deref(), &site.function), (path.to_str(), &None), "{site:?}");
    }
}

/// Processes that end before rtrace can ask what they have mapped.
#[test]
fn call_sites_of_processes_that_end_at_once_have_a_file() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let text = "#include <unistd.h>\nint main(void)\n{\n    getppid();\n    _exit(0);\n}\n";
    compile_text(folder.path(), text, "short", &["-O1"]);
    let options = ["--lib", "libc.so.6", "--func", "getppid"].map(str::to_owned);
    let short = folder.path().join("short");
    let mut shell = Command::new("sh");
    shell.args(["-c", "for i in 1 2 3 4 5 6 7 8 9 10; do $0 & done; wait"]).arg(&short);
    let (_, recording) = rtrace::run(&options, &shell);
    let files: HashMap<_, _> = recording.call_sites().iter().map(|site| (site.id, site.file.as_deref())).collect();
    let calls: Vec<_> = recording.calls().map(|call| files[&call.call_site.expect("it has one")]).collect();
    let of_file = |path: Option<&str>| calls.iter().filter(|file| **file == path).count();
    assert_eq!((of_file(short.to_str()), of_file(None)), (10, 0), "{calls:?}");
}
