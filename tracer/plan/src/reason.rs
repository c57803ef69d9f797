//! Why a function is not probed, not timed, or has no stub.

use std::fmt::{self, Display, Formatter};

use rtrace_code::obstacle::Obstacle;
use rtrace_symbolizer::RefusedReason;

/// Why something is not done with a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The library has no functions to probe.
    NoExports,
    /// Its symbol.
    Symbol(RefusedReason),
    /// Nothing proves that it is code, so that it may be a table of constants.
    MayBeData,
    /// It is an IFUNC, no process has chosen an implementation, and its resolver does not tell which may be.
    Ifunc,
    /// It is where a program or a context begins.
    NotCalled,
    /// Its bytes tell unwinders what it is.
    KnownByBytes,
    /// Its first bytes are not the file's: instructions may begin elsewhere, and a jump may lead past a probe.
    Altered,
    /// Its code is made when it is loaded.
    NotInFile,
    /// Its code.
    Code(Obstacle),
    /// The kernel would not have it, and said why.
    Kernel(String),
    /// Returns of Go's functions arrive on other threads, at other places of memory.
    MovingStacks,
    /// It is a place within a function.
    Place,
    /// At this place within a function is no nop, as far as anybody can tell.
    NoNop,
    /// At this place within a function, the entry of that is seen.
    Shared,
    /// A loop begins at its first instruction, and its returns are not detected by return sites.
    Laps,
    /// It is the program's own, which no stub serves.
    ProgramsOwn,
    /// Where its entry is seen, arguments are in other registers than in a stub.
    MovedArguments,
}

impl From<Obstacle> for Reason {
    fn from(obstacle: Obstacle) -> Reason {
        Reason::Code(obstacle)
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NoExports => "it exports no function",
            Reason::Symbol(reason) => return reason.fmt(f),
            Reason::MayBeData => "nothing proves that it is code: it may be data",
            Reason::Ifunc => "an IFUNC whose resolver may choose a function that its code does not name",
            Reason::NotCalled => "nothing calls it: it begins without a return address",
            Reason::KnownByBytes => "unwinders know this code by its bytes",
            Reason::Altered => "its code was changed or moved in the process",
            Reason::NotInFile => "its code is not in the file",
            Reason::Code(obstacle) => return obstacle.fmt(f),
            Reason::Kernel(cause) => return write!(f, "refused by the kernel: {cause}"),
            Reason::Place => "a USDT probe is a place within a function, and nothing returns from it",
            Reason::NoNop => "no nop is where its note says, so the note may be older than the code",
            Reason::Shared => "the entry of its function is traced by the same instruction",
            Reason::MovingStacks => "Go moves its stacks, and runs goroutines on any thread",
            Reason::Laps => {
                "a loop begins at its first instruction: only return sites (`--exit return-site`) tell its laps from calls"
            }
            Reason::MovedArguments => "it moves its arguments before its entry is seen",
            Reason::ProgramsOwn => "it is the program's own, and not called through the dynamic linker",
        })
    }
}
