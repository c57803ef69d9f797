//! Every instruction through which control leaves a function.
//!
//! Found by following control from the entry, never by looking for bytes: data between code, and
//! the middle of an instruction, must not be mistaken for a `ret`, because a probe is written
//! there. The rule: either all exits are proven, or the answer is why they are not.
//!
//! - A function is its own extent and the fragments elsewhere that belong to it: code that is
//!   reached by a jump while the stack pointer is not at the return address, that does not begin
//!   as functions do, or that jumps back into the middle. Exception handlers are reached by the
//!   unwinder only; in code that has some, everything that no jump reaches is followed too. One
//!   that stands apart, returns, and never jumps back would be missed, and its call be closed as
//!   unwound: compilers place none so (none in 167,000 unwind ranges looked at).
//! - `ret` is an exit, and so is a jump to elsewhere while the stack pointer is at the return
//!   address: a tail call. A jump to the function's own entry is one too, since the probe there
//!   counts another call.
//! - A call is taken to return. What follows the call of a function that never returns is decoded
//!   last and forgiven if it makes no sense.

mod brief;
mod early;
mod indirect;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use foldhash::{HashMap, HashSet};
use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use self::indirect::Destination;

use super::instruction::is_refused;
use super::stack::Stack;
use super::text::{Text, branch_target};

/// No function with more bytes of code is brief.
pub const MOST_BRIEF: u64 = brief::MOST as u64 * 15;

/// A function with more fragments than this is not followed.
const MAX_PARTS: usize = 64;
/// Nor is one with more bytes of code: each takes some of our memory.
const MAX_CODE: usize = 16 << 20;

/// One function of a library.
#[derive(Clone, Copy)]
pub struct FunctionCode<'a> {
    /// The code of its library.
    pub text: &'a Text<'a>,
    /// Virtual address of its first instruction.
    pub entry: u64,
    /// Its size in bytes as the symbol table states it; 0 where unknown.
    pub size: u64,
}

/// An instruction through which control leaves, or from which it certainly comes to such a one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// Virtual address.
    pub address: u64,
    /// Of a conditional jump: the condition under which it leaves, 0 to 15 as in its encoding.
    pub condition: Option<u8>,
    /// Words from the stack pointer up to the return address.
    pub words: u32,
}

/// Why the exits of a function are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprovable {
    /// Neither the symbol nor the unwind table states a size.
    #[error("where it ends is unknown")]
    NoExtent,
    /// Bytes that are no instruction are reached.
    #[error("its code cannot be decoded")]
    Undecodable,
    /// Control runs over the end.
    #[error("it runs on into another function")]
    RunsOn,
    /// A jump to code of which nothing is known.
    #[error("it jumps into the middle of other code")]
    ForeignTarget,
    /// A jump to another function while its own frame is on the stack.
    #[error("it jumps to another function with its own frame on the stack")]
    FrameLeft,
    /// A jump whose targets are computed in a way that is not understood.
    #[error("it has an indirect jump whose targets cannot be told")]
    IndirectJump,
    /// A `ret` that does not return to the caller.
    #[error("it returns through an address that it pushed itself")]
    PushedReturn,
    /// A far return, or a loop or `jrcxz` instruction that leaves.
    #[error("it leaves through an unusual instruction")]
    UnusualExit,
    /// The kernel refuses a probe on an exit.
    #[error("the kernel refuses a probe on one of its exits")]
    RefusedSite,
    /// Code reached in two ways disagrees on where instructions begin.
    #[error("its instructions overlap")]
    Overlap,
    /// Too many fragments, or too much work for a file of this size.
    #[error("its code is too entangled")]
    TooMuch,
}

/// All exits of a function.
#[derive(Clone, Debug)]
pub struct Exits {
    /// The instructions through which it is left, sorted by address.
    pub leaves: Vec<Leave>,
    /// The same, with returns seen [early] where that is cheaper.
    pub early: Vec<Leave>,
    /// From its enter to its exit go a few nanoseconds.
    pub is_brief: bool,
    /// It is left by returns alone, not by jumps to other functions.
    pub returns: bool,
    /// It accesses memory beside the stack.
    pub accesses_memory: bool,
}

