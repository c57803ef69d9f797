//! Which implementations an IFUNC may have, by the code of its resolver.
//!
//! The dynamic linker asks the resolver when it binds the first slot, and calls may follow at once: what is to be
//! probed must be known before. The values that the resolver may return are followed through its registers and its
//! stack. If one of them is not known, nothing is said of the IFUNC.

use std::collections::{BTreeSet, HashMap};

use iced_x86::{Code, ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rtrace_symbolizer::ifunc::Resolved;
use rtrace_symbolizer::{Exports, Image, Slot};

use crate::copies::{number, writes, writes_memory};
use crate::text::{Text, branch_target};

/// Instructions that are followed for all resolvers of a file.
const MOST_EFFORT: usize = 1 << 20;
/// Instructions that are followed for one of them.
const MOST_STEPS: usize = 1 << 13;
/// Implementations of one IFUNC.
const MOST_CHOICES: usize = 64;
/// Functions that are followed into each other.
const DEEPEST: usize = 3;
const REGISTERS: usize = 16;
const RAX: usize = 0;
const RSP: usize = 4;
const RBP: usize = 5;
/// Registers that a function must leave as they were: rbx, rsp, rbp, r12 to r15.
const KEPT: [usize; 7] = [3, RSP, RBP, 12, 13, 14, 15];
const WORD: u64 = 8;
/// Functions that do not return.
const FINAL: [&str; 3] = ["__stack_chk_fail", "__assert_fail", "abort"];

/// The implementations that may be chosen for each IFUNC whose resolver is understood.
pub fn of(image: &Image, exports: &Exports) -> Vec<Resolved> {
    let resolvers = || exports.functions.iter().enumerate().filter(|(_, function)| function.ifunc);
    if resolvers().next().is_none() {
        return Vec::new();
    }
    let ranges = image.code_ranges();
    let words = image
        .relocated_words()
        .map(|(address, value, is_slot)| (address, value.filter(|_| is_slot || image.is_constant(address))));
    let words = words.collect();
    let is_final = |slot: &Slot<'_>| FINAL.contains(&slot.name);
    let finals = image.slots().into_iter().filter(is_final).map(|slot| slot.address).collect();
    let resolving: BTreeSet<u64> = resolvers().map(|(_, function)| function.address).collect();
    let stubs = image.stub_tables();
    let is_function = |address: u64| {
        let is_known = ranges.binary_search_by_key(&address, |range| range.start).is_ok();
        is_known && !resolving.contains(&address) && !stubs.iter().any(|stubs| stubs.contains(&address))
    };
    let text = Text::new(image, ranges.iter().map(|range| range.start).collect());
    let mut file = ExaminedFile { image, text, words, finals, is_function: &is_function, left: MOST_EFFORT };
    let mut found = Vec::new();
    for (function, resolver) in resolvers() {
        let choices = file.returned(resolver.address, 0).functions(file.is_function).unwrap_or_default();
        found.extend(choices.into_iter().map(|address| {
            let range = ranges.binary_search_by_key(&address, |range| range.start).map(|index| &ranges[index]);
            Resolved { function, address, size: range.map_or(0, |range| range.end - range.start) }
        }));
    }
    found
}

/// What a register may hold: one of these constants, or something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Consts {
    constants: BTreeSet<u64>,
    is_other: bool,
}

impl Consts {
    fn other() -> Consts {
        Consts { is_other: true, ..Consts::default() }
    }

    fn of(constant: u64) -> Consts {
        Consts { constants: BTreeSet::from([constant]), is_other: false }
    }

    /// Adds what another may be; whether that is more.
    fn join(&mut self, other: &Consts) -> bool {
        let before = (self.constants.len(), self.is_other);
        self.constants.extend(&other.constants);
        self.is_other |= other.is_other || self.constants.len() > MOST_CHOICES;
        if self.is_other {
            self.constants.clear();
        }
        before != (self.constants.len(), self.is_other)
    }

    /// The constants, if each is a function, or the null that nobody calls.
    fn functions(&self, is_function: &dyn Fn(u64) -> bool) -> Option<BTreeSet<u64>> {
        let functions: BTreeSet<u64> = self.constants.iter().copied().filter(|&address| address != 0).collect();
        (!self.is_other && functions.iter().all(|&address| is_function(address))).then_some(functions)
    }
}

/// What is known where an instruction begins.
#[derive(Clone, Default)]
struct InstructionState {
    registers: [Consts; REGISTERS],
    /// `rbp` points into the frame.
    has_frame: bool,
}

