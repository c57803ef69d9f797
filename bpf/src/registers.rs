//! Whether this kernel lets a program write the registers of the thread that hit a probe, and then goes
//! on from there: tried on a function of this program itself.
//!
//! Kernels that do not either refuse such a program, or execute the probed instruction all the same.

use std::arch::global_asm;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use rtrace_model::Step;

use crate::attach::attach_sites;
use crate::self_test::own_code;
use crate::skeleton::plain::PlainSkelBuilder;
use crate::skeleton::step::StepSkelBuilder;
use crate::wire::step_cookie;
use crate::{AttachTarget, Site};

// Returns 1, or 0 if its addition is not executed. That is as long as the instruction that the program
// takes it for, which does nothing: so all of it is undone where the kernel goes on behind it.
global_asm!(
    ".pushsection .text.rtrace_registers, \"ax\", @progbits",
    ".hidden rtrace_add, rtrace_add_site",
    ".global rtrace_add, rtrace_add_site",
    ".p2align 4",
    "rtrace_add: xor eax, eax",
    "rtrace_add_site: .byte 0x48, 0x83, 0xc0, 0x01", // add rax, 1
    "ret",
    ".popsection"
);

unsafe extern "C" {
    safe fn rtrace_add() -> u64;
    safe fn rtrace_add_site();
}

#[derive(Debug, thiserror::Error)]
enum RegisterObstacle {
    #[error("the kernel refuses a program that writes registers")]
    Refused(#[source] libbpf_rs::Error),
    #[error("failed to probe rtrace itself: {0}")]
    Attach(#[source] libbpf_rs::Error),
    #[error("failed to find rtrace's own code among its segments")]
    NotMapped,
    #[error("the kernel executes the probed instruction all the same, or another rtrace tries this just now")]
    Executed,
    #[error("the programs cannot tell whether others have a probe at the same place")]
    NotAlone,
}

/// Whether the programs may do probed instructions themselves.
///
/// # Errors
/// Why not, in a sentence without capital and period.
pub fn may_step() -> Result<(), String> {
    try_step().map_err(|obstacle| obstacle.to_string())
}

fn try_step() -> Result<(), RegisterObstacle> {
    let (path, file_offset) = own_code(rtrace_add_site as *const () as usize).ok_or(RegisterObstacle::NotMapped)?;
    try_to_write()?;
    let mut storage = MaybeUninit::uninit();
    let open = StepSkelBuilder::default().open(&mut storage).map_err(RegisterObstacle::Refused)?;
    let skel = in_silence(|| open.load()).map_err(RegisterObstacle::Refused)?;
    let target = AttachTarget { path: &path, pid: std::process::id() };
    let site = Site::new(file_offset, step_cookie(0, Step::Landing, file_offset));
    let attach = || attach_sites(&skel.progs.step_enter, target, &[site]).map_err(RegisterObstacle::Attach);
    let _first = attach()?;
    if rtrace_add() != 0 {
        return Err(RegisterObstacle::Executed);
    }
    // Beside another, neither does it.
    let _second = attach()?;
    if rtrace_add() == 1 { Ok(()) } else { Err(RegisterObstacle::NotAlone) }
}

/// Whether the kernel takes a program that writes a register.
fn try_to_write() -> Result<(), RegisterObstacle> {
    let mut storage = MaybeUninit::uninit();
    let mut open = PlainSkelBuilder::default().open(&mut storage).map_err(RegisterObstacle::Refused)?;
    open.progs.write_register.set_autoload(true);
    in_silence(|| open.load()).map(drop).map_err(RegisterObstacle::Refused)
}

/// Loads a program: that kernels refuse it is nothing to talk about.
fn in_silence<T>(load: impl FnOnce() -> T) -> T {
    let talk = libbpf_rs::set_print(None);
    let loaded = load();
    libbpf_rs::set_print(talk);
    loaded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the answer is on this kernel, it stays the same, and nothing is left behind.
    #[test]
    fn the_answer_is_stable() {
        let first = may_step();
        eprintln!("{first:?}");
        for _ in 0..3 {
            assert_eq!(may_step(), first);
            assert_eq!(rtrace_add(), 1);
        }
    }
}
