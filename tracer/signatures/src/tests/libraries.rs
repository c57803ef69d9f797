//! Signatures of real libraries, and of programs in several languages.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rtrace_symbolizer::Image;

use super::machine::Machine;
use crate::builtin::{self, FILES};
use crate::describe::{Wish, describe};
use crate::table::SignatureTable;
use crate::{
    AbiPlace, Asked, At, Book, Cause, ColumnType, DropReason, Error, FetchProgram, Lookup, MOST_OPS, MOST_VALUE_WORDS,
    NotKnown, OpCode, Register, Request, SaidBy, Signature, TracedLibrary, dwarf,
};

/// What is known of the functions of a file with these symbols.
pub fn known(path: &Path, callers: &[PathBuf], request: &Request, symbols: &[&str]) -> Result<Vec<Lookup>, Error> {
    let image = Image::open(path).unwrap();
    let exports = image.exports().unwrap();
    let book = Book::open(request)?;
    let subject = TracedLibrary { path, open: path, image: &image, callers };
    let found: Vec<(Vec<&str>, u64)> = symbols
        .iter()
        .map(|symbol| {
            let is_it =
                |function: &&rtrace_symbolizer::Function| function.symbols.iter().any(|known| known.name == *symbol);
            let function = exports.functions.iter().find(is_it).unwrap_or_else(|| panic!("no {symbol}"));
            (function.symbols.iter().map(|known| known.name.as_str()).collect(), function.address)
        })
        .collect();
    let asked: Vec<Asked> =
        found.iter().map(|(symbols, address)| Asked { symbols, address: *address, note: None }).collect();
    book.of_library(&subject, &asked)
}

fn one(path: &Path, selection: &str, symbol: &str) -> (Signature, FetchProgram) {
    let request = Request { selection: selection.to_owned(), ..Request::default() };
    match known(path, &[], &request, &[symbol]).unwrap().remove(0) {
        Lookup::Signature(signature, program) => (*signature, program),
        other => panic!("{symbol}: {other:?}"),
    }
}

pub fn build(folder: &Path, compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    fs::write(folder.join(name), source).unwrap();
    let output = folder.join(name).with_extension("so");
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(["-w", "-o"]).arg(&output).arg(name).args(flags);
    assert!(command.status().unwrap().success());
    output
}

fn library(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
    let found = fs::canonicalize(&path).or_else(|_| fs::canonicalize(Path::new("/lib/x86_64-linux-gnu").join(name)));
    if found.is_err() {
        println!("skipped: there is no {name}");
    }
    found.ok()
}

#[test]
fn the_table_describes_all_its_functions() {
    let mut functions = 0;
    for table in builtin::tables().unwrap() {
        for implementation in ["ompi_mpi_comm_world", "MPII_Version_string", "another"] {
            let dialect = table.dialect(|symbol| symbol == implementation);
            for (name, entry) in table.entries() {
                let description = table.description(entry, &dialect).unwrap().unwrap();
                let wish =
                    Wish { columns: None, entry: Some(entry), dialect: &dialect, no_strings: false, stubs: false };
                let (signature, program) =
                    describe(name, description, &wish).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(program.fetches.len() <= MOST_OPS && usize::from(program.words) <= MOST_VALUE_WORDS);
                assert_eq!(signature.columns.len(), program.columns.len());
                let has_room = !signature.dropped.iter().any(|dropped| dropped.reason == DropReason::NoRoom);
                assert!(has_room, "{name}: {:?}", signature.dropped);
                functions += usize::from(implementation == "ompi_mpi_comm_world");
                // Where handles are known, all metrics can be computed.
                if implementation == "ompi_mpi_comm_world" {
                    assert_eq!(signature.metrics.len(), entry.metrics.len(), "{name}: {:?}", signature.dropped);
                }
            }
        }
    }
    println!("{functions} functions");
    assert!(functions > 600);
}

#[test]
fn a_handle_of_an_unknown_implementation_hides_only_itself() {
    let table = SignatureTable::parse(FILES.iter().find(|(name, _)| *name == "mpi").unwrap().1, None, "mpi").unwrap();
    let dialect = table.dialect(|_| false);
    let entry = table.entry("MPI_Send").unwrap();
    let description = table.description(entry, &dialect).unwrap().unwrap();
    let wish = Wish { columns: None, entry: Some(entry), dialect: &dialect, no_strings: false, stubs: false };
    let (signature, _) = describe("MPI_Send", description, &wish).unwrap();
    let names: Vec<&str> = signature.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["count", "dest", "tag", "result"]);
    let dropped: Vec<&str> = signature.dropped.iter().map(|dropped| dropped.name.as_str()).collect();
    assert_eq!(dropped, ["size", "comm", "rank", "mpi_bytes"]);
}

