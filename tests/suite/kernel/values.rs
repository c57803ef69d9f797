//! Arguments and results, compared with what programs print of themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rtrace_model::{EventKind, RegionId, Values};
use tempfile::TempDir;

use crate::common::recording::Recording;
use crate::common::rtrace;
use crate::common::skip::{Turn, installed};
use crate::common::target::{compile_text, compile_texts};

/// Functions of the library, and calls of each.
const FUNCTIONS: u64 = 60;
const CALLS: u64 = 20;

/// Types of parameters and results. The last ones are in registers that nobody can read.
const TYPES: [&str; 13] = [
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned",
    "long",
    "unsigned long long",
    "_Bool",
    "enum kind",
    "const char *",
    "double",
    "float",
];
/// How many of them are in registers that can be read.
const READABLE: u64 = 11;

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A function: its result and its parameters, as places among the types.
struct Function {
    result: u64,
    params: Vec<u64>,
}

impl Function {
    fn declaration(&self, number: usize) -> String {
        let params = self.params.iter().enumerate().map(|(place, &kind)| format!("{} a{place}", TYPES[kind as usize]));
        let params = params.collect::<Vec<_>>().join(", ");
        format!("{} function{number}({params})", TYPES[self.result as usize])
    }
}

fn functions() -> Vec<Function> {
    let mut dice = Dice(7);
    let function = |_| {
        let count = dice.roll(10);
        let params = (0..count).map(|_| dice.roll(TYPES.len() as u64)).collect();
        Function { result: dice.roll(READABLE), params }
    };
    (0..FUNCTIONS).map(function).collect()
}

/// A library whose functions use their arguments late, behind calls and loops, so that compilers move them elsewhere.
fn library(functions: &[Function]) -> String {
    let mut text = "enum kind { ONE, TWO, MANY = 100000 };\nvolatile long sink;\n\
                    __attribute__((noinline)) static long mix(long n) { return sink = sink * 31 + n; }\n"
        .to_owned();
    for (number, function) in functions.iter().enumerate() {
        writeln!(text, "{}\n{{\n    long sum = {number};", function.declaration(number)).unwrap();
        for place in 0..function.params.len() {
            match (place + number) % 3 {
                0 => writeln!(text, "    sum += mix((long)a{place});").unwrap(),
                1 => writeln!(text, "    for (long i = 0; i < 3; i++) sum = sum * 7 + (long)a{place};").unwrap(),
                _ => writeln!(text, "    sum ^= (long)a{place};").unwrap(),
            }
        }
        writeln!(text, "    return ({})sum;\n}}", TYPES[function.result as usize]).unwrap();
    }
    text
}

/// A program that calls them, and prints their arguments and results as integers of 64 bits.
fn program(functions: &[Function]) -> String {
    let mut text = "#include <stdio.h>\nenum kind { ONE, TWO, MANY = 100000 };\n".to_owned();
    for (number, function) in functions.iter().enumerate() {
        writeln!(text, "{};", function.declaration(number)).unwrap();
    }
    text.push_str("static unsigned long state = 1;\nstatic long next(void) { return (long)(state = state * 6364136223846793005ul + 1442695040888963407ul) >> 7; }\nint main(void)\n{\n");
    for (number, function) in functions.iter().enumerate() {
        writeln!(text, "    for (int i = 0; i < {CALLS}; i++) {{").unwrap();
        let params = function.params.iter().enumerate();
        for (place, &kind) in params.clone() {
            writeln!(text, "        {0} a{place} = ({0})next();", TYPES[kind as usize]).unwrap();
        }
        let arguments = params.clone().map(|(place, _)| format!("a{place}")).collect::<Vec<_>>().join(", ");
        let kind = TYPES[function.result as usize];
        writeln!(text, "        {kind} result = function{number}({arguments});\n        printf(\"{number}\");")
            .unwrap();
        for (place, _) in params.filter(|(_, kind)| **kind < READABLE) {
            writeln!(text, "        printf(\" a{place}=%lld\", (long long)a{place});").unwrap();
        }
        text.push_str("        printf(\" result=%lld\\n\", (long long)result);\n    }\n");
    }
    text + "    return 0;\n}\n"
}

