//! What proves that a symbol stands for code, whatever it calls itself.
//!
//! Symbols lie: one of a table of constants may be said to be a function, and a probe there would change the constants.
//! Compilers describe each function in an unwind entry, and who calls an address or jumps there takes it for code. Who has
//! the address may read it, too: only where nobody has it but by the name of the symbol, it is enough that the bytes read
//! as a function.

use std::ops::Range;

use foldhash::HashSet;
use rtrace_symbolizer::Uses;

use crate::flow::Flow;
use crate::text::{FunctionCode, Text};

/// Of a function, control comes to a share of at least one in so many bytes.
const SHARE: u64 = 2;
/// Bytes that an instruction accesses, at most.
const LARGEST: u64 = 4096;
/// What compilers put at the entry of functions that may be called through pointers.
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// What is known of the functions of a library by what its own code and others do with them.
pub struct Proof<'a> {
    text: &'a Text<'a>,
    called: HashSet<u64>,
    called_names: HashSet<&'a str>,
    taken_names: HashSet<&'a str>,
    /// What code reads as data, and which addresses it computes, and where; sorted.
    read: Vec<(u64, u64)>,
    taken: Vec<(u64, u64)>,
    /// Where pointers in the library's data lead, sorted; `None` where not all of them are known.
    words: Option<Vec<u64>>,
}

impl<'a> Proof<'a> {
    /// What its code and its linkage table do with them; `uses`: what others do.
    pub fn of(text: &'a Text<'a>, uses: &'a Uses) -> Proof<'a> {
        let (references, image) = (text.references(), text.image());
        let called: HashSet<u64> = references.called.iter().chain(&references.jumped).copied().collect();
        let slots = image.slots();
        let is_called = |slot: &&rtrace_symbolizer::Slot| slot.is_called || called.contains(&slot.address);
        let called_names = slots.iter().filter(is_called).map(|slot| slot.name);
        let called_names = called_names.chain(uses.called.iter().map(String::as_str)).collect();
        let taken_names = image.taken_names().chain(uses.taken.iter().map(String::as_str)).collect();
        let executable = image.executable_ranges();
        let is_code = |address: &u64| executable.iter().any(|range| range.contains(address));
        let mut words: Vec<u64> = image.relocated_words().filter_map(|(_, value, _)| value).filter(is_code).collect();
        let are_known = !image.has_other_words() || text.sweep_words(|word| words.extend(Some(word).filter(is_code)));
        words.sort_unstable();
        let words = (references.is_complete && are_known).then_some(words);
        let mut read: Vec<(u64, u64)> = references.read.iter().map(|part| (part.start, part.end)).collect();
        read.sort_unstable();
        let mut taken = references.taken.clone();
        taken.sort_unstable();
        Proof { text, called, called_names, taken_names, read, taken, words }
    }

    /// Whether code calls what is at this address, or what bears one of these names, or jumps there from elsewhere.
    pub fn is_called<'n>(&self, address: u64, mut names: impl Iterator<Item = &'n str>) -> bool {
        self.called.contains(&address) || names.any(|name| self.called_names.contains(name))
    }

    /// Whether these bytes, which bear these names, read as a function, and nobody can read them as data: no code does,
    /// and none takes their address, unless they begin as functions do that are called through pointers.
    pub fn reads_as_function<'n>(&self, function: FunctionCode, names: impl Iterator<Item = &'n str>) -> bool {
        let text = self.text;
        let next = text.entries_from(function.entry.saturating_add(1)).first().copied();
        let end =
            if function.size > 0 { function.entry.saturating_add(function.size) } else { next.unwrap_or(u64::MAX) };
        let executable = text.image().executable_ranges();
        let Some(segment) = executable.iter().find(|segment| segment.contains(&function.entry)) else { return false };
        let range = function.entry..end.min(segment.end);
        let Some(bytes) = text.code(&range).filter(|bytes| text.spend(bytes.len())) else { return false };
        // Nobody knows how much belongs to a function whose symbol has no size.
        let (share, own) = match function.size {
            0 => (0, range.start..range.start + 1),
            _ => (bytes.len() as u64 / SHARE, range.clone()),
        };
        let Some(flow) = as_function(bytes, range.start).filter(|flow| flow.jumps_indirectly || flow.covered >= share)
        else {
            return false;
        };
        let is_read = |&(from, to): &(u64, u64)| to > range.start && flow.has_byte_of(&(from..to));
        flow.leaves.iter().all(|target| executable.iter().any(|range| range.contains(target)))
            && !between(&self.read, range.start.saturating_sub(LARGEST)..range.end).iter().any(is_read)
            && (bytes.starts_with(&ENDBR) || !self.is_taken(&own, names))
    }

    /// Whether somebody else may have the address of these bytes, which bear these names.
    fn is_taken<'n>(&self, range: &Range<u64>, mut names: impl Iterator<Item = &'n str>) -> bool {
        let Some(words) = &self.words else { return true };
        let is_taken = |&(address, at): &(u64, u64)| address == range.start || !range.contains(&at);
        let first = words.partition_point(|&word| word < range.start);
        words.get(first).is_some_and(|&word| word < range.end)
            || names.any(|name| self.taken_names.contains(name))
            || between(&self.taken, range.clone()).iter().any(is_taken)
    }
}