#[test]
fn the_table_agrees_with_debug_information_of_libc() {
    let Some(path) = library("libc.so.6") else { return };
    let image = Image::open(&path).unwrap();
    let exports = image.exports().unwrap();
    let addresses: HashSet<u64> = exports.functions.iter().map(|function| function.address).collect();
    let wanted = dwarf::WantedFunctions { addresses, ..dwarf::WantedFunctions::default() };
    let found = dwarf::read(&path, &path, &image, &wanted, |path| SaidBy::Library(path.to_owned()));
    if found.definitions.is_empty() {
        println!("skipped: libc has no debug information here");
        return;
    }
    let mut compared = 0;
    for table in builtin::tables().unwrap().iter().filter(|table| table.is_about(&path, &image)) {
        let dialect = table.dialect(|_| false);
        for (name, entry) in table.entries() {
            let is_it =
                |function: &&rtrace_symbolizer::Function| function.symbols.iter().any(|symbol| symbol.name == name);
            let Some(function) = exports.functions.iter().find(is_it).filter(|function| !function.ifunc) else {
                continue;
            };
            let Some(definition) = found.definitions.get(&function.address) else { continue };
            let said = table.description(entry, &dialect).unwrap().unwrap();
            assert!(said.agrees_with(definition), "{name}: {said}, but {definition}");
            compared += 1;
        }
    }
    println!("{} definitions, {compared} compared", found.definitions.len());
    assert!(compared > 80, "{compared}");
}

#[test]
fn read_is_known_from_the_table() {
    let Some(path) = library("libc.so.6") else { return };
    let (signature, program) = one(&path, "", "read");
    assert!(matches!(signature.source, SaidBy::Table("libc", _)));
    let names: Vec<&str> = signature.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["fd", "buf", "count", "result", "errno"]);
    let mut machine = Machine { result: -1_i64 as u64, errno: 9, ..Machine::default() };
    machine.set([0xffff_ffff_0000_0007, 0x1000, 65536, 0, 0, 0]);
    let mut words = [0; MOST_VALUE_WORDS];
    machine.run(&program, At::Enter, &mut words);
    machine.run(&program, At::Exit, &mut words);
    let value = |number: usize| words[usize::from(program.columns[number].first)] as i64;
    assert_eq!([value(0), value(1), value(2), value(3), value(4)], [7, 0x1000, 65536, -1, 9]);
    assert_eq!(words[usize::from(program.metrics[0].first)], 0);
    let condition = signature.columns[4].condition.as_ref().unwrap();
    assert!(condition.column == "result" && condition.comparison.holds(-1, condition.value));
    assert!(program.at_enter() == 4 && program.fetches.len() == 7, "{program:?}");
}

#[test]
fn text_and_out_parameters_are_followed() {
    let Some(path) = library("libc.so.6") else { return };
    let (signature, program) = one(&path, "open(path:text(16), flags) -> errno", "open");
    let names: Vec<&str> = signature.columns.iter().map(|column| column.name.as_str()).collect();
    // Whether the error number means something, the result tells.
    assert_eq!(names, ["path", "flags", "result", "errno"]);
    assert_eq!(signature.columns[0].ctype, ColumnType::Text(16));
    let mut machine = Machine { memory: vec![(0x5000, b"/etc/a-long-enough-path\0".to_vec())], ..Machine::default() };
    machine.set([0x5000, 2, 0, 0, 0, 0]);
    let mut words = [0; MOST_VALUE_WORDS];
    assert_eq!(machine.run(&program, At::Enter, &mut words), 0);
    let first = usize::from(program.columns[0].first);
    let text: Vec<u8> = words[first..first + 2].iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(text, b"/etc/a-long-enou");
    let (_, program) = one(&path, "pipe", "pipe");
    let mut machine = Machine { memory: vec![(0x5000, vec![3, 0, 0, 0, 4, 0, 0, 0])], ..Machine::default() };
    machine.set([0x5000, 0, 0, 0, 0, 0]);
    let mut words = [0; MOST_VALUE_WORDS];
    machine.run(&program, At::Enter, &mut words);
    assert_eq!(machine.run(&program, At::Exit, &mut words), 0);
    let value = |number: usize| words[usize::from(program.columns[number].first)];
    assert_eq!([value(0), value(1)], [3, 4]);
    // What cannot be read is told by the operations that it depends on.
    machine.memory.clear();
    let failed = machine.run(&program, At::Exit, &mut words);
    assert!(failed & program.columns[0].fetches != 0 && failed & program.columns[2].fetches == 0);
}

