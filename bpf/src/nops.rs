//! What this kernel does with a probe on a nop: tried on functions of this program itself.
//!
//! Kernels differ in which nops they emulate. Some replace a five-byte nop by a call to a page that
//! children do not get when the process forks, and these die at the nop.

use std::arch::global_asm;
use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};

use crate::attach::attach_sites;
use crate::self_test::{own_code, told};
use crate::skeleton::plain::PlainSkelBuilder;
use crate::{AttachTarget, Error, Site};

/// Timed loops per function, of which the fastest counts, and calls in each. A kernel that replaces
/// the nop does so at the first hits.
const LOOPS: usize = 8;
const CALLS: u32 = 8;

// Functions that begin with an instruction which every kernel emulates, one that every kernel
// single-steps, and the nops in question.
global_asm!(
    ".pushsection .text.rtrace_nops, \"ax\", @progbits",
    ".hidden rtrace_push, rtrace_xor, rtrace_nop3",
    ".global rtrace_push, rtrace_xor, rtrace_nop3",
    ".p2align 4",
    "rtrace_push: push rbp",
    "pop rbp",
    "ret",
    ".p2align 4",
    "rtrace_xor: xor eax, eax",
    "ret",
    ".p2align 4",
    "rtrace_nop3: .byte 0x0f, 0x1f, 0x00",
    "ret",
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_push();
    safe fn rtrace_xor();
    safe fn rtrace_nop3();
}

/// What the kernel does with a probe on a nop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nops {
    /// Nops of more than two bytes are emulated, not single-stepped.
    pub long_ones_are_emulated: bool,
}

/// Tries them.
///
/// # Errors
/// The kernel has no probes on many sites, or may not be used; the child cannot be made.
pub fn nops() -> Result<Nops, Error> {
    told(tried)
}

fn tried(told: &Sender<Nops>) -> Result<(), Error> {
    let action = "probe a nop of this program itself";
    let functions: [extern "C" fn(); 3] = [rtrace_push, rtrace_xor, rtrace_nop3];
    let mut storage = MaybeUninit::uninit();
    let mut open = PlainSkelBuilder::default().open(&mut storage).map_err(Error::kernel(action))?;
    open.progs.count_hits.set_autoload(true);
    let skel = open.load().map_err(Error::kernel(action))?;
    let codes = functions.map(|function| own_code(function as usize));
    let [Some((path, _)), ..] = &codes else {
        return Err(Error::Read { path: "/proc/self/exe".into(), source: io::ErrorKind::NotFound.into() });
    };
    let sites: Vec<Site> = codes.iter().flatten().map(|&(_, file_offset)| Site::new(file_offset, 0)).collect();
    let target = AttachTarget { path, pid: std::process::id() };
    let link = attach_sites(&skel.progs.count_hits, target, &sites);
    let _link = link.map_err(Error::kernel(action))?;
    let [push, xor, nop3] = functions.map(|function| fastest(function).as_secs_f64());
    let nops = Nops {
        // Nearer to the one than to the other, as a ratio.
        long_ones_are_emulated: nop3 * nop3 < push * xor,
    };
    told.send(nops).expect("it is waited for");
    Ok(())
}

/// The time of [`CALLS`] calls where nothing else came between.
fn fastest(function: extern "C" fn()) -> Duration {
    let timed = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            function();
        }
        start.elapsed()
    };
    (0..LOOPS).map(|_| timed()).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the answers are on this kernel, they stay the same.
    #[test]
    fn answers_are_stable() {
        let start = Instant::now();
        let Ok(first) = nops().map_err(|error| eprintln!("skipped: {error}")) else { return };
        eprintln!("{first:?} after {:?}", start.elapsed());
        for _ in 0..3 {
            assert_eq!(nops().ok(), Some(first));
        }
    }
}
