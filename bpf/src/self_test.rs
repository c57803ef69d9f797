//! Which of the kernel's abilities work here: tried, not inferred from a version.

use std::path::{Path, PathBuf};

use crate::wire::{self, EndingCode, PolicyCode};
use crate::{AttachTarget, Error, LoadOptions, Mechanism, Programs, Role, Site};

/// What was tried, and what came of it.
#[derive(Debug)]
pub struct Abilities {
    /// Every mechanism, the best first, with the error of those that do not work.
    pub mechanisms: Vec<(Mechanism, Result<(), String>)>,
}

impl Abilities {
    /// The best mechanism that works.
    pub fn best(&self) -> Option<Mechanism> {
        self.mechanisms.iter().find(|(_, result)| result.is_ok()).map(|&(mechanism, _)| mechanism)
    }
}

/// Tries every mechanism on a function of this program itself.
pub fn probe() -> Abilities {
    let mechanisms = Mechanism::ALL
        .into_iter()
        .map(|mechanism| (mechanism, records_a_call(mechanism).map_err(|error| error.to_string())))
        .collect();
    Abilities { mechanisms }
}

/// The function that is probed. Its return can be hooked: nothing unwinds through it.
#[inline(never)]
extern "C" fn probed(argument: u64) -> u64 {
    std::hint::black_box(argument) + 1
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Kernel(#[from] Error),
    #[error("failed to find rtrace's own code in `/proc/self/maps`")]
    NotMapped,
    #[error("probes were attached, but {0} of 1 call was recorded")]
    Calls(usize),
}

fn records_a_call(mechanism: Mechanism) -> Result<(), Failure> {
    let (path, file_offset) = own_code(probed as *const () as usize).ok_or(Failure::NotMapped)?;
    let programs = Programs::load(&LoadOptions { mechanism, ring_bytes: 4096, follow_children: false })?;
    programs.trace(std::process::id())?;
    let target = AttachTarget { path: &path, pid: Some(std::process::id()) };
    let site = Site { file_offset, cookie: wire::entry_cookie(0, PolicyCode::RT_POLICY_URETPROBE) };
    let probes = programs.attach(Role::EnterAndReturn, target, &[site])?;
    programs.arm();
    std::hint::black_box(probed(1));
    programs.disarm();
    drop(probes);
    let (mut calls, mut events) = (Vec::new(), Vec::new());
    programs.reader()?.read(&mut calls, &mut events)?;
    calls.retain(|call| call.ending == EndingCode::RT_RETURNED);
    if calls.len() == 1 { Ok(()) } else { Err(Failure::Calls(calls.len())) }
}

/// The file that holds the code at an address of this process, and the offset in it.
fn own_code(address: usize) -> Option<(PathBuf, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (from, to) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        let path = Path::new("/proc/self/map_files").join(format!("{start}-{end}"));
        (from..to).contains(&address).then(|| (path, offset + (address - from) as u64))
    })
}