/// The values of each call of a region, each with its name, in the order of the calls.
fn rows(recording: &Recording, region: RegionId) -> Vec<Vec<(String, Option<i64>)>> {
    let names = recording.value_columns(region);
    let mut rows = BTreeMap::new();
    for batch in recording.values(region) {
        for (row, call) in batch.calls.iter().enumerate() {
            let values = names.iter().zip(&batch.columns).map(|(name, values)| match values {
                Values::Integer(values) => (name.clone(), values[row]),
                other => panic!("{name}: {other:?}"),
            });
            rows.insert(*call, values.collect());
        }
    }
    rows.into_values().collect()
}

fn record(flag: &str) -> (String, Recording) {
    let functions = functions();
    let library: (&str, _, &[&str]) = (&library(&functions), "libvalues.so", &["-shared", "-fPIC", "-g", flag]);
    let folder = compile_texts(&[library, (&program(&functions), "program", &["-O1"])]);
    let options = ["--lib", "libvalues.so", "--func", "function*", "--args"].map(str::to_owned);
    let (output, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
    (String::from_utf8(output.stdout).unwrap(), recording)
}

#[test]
fn arguments_and_results_are_those_that_the_program_prints() {
    let Some(_turn) = Turn::take() else { return };
    for flags in ["-O2", "-O0", "-O3"] {
        let (printed, recording) = record(flags);
        let mut told: BTreeMap<usize, Vec<Vec<(String, i64)>>> = BTreeMap::new();
        for line in printed.lines() {
            let mut words = line.split(' ');
            let number = words.next().unwrap().parse().unwrap();
            let value = |word: &str| {
                let (name, value) = word.split_once('=').unwrap();
                (name.to_owned(), value.parse().unwrap())
            };
            told.entry(number).or_default().push(words.map(value).collect());
        }
        assert_eq!(told.len() as u64, FUNCTIONS);
        let (mut compared, mut untimed) = (0, 0);
        for (number, told) in told {
            let name = format!("function{number}");
            let region = recording.regions().iter().find(|region| region.name == name).expect("it is traced").id;
            let rows = rows(&recording, region);
            assert_eq!(rows.len() as u64, CALLS, "{name} {flags:?}");
            for (row, told) in rows.iter().zip(&told) {
                assert_eq!(row.len(), told.len(), "{name} {flags:?}: {row:?} {told:?}");
                for ((column, value), (said, truth)) in row.iter().zip(told) {
                    assert_eq!(column, said);
                    match value {
                        // The first calls from a place may return unseen.
                        None if column == "result" => untimed += 1,
                        value => assert_eq!(*value, Some(*truth), "{column} of {name} {flags:?}: {row:?} {told:?}"),
                    }
                    compared += 1;
                }
            }
        }
        let unseen = recording.calls().filter(|call| !call.is_timed()).count();
        assert_eq!(untimed, unseen, "{flags:?}: {compared} values");
    }
}

const MEMORY_LIBRARY: &str = r"
#include <stddef.h>
struct pair { int a; long b; };
int fill(const char *name, long *out, const struct pair *pair, size_t n)
{
    if (out)
        *out = (long)n * 3 - 7;
    return (name ? name[0] : -1) + (pair ? pair->a : -1);
}
";

/// Prints what is behind the pointers as it is when the function begins, or has returned; `-` where there is none.
const MEMORY_PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
struct pair { int a; long b; };
int fill(const char *name, long *out, const struct pair *pair, size_t n);
int main(void)
{
    char name[100] = "";
    for (long i = 0; i < 40; i++) {
        struct pair pair = { -i, i << 40 };
        long out = 5;
        int with_name = i % 4 != 1, with_out = i % 4 != 2, with_pair = i % 4 != 3;
        snprintf(name, sizeof(name), "call %ld of those that have a name which is too long: %050ld", i, i);
        int result = fill(with_name ? name : NULL, with_out ? &out : NULL, with_pair ? &pair : NULL, i);
        if (with_name) printf("%.63s;", name); else printf("-;");
        if (with_out) printf("%ld;", out); else printf("-;");
        if (with_pair) printf("%d;%ld;%d\n", pair.a, pair.b, result); else printf("-;-;%d\n", result);
    }
}
"#;

const MEMORY_TABLE: &str = r#"
[types]
pair = "struct { int a; long b; }"

[[function]]
c = "int fill(const char *name, long *out, const pair *pair, size_t n)"
capture = ["name:text(64)", ">out", "pair->a", "pair->b"]
metrics = { filled_bytes = "n * 8" }
"#;

/// Records the program into `directory`; the lines that it prints, each as its five values.
fn record_memory(directory: &Path) -> Vec<Vec<String>> {
    let library: (_, _, &[&str]) = (MEMORY_LIBRARY, "libfill.so", &["-O2", "-shared", "-fPIC"]);
    let folder = compile_texts(&[library, (MEMORY_PROGRAM, "program", &["-O2"])]);
    let table = folder.join("table.toml");
    std::fs::write(&table, MEMORY_TABLE).unwrap();
    let options = ["--lib", "libfill.so", "--args-from", table.to_str().unwrap()].map(str::to_owned);
    let output = rtrace::record(&options, &Command::new(folder.join("program")), directory);
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

#[test]
fn what_pointers_point_to_is_read_when_it_is_there() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let printed = record_memory(&directory);
    let recording = Recording::open(&directory);
    let region = recording.regions().iter().find(|region| region.name == "fill").expect("it is traced").id;
    assert_eq!(recording.value_columns(region).len(), 5);
    let mut rows = BTreeMap::new();
    for batch in recording.values(region) {
        for (row, call) in batch.calls.iter().enumerate() {
            let texts = batch.columns.iter().map(|values| values.text(row).unwrap_or_else(|| "-".to_owned()));
            rows.insert(*call, texts.collect::<Vec<_>>());
        }
    }
    let timed: Vec<bool> = recording.calls().map(|call| call.is_timed()).collect();
    for ((mut told, row), is_timed) in printed.into_iter().zip(rows.values()).zip(&timed) {
        if !is_timed {
            (told[1], told[4]) = ("-".to_owned(), "-".to_owned());
        }
        assert_eq!(*row, told);
    }
    assert_eq!((rows.len(), timed.len()), (40, 40));
    let counted = recording.calls().filter(|call| call.is_timed()).map(|call| recording.readings(call)[0].inclusive);
    let expected = (0..40_u64).zip(&timed).filter(|(_, timed)| **timed).map(|(n, _)| n * 8);
    assert!(counted.eq(expected));
}

const TEXTS_PROGRAM: &str = r#"
#include <string.h>
void odd(const char *t);
void even(const char *t);
void rest(const char *t);
int main(void)
{
    static char text[81];
    /* A probe cannot read a page that nobody has touched. */
    *(volatile char *)text = 0;
    for (int length = 0; length <= 80; length++) {
        memset(text, 'a' + length % 26, length);
        odd(text);
        even(text);
        rest(text);
    }
}
"#;

const TEXTS_TABLE: &str = r#"
[[function]]
c = "void odd(const char *t)"
capture = ["t8=t:text(8)", "t24=t:text(24)", "t40=t:text(40)"]

[[function]]
c = "void even(const char *t)"
capture = ["t16=t:text(16)", "t32=t:text(32)", "t48=t:text(48)", "t8=t:text(3)"]

[[function]]
c = "void rest(const char *t)"
capture = ["t56=t:text(56)", "t64=t:text"]
"#;

/// A text has its size with the zero at its end.
#[test]
fn texts_are_as_long_as_is_asked_for() {
    let Some(_turn) = Turn::take() else { return };
    let library: (_, _, &[&str]) = (
        "void odd(char *t) { (void)t; } void even(char *t) { (void)t; } void rest(char *t) { (void)t; }",
        "libtexts.so",
        &["-shared"],
    );
    let folder = compile_texts(&[library, (TEXTS_PROGRAM, "program", &["-O1"])]);
    let table = folder.join("table.toml");
    std::fs::write(&table, TEXTS_TABLE).unwrap();
    let options = ["--lib", "libtexts.so", "--args-from", table.to_str().unwrap()].map(str::to_owned);
    let (_, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
    let columns = recording.regions().iter().map(|region| recording.value_columns(region.id).len());
    assert_eq!(columns.sum::<usize>(), 9);
    for region in recording.regions() {
        let mut rows = BTreeMap::new();
        for batch in recording.values(region.id) {
            for (row, call) in batch.calls.iter().enumerate() {
                rows.insert(*call, batch.columns.iter().map(|values| values.text(row)).collect::<Vec<_>>());
            }
        }
        assert_eq!(rows.len(), 81, "{}", region.name);
        let sizes = recording.value_columns(region.id).into_iter().map(|name| name[1..].parse::<usize>().unwrap());
        let sizes: Vec<usize> = sizes.collect();
        for (length, row) in rows.into_values().enumerate() {
            let text = char::from(b'a' + (length % 26) as u8).to_string();
            let expected = sizes.iter().map(|&size| Some(text.repeat(length.min(size - 1))));
            assert!(expected.eq(row.iter().cloned()), "{sizes:?}: {row:?}");
        }
    }
}

/// Functions that move their arguments before an instruction that is cheap to probe, and one that ends in another.
const COPYING_LIBRARY: &str = r#"
#define FUNCTION(name, code) \
    __asm__(".globl " #name "\n.type " #name ", @function\n" #name ": .cfi_startproc\n" code \
            "\n.cfi_endproc\n.size " #name ", . - " #name);
FUNCTION(whole, "mov %rdi, %rax; xor %edi, %edi; push %rbx; pop %rbx; add %rsi, %rax; ret")
FUNCTION(half, "mov %edi, %eax; mov $-1, %rdi; push %rbx; pop %rbx; add $1, %eax; ret")
FUNCTION(lost, "lea 5(%rdi), %rax; xor %edi, %edi; push %rbx; pop %rbx; ret")
FUNCTION(nothing, "push %rbx; xor %eax, %eax; pop %rbx; ret")
FUNCTION(ends, "push %rbx; mov %rsi, %rdi; pop %rbx; jmp *inner@GOTPCREL(%rip)")
FUNCTION(passes, "push %rbx; call *inner@GOTPCREL(%rip); pop %rbx; ret")
FUNCTION(strays, "push %rbx; mov %rsi, %rdi; pop %rbx; jmp untraced")
__asm__("untraced: .cfi_startproc\npush %rbx; call *inner@GOTPCREL(%rip); pop %rbx; ret\n.cfi_endproc");
FUNCTION(inner, "push %rbx; movabs $0x123456789abcdef, %rax; add %rdi, %rax; pop %rbx; ret")
FUNCTION(fill, "push %rbx; mov %rsi, (%rdi); mov $1, %eax; pop %rbx; ret")
"#;

/// Calls them, and overwrites at once what they return. Prints their arguments and results; with an argument, it calls
/// one of them only.
const COPYING_PROGRAM: &str = r#"
#include <stdio.h>
/* `then` follows the call at once, up to a jump, and `rbx` is the result. */
#define CALL(name, function, then) \
    long name(long, long); \
    __asm__(".type " #name ", @function\n" #name ": .cfi_startproc\npush %rbx; mov %rsi, %rbx; " \
            "call *" #function "@GOTPCREL(%rip); " then "; jmp 1f; 1: mov %rbx, %rax; pop %rbx; ret\n" \
            ".cfi_endproc\n.size " #name ", . - " #name);
CALL(call_whole, whole, "mov %rax, %rbx; xor %eax, %eax")
CALL(call_half, half, "mov %eax, %ebx; mov $-1, %rax")
CALL(call_wide, whole, "mov %eax, %ebx; xor %eax, %eax")
CALL(call_lost, lost, "mov %rax, %rbx; mov $3, %eax")
CALL(call_nothing, nothing, "mov $7, %eax")
CALL(call_ends, ends, "mov $7, %eax")
CALL(call_passes, passes, "mov $7, %eax")
CALL(call_strays, strays, "mov $7, %eax")
CALL(call_fill, fill, "movq $-1, (%rbx); mov $7, %eax")
int main(int count, char **words)
{
    long out;
    for (long i = 0; i < 60; i++) {
        long a = i << 33 | i;
        if (count > 1) {
            call_strays(a, i);
            continue;
        }
        printf("whole %ld %ld %ld\n", a, i, call_whole(a, i));
        call_wide(a, i);
        printf("whole %ld %ld %ld\n", a, i, a + i);
        printf("half %d %d\n", (int)a, (int)call_half(a, i));
        printf("lost %ld %ld\n", a, call_lost(a, i));
        call_nothing(a, i);
        printf("nothing %ld\n", a);
        call_ends(a, i);
        printf("ends %ld %ld\ninner %ld %ld\n", a, i, i, 0x123456789abcdef + i);
        call_passes(a, i);
        printf("passes %ld\ninner %ld %ld\n", a, a, 0x123456789abcdef + a);
        call_fill((long)&out, (long)&out);
        printf("fill %ld 1 %ld\n", (long)&out, (long)&out);
    }
}
"#;

const COPYING_TABLE: &str = r#"
[[function]]
c = "long whole(long a, long b)"
[[function]]
c = "int half(int a)"
[[function]]
c = "long lost(long a)"
[[function]]
c = "void nothing(long a)"
[[function]]
c = "void ends(long a, long b)"
[[function]]
c = "void passes(long a)"
[[function]]
c = "void strays(long a, long b)"
[[function]]
c = "long inner(long a)"
[[function]]
c = "int fill(long a, long *b)"
capture = ["a", "result", ">b"]
"#;

/// Builds them; the options by which they are recorded.
fn copying() -> (PathBuf, [String; 4]) {
    let library: (_, _, &[&str]) = (COPYING_LIBRARY, "libcopying.so", &["-shared", "-fPIC"]);
    let folder = compile_texts(&[library, (COPYING_PROGRAM, "program", &["-O1", "-fcf-protection=none"])]);
    let table = folder.join("table.toml");
    std::fs::write(&table, COPYING_TABLE).unwrap();
    let options = ["--lib", "libcopying.so", "--args-from", table.to_str().unwrap()].map(str::to_owned);
    (folder.join("program"), options)
}

/// `strays` has no result, but code that nobody traces calls `inner` for it, and returns to the same place.
#[test]
fn a_result_that_nobody_foresaw_is_missing_and_not_wrong() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let ((program, options), directory) = (copying(), folder.path().join("trace"));
    let output = rtrace::record(&options, Command::new(program).arg("strays"), &directory);
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(summary.contains("60 values not readable"), "{summary}");
    let export = printed(&["export", directory.to_str().unwrap(), "--format", "jsonl", "-o", "-"]);
    let lines = export.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut calls: Vec<_> = lines.filter(|line| line["function"] == "inner").collect();
    calls.sort_by_key(|call| call["call"].as_u64());
    assert_eq!(calls.len(), 60);
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(call["args"]["a"].as_u64(), Some(number as u64), "{call}");
        assert!(!call["duration_ns"].is_null() && call["out"]["result"].is_null(), "{call}");
    }
}

/// A value is taken from where it was copied to; where it would be lost, the probe is placed in front of that.
#[test]
fn values_are_found_where_they_were_copied_to() {
    let Some(_turn) = Turn::take() else { return };
    let (program, options) = copying();
    let (output, recording) = rtrace::run(&options, &Command::new(program));
    let mut told: BTreeMap<&str, Vec<Vec<Option<i64>>>> = BTreeMap::new();
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in printed.lines() {
        let mut words = line.split(' ');
        told.entry(words.next().unwrap()).or_default().push(words.map(|word| word.parse().ok()).collect());
    }
    for (name, told) in &told {
        let region = recording.regions().iter().find(|region| region.name == *name).expect("it is traced");
        let rows: Vec<Vec<_>> = rows(&recording, region.id)
            .into_iter()
            .map(|row| row.into_iter().map(|(_, value)| value).collect())
            .collect();
        assert_eq!(rows, *told, "{name}");
        // What `lost` was called with is nowhere once its site could be at `push`.
        assert_eq!(region.single_stepped, *name == "lost", "{name}");
    }
    assert_eq!(told.len(), 8);
    // Of `call_wide`, half of the result is lost; of `call_ends` and `call_passes`, that of `inner`. `call_fill`
    // overwrites what `fill` has stored.
    // Perhaps one more, behind the last call of a function, whose caller's own return address has no site yet.
    assert!([4 * 60, 4 * 60 + 1].contains(&recording.summary().return_sites.single_stepped));
}

/// Calls a function of a library that it is linked with, and one of a library that it loads.
const LATE_PROGRAM: &str = r#"
#include <dlfcn.h>
#include <unistd.h>
void early(int a);
int main(int count, char **words)
{
    int (*late)(int a) = dlsym(dlopen(words[count - 1], RTLD_NOW), "late");
    usleep(300000);
    for (int i = 0; i < 50; i++)
        early(late(i));
}
"#;

const LATE_TABLE: &str = r#"
[[function]]
c = "void early(int a)"
[[function]]
c = "int late(int a)"
"#;

/// The recording was prepared for what `early` has: one value, when it begins.
#[test]
fn what_a_library_is_loaded_too_late_for_is_told() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    compile_text(folder.path(), "void early(int a) { (void)a; }", "libearly.so", &["-shared", "-fPIC"]);
    compile_text(folder.path(), "int late(int a) { return a; }", "liblate.so", &["-shared", "-fPIC"]);
    let (place, path) = (format!("-L{}", folder.path().display()), format!("-Wl,-rpath,{}", folder.path().display()));
    compile_text(folder.path(), LATE_PROGRAM, "program", &[&place, &path, "-learly"]);
    std::fs::write(at("table.toml"), LATE_TABLE).unwrap();
    let options = ["--lib", "lib?a*.so", "--args-from", &at("table.toml")];
    let mut program = Command::new(at("program"));
    let (_, recording) = rtrace::run(&options.map(str::to_owned), program.arg(at("liblate.so")));
    let without: Vec<_> = recording.events().iter().filter(|kind| matches!(kind, EventKind::NoValues { .. })).collect();
    let [EventKind::NoValues { region, reason, .. }] = &without[..] else { panic!("{without:?}") };
    assert_eq!((&region[..], reason.contains("loaded after")), ("late", true), "{reason}");
    let rows = |name: &str| {
        let region = recording.regions().iter().find(|region| region.name == name).expect("it is traced").id;
        rows(&recording, region).len()
    };
    assert_eq!((rows("early"), rows("late")), (50, 0));
}

/// What `rtrace` prints.
fn printed(arguments: &[&str]) -> String {
    let output = rtrace::command().args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The values in an export and in reports are those that the program prints.
#[test]
fn exports_and_reports_have_the_values() {
    let Some(_turn) = Turn::take() else { return };
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("trace");
    let told = record_memory(&directory);
    let directory = directory.to_str().unwrap();

    let text = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        number => number.to_string(),
    };
    let export = printed(&["export", directory, "--format", "jsonl", "-o", "-"]);
    let lines = export.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut calls: Vec<serde_json::Value> = lines.filter(|line| line["type"] == "call").collect();
    calls.sort_by_key(|call| call["call"].as_u64());
    assert_eq!(calls.len(), told.len());
    for (call, told) in calls.iter().zip(&told) {
        let (args, is_timed) = (&call["args"], !call["duration_ns"].is_null());
        assert_eq!(
            [&args["name"], &args["a"], &args["b"]].map(text),
            [&told[0], &told[2], &told[3]].map(String::clone)
        );
        let at_exit = [&call["out"]["out"], &call["result"]].map(text);
        let expected = if is_timed { [told[1].clone(), told[4].clone()] } else { ["-", "-"].map(str::to_owned) };
        assert_eq!(at_exit, expected);
    }

    let report = printed(&["report", directory, "--by", "arg:a", "--format", "csv"]);
    let rows = report.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let found: BTreeMap<String, u64> =
        rows.map(|row| (row[row.len() - 1].to_owned(), row[0].parse().unwrap())).collect();
    let mut expected = BTreeMap::new();
    for told in &told {
        *expected.entry(if told[2] == "-" { String::new() } else { told[2].clone() }).or_insert(0_u64) += 1;
    }
    assert_eq!(found, expected);

    let report = printed(&["report", directory, "--histogram", "arg:b", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    for step in report["rows"].as_array().unwrap() {
        let holds = |told: &&Vec<String>| match (told[3].parse::<i64>(), step["from"].as_i64()) {
            (Ok(value), Some(from)) => (from..step["below"].as_i64().unwrap()).contains(&value),
            (Err(_), None) => true,
            _ => false,
        };
        assert_eq!(step["calls"].as_u64().unwrap(), told.iter().filter(holds).count() as u64, "{step}");
    }
}

/// Which functions of a library are meant is known only when its source files are.
#[test]
fn a_library_that_is_loaded_later_has_values_where_source_files_select() {
    let Some(_turn) = Turn::take().filter(|_| installed(&["cc"])) else { return };
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    compile_text(folder.path(), "void early(int a) { (void)a; }", "libearly.so", &["-g", "-shared", "-fPIC"]);
    compile_text(folder.path(), "void late(int a) { (void)a; }", "liblate.so", &["-g", "-shared", "-fPIC"]);
    let (place, path) = (format!("-L{}", folder.path().display()), format!("-Wl,-rpath,{}", folder.path().display()));
    compile_text(folder.path(), LATE_PROGRAM, "program", &[&place, &path, "-learly"]);
    let options = ["--lib", "lib?a*.so", "--func", "src:*", "--args"].map(str::to_owned);
    let (_, recording) = rtrace::run(&options, Command::new(at("program")).arg(at("liblate.so")));
    for name in ["early", "late"] {
        let region = recording.regions().iter().find(|region| region.name == name).expect("it is traced").id;
        assert_eq!(rows(&recording, region).len(), 50, "{name}");
    }
}

const LISTS: &str = r#"
#include <stdio.h>
struct order { long *places; int place; };
volatile long sink;
__attribute__((noinline)) long take(const int *few, const signed char *small, const long *many, int count, struct order *order)
{
    return few && small && many && order ? count : -1;
}
int main(void)
{
    static int few[20];
    static signed char small[20];
    static long many[20];
    struct order order = { many, 0 };
    for (int i = 0; i < 40; i++) {
        int count = i % 20;
        long sums[2] = { 0, 0 };
        for (int k = 0; k < 20; k++) {
            few[k] = k * i - 70, small[k] = k - i, many[k] = (long)k << 40 | i;
            if (k < count) sums[0] += few[k], sums[1] += small[k];
        }
        order.place = i % 7;
        sink = take(i % 5 ? few : NULL, small, many, count, &order);
        i % 5 ? printf("%ld;", sums[0]) : printf("-;");
        printf("%ld;%ld\n", sums[1], many[order.place]);
    }
}
"#;

/// Behind a null pointer there is no sum.
#[test]
fn elements_of_lists_are_added_up_and_chosen() {
    let Some(_turn) = Turn::take() else { return };
    let program = compile_texts(&[(LISTS, "program", &["-g", "-O1"])]).join("program");
    let wanted = "take(few[..count][+], small[..count][+], many[order->place])";
    let options = ["--lib", "exe", "--func", "take", "--args", wanted].map(str::to_owned);
    let (output, recording) = rtrace::run(&options, &Command::new(program));
    let region = recording.regions().iter().find(|region| region.name == "take").expect("it is traced").id;
    let values = rows(&recording, region);
    let told = values.iter().map(|row| {
        let text = row.iter().map(|(_, value)| value.map_or_else(|| "-".to_owned(), |value| value.to_string()));
        text.collect::<Vec<_>>().join(";")
    });
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told.collect::<Vec<_>>(), printed.lines().collect::<Vec<_>>());
}

const ERRORS: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#ifdef TLS
/* Moves what the C library has for each thread. */
__thread char own[TLS] = "x";
#else
char own[1];
#endif
static void *work(void *unused)
{
    char byte;
    (void)unused;
    for (int i = 0; i < 60; i++) {
        int file = open(i % 3 ? "/proc/self/nothing" : "/proc/self/mem", O_RDONLY | (i % 5 ? 0 : O_DIRECTORY));
        int error = errno;
        printf("%d %d\n", file, file < 0 ? error : -1);
        int number = read(i % 2 ? file : 1000, &byte, 1);
        error = errno;
        printf("%d %d\n", number, number < 0 ? error : -1);
        close(file);
    }
    return NULL;
}
int main(void)
{
    pthread_t thread;
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    own[0] = 1;
    work(NULL);
    pthread_create(&thread, NULL, work, NULL);
    return pthread_join(thread, NULL);
}
"#;

/// Where `errno` is differs between the programs, and threads have their own.
#[test]
fn errno_is_the_callers_own() {
    let Some(_turn) = Turn::take() else { return };
    for (flags, library) in [(&["-O2"][..], "libc.so.6"), (&["-O2", "-DTLS=5000"], "libc.so.6"), (&["-static"], "exe")]
    {
        let folder = compile_texts(&[(ERRORS, "program", &[flags, &["-pthread"]].concat())]);
        let columns = "open() -> result, errno; read() -> result, errno";
        let options = ["--lib", library, "--func", "open", "--func", "read", "--args", columns].map(str::to_owned);
        let (output, recording) = rtrace::run(&options, &Command::new(folder.join("program")));
        let values: BTreeMap<_, _> = ["open", "read"]
            .iter()
            .flat_map(|name| {
                let region = recording.regions().iter().find(|region| region.name == *name).expect("it is traced").id;
                assert_eq!(recording.value_columns(region), ["result", "errno"]);
                recording.values(region)
            })
            .flat_map(|batch| {
                let of = |column: &Values, row: usize| match column {
                    Values::Integer(values) => values[row],
                    other => panic!("{other:?}"),
                };
                let rows = batch.calls.iter().enumerate();
                rows.map(|(row, &call)| (call, [0, 1].map(|column| of(&batch.columns[column], row))))
                    .collect::<Vec<_>>()
            })
            .collect();
        let printed = String::from_utf8(output.stdout).unwrap();
        let told = printed.lines().map(|line| {
            let (result, error) = line.split_once(' ').unwrap();
            [Some(result.parse().unwrap()), Some(error.parse().unwrap()).filter(|&error: &i64| error >= 0)]
        });
        assert_eq!(values.len(), 240, "{flags:?}");
        let unread = values.values().zip(told).filter(|(found, told)| {
            // Calls from a place whose return site was not there yet have no values of their return.
            let is_untimed = **found == [None, None];
            assert!(is_untimed || *found == told, "{flags:?}: {found:?} {told:?}");
            is_untimed
        });
        assert_eq!(unread.count(), recording.calls().filter(|call| !call.is_timed()).count(), "{flags:?}");
    }
}
