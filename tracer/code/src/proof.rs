//! What proves that a symbol stands for code, whatever it calls itself.
//!
//! Symbols lie: one of a table of constants may be said to be a function, and a probe there would change the constants.
//! Compilers describe each function in an unwind entry, and who calls an address takes it for code. Where neither is
//! known, as of functions in assembly that are called through pointers, the bytes must read as a function.

use std::ops::Range;

use foldhash::HashSet;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::flow::Flow;
use crate::text::{FunctionCode, Text};

/// Instructions behind the one that computes an address, at the most, that are looked at for what is done with it.
const USES: usize = 16;
/// Of a function, control comes to a share of at least one in so many bytes.
const SHARE: u64 = 2;

/// What calls of a library are known.
pub struct Proof<'a> {
    text: &'a Text<'a>,
    called: HashSet<u64>,
    names: HashSet<&'a str>,
}

impl<'a> Proof<'a> {
    /// What its code and its linkage table call.
    pub fn of(text: &'a Text<'a>) -> Proof<'a> {
        let called: HashSet<u64> = text.references().called.iter().copied().collect();
        let slots = text.image().slots();
        let is_called = |slot: &&rtrace_symbolizer::Slot| slot.is_called || called.contains(&slot.address);
        let names = slots.iter().filter(is_called).map(|slot| slot.name).collect();
        Proof { text, called, names }
    }

    /// Whether the library itself calls what is at this address, or what bears one of these names.
    pub fn is_called<'n>(&self, address: u64, mut names: impl Iterator<Item = &'n str>) -> bool {
        self.called.contains(&address) || names.any(|name| self.names.contains(name))
    }

    /// Whether these bytes read as a function, and nothing reads them as data.
    pub fn reads_as_function(&self, function: FunctionCode) -> bool {
        let text = self.text;
        let next = text.entries_from(function.entry.saturating_add(1)).first().copied();
        let end =
            if function.size > 0 { function.entry.saturating_add(function.size) } else { next.unwrap_or(u64::MAX) };
        let executable = text.image().executable_ranges();
        let Some(segment) = executable.iter().find(|segment| segment.contains(&function.entry)) else { return false };
        let range = function.entry..end.min(segment.end);
        let Some(bytes) = text.code(&range).filter(|bytes| text.spend(bytes.len())) else { return false };
        // Nobody knows how much belongs to a function whose symbol has no size.
        let share = if function.size > 0 { bytes.len() as u64 / SHARE } else { 0 };
        let Some(flow) = as_function(bytes, range.start).filter(|flow| flow.jumps_indirectly || flow.covered >= share)
        else {
            return false;
        };
        let references = text.references();
        let is_read = |part: &Range<u64>| part.start < range.end && part.end > range.start && flow.has_byte_of(part);
        let is_table = |&(address, at): &(u64, u64)| {
            range.contains(&address) && flow.has_byte_of(&(address..address + 1)) && is_read_through(text, at)
        };
        flow.leaves.iter().all(|target| executable.iter().any(|range| range.contains(target)))
            && !references.read.iter().any(is_read)
            && !references.taken.iter().any(is_table)
    }
}

/// What control comes to in these bytes from their start on, if it comes to an end of its own.
fn as_function(bytes: &[u8], start: u64) -> Option<Flow<'_>> {
    let mut flow = Flow::new(bytes, start);
    flow.follow(start);
    (!flow.is_broken && !flow.runs_off).then_some(flow)
}

/// Whether the code behind the instruction at this address, which computes an address, reads memory by what it computed.
fn is_read_through(text: &Text, at: u64) -> bool {
    let Some(first) = text.instruction(at) else { return false };
    if first.op0_kind() != OpKind::Register {
        return false;
    }
    let held = first.op0_register().full_register();
    let mut address = first.next_ip();
    for _ in 0..USES {
        let Some(instruction) = text.instruction(address) else { return false };
        if reads_by(&instruction, held) {
            return true;
        }
        let is_overwritten = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register().full_register() == held
            && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Add | Mnemonic::Sub);
        if is_overwritten || instruction.flow_control() != iced_x86::FlowControl::Next {
            return false;
        }
        address = instruction.next_ip();
    }
    false
}

/// Whether an instruction accesses memory by a register.
fn reads_by(instruction: &Instruction, held: Register) -> bool {
    let has_memory = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let is_held = |register: Register| register.full_register() == held;
    has_memory
        && instruction.mnemonic() != Mnemonic::Lea
        && (is_held(instruction.memory_base()) || is_held(instruction.memory_index()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::compile;

    /// Whether each of these symbols of this assembly reads as a function; none of them has an unwind entry.
    fn reads(assembly: &str, names: &[&str]) -> Option<Vec<bool>> {
        let quoted = assembly.lines().map(|line| format!("\"{}\\n\"", line.trim())).collect::<String>();
        let image = compile("c", &format!("__asm__({quoted});"), &["-shared", "-nostdlib"])?;
        let functions = image.exports().unwrap().functions;
        let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
        let proof = Proof::of(&text);
        let reads = |name: &&str| {
            let function = functions.iter().find(|function| function.name == **name).unwrap();
            proof.reads_as_function(FunctionCode { entry: function.address, size: function.size })
        };
        Some(names.iter().map(reads).collect())
    }

    fn symbol(name: &str, body: &str) -> String {
        format!(
            ".globl {name}\n.type {name},@function\n.balign 16\n{name}:\n.L{name}:\n{body}\n.size {name},.-{name}\n"
        )
    }

    #[test]
    fn functions_without_unwind_entries_read_as_such() {
        let assembly = [
            symbol("leaf", "xor %eax,%eax\nret"),
            symbol("looping", "1: dec %rdi\njne 1b\nret"),
            symbol("dispatches", "mov (%rdi),%rax\njmp *(%rax)"),
            symbol("tail", "jmp .Lleaf"),
            symbol(
                "constants",
                "jmp 1f\n.quad 0x0605040302010006\n1: mov .Lconstants+2(%rip),%rax\npush %rbx\npop %rbx\nret",
            ),
        ];
        let names = ["leaf", "looping", "dispatches", "tail", "constants"];
        let Some(reads) = reads(&assembly.concat(), &names) else { return };
        assert_eq!(reads, [true; 5], "{names:?}");
    }

    #[test]
    fn tables_that_are_said_to_be_functions_do_not() {
        let assembly = [
            symbol("numbers", ".quad 0x1122334455667788, 0x0102030405060708"),
            symbol("zeros", ".quad 0, 0"),
            symbol("mostly", "ret\n.quad 1, 2, 3"),
            // These read as functions, but code reads them, too.
            symbol("loaded", "mov $0x11223344,%eax\nret"),
            symbol("indexed", "mov $0x11223344,%eax\nret"),
            symbol("reader", "mov .Lloaded+1(%rip),%eax\nlea .Lindexed(%rip),%rdx\nadd (%rdx,%rdi,4),%eax\nret"),
            // This one's address is taken, as those of functions are.
            symbol("called_back", "mov $0x11223344,%eax\nret"),
            symbol("registers", "lea .Lcalled_back(%rip),%rdi\nmov %rdi,8(%rsi)\nret"),
        ];
        let names = ["numbers", "zeros", "mostly", "loaded", "indexed", "reader", "called_back", "registers"];
        let Some(reads) = reads(&assembly.concat(), &names) else { return };
        assert_eq!(reads, [false, false, false, false, false, true, true, true], "{names:?}");
    }
}
