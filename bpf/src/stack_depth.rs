//! How much of the kernel's stack the programs need: more than Linux 6.1 allows is refused there only, at load.
//!
//! Counted as `check_max_stack_depth` of the kernel's verifier does: the deepest chain of calls, where each function
//! takes what it uses below its frame pointer, rounded up. Callbacks count as called where they are named.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionKind, SymbolKind};

/// `MAX_BPF_STACK` of include/linux/filter.h, in bytes.
const MOST: u64 = 512;
/// What a function takes is a multiple of so many bytes, and not less.
const GRANULE: u64 = 32;

const PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rtrace.bpf.o"));

const INSTRUCTION: usize = 8;
/// Opcodes of Documentation/bpf/standardization/instruction-set.rst.
const CALL: u8 = 0x85;
const LOAD_IMMEDIATE: u8 = 0x18;
const MOVE: u8 = 0xbf;
const ADD_IMMEDIATE: u8 = 0x07;
/// The classes that access memory, by the lowest bits: LD, LDX, ST, STX.
const MOST_OF_MEMORY: u8 = 3;
const LOAD: u8 = 1;
const FRAME_POINTER: u8 = 10;

/// Where a function begins: section and offset.
type Place = (usize, u64);

#[derive(Default)]
struct Function {
    name: String,
    /// Bytes below its frame pointer.
    used: u64,
    called: Vec<Place>,
}

/// What the instructions of a function use and call; `target` gives what the one at an offset refers to, with
/// the constant in it.
fn function(place: Place, code: &[u8], target: impl Fn(u64, i64) -> Option<Place>) -> Function {
    let mut found = Function::default();
    let mut holds_frame = [false; 16];
    for (index, instruction) in code.chunks_exact(INSTRUCTION).enumerate() {
        let [opcode, registers, ..] = *instruction else { continue };
        let (to, from) = (registers & 0xf, registers >> 4);
        let offset = i16::from_le_bytes([instruction[2], instruction[3]]);
        let constant = i32::from_le_bytes([instruction[4], instruction[5], instruction[6], instruction[7]]);
        let at = place.1 + (index * INSTRUCTION) as u64;
        let base = if opcode & 7 == LOAD { from } else { to };
        match opcode {
            CALL | LOAD_IMMEDIATE => {
                // A call without a relocation counts from the next instruction.
                let plain = || (opcode == CALL && from == 1).then(|| (place.0, relative(at, constant)));
                found.called.extend(target(at, constant.into()).or_else(plain));
            }
            MOVE => holds_frame[usize::from(to)] = from == FRAME_POINTER,
            ADD_IMMEDIATE if holds_frame[usize::from(to)] => {
                found.used = found.used.max(u64::from(constant.min(0).unsigned_abs()));
            }
            _ if opcode & 7 <= MOST_OF_MEMORY && base == FRAME_POINTER => {
                found.used = found.used.max(u64::from(offset.min(0).unsigned_abs()));
            }
            _ => {}
        }
    }
    found
}

fn relative(at: u64, constant: i32) -> u64 {
    at.wrapping_add_signed((i64::from(constant) + 1) * INSTRUCTION as i64)
}

/// All functions, and those of them that the kernel calls, with their names.
fn functions() -> (HashMap<Place, Function>, Vec<(Place, String)>) {
    let file = object::File::parse(PROGRAMS).expect("clang has written it");
    let mut functions = HashMap::new();
    let mut programs = Vec::new();
    let mut names: Vec<_> = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text).collect();
    names.sort_by_key(|symbol| symbol.address());
    let text = file.section_by_name(".text").expect("functions lie there").index();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        let data = section.data().expect("it is in the file");
        let relocations: HashMap<u64, _> = section.relocations().collect();
        let target = |at: u64, constant: i64| {
            let RelocationTarget::Symbol(symbol) = relocations.get(&at)?.target() else { return None };
            let symbol = file.symbol_by_index(symbol).ok()?;
            // What is local is referred to by its section: a call in instructions from the next one, an address in bytes.
            let is_call = data[at as usize] == CALL;
            let within = if is_call { (constant + 1) * INSTRUCTION as i64 } else { constant };
            match symbol.kind() {
                SymbolKind::Section if symbol.section_index() == Some(text) => Some((text.0, within as u64)),
                SymbolKind::Text => Some((symbol.section_index()?.0, symbol.address())),
                _ => None,
            }
        };
        let own = names.iter().filter(|symbol| symbol.section_index() == Some(section.index()));
        for symbol in own.filter(|symbol| symbol.size() > 0) {
            let place = (section.index().0, symbol.address());
            let code = &data[symbol.address() as usize..][..symbol.size() as usize];
            let name = symbol.name().expect("it has one").to_owned();
            functions.insert(place, Function { name: name.clone(), ..function(place, code, target) });
            if section.index() != text {
                programs.push((place, name));
            }
        }
    }
    (functions, programs)
}

/// Bytes of the deepest chain of calls that begins there, and its functions, each with its bytes.
fn depth(functions: &HashMap<Place, Function>, place: Place) -> (u64, String) {
    let Some(function) = functions.get(&place) else { return Default::default() };
    let (below, chain) = function.called.iter().map(|&callee| depth(functions, callee)).max().unwrap_or_default();
    let used = function.used.max(1).next_multiple_of(GRANULE);
    (used + below, format!("{} {used} > {chain}", function.name))
}

#[test]
fn no_program_needs_more_stack_than_linux_6_1_allows() {
    let (functions, programs) = functions();
    let depths: Vec<(u64, String)> = programs.iter().map(|(place, _)| depth(&functions, *place)).collect();
    assert!(depths.iter().any(|(depth, _)| *depth > MOST / 2), "calls and callbacks are seen: {depths:#?}");
    assert!(depths.iter().all(|(depth, _)| *depth <= MOST), "{depths:#?}");
}
