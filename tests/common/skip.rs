//! Tests that cannot run here, and the turns that the others take.
//!
//! `cargo xtask test` counts the lines printed by [`skip`] and [`not_here`].

use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::rtrace;

/// Says why the calling test does nothing: what it needs could be there.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// Says why the calling test does nothing: this kernel or machine is not what it is about.
pub fn not_here(reason: &str) {
    println!("not here: {reason}");
}

/// The right to trace: one test at a time has it, so that none disturbs another.
pub struct Turn(#[expect(dead_code, reason = "held until dropped")] MutexGuard<'static, ()>);

impl Turn {
    /// Waits for the turn; `None`, with the reason printed, where rtrace cannot trace.
    pub fn take() -> Option<Turn> {
        static TURN: Mutex<()> = Mutex::new(());
        static OBSTACLE: LazyLock<Option<String>> = LazyLock::new(obstacle);
        if let Some(obstacle) = &*OBSTACLE {
            skip(obstacle);
            return None;
        }
        Some(Turn(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn obstacle() -> Option<String> {
    let output = rtrace::command().args(["doctor", "--json"]).output().expect("rtrace starts");
    let doctor: Value = serde_json::from_slice(&output.stdout).expect("doctor prints JSON");
    if doctor["can_trace"] == true {
        return None;
    }
    let checks = doctor["checks"].as_array().expect("doctor lists its checks").iter();
    let faults: Vec<_> =
        checks.filter(|check| check["state"] == "no").filter_map(|check| check["detail"].as_str()).collect();
    Some(format!("rtrace cannot trace here: {}", faults.join("; ")))
}

/// Whether rtrace's programs may do instructions themselves, or why not.
pub fn may_step() -> Result<(), &'static str> {
    static ANSWER: LazyLock<Result<(), String>> = LazyLock::new(|| {
        rtrace_bpf::set_verbose(false);
        rtrace_bpf::may_step()
    });
    ANSWER.as_ref().copied().map_err(String::as_str)
}

/// Whether the shell maps the C library, as it does unless it is linked statically; prints if not.
pub fn shell_maps_c_library() -> bool {
    let maps = Command::new("sh").args(["-c", "grep -q /libc.so /proc/$$/maps"]).status().expect("sh starts").success();
    if !maps {
        skip("the shell is linked statically");
    }
    maps
}

/// Whether all `programs` can be started; prints which cannot.
pub fn installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output().expect("sh starts");
        !found.status.success()
    });
    if let Some(program) = missing {
        skip(&format!("`{program}` is not installed; `cargo xtask test` installs it"));
    }
    missing.is_none()
}