/// All exits of a function.
///
/// # Errors
/// [`Unprovable`] when one of them cannot be told for certain.
pub fn find(code: &FunctionCode) -> Result<Exits, Unprovable> {
    Ok(follow(code)?.exits())
}

/// Where the jumps within a function go, those through tables too.
///
/// # Errors
/// [`Unprovable`] when one of them cannot be told for certain.
pub fn jump_targets(code: &FunctionCode) -> Result<impl Iterator<Item = u64>, Unprovable> {
    Ok(follow(code)?.jumps.into_keys())
}

/// Follows all of a function.
///
/// # Errors
/// [`Unprovable`] when one of its exits cannot be told for certain.
pub fn follow<'a>(code: &FunctionCode<'a>) -> Result<Walk<'a>, Unprovable> {
    let mut walk = Walk {
        text: code.text,
        entry: code.entry,
        parts: Vec::new(),
        met: Vec::new(),
        decoder: None,
        reached: vec![(code.entry, Stack::ENTRY)],
        jumps: HashMap::default(),
        after_calls: BTreeMap::new(),
        indirect: Vec::new(),
        exits: BTreeMap::new(),
        elsewhere: HashSet::default(),
    };
    let extent = code.text.extent(code.entry, code.size).ok_or(Unprovable::NoExtent)?;
    walk.add_part(extent)?;
    walk.follow()?;
    walk.follow_handlers()?;
    walk.check_boundaries()?;
    Ok(walk)
}

/// One function, followed to all its ends.
pub struct Walk<'a> {
    text: &'a Text<'a>,
    entry: u64,
    parts: Vec<Part<'a>>,
    /// Its instructions as they were met.
    met: Vec<Met>,
    /// The last that was used, with the part that it is of: to make one takes as long as to decode.
    decoder: Option<(usize, Decoder<'a>)>,
    /// Jump targets still to be followed.
    reached: Vec<(u64, Stack)>,
    /// Jump target in the function → the jumps to it.
    jumps: HashMap<u64, Vec<u64>>,
    /// Where calls return to, followed when nothing else is left: what a jump says of the stack
    /// there is worth more, since the call may never return.
    after_calls: BTreeMap<u64, Stack>,
    /// Indirect jumps still to be understood.
    indirect: Vec<Instruction>,
    exits: BTreeMap<u64, Option<u8>>,
    /// Where direct jumps out of the function go, and those to code that never comes back.
    elsewhere: HashSet<u64>,
}

/// A contiguous range of the function's code.
struct Part<'a> {
    range: Range<u64>,
    bytes: &'a [u8],
    /// Per byte: the place in [`Walk::met`] of the instruction that begins there.
    places: Vec<u32>,
}

/// An instruction, and what is known of the stack before it.
struct Met {
    instruction: Instruction,
    stack: Stack,
}

/// Bytes of code for each instruction, about.
const TYPICAL: usize = 4;

/// No instruction was seen to begin here. A function has fewer, see [`MAX_CODE`].
const UNSEEN: u32 = u32::MAX;

impl<'a> Walk<'a> {
    /// Its exits.
    pub fn exits(&self) -> Exits {
        let leaves = self.exits.iter().map(|(&address, &condition)| Leave { address, condition, words: 0 });
        let is_brief = self.is_brief();
        Exits {
            leaves: leaves.collect(),
            early: early::leaves(self),
            is_brief,
            returns: self.exits.keys().all(|&address| self.is_return(address)),
            accesses_memory: !is_brief
                || brief::accesses_memory(self.instructions().map(|(instruction, _)| instruction)),
        }
    }

    /// Whether it executes a few quick instructions, each once at the most.
    fn is_brief(&self) -> bool {
        let mut jumps = self.jumps.iter().flat_map(|(target, from)| from.iter().map(move |from| from < target));
        let is_straight = !self.exits.is_empty() && self.parts.len() == 1 && jumps.all(|is_forward| is_forward);
        is_straight && !self.has_handlers() && brief::are_quick(self.instructions().map(|(instruction, _)| instruction))
    }

