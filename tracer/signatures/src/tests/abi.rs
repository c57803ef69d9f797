//! Values of random types, passed and returned by compiled code, and what fetch programs read of them.
//!
//! The truth is what the compiler's code leaves in registers and on the stack: an assembly function in the place of
//! the callee stores them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use rtrace_symbolizer::Image;

use super::machine::Machine;
use crate::capture::Wanted;
use crate::describe::{Wish, describe};
use crate::description::Description;
use crate::dwarf;
use crate::prototype::{self, Types};
use crate::table::Dialect;
use crate::{AbiPlace, At, Cause, DropReason, FetchProgram, MOST_VALUE_WORDS, SaidBy, Signature, Type};

const FUNCTIONS: usize = 400;

/// The function that stands for every callee, and the one that stands for every caller.
const ASSEMBLY: &str = r#"
.text
.globl capture
capture:
    mov %rdi, registers(%rip)
    mov %rsi, registers+8(%rip)
    mov %rdx, registers+16(%rip)
    mov %rcx, registers+24(%rip)
    mov %r8, registers+32(%rip)
    mov %r9, registers+40(%rip)
    movups %xmm0, vectors(%rip)
    movups %xmm1, vectors+16(%rip)
    movups %xmm2, vectors+32(%rip)
    movups %xmm3, vectors+48(%rip)
    movups %xmm4, vectors+64(%rip)
    movups %xmm5, vectors+80(%rip)
    movups %xmm6, vectors+96(%rip)
    movups %xmm7, vectors+112(%rip)
    mov %rsp, %rsi
    lea stack(%rip), %rdi
    mov $4096, %ecx
    rep movsb
    mov registers(%rip), %rax
    ret
.globl call
call:
    push %rbx
    mov %rdi, %rax
    lea room(%rip), %rdi
    call *%rax
    mov %rax, results(%rip)
    mov %rdx, results+8(%rip)
    movups %xmm0, results+16(%rip)
    movups %xmm1, results+32(%rip)
    pop %rbx
    ret
.section .note.GNU-stack,"",@progbits
"#;

const SUPPORT: &str = r#"
#include <complex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
unsigned char registers[48], vectors[128], stack[4096], results[48], room[512];
extern void capture(void);
extern void call(void *);
static void hex(const unsigned char *bytes, int count) { for (int i = 0; i < count; i++) printf("%02x", bytes[i]); }
static void arguments(void) { hex(registers, 48); putchar(' '); hex(vectors, 128); putchar(' '); hex(stack, 4096); putchar('\n'); }
static void outcome(void *function) { memset(room, 0, 512); call(function); hex(results, 48); putchar(' '); hex(room, 512); putchar('\n'); }
"#;

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A number in a value: how to get at it, and its bytes.
struct Leaf {
    path: String,
    bytes: Vec<u8>,
    is_bit_field: bool,
}

/// A random type in C.
struct Sample {
    /// Its name as a type.
    c_type: String,
    leaves: Vec<Leaf>,
}

const SCALARS: [(&str, usize); 19] = [
    ("bool", 1),
    ("char", 1),
    ("signed char", 1),
    ("unsigned char", 1),
    ("short", 2),
    ("unsigned short", 2),
    ("int", 4),
    ("unsigned", 4),
    ("long", 8),
    ("unsigned long long", 8),
    ("enum colour", 4),
    ("void *", 8),
    ("float", 4),
    ("double", 8),
    ("long double", 16),
    ("float _Complex", 8),
    ("double _Complex", 16),
    ("__int128", 16),
    ("float", 4),
];

fn scalar(dice: &mut Dice, limit: u64) -> Sample {
    let (c_type, size) = SCALARS[dice.roll(limit) as usize];
    let mut bytes: Vec<u8> = (0..size).map(|_| dice.roll(256) as u8).collect();
    match c_type {
        "bool" => bytes[0] &= 1,
        // 1.something: numbers that the processor does not change when it loads them.
        "long double" => {
            bytes[7] |= 0x80;
            bytes[8..].copy_from_slice(&[0xff, 0x3f, 0, 0, 0, 0, 0, 0]);
        }
        "float" => bytes[3] = 0x40,
        "double" => bytes[7] = 0x40,
        _ => {}
    }
    Sample { c_type: c_type.to_owned(), leaves: vec![Leaf { path: String::new(), bytes, is_bit_field: false }] }
}