#[test]
fn no_text_is_recorded_unless_it_is_wanted() {
    let Some(path) = library("libc.so.6") else { return };
    let request = Request { no_strings: true, ..Request::default() };
    let Lookup::Signature(signature, _) = known(&path, &[], &request, &["open"]).unwrap().remove(0) else { panic!() };
    assert!(signature.columns.iter().all(|column| !matches!(column.ctype, ColumnType::Text(_))));
    assert_eq!(signature.dropped[0].reason, DropReason::NoStrings);
    // Of a function that only debug information knows, pointers to text stay pointers.
    let folder = tempfile::tempdir().unwrap();
    let path = build(
        folder.path(),
        "gcc",
        "a.c",
        "int f(const char *secret) { return *secret; }",
        &["-g", "-shared", "-fPIC"],
    );
    let (signature, _) = one(&path, "", "f");
    assert_eq!(signature.columns[0].ctype, ColumnType::Pointer);
    assert_eq!(signature.columns[0].c_type, "const char *");
}

#[test]
fn programs_know_what_they_call() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int g(short a, unsigned char b, double c, long d) { return a + b + c + d; }";
    let stripped = build(folder.path(), "gcc", "g.c", source, &["-shared", "-fPIC"]);
    let caller = "int g(short, unsigned char, double, long); int main(void) { return g(1, 2, 3, 4); }";
    let program = build(folder.path(), "gcc", "main.c", caller, &["-g", "-O2", "g.so"]);
    let silent = known(&stripped, &[], &Request::default(), &["g"]).unwrap().remove(0);
    assert_eq!(silent, Lookup::Nothing(NotKnown::Silence));
    let said = known(&stripped, &[program], &Request::default(), &["g"]).unwrap().remove(0);
    let Lookup::Signature(signature, _) = said else { panic!("{said:?}") };
    assert!(matches!(signature.source, SaidBy::Caller(_)));
    let types: Vec<ColumnType> = signature.columns.iter().map(|column| column.ctype).collect();
    use ColumnType::{Signed, Unsigned};
    assert_eq!(types, [Signed(2), Unsigned(1), Signed(8), Signed(4)]);
    assert_eq!(signature.columns[2].name, "arg4");
    assert_eq!(signature.dropped[0].reason, DropReason::Unobservable(Cause::Xmm(0)));
    let raw = Request { selection: "raw".to_owned(), ..Request::default() };
    let Lookup::Signature(signature, program) = known(&stripped, &[], &raw, &["g"]).unwrap().remove(0) else {
        panic!()
    };
    assert_eq!((signature.source, program.fetches.len()), (SaidBy::Raw, 7));
}

#[test]
fn a_launch_of_a_kernel_has_its_grid() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int cudaRuntimeGetVersion(int *v) { return *v; } int cudaLaunchKernel(void) { return 0; }";
    let library = build(folder.path(), "gcc", "libcudart.c", source, &["-shared", "-fPIC"]);
    let Lookup::Signature(signature, _) =
        known(&library, &[], &Request::default(), &["cudaLaunchKernel"]).unwrap().remove(0)
    else {
        panic!()
    };
    let names: Vec<&str> = signature.columns.iter().map(|column| column.name.as_str()).collect();
    let grid = ["gridDim_x", "gridDim_y", "gridDim_z", "blockDim_x", "blockDim_y", "blockDim_z"];
    assert_eq!(names, [&["func"][..], &grid, &["args", "sharedMem", "stream", "result"]].concat());
}