    /// Whether control leaves through the instruction at this address.
    pub fn leaves_at(&self, address: u64) -> bool {
        self.exits.contains_key(&address)
    }

    fn is_return(&self, address: u64) -> bool {
        self.at(address).is_some_and(|met| met.instruction.flow_control() == FlowControl::Return)
    }

    /// Where direct jumps out of the function go, and those to code that never comes back.
    pub fn elsewhere(&self) -> impl Iterator<Item = u64> {
        self.elsewhere.iter().copied()
    }

    /// Its instructions in no particular order, with what is known of the stack before each.
    pub fn instructions(&self) -> impl Iterator<Item = (&Instruction, Stack)> {
        self.met.iter().map(|met| (&met.instruction, met.stack))
    }

    /// Whether the unwinder may enter it, to clean up or to catch.
    pub fn has_handlers(&self) -> bool {
        let has_lsda = |part: &Part| self.text.frame_at(part.range.start).is_some_and(|(_, frame)| frame.has_lsda);
        self.parts.iter().any(has_lsda)
    }

    fn add_part(&mut self, range: Range<u64>) -> Result<(), Unprovable> {
        let bytes = self.text.code(&range).ok_or(Unprovable::NoExtent)?;
        let size: usize = self.parts.iter().map(|part| part.bytes.len()).sum();
        if self.parts.len() == MAX_PARTS || size + bytes.len() > MAX_CODE || !self.text.spend(bytes.len()) {
            return Err(Unprovable::TooMuch);
        }
        self.met.reserve(bytes.len() / TYPICAL);
        self.parts.push(Part { range, bytes, places: vec![UNSEEN; bytes.len()] });
        Ok(())
    }

    /// The part that holds an address, and the offset in it.
    fn locate(&self, address: u64) -> Option<(usize, usize)> {
        let part = self.parts.iter().position(|part| part.range.contains(&address))?;
        Some((part, (address - self.parts[part].range.start) as usize))
    }

    /// The instruction that was seen to begin at an address.
    fn at(&self, address: u64) -> Option<&Met> {
        let (part, offset) = self.locate(address)?;
        self.met.get(self.parts[part].places[offset] as usize)
    }

    /// Follows everything that is reached and not followed yet.
    fn follow(&mut self) -> Result<(), Unprovable> {
        loop {
            if let Some((address, stack)) = self.reached.pop() {
                self.run(address, stack, false)?;
            } else if let Some((address, stack)) = self.after_calls.pop_first() {
                self.run(address, stack, true)?;
            } else if let Some(jump) = self.indirect.pop() {
                self.resolve(&jump)?;
            } else {
                return Ok(());
            }
        }
    }

    /// Follows a straight line until it ends or joins what is known.
    ///
    /// `doubtful`: nothing but a call that may never return leads here.
    fn run(&mut self, address: u64, stack: Stack, doubtful: bool) -> Result<(), Unprovable> {
        let Some((part, offset)) = self.locate(address) else {
            return if doubtful { Ok(()) } else { Err(Unprovable::RunsOn) };
        };
        let before = self.met.len();
        let mut decoder = self.decoder(part);
        decoder.set_position(offset).expect("it lies within the part");
        decoder.set_ip(address);
        let result = self.run_line(part, &mut decoder, stack, doubtful);
        self.decoder = Some((part, decoder));
        result?;
        if self.text.spend(self.met.len() - before) { Ok(()) } else { Err(Unprovable::TooMuch) }
    }