/// Those of these, which are sorted, whose first part is in a range.
fn between(sorted: &[(u64, u64)], range: Range<u64>) -> &[(u64, u64)] {
    let place = |address: u64| sorted.partition_point(|&(first, _)| first < address);
    &sorted[place(range.start)..place(range.end).max(place(range.start))]
}

/// What control comes to in these bytes from their start on, if it comes to an end of its own.
fn as_function(bytes: &[u8], start: u64) -> Option<Flow<'_>> {
    let mut flow = Flow::new(bytes, start);
    flow.follow(start);
    (!flow.is_broken && !flow.runs_off).then_some(flow)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::compile;

    /// Whether each of these symbols of this assembly is known to be code; none of them has an unwind entry.
    fn reads(assembly: &str, names: &[&str]) -> Option<Vec<bool>> {
        let quoted = assembly.lines().map(|line| format!("\"{}\\n\"", line.trim())).collect::<String>();
        let image = compile("c", &format!("__asm__({quoted});"), &["-shared", "-nostdlib"])?;
        let functions = image.exports().unwrap().functions;
        let text = Text::new(&image, functions.iter().map(|function| function.address).collect());
        let uses = Uses { taken: HashSet::from_iter(["elsewhere".to_owned()]), ..Uses::default() };
        let proof = Proof::of(&text, &uses);
        let reads = |&name: &&str| {
            let function = functions.iter().find(|function| function.name == name).unwrap();
            let code = FunctionCode { entry: function.address, size: function.size };
            let names = || [name].into_iter();
            proof.is_called(function.address, names()) || proof.reads_as_function(code, names())
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
        ];
        let names = ["numbers", "zeros", "mostly", "loaded", "indexed", "reader"];
        let Some(reads) = reads(&assembly.concat(), &names) else { return };
        assert_eq!(reads, [false, false, false, false, false, true], "{names:?}");
    }

    #[test]
    fn whose_address_others_have_must_be_called() {
        let body = "push %rbp\nmov %rsp,%rbp\npop %rbp\nret";
        let mut assembly: Vec<String> =
            ["by_code", "within", "by_slot", "by_data", "elsewhere", "by_nobody", "called", "jumped_to"]
                .map(|name| symbol(name, body))
                .into();
        assembly.extend([
            symbol("marked", &format!("endbr64\n{body}")),
            symbol("takes", "lea .Lby_code(%rip),%rax\nlea .Lwithin+4(%rip),%rax\nlea .Lmarked(%rip),%rax\nret"),
            symbol("takes_slot", "mov by_slot@GOTPCREL(%rip),%rax\npush %rax\nret"),
            symbol("calls", "call .Lcalled\nlea .Lcalled(%rip),%rdx\nret"),
            symbol("jumps", "lea .Ljumped_to(%rip),%rdx\njmp.d32 .Ljumped_to"),
            // An own loop proves nothing.
            symbol("turns", "push %rax\npop %rax\njne.d32 .Lturns\nlea .Lturns(%rip),%rax\nret"),
            ".data\n.quad .Lby_data\n".to_owned(),
        ]);
        let names = [
            "by_code",
            "within",
            "by_slot",
            "by_data",
            "elsewhere",
            "turns",
            "by_nobody",
            "called",
            "jumped_to",
            "marked",
        ];
        let Some(reads) = reads(&assembly.concat(), &names) else { return };
        assert_eq!(reads, [[false; 6].as_slice(), &[true; 4]].concat(), "{names:?}");
    }
}
