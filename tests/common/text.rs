//! The code of the library under test, in a process and in its file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rtrace_symbolizer::Image;
use rtrace_symbolizer::address_space::{AddressSpace, Area, Mapping};

/// A second is promised where the machine is not busy.
const PATIENCE: Duration = Duration::from_secs(10);

/// Code of `libtruth.so` as a process maps it.
pub struct Text {
    memory: File,
    start: u64,
    /// Where in the file it begins, in bytes.
    offset: u64,
    path: PathBuf,
    stored: Vec<u8>,
}

impl Text {
    /// That of the process.
    pub fn of(pid: u32) -> Text {
        let space = AddressSpace::of(pid).unwrap();
        let mut code = space.areas().filter(|area| area.mapping.executable);
        let is_it = |area: &Area<'_>| area.file.is_some_and(|file| file.path().ends_with("libtruth.so"));
        let Area { mapping: Mapping { start, offset, end, .. }, file, .. } = code.find(is_it).unwrap();
        let path = file.unwrap().path();
        let stored = std::fs::read(&path).unwrap();
        let from = offset as usize;
        let stored = stored[from..stored.len().min(from + (end - start) as usize)].to_vec();
        let memory = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
        Text { memory, start, offset, path, stored }
    }

    /// Waits until the code is what the file says, as it is a second after a recorder was killed where the machine is
    /// not busy.
    pub fn becomes_the_file(&self) {
        let begin = Instant::now();
        while self.changes() > 0 {
            assert!(begin.elapsed() < PATIENCE, "{} bytes of the code are not the file's", self.changes());
            sleep(Duration::from_millis(10));
        }
    }

    /// How many bytes are not as in the file.
    pub fn changes(&self) -> usize {
        let mut live = vec![0; self.stored.len()];
        self.memory.read_exact_at(&mut live, self.start).unwrap();
        live.iter().zip(&self.stored).filter(|(live, stored)| live != stored).count()
    }

    /// Puts a breakpoint at the beginning of a function.
    pub fn break_at_function(&self, name: &str) {
        let image = Image::open(&self.path).unwrap();
        let functions = image.exports().unwrap().functions;
        let function = functions.iter().find(|function| function.name == name).unwrap();
        self.break_at(image.file_offset(function.address).unwrap() - self.offset);
    }

    /// Puts a breakpoint at this place behind its begin.
    pub fn break_at(&self, place: u64) {
        self.memory.write_all_at(&[0xcc], self.start + place).unwrap();
    }
}
