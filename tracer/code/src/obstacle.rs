//! What in the code of a function stands in the way of a probe, or of a stub.

use rtrace_model::words;

words! {
    /// What stands in the way.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    Obstacle {
        /// There is no instruction.
        NoInstruction = "its first bytes are no instruction",
        /// A nop of five bytes: the kernel may replace it by a call, which overwrites the 128 bytes below the stack pointer.
        ReplacedNop = "the kernel may replace this nop by a call, which overwrites the program's stack",
        /// A lock or segment prefix.
        Prefix = "the kernel refuses instructions with a lock or segment prefix",
        /// AVX.
        Avx = "the kernel refuses AVX instructions",
        /// XOP.
        Xop = "the kernel refuses XOP instructions",
        /// An exchange of registers that the kernel takes for a nop.
        Exchange = "the kernel would take this exchange for a nop",
        /// A branch with an operand size prefix.
        ShortBranch = "the kernel refuses branches with an operand size prefix",
        /// A system call, or an instruction for the system.
        System = "system calls and system instructions do not survive a single step",
        /// It pushes the flags, of which a single step sets the one that traps.
        Flags = "in a single step it would push the trap flag, which ends the program once it is restored",
        /// An instruction that the kernel refuses for other reasons.
        Kernel = "the kernel refuses this instruction",
        /// The dynamic linker patches the instruction.
        Relocated = "the dynamic linker patches the instruction, and the kernel would execute it unpatched",
        /// The instruction is in a segment that is writable.
        Writable = "the kernel takes no probes in a writable segment",
        /// A Go function that ends nobody knows where.
        GoSize = "a Go function whose size is unknown",
        /// A Go function with code that cannot be read.
        GoCode = "a Go function whose code cannot be read",
        /// A Go function that begins more than once for one call.
        GoRepeated = "a Go function that comes back to its first instruction",
        /// For a stub: an address relative to where the instruction stands.
        Position = "an instruction before its site works only where it stands",
        /// For a stub: an instruction before the site goes elsewhere.
        Branch = "an instruction before its site goes elsewhere",
        /// For a stub: nobody knows where the return address is.
        StackPointer = "it moves its stack pointer by an unknown distance",
        /// For a stub: an instruction may fault.
        MayFault = "an instruction before its site may fault, and a signal handler may know it by its address",
    }
}
