//! Tests that cannot run here, and the turns that the others take.
//!
//! `cargo xtask test` counts the lines printed by [`skip`].

use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::rtrace;

/// Says why the calling test does nothing.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
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
    let output = rtrace::command().arg("doctor").output().expect("rtrace starts");
    if output.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Some(format!("rtrace cannot trace here: {}", text.lines().last().unwrap_or("doctor says nothing")))
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