/// Declares a random structure, and returns it.
fn structure(dice: &mut Dice, name: &str, depth: u32, exotic: bool, out: &mut Vec<(String, String)>) -> Sample {
    let is_union = dice.roll(8) == 0;
    let mut body = String::new();
    let mut leaves = Vec::new();
    for number in 0..1 + dice.roll(if depth == 0 { 5 } else { 3 }) {
        let member = format!("m{number}");
        let inner = match dice.roll(4) {
            0 if depth < 2 => structure(dice, &format!("{name}_{number}"), depth + 1, exotic, out),
            _ => scalar(dice, SCALARS.len() as u64),
        };
        let is_array = dice.roll(6) == 0;
        let integer = ["int", "unsigned", "long", "short"].contains(&inner.c_type.as_str());
        if exotic && !is_union && integer && dice.roll(4) == 0 {
            writeln!(body, "{} {member} : {};", inner.c_type, 1 + dice.roll(15)).unwrap();
            leaves.extend(inner.leaves.into_iter().map(|leaf| Leaf {
                path: format!(".{member}"),
                is_bit_field: true,
                ..leaf
            }));
            continue;
        }
        let (suffix, element) = if is_array { ("[3]", "[1]") } else { ("", "") };
        write!(body, "{} {member}{suffix}; ", inner.c_type).unwrap();
        let path = |leaf: &Leaf| format!(".{member}{element}{}", leaf.path);
        let found = inner.leaves.into_iter().map(|leaf| Leaf { path: path(&leaf), ..leaf });
        match is_union {
            // Members overlap: only the last one that is written is what it was.
            true => leaves = found.collect(),
            false => leaves.extend(found),
        }
    }
    let keyword = if is_union { "union" } else { "struct" };
    let packed = if exotic && dice.roll(6) == 0 { "__attribute__((packed))" } else { "" };
    out.push((name.to_owned(), format!("{keyword} {packed} {{ {body} }}")));
    Sample { c_type: name.to_owned(), leaves }
}

fn sample(dice: &mut Dice, name: &str, exotic: bool, types: &mut Vec<(String, String)>) -> Sample {
    match dice.roll(3) {
        0 => structure(dice, name, 0, exotic, types),
        _ => scalar(dice, SCALARS.len() as u64),
    }
}

struct Case {
    name: String,
    params: Vec<Sample>,
    result: Sample,
    variadic: bool,
}

impl Case {
    fn prototype(&self) -> String {
        let params: Vec<String> =
            self.params.iter().enumerate().map(|(number, sample)| format!("{} p{number}", sample.c_type)).collect();
        let more = if self.variadic { ", ..." } else { "" };
        format!("{} {}({}{more})", self.result.c_type, self.name, params.join(", "))
    }
}

fn assign(body: &mut String, variable: &str, leaf: &Leaf) {
    if leaf.is_bit_field {
        writeln!(body, "{variable}{} = {};", leaf.path, leaf.bytes[0]).unwrap();
        return;
    }
    let bytes: String = leaf.bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    writeln!(body, "memcpy(&{variable}{}, \"{bytes}\", {});", leaf.path, leaf.bytes.len()).unwrap();
}

fn cases(exotic: bool) -> (Vec<Case>, Vec<(String, String)>) {
    let mut dice = Dice(if exotic { 77 } else { 5 });
    let mut types = Vec::new();
    let mut cases = Vec::new();
    for number in 0..FUNCTIONS {
        let mut params = Vec::new();
        for place in 0..1 + dice.roll(9) {
            params.push(sample(&mut dice, &format!("t{number}_{place}"), exotic, &mut types));
        }
        let result = sample(&mut dice, &format!("r{number}"), exotic, &mut types);
        let variadic = dice.roll(10) == 0;
        cases.push(Case { name: format!("f{number}"), params, result, variadic });
    }
    (cases, types)
}

