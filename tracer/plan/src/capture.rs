//! Which values of a function's calls are fetched.

use std::collections::HashMap;
use std::sync::Arc;

use rtrace_code::arrival;
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
        let mut registers = [0; 16];
        for fetch in at_entry() {
            if let Step::Register(register, width) = fetch.step {
                let bytes = &mut registers[register as usize];
                *bytes = width.bytes.max(*bytes);
            }
        }
        Keeps { registers, memory: at_entry().any(|fetch| reads_memory(&fetch.step)), ..Keeps::default() }
    }

    /// The vector registers that are fetched, each once, by their numbers: a stub stores them.
    #[must_use]
    pub fn vectors(&self) -> Vec<u8> {
        let mut vectors: Vec<u8> = self.program.fetches.iter().filter_map(|fetch| vector(&fetch.step)).collect();
        vectors.sort_unstable();
        vectors.dedup();
        vectors
    }

    /// What must be as the function left it where its return is seen.
    #[must_use]
    pub fn keeps_at_return(&self) -> arrival::Keeps {
        let at_return = || self.program.fetches.iter().filter(|fetch| fetch.at == At::Exit);
        let results = at_return().map(|fetch| match fetch.step {
            Step::Result(width) if width.bytes > 4 => 8,
            Step::Result(_) => 4,
            _ => 0,
        });
        let memory = at_return().any(|fetch| reads_memory(&fetch.step));
        arrival::Keeps { accesses: false, result: results.max().unwrap_or_default(), memory }
    }
}

fn vector(step: &Step) -> Option<u8> {
    match step {
        Step::Vector(number, _) => Some(*number),
        _ => None,
    }
}

fn reads_memory(step: &Step) -> bool {
    matches!(step, Step::Stack(..) | Step::Deref(..) | Step::Text(..) | Step::Thread(..))
}