    /// A decoder of that part, anywhere in it.
    fn decoder(&mut self, part: usize) -> Decoder<'a> {
        match self.decoder.take() {
            Some((of, decoder)) if of == part => decoder,
            _ => {
                let Part { range, bytes, .. } = &self.parts[part];
                Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
            }
        }
    }

    fn run_line(
        &mut self,
        part: usize,
        decoder: &mut Decoder<'a>,
        mut stack: Stack,
        mut doubtful: bool,
    ) -> Result<(), Unprovable> {
        let text = self.text;
        let mut entries = text.entries_from(decoder.ip());
        let mut instruction = Instruction::default();
        loop {
            let address = decoder.ip();
            while entries.first().is_some_and(|&entry| entry < address) {
                entries = &entries[1..];
            }
            if !decoder.can_decode() || (entries.first() == Some(&address) && self.begins_another(address)) {
                return if doubtful { Ok(()) } else { Err(Unprovable::RunsOn) };
            }
            let place = &mut self.parts[part].places[decoder.position()];
            if *place != UNSEEN {
                return Ok(());
            }
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return if doubtful { Ok(()) } else { Err(Unprovable::Undecodable) };
            }
            *place = self.met.len() as u32;
            self.met.push(Met { instruction, stack });
            doubtful &= matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
            match self.step(&instruction, stack)? {
                Next::Line => stack = stack.after(&instruction),
                Next::Return => {
                    self.after_calls.entry(instruction.next_ip()).or_insert(stack);
                    return Ok(());
                }
                Next::End => return Ok(()),
            }
        }
    }

    /// Whether the function known to begin here is another, unless a jump to it has been judged to stay
    /// inside.
    fn begins_another(&self, address: u64) -> bool {
        address != self.entry && !self.jumps.contains_key(&address)
    }

    /// Where control goes from one instruction.
    fn step(&mut self, instruction: &Instruction, stack: Stack) -> Result<Next, Unprovable> {
        match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => Ok(Next::End),
            FlowControl::Next => Ok(Next::Line),
            FlowControl::UnconditionalBranch => {
                self.jump(instruction, stack)?;
                Ok(Next::End)
            }
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                self.jump(instruction, stack)?;
                Ok(Next::Line)
            }
            FlowControl::IndirectBranch => {
                self.indirect.push(*instruction);
                Ok(Next::End)
            }
            FlowControl::Return => {
                self.ret(instruction, stack)?;
                Ok(Next::End)
            }
            FlowControl::Call if instruction.mnemonic() != Mnemonic::Call => Ok(Next::Line),
            FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt => Ok(Next::Return),
            FlowControl::Exception => Ok(Next::End),
        }
    }

    fn ret(&mut self, instruction: &Instruction, stack: Stack) -> Result<(), Unprovable> {
        if !matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) {
            return Err(Unprovable::UnusualExit);
        }
        if stack.pointer.is_some_and(|depth| depth != 0) {
            return Err(Unprovable::PushedReturn);
        }
        self.leave(instruction, None)
    }

    /// A direct jump, conditional or not.
    fn jump(&mut self, instruction: &Instruction, stack: Stack) -> Result<(), Unprovable> {
        match branch_target(instruction) {
            Some(target) => self.go(instruction, target, stack),
            // The end of a transaction goes on with the next instruction.
            None if instruction.flow_control() == FlowControl::XbeginXabortXend => Ok(()),
            None => Err(Unprovable::UnusualExit),
        }
    }

    /// Control goes from `instruction` to `target`.
    fn go(&mut self, instruction: &Instruction, target: u64, stack: Stack) -> Result<(), Unprovable> {
        match self.judge(target, stack)? {
            Place::Inside => {}
            Place::Fragment(range) => self.add_part(range)?,
            Place::NoReturn => {
                self.elsewhere.insert(target);
                return Ok(());
            }
            Place::Elsewhere => {
                self.elsewhere.insert(target);
                let condition = match instruction.flow_control() {
                    FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => None,
                    _ => Some(condition(instruction).ok_or(Unprovable::UnusualExit)?),
                };
                return self.leave(instruction, condition);
            }
        }
        self.jumps.entry(target).or_default().push(instruction.ip());
        self.reached.push((target, stack));
        Ok(())
    }

    /// What a jump to `target` means.
    fn judge(&self, target: u64, stack: Stack) -> Result<Place, Unprovable> {
        let frame_left = stack.pointer.is_some_and(|depth| depth != 0);
        let is_function = target == self.entry || self.text.is_entry(target) && !frame_left;
        if self.locate(target).is_some() && !is_function {
            return Ok(Place::Inside);
        }
        if self.text.is_entry(target) || self.text.is_stub(target) {
            return if frame_left { Err(Unprovable::FrameLeft) } else { Ok(Place::Elsewhere) };
        }
        let (index, frame) = self.text.frame_at(target).ok_or(Unprovable::ForeignTarget)?;
        let comes_back =
            || self.text.outward(index).iter().any(|&back| back != self.entry && self.locate(back).is_some());
        let range = frame.start..frame.end;
        match (frame.entry_is_plain, target == frame.start) {
            (false, _) => Ok(Place::Fragment(range)),
            (true, true) if frame_left => Err(Unprovable::FrameLeft),
            (true, false) if frame_left => Ok(Place::Fragment(range)),
            (true, _) if comes_back() => Ok(Place::Fragment(range)),
            (true, _) if self.text.never_returns(index) => Ok(Place::NoReturn),
            (true, true) => Ok(Place::Elsewhere),
            (true, false) => Err(Unprovable::ForeignTarget),
        }
    }

    fn resolve(&mut self, jump: &Instruction) -> Result<(), Unprovable> {
        let (stack, destination) = indirect::destination(self, jump).ok_or(Unprovable::IndirectJump)?;
        match destination {
            Destination::Pointer => self.leave(jump, None),
            Destination::Known(target) => self.go(jump, target, stack),
            Destination::Table(targets) => targets.into_iter().try_for_each(|target| self.go(jump, target, stack)),
        }
    }

    /// Records an exit.
    fn leave(&mut self, instruction: &Instruction, condition: Option<u8>) -> Result<(), Unprovable> {
        let address = instruction.ip();
        let bytes = self.text.code(&(address..instruction.next_ip())).unwrap_or_default();
        if is_refused(bytes) {
            return Err(Unprovable::RefusedSite);
        }
        self.exits.insert(address, condition);
        Ok(())
    }

    /// Follows what only the unwinder reaches, in the parts that have exception handlers.
    fn follow_handlers(&mut self) -> Result<(), Unprovable> {
        let mut part = 0;
        while part < self.parts.len() {
            let range = self.parts[part].range.clone();
            part += 1;
            let Some((index, frame)) = self.text.frame_at(range.start).filter(|(_, frame)| frame.has_lsda) else {
                continue;
            };
            for &fragment in self.text.fragments_of(index) {
                let frame = self.text.frame(fragment);
                if self.locate(frame.start).is_none() {
                    self.add_part(frame.start..frame.end)?;
                }
            }
            let mut address = range.start;
            while address < range.end.min(frame.end) {
                self.run(address, Stack::UNKNOWN, true)?;
                self.follow()?;
                address += self.at(address).map_or(1, |met| met.instruction.len() as u64);
            }
        }
        Ok(())
    }

    /// Instructions must not overlap, save that a jump may skip a `lock` prefix.
    fn check_boundaries(&self) -> Result<(), Unprovable> {
        for part in &self.parts {
            let mut end = 0;
            for (offset, &place) in part.places.iter().enumerate().filter(|&(_, &place)| place != UNSEEN) {
                let behind = offset + self.met[place as usize].instruction.len();
                let skips_lock = offset > 0 && part.bytes[offset - 1] == 0xf0 && end == behind;
                if offset < end && !skips_lock {
                    return Err(Unprovable::Overlap);
                }
                end = behind;
            }
        }
        Ok(())
    }
}

/// The condition of a jump as in its encoding; none for those on a register.
fn condition(jump: &Instruction) -> Option<u8> {
    let condition = jump.condition_code();
    (condition != ConditionCode::None).then(|| condition as u8 - ConditionCode::o as u8)
}

/// How control goes on after an instruction.
enum Next {
    /// With the next one.
    Line,
    /// With the next one, once something else has returned.
    Return,
    /// Not here.
    End,
}

/// What a jump target is.
enum Place {
    /// Code of the function that is known already.
    Inside,
    /// Code of the function in a range of its own.
    Fragment(Range<u64>),
    /// Another function.
    Elsewhere,
    /// Code from which control never comes out.
    NoReturn,
}