/// Compiles and runs the cases: lines of arguments and of results.
fn observe(cases: &[Case], types: &[(String, String)], folder: &Path, compiler: &str) -> Vec<String> {
    let mut source = SUPPORT.to_owned();
    writeln!(source, "enum colour {{ RED = -1 }};").unwrap();
    for (name, body) in types {
        writeln!(source, "typedef {body} {name};").unwrap();
    }
    let mut main = String::new();
    for case in cases {
        // The definition is there for its debug information, and returns the result.
        writeln!(
            source,
            "__attribute__((noinline)) {} {{ {} result; memset(&result, 0, sizeof result);",
            case.prototype(),
            case.result.c_type
        )
        .unwrap();
        case.result.leaves.iter().for_each(|leaf| assign(&mut source, "result", leaf));
        writeln!(source, "return result; }}").unwrap();
        writeln!(main, "{{").unwrap();
        let mut names = Vec::new();
        for (number, sample) in case.params.iter().enumerate() {
            writeln!(main, "{} a{number}; memset(&a{number}, 0, sizeof a{number});", sample.c_type).unwrap();
            sample.leaves.iter().for_each(|leaf| assign(&mut main, &format!("a{number}"), leaf));
            names.push(format!("a{number}"));
        }
        // The type of the result decides whether a hidden pointer comes first; what `capture` returns is ignored.
        writeln!(main, "((__typeof__(&{}))capture)({}); arguments(); }}", case.name, names.join(", ")).unwrap();
        writeln!(main, "outcome((void *)&{});", case.name).unwrap();
    }
    writeln!(source, "int main(void) {{ {main} return 0; }}").unwrap();
    fs::write(folder.join("cases.c"), source).unwrap();
    fs::write(folder.join("capture.s"), ASSEMBLY).unwrap();
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(["-g", "-O0", "-w", "-rdynamic", "-o", "cases", "cases.c", "capture.s"]);
    assert!(command.status().unwrap().success());
    let output = Command::new(folder.join("cases")).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|place| u8::from_str_radix(&text[2 * place..2 * place + 2], 16).unwrap()).collect()
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// What is read of one value: its bytes, or why it cannot be read.
fn fetched(description: &Description, path: &str, machine: &Machine) -> Result<Vec<u8>, Cause> {
    let (signature, program) = captured(description, path);
    if let Some(dropped) = signature.dropped.first() {
        let DropReason::Unobservable(reason) = &dropped.reason else { panic!("{dropped:?}") };
        return Err(reason.clone());
    }
    let mut words = [0; MOST_VALUE_WORDS];
    let failed = machine.run(&program, At::Enter, &mut words) | machine.run(&program, At::Exit, &mut words);
    assert_eq!(failed, 0, "{path} of {description:?}");
    let slots = program.columns[0];
    let value = &words[usize::from(slots.first)..usize::from(slots.first + slots.words)];
    Ok(value.iter().flat_map(|word| word.to_le_bytes()).collect())
}

fn captured(description: &Description, path: &str) -> (Signature, FetchProgram) {
    let wanted = [Wanted::parse(path).unwrap()];
    let dialect = Dialect::default();
    let wish = Wish { columns: Some(&wanted), entry: None, dialect: &dialect, no_strings: false, stubs: true };
    describe("f", description.clone(), &wish).unwrap()
}

