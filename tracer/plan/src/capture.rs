//! Which values of a function's calls are fetched.

use std::collections::HashMap;
use std::sync::Arc;

use rtrace_code::errno::Errno;
use rtrace_code::line::Keeps;
use rtrace_signatures::{At, Program, Signature, Step};

/// What is known of a function, and the program that fetches values of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The columns, metrics, and who says so.
    pub signature: Signature,
    /// Fetches them.
    pub program: Program,
    /// Where the function begins, in its file's own terms.
    pub address: u64,
    /// Where its library has the thread's `errno`.
    pub errno: Option<Errno>,
}

/// By the address of a function in its file's own terms.
pub type Captures = HashMap<u64, Arc<Capture>>;

impl Capture {
    /// What must be as it was at the function's first instruction where its entry is seen.
    pub(crate) fn keeps(&self) -> Keeps {
        let at_entry = || self.program.fetches.iter().filter(|fetch| fetch.at == At::Enter);
        let register = |step: &Step| match step {
            Step::Register(register, _) => 1 << *register as u16,
            _ => 0,
        };
        let reads_memory =
            |step: &Step| matches!(step, Step::Stack(..) | Step::Deref(..) | Step::Text(..) | Step::Thread(..));
        Keeps {
            accesses: false,
            registers: at_entry().fold(0, |all, fetch| all | register(&fetch.step)),
            memory: at_entry().any(|fetch| reads_memory(&fetch.step)),
        }
    }
}