impl InstructionState {
    fn join(&mut self, other: &InstructionState) -> bool {
        let mut grows = self.has_frame && !other.has_frame;
        self.has_frame &= other.has_frame;
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            grows |= own.join(other);
        }
        grows
    }
}

/// What a function stores in its frame.
#[derive(Clone, Default, PartialEq, Eq)]
struct StoredValues {
    /// By the register that leads there, and the distance from it.
    words: HashMap<(usize, u64), Consts>,
    /// Whoever knows where it is may store there, too.
    is_shared: bool,
}

struct ExaminedFile<'a> {
    image: &'a Image,
    text: Text<'a>,
    /// What the dynamic linker puts into a word; none where that is known only to it.
    words: HashMap<u64, Option<u64>>,
    /// The words that lead to functions which do not return.
    finals: BTreeSet<u64>,
    is_function: &'a dyn Fn(u64) -> bool,
    left: usize,
}

impl ExaminedFile<'_> {
    /// What the function at this address may return.
    fn returned(&mut self, entry: u64, depth: usize) -> Consts {
        let mut stack = StoredValues::default();
        // What is loaded early may be stored late: until nothing new is stored.
        for _ in 0..MOST_CHOICES {
            let before = stack.clone();
            let returned = self.walk(entry, depth, &mut stack);
            if returned.is_other || stack == before {
                return returned;
            }
        }
        Consts::other()
    }

    fn walk(&mut self, entry: u64, depth: usize, stack: &mut StoredValues) -> Consts {
        let mut first = InstructionState::default();
        first.registers.fill(Consts::other());
        let (mut states, mut waiting) = (HashMap::from([(entry, first)]), vec![entry]);
        let (mut returned, mut steps, mut info) = (Consts::default(), 0, InstructionInfoFactory::new());
        while let Some(address) = waiting.pop() {
            steps += 1;
            let instruction = self.text.instruction(address).filter(|_| steps < MOST_STEPS && self.left > 0);
            let Some((instruction, mut state)) = instruction.zip(states.get(&address).cloned()) else {
                return Consts::other();
            };
            self.left -= 1;
            let mut next = vec![instruction.next_ip()];
            match instruction.flow_control() {
                FlowControl::Return => {
                    returned.join(&state.registers[RAX]);
                    next.clear();
                }
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let Some(target) = branch_target(&instruction) else { return Consts::other() };
                    let leaves = (self.is_function)(target) && target != entry;
                    if instruction.flow_control() == FlowControl::UnconditionalBranch {
                        next.clear();
                    }
                    if leaves {
                        returned.join(&self.called(target, depth));
                    } else {
                        next.push(target);
                    }
                }
                FlowControl::IndirectBranch => {
                    let Some(targets) = self.table(address) else { return Consts::other() };
                    next = targets;
                }
                FlowControl::Call | FlowControl::IndirectCall if self.is_final(&instruction) => next.clear(),
                FlowControl::Call | FlowControl::IndirectCall => {
                    for (number, register) in state.registers.iter_mut().enumerate() {
                        if !KEPT.contains(&number) {
                            *register = Consts::other();
                        }
                    }
                    if instruction.op0_kind() == OpKind::NearBranch64 {
                        state.registers[RAX] = self.called(instruction.near_branch_target(), depth);
                    }
                }
                FlowControl::Exception => next.clear(),
                FlowControl::Next => self.follow(&mut info, &instruction, &mut state, stack),
                _ => return Consts::other(),
            }
            if returned.is_other {
                return returned;
            }
            for address in next {
                let is_new = match states.get_mut(&address) {
                    Some(known) => known.join(&state),
                    None => states.insert(address, state.clone()).is_none(),
                };
                if is_new {
                    waiting.push(address);
                }
            }
        }
        returned
    }

    /// Whether a call leads to a function that does not return.
    fn is_final(&self, call: &Instruction) -> bool {
        let mut jump = Some(*call);
        if call.op0_kind() == OpKind::NearBranch64 {
            jump = self.text.instruction(call.near_branch_target());
            if jump.is_some_and(|stub| stub.mnemonic() == Mnemonic::Endbr64) {
                jump = jump.and_then(|mark| self.text.instruction(mark.next_ip()));
            }
        }
        jump.is_some_and(|jump| jump.is_ip_rel_memory_operand() && self.finals.contains(&jump.ip_rel_memory_address()))
    }

    fn called(&mut self, target: u64, depth: usize) -> Consts {
        if depth < DEEPEST { self.returned(target, depth + 1) } else { Consts::other() }
    }

    /// Where the jumps by tables go in the function of this jump.
    fn table(&self, address: u64) -> Option<Vec<u64>> {
        let (index, _) = self.text.frame_at(address)?;
        let ways = self.text.ways_out_of_frame(index);
        (!ways.is_unknown && !ways.through_pointers && !ways.tables.is_empty()).then(|| ways.tables.to_vec())
    }

    fn follow(
        &self,
        info: &mut InstructionInfoFactory,
        instruction: &Instruction,
        state: &mut InstructionState,
        stack: &mut StoredValues,
    ) {
        let wide = |register: Register| number(register).filter(|_| matches!(register.size(), 4 | 8));
        let to = (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register)
            .then(|| wide(instruction.op0_register()))
            .flatten();
        let from_stack = |register: Register, state: &InstructionState| match number(register) {
            Some(RSP) => Some(RSP),
            Some(RBP) if state.has_frame => Some(RBP),
            _ => None,
        };
        let place =
            from_stack(instruction.memory_base(), state).map(|base| (base, instruction.memory_displacement64()));
        let is_cleared = matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        let is_move = instruction.mnemonic() == Mnemonic::Mov;
        let is_choice = to.is_some() && instruction.condition_code() != ConditionCode::None;
        let value = match instruction.mnemonic() {
            _ if is_cleared => Consts::of(0),
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Consts::of(instruction.ip_rel_memory_address()),
            Mnemonic::Lea if place.is_some() && to != Some(RSP) => {
                stack.is_shared = true;
                Consts::other()
            }
            _ if is_move || is_choice => self.source(instruction, state, stack, place),
            _ => Consts::other(),
        };
        let size = instruction.memory_size().size() as u64;
        match place.filter(|_| writes_memory(info, instruction)) {
            Some(place) if is_move && size == WORD => _ = stack.words.entry(place).or_default().join(&value),
            Some(_) if size >= WORD => stack.is_shared = true,
            _ => {}
        }
        let takes_frame = matches!(instruction.code(), Code::Mov_rm64_r64 | Code::Mov_r64_rm64)
            && instruction.op1_kind() == OpKind::Register
            && instruction.op1_register() == Register::RSP;
        stack.is_shared |= takes_frame && to != Some(RBP);
        let before = to.map(|to| state.registers[to].clone());
        for used in info.info(instruction).used_registers().iter().filter(|used| writes(used.access())) {
            if let Some(number) = number(used.register()) {
                state.registers[number] = Consts::other();
                state.has_frame &= number != RBP;
            }
        }
        if let Some(to) = to.filter(|&to| to != RSP) {
            state.registers[to] = value;
            if let Some(before) = before.filter(|_| is_choice) {
                state.registers[to].join(&before);
            }
            state.has_frame |= to == RBP && takes_frame;
        }
    }

    /// What an instruction copies from.
    fn source(
        &self,
        instruction: &Instruction,
        state: &InstructionState,
        stack: &StoredValues,
        place: Option<(usize, u64)>,
    ) -> Consts {
        match instruction.op1_kind() {
            OpKind::Register => match number(instruction.op1_register()) {
                Some(from) if matches!(instruction.op1_register().size(), 4 | 8) => state.registers[from].clone(),
                _ => Consts::other(),
            },
            OpKind::Immediate32 | OpKind::Immediate64 | OpKind::Immediate32to64 => Consts::of(instruction.immediate(1)),
            OpKind::Memory if instruction.memory_size().size() as u64 != WORD => Consts::other(),
            OpKind::Memory if matches!(instruction.segment_prefix(), Register::FS | Register::GS) => Consts::other(),
            OpKind::Memory => match place {
                Some(place) if instruction.memory_index() == Register::None => {
                    let known = stack.words.get(&place).filter(|_| !stack.is_shared);
                    known.cloned().unwrap_or_else(Consts::other)
                }
                Some(_) => Consts::other(),
                None => self.loaded(instruction, state),
            },
            _ => Consts::other(),
        }
    }

    /// What stands in memory where a constant leads. Nobody knows where a table ends.
    fn loaded(&self, instruction: &Instruction, state: &InstructionState) -> Consts {
        if instruction.memory_index() != Register::None {
            return Consts::other();
        }
        let displacement = instruction.memory_displacement64();
        let bases: BTreeSet<u64> = match (instruction.memory_base(), number(instruction.memory_base())) {
            (Register::RIP, _) => BTreeSet::from([instruction.ip_rel_memory_address()]),
            (Register::None, _) => BTreeSet::from([displacement]),
            (_, Some(base)) if !state.registers[base].is_other => {
                state.registers[base].constants.iter().map(|base| base.wrapping_add(displacement)).collect()
            }
            _ => return Consts::other(),
        };
        let mut value = Consts::default();
        for base in bases {
            value.join(&self.word(base).map_or_else(Consts::other, Consts::of));
        }
        value
    }

    /// A word that nothing changes once the file is loaded.
    fn word(&self, address: u64) -> Option<u64> {
        match self.words.get(&address) {
            Some(known) => *known,
            None if self.image.is_constant(address) => {
                Some(u64::from_le_bytes(*self.image.loaded(address)?.first_chunk()?))
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing::compile;

    const FUNCTIONS: &str = "typedef int function(int); extern int level(void); int variable;
        #ifndef HOW
        #define HOW __attribute__((visibility(\"protected\")))
        #endif
        __attribute__((noinline)) HOW int one(int x) { __asm__ volatile(\"\"); return x + 1; }
        __attribute__((noinline)) HOW int two(int x) { __asm__ volatile(\"\"); return x + 2; }
        __attribute__((noinline)) HOW int three(int x) { __asm__ volatile(\"\"); return x + 3; }
        int f(int) __attribute__((ifunc(\"pick\")));\n";

    /// The names of what this resolver may choose; none where that is not known.
    fn chosen(resolver: &str, flags: &[&str]) -> Option<Vec<String>> {
        let flags = [flags, &["-shared", "-fPIC"]].concat();
        let image = compile("c", &format!("{FUNCTIONS}{resolver}"), &flags)?;
        let exports = image.exports().unwrap();
        let name = |resolved: Resolved| {
            assert!(exports.functions[resolved.function].name == "f" && resolved.size > 0);
            let named = exports.functions.iter().find(|function| function.address == resolved.address);
            named.map(|function| function.name.clone()).unwrap_or_default()
        };
        let mut found: Vec<String> = of(&image, &exports).into_iter().map(name).collect();
        found.sort();
        Some(found)
    }

    #[test]
    fn all_that_a_resolver_may_return_is_known() {
        let resolvers = [
            ("static function *pick(void) { return one; }", &["one"][..]),
            ("static function *pick(void) { return level() ? one : two; }", &["one", "two"]),
            (
                "static function *pick(void) { __builtin_cpu_init(); if (__builtin_cpu_supports(\"avx2\")) return one;
                 if (__builtin_cpu_supports(\"sse4.2\")) return two; return three; }",
                &["one", "three", "two"],
            ),
            (
                "static function *const first = one; static function *pick(void) {
                 return level() ? *(function *const volatile *)&first : two; }",
                &["one", "two"],
            ),
            (
                "static function *pick(void) { switch (level()) { case 0: return one; case 1: return two;
                 case 2: return three; case 3: return 0; default: return one; } }",
                &["one", "three", "two"],
            ),
            (
                "__attribute__((noinline)) static function *helper(int x) { return x ? one : three; }
                 static function *pick(void) { return helper(level()); }",
                &["one", "three"],
            ),
            (
                "static function *pick(void) { function *chosen = one; if (level() > 1) chosen = two;
                 if (level() > 2) chosen = three; return chosen; }",
                &["one", "three", "two"],
            ),
        ];
        for (resolver, truth) in resolvers {
            for flags in [
                &["-O0"][..],
                &["-O0", "-fstack-protector-all"],
                &["-O1"],
                &["-O2"],
                &["-Os"],
                &["-O3"],
                &["-O2", "-DHOW="],
            ] {
                let Some(found) = chosen(resolver, flags) else { return };
                assert_eq!(found, truth, "{flags:?} {resolver}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let resolvers = [
            "static function *const table[] = { one, two, three };
             static function *pick(void) { return table[(unsigned)level() % 3]; }",
            "function *given; static function *pick(void) { return level() ? given : one; }",
            "function *other(void); static function *pick(void) { return level() ? other() : one; }",
            "static function *current = one; void set(void) { current = two; }
             static function *pick(void) { return current; }",
            "void fill(function **); static function *pick(void) { function *to = one; fill(&to); return to; }",
            "struct s { long a; function *f; } *s; static function *pick(void) { return s->f; }",
            "static function *pick(void) { return (function *)((char *)one + level()); }",
        ];
        for resolver in resolvers {
            for flags in [&["-O0"][..], &["-O1"], &["-O2"], &["-Os"]] {
                let Some(found) = chosen(resolver, flags) else { return };
                assert!(found.is_empty(), "{flags:?} {resolver}: {found:?}");
            }
        }
    }
}