/// Compares all values of a case; returns how many were read and how many could not be.
fn check(case: &Case, description: &Description, arguments: &str, outcome: &str) -> (usize, usize) {
    let parts: Vec<Vec<u8>> = arguments.split(' ').map(unhex).collect();
    let [registers, vectors, stack] = parts.as_slice() else { panic!("{arguments}") };
    let mut machine = Machine { stack: stack.clone(), vectors: vectors.clone(), ..Machine::default() };
    machine.set(words(registers).try_into().unwrap());
    let (mut read, mut unread) = (0, 0);
    let mut compare = |result: Result<Vec<u8>, Cause>, leaf: &Leaf, what: &str, results: &[u8]| match result {
        Ok(found) => {
            let length = leaf.bytes.len().min(if found.len() == 16 { 10 } else { 8 });
            assert_eq!(found[..length], leaf.bytes[..length], "{what} of {}: {}", case.prototype(), what);
            read += 1;
        }
        Err(reason) => {
            unread += 1;
            match reason {
                Cause::XmmResult(number) => {
                    let vector = &results[usize::from(number) * 16..][..16];
                    let length = leaf.bytes.len().min(8);
                    let is_there = vector.windows(length).any(|bytes| bytes == &leaf.bytes[..length]);
                    assert!(is_there, "{what} of {} is not in xmm{number}", case.prototype());
                }
                Cause::TooWide
                | Cause::BitField
                | Cause::X87
                | Cause::SecondRegister
                | Cause::MaybePacked
                | Cause::Behind(_) => {}
                other => panic!("{what} of {}: {other}", case.prototype()),
            }
        }
    };
    for (number, sample) in case.params.iter().enumerate() {
        for leaf in &sample.leaves {
            let path = format!("p{number}{}", leaf.path);
            compare(fetched(description, &path, &machine), leaf, &path, &[]);
        }
    }
    let (results, room) = outcome.split_once(' ').unwrap();
    let results = unhex(results);
    let room = unhex(room);
    machine.result = words(&results)[0];
    machine.memory = vec![(machine.result, room)];
    for leaf in &case.result.leaves {
        let path = format!("result{}", leaf.path);
        compare(fetched(description, &path, &machine), leaf, &path, &results[16..]);
    }
    (read, unread)
}

fn of_prototype(case: &Case, types: &Types) -> Description {
    let prototype = prototype::parse(&case.prototype(), types).unwrap();
    Description {
        params: prototype.params,
        result: prototype.result,
        variadic: prototype.variadic,
        by_reference: false,
        source: SaidBy::Raw,
    }
}

#[test]
fn prototypes_say_where_values_are() {
    let folder = tempfile::tempdir().unwrap();
    let (cases, declared) = cases(false);
    let lines = observe(&cases, &declared, folder.path(), "gcc");
    let mut types = prototype::known_types();
    for (name, body) in &declared {
        let ctype = prototype::parse_type(body, &types).unwrap();
        types.insert(name.clone(), ctype);
    }
    let mut sums = (0, 0);
    for (case, lines) in cases.iter().zip(lines.chunks(2)) {
        let (read, unread) = check(case, &of_prototype(case, &types), &lines[0], &lines[1]);
        sums = (sums.0 + read, sums.1 + unread);
    }
    assert!(sums.0 > 2000 && sums.1 < sums.0, "{sums:?}");
}

#[test]
fn debug_information_says_where_values_are() {
    for compiler in ["gcc", "clang"] {
        if Command::new(compiler).arg("--version").output().is_err() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let (cases, declared) = cases(true);
        let lines = observe(&cases, &declared, folder.path(), compiler);
        let path = folder.path().join("cases");
        let image = Image::open(&path).unwrap();
        let exports = image.exports().unwrap();
        let address = |name: &str| {
            let is_it =
                |function: &&rtrace_symbolizer::Function| function.symbols.iter().any(|symbol| symbol.name == name);
            exports.functions.iter().find(is_it).unwrap().address
        };
        let addresses = cases.iter().map(|case| address(&case.name)).collect();
        let wanted = dwarf::WantedFunctions { addresses, levels: 1, ..dwarf::WantedFunctions::default() };
        let found = dwarf::read(&path, &path, &image, &wanted, |path| SaidBy::Library(path.to_owned()));
        assert_eq!(found.definitions.len(), cases.len());
        for (case, lines) in cases.iter().zip(lines.chunks(2)) {
            let description = &found.definitions[&address(&case.name)];
            assert_eq!(description.variadic, case.variadic);
            check(case, description, &lines[0], &lines[1]);
        }
    }
}

#[test]
fn what_is_behind_an_unknown_type_is_not_guessed() {
    let prototype = prototype::parse("int f(int a, unknown_t b, int c)", &prototype::known_types()).unwrap();
    assert_eq!(prototype.params[1].ctype, Type::Named("unknown_t".to_owned()));
    let typed: Vec<(&str, &Type)> = prototype.params.iter().map(|param| ("x", &param.ctype)).collect();
    let (locations, _) = crate::abi::locations(&typed, None);
    assert!(matches!(locations[2], AbiPlace::Unobservable(Cause::Behind(_))), "{locations:?}");
}
