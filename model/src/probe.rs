//! What a probe says to the BPF program that its hits run, besides which function it belongs to.

/// An instruction that the programs do themselves where the kernel lets them write registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `endbr64`, which does nothing.
    Landing,
    /// `ret`.
    Return,
    /// `sub $8n, %rsp`, in its shortest form.
    Frame {
        /// n: how many words the stack pointer moves.
        words: u8,
    },
}

/// How control leaves functions by another one without a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// By `longjmp` of the C library.
    Longjmp,
    /// By the unwinder, which is told who goes on.
    Unwind,
}

/// The most words of 8 bytes that a probe can tell to lie between the stack pointer and the return address.
pub const MOST_WORDS: u32 = (1 << 20) - 1;

/// The most words by which the stack pointer may have moved, up or down, from a return address to the probe that detects
/// returns to it.
pub const MOST_MOVED: u32 = (1 << 14) - 1;

/// Low bytes of a general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBytes {
    /// The number that the register has in instructions.
    pub register: u8,
    /// How many bytes.
    pub bytes: u8,
}
