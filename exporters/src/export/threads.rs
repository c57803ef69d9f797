//! The threads and processes of a trace, each with a name and a number of its own.
//!
//! Most formats know a thread by process and thread id alone. Where an id was used again, the later
//! thread or process gets a number that no id reaches, so that the two stay apart.

use std::collections::{BTreeMap, HashMap, HashSet};

use rtrace_model::{Location, LocationId, Process, Timestamp};

use crate::TraceSet;

/// Numbers from here on are no process or thread ids: the kernel's end at 2²².
const FIRST_NUMBER: u32 = 1 << 30;

/// The lifetime of a process, or what is known of it from its threads.
#[derive(Debug)]
pub(super) struct ProgramLifetime {
    /// The process id, where it was not used before.
    pub(super) number: u32,
    pub(super) pid: u32,
    pub(super) parent: Option<u32>,
    /// The last component of its executable's path.
    pub(super) name: String,
    pub(super) command_line: Vec<String>,
    /// Its rank in a parallel job, if its threads made calls.
    pub(super) rank: Option<u32>,
}

/// The lifetime of a thread.
#[derive(Debug)]
pub(super) struct ThreadLifetime {
    /// The thread id, where it was not used before.
    pub(super) number: u32,
    pub(super) tid: u32,
    pub(super) name: String,
    /// Place of its process among the programs.
    pub(super) program: usize,
}

#[derive(Debug)]
pub(super) struct Threads {
    pub(super) programs: Vec<ProgramLifetime>,
    threads: BTreeMap<LocationId, ThreadLifetime>,
    /// Stands for threads that are not defined.
    unknown: ThreadLifetime,
}

impl Threads {
    pub(super) fn of(trace: &TraceSet) -> Threads {
        let mut programs = vec![program_of(0, None)];
        let mut places: HashMap<(u32, Option<Timestamp>), usize> = HashMap::new();
        let mut threads = BTreeMap::new();
        let mut numbers = HashSet::new();
        for location in trace.locations() {
            let process = trace.process_of(location);
            let program = *places.entry((location.pid, process.map(|process| process.start))).or_insert_with(|| {
                programs.push(program_of(location.pid, process));
                programs.len() - 1
            });
            programs[program].rank = trace.rank_of(location);
            let taken = !numbers.insert((program, location.tid));
            threads.insert(location.id, thread_of(location, program, taken));
        }
        for process in trace.processes() {
            places.entry((process.pid, Some(process.start))).or_insert_with(|| {
                programs.push(program_of(process.pid, Some(process)));
                programs.len() - 1
            });
        }
        let mut pids = HashSet::new();
        for (place, program) in programs.iter_mut().enumerate() {
            program.number = if pids.insert(program.pid) { program.pid } else { FIRST_NUMBER + place as u32 };
        }
        let unknown = ThreadLifetime { number: 0, tid: 0, name: "not defined".to_owned(), program: 0 };
        Threads { programs, threads, unknown }
    }

    pub(super) fn thread(&self, id: LocationId) -> &ThreadLifetime {
        self.threads.get(&id).unwrap_or(&self.unknown)
    }

    pub(super) fn program(&self, thread: &ThreadLifetime) -> &ProgramLifetime {
        &self.programs[thread.program]
    }
}

fn program_of(pid: u32, process: Option<&Process>) -> ProgramLifetime {
    ProgramLifetime {
        number: pid,
        pid,
        parent: process.and_then(|process| process.parent),
        name: process.map_or("not defined", Process::name).to_owned(),
        command_line: process.map_or_else(Vec::new, |process| process.command_line.clone()),
        rank: None,
    }
}

fn thread_of(location: &Location, program: usize, taken: bool) -> ThreadLifetime {
    ThreadLifetime {
        number: if taken { FIRST_NUMBER + location.id.0 } else { location.tid },
        tid: location.tid,
        name: location.name.clone(),
        program,
    }
}
