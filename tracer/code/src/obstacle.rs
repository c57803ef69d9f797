//! What in the code of a function stands in the way of a probe, or of a stub.

use std::fmt::{self, Display, Formatter};

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Obstacle {
    /// There is no instruction.
    NoInstruction,
    /// A nop of five bytes: the kernel may replace it by a call, which overwrites the 128 bytes below the stack pointer.
    ReplacedNop,
    /// A lock or segment prefix.
    Prefix,
    /// AVX.
    Avx,
    /// XOP.
    Xop,
    /// An exchange of registers that the kernel takes for a nop.
    Exchange,
    /// A branch with an operand size prefix.
    ShortBranch,
    /// A system call, or an instruction for the system.
    System,
    /// It pushes the flags, of which a single step sets the one that traps.
    Flags,
    /// An instruction that the kernel refuses for other reasons.
    Kernel,
    /// The dynamic linker patches the instruction.
    Relocated,
    /// The instruction is in a segment that is writable.
    Writable,
    /// A Go function that ends nobody knows where.
    GoSize,
    /// A Go function with code that cannot be read.
    GoCode,
    /// A Go function that begins more than once for one call.
    GoRepeated,
    /// For a stub: an address relative to where the instruction stands.
    Position,
    /// For a stub: an instruction before the site goes elsewhere.
    Branch,
    /// For a stub: nobody knows where the return address is.
    StackPointer,
    /// For a stub: an instruction may fault.
    MayFault,
}

impl Display for Obstacle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::NoInstruction => "its first bytes are no instruction",
            Obstacle::ReplacedNop => "the kernel may replace this nop by a call, which overwrites the program's stack",
            Obstacle::Prefix => "the kernel refuses instructions with a lock or segment prefix",
            Obstacle::Avx => "the kernel refuses AVX instructions",
            Obstacle::Xop => "the kernel refuses XOP instructions",
            Obstacle::Exchange => "the kernel would take this exchange for a nop",
            Obstacle::ShortBranch => "the kernel refuses branches with an operand size prefix",
            Obstacle::System => "system calls and system instructions do not survive a single step",
            Obstacle::Flags => {
                "in a single step it would push the trap flag, which ends the program once it is restored"
            }
            Obstacle::Kernel => "the kernel refuses this instruction",
            Obstacle::Relocated => {
                "the dynamic linker patches the instruction, and the kernel would execute it unpatched"
            }
            Obstacle::Writable => "the kernel takes no probes in a writable segment",
            Obstacle::GoSize => "a Go function whose size is unknown",
            Obstacle::GoCode => "a Go function whose code cannot be read",
            Obstacle::GoRepeated => "a Go function that comes back to its first instruction",
            Obstacle::Position => "an instruction before its site works only where it stands",
            Obstacle::Branch => "an instruction before its site goes elsewhere",
            Obstacle::StackPointer => "it moves its stack pointer by an unknown distance",
            Obstacle::MayFault => {
                "an instruction before its site may fault, and a signal handler may know it by its address"
            }
        })
    }
}