#[test]
fn where_a_call_runs_takes_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    let stripped = build(folder.path(), "gcc", "g.c", "int g(long a) { return a; }", &["-shared", "-fPIC"]);
    let asked = |selection: &str| {
        let request = Request { selection: selection.to_owned(), ..Request::default() };
        known(&stripped, &[], &request, &["g"]).map(|mut known| known.remove(0))
    };
    let Lookup::Signature(signature, program) = asked("*(cpu, last=>cpu, numa_node)").unwrap() else { panic!() };
    let columns: Vec<(&str, At)> = signature.columns.iter().map(|column| (&*column.name, column.at)).collect();
    assert_eq!(columns, [("cpu", At::Enter), ("last", At::Exit), ("numa_node", At::Enter)]);
    assert!(program.fetches.iter().all(|fetch| fetch.op.code == OpCode::Cpu), "{program:?}");
    assert!(asked("*(cpu, >cpu)").unwrap_err().to_string().contains("two columns are called `cpu`"));
    assert_eq!(asked("g(cpu, a)").unwrap(), Lookup::Nothing(NotKnown::Silence));
    assert_eq!(asked("g()").unwrap(), Lookup::Nothing(NotKnown::Silence));
}

#[test]
fn callers_that_contradict_each_other_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let stripped = build(folder.path(), "gcc", "g.c", "int g(long a) { return a; }", &["-shared", "-fPIC"]);
    fs::write(folder.path().join("b.c"), "int g(double); int b(void) { return g(1); }").unwrap();
    let caller = "int g(long, int); int b(void); int main(void) { return g(1, 2) + b(); }";
    let program = build(folder.path(), "gcc", "main.c", caller, &["-g", "b.c", "g.so"]);
    let said = known(&stripped, &[program], &Request::default(), &["g"]).unwrap().remove(0);
    assert_eq!(said, Lookup::Nothing(NotKnown::Contradiction));
}

#[test]
fn fortran_passes_by_reference() {
    if Command::new("gfortran").arg("--version").output().is_err() {
        println!("skipped: there is no gfortran");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = "
subroutine work(n, x, name, flag)
  integer, intent(in) :: n
  real(8), intent(inout) :: x(n)
  character(len=*), intent(in) :: name
  logical, intent(in) :: flag
  if (flag) x(1) = len(name)
end subroutine
";
    let path = build(folder.path(), "gfortran", "work.f90", source, &["-g", "-shared", "-fPIC"]);
    let (signature, program) = one(&path, "", "work_");
    let column = |name: &str| signature.columns.iter().position(|column| column.name == name).unwrap();
    assert_eq!(signature.columns[column("n")].ctype, ColumnType::Signed(4));
    // The length of the text comes last.
    assert_eq!(signature.params.last().unwrap().location, AbiPlace::Register(Register::R8));
    let mut machine =
        Machine { memory: vec![(0x100, vec![7, 0, 0, 0]), (0x200, vec![1, 0, 0, 0])], ..Machine::default() };
    machine.set([0x100, 0x300, 0x400, 0x200, 5, 0]);
    let mut words = [0; MOST_VALUE_WORDS];
    assert_eq!(machine.run(&program, At::Enter, &mut words), 0);
    let value = |name: &str| words[usize::from(program.columns[column(name)].first)];
    assert_eq!([value("n"), value("flag"), value("_name")], [7, 1, 5]);
}

#[test]
fn blas_with_a_suffix_has_integers_of_64_bits() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
void dgemm_(void) {}
void dgemm_64_(void) {}
void scipy_dgemm_64_(void) {}
void scipy_cblas_dgemm64_(void) {}
";
    let path = build(folder.path(), "gcc", "blas.c", source, &["-shared", "-fPIC"]);
    let m = (5_u64 << 32 | 7).to_le_bytes().to_vec();
    let mut machine = Machine { memory: vec![(0x100, m)], ..Machine::default() };
    machine.set([0, 0, 0x100, 0x100, 0x100, 0]);
    let first = |symbol: &str| {
        let (signature, program) = one(&path, "", symbol);
        assert_eq!(signature.metrics[0].name, "flops", "{symbol}");
        let mut words = [0; MOST_VALUE_WORDS];
        machine.run(&program, At::Enter, &mut words);
        let column = signature.columns.iter().position(|column| column.name.eq_ignore_ascii_case("m")).unwrap();
        words[usize::from(program.columns[column].first)]
    };
    assert_eq!(["dgemm_", "dgemm_64_", "scipy_dgemm_64_"].map(first), [7, 5 << 32 | 7, 5 << 32 | 7]);
    let (signature, _) = one(&path, "", "scipy_cblas_dgemm64_");
    assert_eq!(signature.columns.iter().find(|column| column.name == "M").unwrap().ctype, ColumnType::Signed(8));
}

