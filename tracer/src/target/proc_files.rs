//! The files `stat`, `status` and `comm` of processes, as bytes: a name may be cut inside a character, or hold anything.

use std::borrow::Cow;
use std::fs;
use std::io;

use rtrace_model::text_of;

/// `/proc/PID/stat`.
pub struct Stat(Vec<u8>);

impl Stat {
    /// Of that process, while it is there.
    pub fn of(pid: u32) -> Option<Stat> {
        fs::read(format!("/proc/{pid}/stat")).ok().map(Stat)
    }

    /// Of rtrace itself.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_own() -> io::Result<Stat> {
        fs::read("/proc/self/stat").map(Stat)
    }

    /// The file's content.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Stat {
        Stat(bytes.into())
    }

    /// A field behind the name, by the number that `proc(5)` gives it.
    pub fn field(&self, number: usize) -> Option<&str> {
        // The name in parentheses may hold anything, so fields are counted from its end.
        let end = self.0.iter().rposition(|&byte| byte == b')')?;
        str::from_utf8(&self.0[end + 1..]).ok()?.split_ascii_whitespace().nth(number.checked_sub(3)?)
    }

    /// The same, as a number.
    pub fn number(&self, number: usize) -> Option<u64> {
        self.field(number)?.parse().ok()
    }

    /// The process that has made this one; none where this one has ended, and waits to be reaped.
    pub fn parent(&self) -> Option<u32> {
        if matches!(self.field(3)?, "Z" | "X") {
            return None;
        }
        self.field(4)?.parse().ok()
    }
}

/// `/proc/PID/status`.
pub struct ProcessStatus(Vec<u8>);

impl ProcessStatus {
    /// Of that process.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(pid: u32) -> io::Result<ProcessStatus> {
        fs::read(format!("/proc/{pid}/status")).map(ProcessStatus)
    }

    /// Of rtrace itself.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_own() -> io::Result<ProcessStatus> {
        fs::read("/proc/self/status").map(ProcessStatus)
    }

    /// The value of a line. Ends of lines within a name are escaped by the kernel.
    pub fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut lines = self.0.split(|&byte| byte == b'\n');
        lines
            .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))
            .map(<[u8]>::trim_ascii)
            .map(text_of)
    }

    /// The same, as a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.parse().ok()
    }
}

/// What the kernel calls a process or a thread; empty where it has ended.
pub fn comm(pid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    text_of(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Names as programs give them to themselves, or as the kernel cuts them.
    const NAMES: [&[u8]; 6] = [b"a", b") Z 9 (b", b"a\nb) c", b"\xe6\xbc\xa2\xe5\xad", b"\xff\xfe", b"  "];

    #[test]
    fn fields_are_found_behind_any_name() {
        for name in NAMES {
            let stat = |rest: &str| Stat([b"7 (", name, b") ", rest.as_bytes()].concat());
            let running = stat("S 3 7 7 0 -1 4194560 10 0 0 0 120 34 0 0 20 0 9 0 100 1000 200\n");
            assert_eq!((running.parent(), running.field(3)), (Some(3), Some("S")), "{name:?}");
            assert_eq!((running.number(14), running.number(22)), (Some(120), Some(100)), "{name:?}");
            assert_eq!(running.field(99), None);
            assert_eq!(stat("Z 3 7\n").parent(), None);
        }
        assert!(Stat::from_bytes("7 (a").field(3).is_none() && Stat::from_bytes("").parent().is_none());
    }

    #[test]
    fn lines_are_found_by_their_whole_name_whatever_the_process_is_called() {
        for name in NAMES {
            let line: Vec<u8> =
                name.iter().flat_map(|&byte| if byte == b'\n' { vec![b'\\', b'n'] } else { vec![byte] }).collect();
            let status =
                [b"Name:\t", &*line, b"\nNgid:\t0\nCapEffX:\tff\nCapEff:\t000001fffeffffff\nTgid:\t7\n"].concat();
            let status = ProcessStatus(status);
            assert_eq!(status.field("CapEff").unwrap(), "000001fffeffffff", "{name:?}");
            assert_eq!((status.number("Tgid"), status.field("Cap")), (Some(7), None));
        }
        let status = ProcessStatus(b"Name:\t\xe6\xbc\xa2\xe5\xad\n".to_vec());
        assert_eq!(status.field("Name").unwrap(), "漢\\xe5\\xad");
    }

    #[test]
    fn own_files_are_read() {
        let pid = std::process::id();
        assert_eq!(Stat::of(pid).unwrap().parent(), Some(std::os::unix::process::parent_id()));
        assert_eq!(ProcessStatus::of_own().unwrap().number("Pid"), Some(pid));
        assert!(Stat::of(u32::MAX).is_none() && ProcessStatus::of(u32::MAX).is_err() && comm(u32::MAX).is_empty());
    }
}
