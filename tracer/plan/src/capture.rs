//! Which values of a function's calls are fetched.

use std::collections::HashMap;
use std::sync::Arc;

use rtrace_code::arrival;
use rtrace_code::errno::Errno;
use rtrace_code::line::Intact;
use rtrace_signatures::{At, FetchProgram, Op, OpCode, Signature};

/// What is known of a function, and the program that fetches values of its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The columns, metrics, and who says so.
    pub signature: Signature,
    /// Fetches them.
    pub program: FetchProgram,
    /// Where the function begins, in its file's own terms.
    pub address: u64,
    /// Where its library has the thread's `errno`.
    pub errno: Option<Errno>,
}

/// By the address of a function in its file's own terms.
pub type Captures = HashMap<u64, Arc<Capture>>;

impl Capture {
    /// What must be as it was at the function's first instruction where its entry is seen.
    pub(crate) fn keeps(&self) -> Intact {
        let at_entry = || self.ops(At::Enter);
        let mut registers = [0; 16];
        for op in at_entry().filter(|op| op.code == OpCode::Register) {
            let bytes = &mut registers[op.number as usize];
            *bytes = op.width.bytes.max(*bytes);
        }
        Intact { registers, memory: at_entry().any(reads_memory), ..Intact::default() }
    }

    /// The operations that run then.
    fn ops(&self, at: At) -> impl Iterator<Item = Op> {
        self.program.fetches.iter().map(|fetch| fetch.op).filter(move |op| op.at == at)
    }

    /// The vector registers that are fetched, each once, by their numbers: a stub stores them.
    pub fn vectors(&self) -> Vec<u8> {
        let of_vectors = self.ops(At::Enter).filter(|op| op.code == OpCode::Vector);
        let mut vectors: Vec<u8> = of_vectors.map(|op| op.number as u8).collect();
        vectors.sort_unstable();
        vectors.dedup();
        vectors
    }

    /// What must be as the function left it where its return is seen.
    pub fn keeps_at_return(&self) -> arrival::Keeps {
        let results = self.ops(At::Exit).filter(|op| op.code == OpCode::Result);
        let results = results.map(|op| if op.width.bytes > 4 { 8 } else { 4 });
        let memory = self.ops(At::Exit).any(reads_memory);
        arrival::Keeps { accesses: false, result: results.max().unwrap_or_default(), memory }
    }
}

fn reads_memory(op: Op) -> bool {
    matches!(op.code, OpCode::Stack | OpCode::Memory | OpCode::Text | OpCode::List | OpCode::Keep)
}
