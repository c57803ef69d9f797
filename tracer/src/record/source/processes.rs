//! The processes of a recording, as far as `/proc` and the kernel's events tell.

use std::collections::HashMap;
use std::path::PathBuf;

use rtrace_model::{Process, Timestamp, text_of, text_of_os};
use rtrace_symbolizer::modules;

use crate::host;
use crate::rank;
use crate::target::mapping_history::MappingHistory;
use crate::target::proc_files::Stat;

/// Nanoseconds in a clock tick of `/proc/PID/stat`.
const TICK_NS: u64 = 10_000_000;

/// Every process seen, by its id; a process id that is used again replaces its former process.
#[derive(Default)]
pub struct Processes {
    known: HashMap<u32, Process>,
    /// Those whose program is not known, with the time at which they executed it.
    unnamed: HashMap<u32, Timestamp>,
    history: MappingHistory,
}

impl Processes {
    /// None yet; `history`: what processes have mapped.
    pub fn new(history: MappingHistory) -> Processes {
        Processes { history, ..Processes::default() }
    }

    /// A process that is not known yet.
    pub fn discover(&mut self, pid: u32) -> Option<Process> {
        if self.known.contains_key(&pid) {
            return None;
        }
        Some(self.known.entry(pid).or_insert_with(|| inspect(pid)).clone())
    }

    /// Another process may have the id of one that has ended.
    pub fn forget_ended(&mut self, pid: u32) {
        if self.has_ended(pid) {
            self.known.remove(&pid);
        }
    }

    /// Whether a process of that id has ended.
    pub fn has_ended(&self, pid: u32) -> bool {
        self.known.get(&pid).is_some_and(|process| process.end.is_some())
    }

    /// The ids of those that have not ended.
    pub fn living(&self) -> Vec<u32> {
        self.known.values().filter(|process| process.end.is_none()).map(|process| process.pid).collect()
    }

    /// As [`forked`](Processes::forked), for a process whose calls are looked at before its fork is: it may have ended.
    pub fn expect(&mut self, pid: u32, child: u32, time: Timestamp) -> Option<Process> {
        (!self.known.contains_key(&child)).then(|| self.forked(pid, child, time))
    }

    /// A process made a child: it runs the same program.
    pub fn forked(&mut self, pid: u32, child: u32, time: Timestamp) -> Process {
        let parent = self.known.entry(pid).or_insert_with(|| inspect(pid));
        let process = Process {
            pid: child,
            parent: Some(pid),
            start: time,
            end: None,
            executable: parent.executable.clone(),
            command_line: parent.command_line.clone(),
            exit_code: None,
            rank: parent.rank,
        };
        self.known.insert(child, process.clone());
        process
    }

    /// A process has executed another program at that time, with these arguments, each ended by a null; none where
    /// only `/proc` tells them.
    pub fn executes(&mut self, pid: u32, time: Timestamp, arguments: &[u8]) -> Process {
        let mut now = inspect(pid);
        if !arguments.is_empty() {
            now.command_line = words(arguments);
        }
        self.unnamed.remove(&pid);
        if !has_program(pid) {
            // It has ended. Its program is what the kernel tells of its mappings, sooner or later.
            now.executable = now.command_line.first().map_or("?", String::as_str).to_owned();
            self.unnamed.insert(pid, time);
        }
        let process = self.known.entry(pid).or_insert_with(|| now.clone());
        // That of one that has ended is what it was.
        process.rank = if has_program(pid) { now.rank } else { process.rank };
        process.executable = now.executable;
        process.command_line = now.command_line;
        self.name(pid);
        self.known[&pid].clone()
    }

    /// Those that had ended before they could be looked at, and whose programs are known by now.
    pub fn name_ended(&mut self) -> Vec<Process> {
        let unnamed: Vec<u32> = self.unnamed.keys().copied().collect();
        let named = unnamed.into_iter().filter(|&pid| self.name(pid)).collect::<Vec<_>>();
        named.into_iter().filter_map(|pid| self.known.get(&pid)).cloned().collect()
    }

    /// Whether it is one whose program is known now.
    fn name(&mut self, pid: u32) -> bool {
        let program = self.unnamed.get(&pid).and_then(|time| self.history.executed(pid, *time));
        let (Some(program), Some(process)) = (program, self.known.get_mut(&pid)) else { return false };
        process.executable = text_of_os(&program).into_owned();
        self.unnamed.remove(&pid);
        true
    }

    /// A process ended with a wait status as `wait` gives it.
    pub fn exited(&mut self, pid: u32, time: Timestamp, status: u32) -> Process {
        let process = self.known.entry(pid).or_insert_with(|| inspect(pid));
        process.end = Some(time);
        process.exit_code = Some(exit_code(status));
        process.clone()
    }
}

/// The form that shells use: the exit code, or 128 + signal.
fn exit_code(status: u32) -> i32 {
    let (signal, code) = (status & 0x7f, status >> 8 & 0xff);
    if signal == 0 { code.cast_signed() } else { 128 + signal.cast_signed() }
}

/// The program that a process runs now, or what it was called by; `?` of one that has ended.
pub fn program(pid: u32) -> String {
    Some(inspect(pid).executable).filter(|program| !program.is_empty()).unwrap_or_else(|| "?".to_owned())
}

/// Whether it can be told which program a process runs: it has not ended.
fn has_program(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// The words of a command line.
fn words(line: &[u8]) -> Vec<String> {
    let words = line.split(|&byte| byte == 0).filter(|word| !word.is_empty());
    words.map(|word| text_of(word).into_owned()).collect()
}

fn inspect(pid: u32) -> Process {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let command_line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
    let stat = Stat::of(pid);
    let number = |number: usize| stat.as_ref()?.number(number);
    let command_line = words(&command_line);
    let executable = modules::program_path(pid).map(|path| text_of_os(&path).into_owned());
    Process {
        pid,
        parent: number(4).and_then(|parent| u32::try_from(parent).ok()),
        start: number(22).map(|ticks| host::since_boot(ticks.saturating_mul(TICK_NS))).unwrap_or_default(),
        end: None,
        // Of who has other rights only this can be read.
        executable: executable.ok().or_else(|| command_line.first().cloned()).unwrap_or_default(),
        command_line,
        exit_code: None,
        rank: rank::of_process(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_is_described() {
        let process = inspect(std::process::id());
        assert_eq!(process.parent, Some(std::os::unix::process::parent_id()));
        assert!(process.start.0 > 0);
        assert_eq!(process.command_line, std::env::args().collect::<Vec<_>>());
    }

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(0x80 | 11), 139);
    }
}
