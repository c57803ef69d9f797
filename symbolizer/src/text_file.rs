//! Text that people name on the command line.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// How long nothing may come from a pipe.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a file of at most so many bytes, or a pipe, as shells put it in the place of a command: `<(command)`.
///
/// # Errors
/// What the system says; it is neither a file nor a pipe; it is larger; nothing comes from the pipe.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_fifo() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "neither a regular file nor a pipe"));
    }
    let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        if kind.is_fifo() {
            wait(&file)?;
        }
        match (&file).read(&mut part) {
            Ok(0) => break,
            Ok(length) => bytes.extend(&part[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > most {
            return Err(io::Error::other(format!("it is larger than {} MB", most >> 20)));
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Waits until there is something to read, or nobody writes any more.
fn wait(pipe: &File) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                let message = format!("nobody wrote to the pipe for {} s", PATIENCE.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, message));
            }
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn files_and_pipes_are_read_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_text(&file, 4).unwrap(), "text");
        assert!(read_text(&file, 3).unwrap_err().to_string().contains("larger"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let written = pipe.clone();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            std::fs::write(written, "late").unwrap();
        });
        assert_eq!(read_text(&pipe, 1 << 20).unwrap(), "late");
        writer.join().unwrap();
        for other in ["/dev/zero", "/"] {
            let error = read_text(Path::new(other), 1 << 20).unwrap_err();
            assert_eq!(error.to_string(), "neither a regular file nor a pipe", "{other}");
        }
        assert!(read_text(&folder.path().join("missing"), 1).is_err());
    }
}