#[test]
fn cpp_passes_this_and_references() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
#include <string>
struct Plain { int a; int b; };
struct Virtual { virtual ~Virtual(); };
struct Derived : virtual Virtual { Derived(int n); int n; int method(Plain p, std::string s, const int &r); };
Derived::Derived(int n) : n(n) {}
Virtual::~Virtual() {}
int Derived::method(Plain p, std::string s, const int &r) { return p.b + s.size() + r; }
struct Simple { int a; Simple(int a); Simple(const Simple &) = default; int twice() { return 2 * a; } };
Simple::Simple(int a) : a(a) {}
struct HasS { std::string s; };
struct Copies { int a; Copies(const Copies &); };
Copies::Copies(const Copies &other) : a(other.a + 1) {}
int f(Simple s, HasS h, Copies &c, Simple t) { return s.twice() + h.s.size() + c.a + t.twice(); }
int g(Copies c, int n) { return c.a + n; }
std::string text(int n) { return std::string(n, 'x'); }
"#;
    let path = build(folder.path(), "g++", "a.cpp", source, &["-g", "-O2", "-shared", "-fPIC"]);
    let (signature, program) =
        one(&path, "", "_ZN7Derived6methodE5PlainNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKi");
    let place = |number: usize| &signature.params[number].location;
    assert_eq!(signature.params[0].name, "this");
    assert_eq!([place(0), place(1)], [&AbiPlace::Register(Register::Rdi), &AbiPlace::Register(Register::Rsi)]);
    assert_eq!(place(2), &AbiPlace::Behind(Box::new(AbiPlace::Register(Register::Rdx))));
    assert_eq!(place(3), &AbiPlace::Register(Register::Rcx));
    let mut machine = Machine::default();
    machine.set([1, 7 | 9 << 32, 3, 4, 0, 0]);
    let mut words = [0; MOST_VALUE_WORDS];
    machine.run(&program, At::Enter, &mut words);
    let value = |name: &str| {
        let place = signature.columns.iter().position(|column| column.name == name).unwrap();
        words[usize::from(program.columns[place].first)]
    };
    assert_eq!([value("p_a"), value("p_b"), value("r")], [7, 9, 4]);
    // Plain data stays what it is with functions, also defaulted ones; a member that copies in its own way changes it.
    let (signature, _) = one(&path, "", "_Z1f6Simple4HasSR6CopiesS_");
    let place = |number: usize| &signature.params[number].location;
    assert_eq!(place(0), &AbiPlace::Register(Register::Rdi));
    assert_eq!(place(1), &AbiPlace::Behind(Box::new(AbiPlace::Register(Register::Rsi))));
    assert_eq!([place(2), place(3)], [&AbiPlace::Register(Register::Rdx), &AbiPlace::Register(Register::Rcx)]);
    // A result that is no plain data is in memory of the caller, whose address comes first.
    let (signature, _) = one(&path, "", "_Z4textB5cxx11i");
    assert_eq!(signature.params[0].location, AbiPlace::Register(Register::Rsi));
    // Constructors of classes with virtual bases have hidden parameters: one for whole objects, more for parts.
    let (signature, _) = one(&path, "", "_ZN7DerivedC1Ei");
    let n = signature.params.iter().find(|param| param.name == "n").unwrap();
    assert_eq!(n.location, AbiPlace::Register(Register::Rsi));
    let (signature, _) = one(&path, "", "_ZN7DerivedC2Ei");
    let n = signature.params.iter().find(|param| param.name == "n").unwrap();
    assert_eq!(n.location, AbiPlace::Register(Register::Rdx));
}

#[test]
fn what_the_compiler_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = "
__attribute__((noinline)) static int f(int a, int b, int c) { static int n; return n += a * c; }
int main(int argc, char **argv) { return f(argc, 2, 3) + f(argc + 1, 2, 3); }";
    let path = build(folder.path(), "gcc", "a.c", source, &["-g", "-O2"]);
    let image = Image::open(&path).unwrap();
    let names: Vec<String> = image
        .exports()
        .unwrap()
        .functions
        .iter()
        .flat_map(|function| function.symbols.iter().map(|symbol| symbol.name.clone()))
        .collect();
    let changed: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.starts_with("f.")).collect();
    assert!(!changed.is_empty(), "{names:?}");
    let known = known(&path, &[], &Request::default(), &changed).unwrap();
    assert!(known.iter().all(|known| *known == Lookup::Nothing(NotKnown::Changed)), "{known:?}");
}
