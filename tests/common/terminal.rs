//! A terminal without anybody in front of it: tmux.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::skip;

const PATIENCE: Duration = Duration::from_secs(60);

/// A tmux server of its own with one window, ended when dropped.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a shell command on a terminal of that size; `None`, with the reason printed, without
    /// tmux. After the command, `status` and its exit status stand on the screen.
    pub fn start(columns: u16, rows: u16, command: &str) -> Option<Terminal> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !skip::installed(&["tmux"]) {
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let terminal = Terminal { socket: format!("rtrace-test-{}-{number}", std::process::id()) };
        let command = format!("{command}; echo status $?; exec cat");
        let size = ["-x", &columns.to_string(), "-y", &rows.to_string()];
        terminal.tmux(&[&["-f", "/dev/null", "new-session", "-d"], &size[..], &[&command]].concat());
        Some(terminal)
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Presses a key, by tmux's name of it.
    pub fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }

    /// Waits until a text is on the screen, and gives the screen.
    pub fn wait_for(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(start.elapsed() < PATIENCE, "`{text}` does not come on the screen:\n{screen}");
            sleep(Duration::from_millis(50));
        }
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.args(["-u", "-L", &self.socket]).args(arguments).env("LANG", "C.UTF-8").env_remove("NO_COLOR");
        let output = tmux.output().expect("tmux is installed");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It ends by itself with its last window.
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

/// A word of a shell command.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
