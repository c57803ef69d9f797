//! How a frame is left for its caller: what unwind tables say of the code behind a return address.

/// Where the caller's stack pointer is, as a return leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerStack {
    /// So many bytes above the stack pointer.
    AboveStack(i32),
    /// So many bytes above the frame pointer.
    AboveFrame(i32),
    /// In the word that is so many bytes above the frame pointer.
    StoredAboveFrame(i32),
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerFrame {
    /// Where it was.
    Untouched,
    /// In the word that is so many bytes above the caller's stack pointer.
    AboveStack(i32),
    /// In the word that is so many bytes above the frame pointer.
    AboveFrame(i32),
    /// It is not known.
    Nowhere,
}

/// How the frame is left to which a call returns at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwindRule {
    /// To its caller, whose return address is in the word below the caller's stack pointer.
    Up(CallerStack, CallerFrame),
    /// There is no caller.
    Outermost,
    /// A signal handler returns there: nobody called it.
    Signal,
    /// Nothing is known that helps.
    Unknown,
}
