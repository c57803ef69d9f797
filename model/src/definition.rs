//! What calls refer to: libraries, regions, processes, locations.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    CallSite, Context, CpuSamples, FunctionEvent, LibraryId, LocationId, Metric, RegionId, Timestamp, ValueColumn,
    words,
};

/// One ELF object file that traced processes map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// Its id.
    pub id: LibraryId,
    /// The path as the traced process sees it.
    pub path: String,
    /// Its name where others of the trace have the same file name: see [`name_apart`](crate::name_apart).
    pub apart: Option<String>,
    /// The GNU build id in lower-case hexadecimal, where the file has one.
    pub build_id: Option<String>,
    /// Device number of the file system, as `stat` gives it.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
}

impl Library {
    /// The name by which people see it: no other of the trace has it.
    pub fn name(&self) -> &str {
        self.apart.as_deref().unwrap_or_else(|| self.file_name())
    }

    /// The last component of the path.
    pub fn file_name(&self) -> &str {
        last(&self.path)
    }
}

/// One of the names of a region, as the symbol table spells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SymbolName {
    /// The symbol, mangled where the language mangles.
    pub symbol: String,
    /// The symbol version, such as `GLIBC_2.29`.
    pub version: Option<String>,
}

words! {
    /// How the exit of a region is seen.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    ExitPolicy {
        /// By a probe in the caller, where the call returns to.
        #[default]
        ReturnSite = "return-site",
        /// The exit is not observed; calls end as [`Ending::Unseen`](crate::Ending::Unseen).
        EntryOnly = "entry-only",
    }
}

/// One function at one address of one library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its id.
    pub id: RegionId,
    /// The library that holds its code.
    pub library: LibraryId,
    /// The name shown to people: demangled, not escaped.
    pub name: String,
    /// Every exported name of this address, the preferred one first.
    pub symbols: Vec<SymbolName>,
    /// Offset of its first instruction in the file, in bytes.
    pub file_offset: u64,
    /// Size of its code in bytes, as the symbol table gives it.
    pub size: u64,
    /// How its exits are seen.
    pub exit: ExitPolicy,
    /// Whether the kernel executes the instruction at its entry site in a single step, which costs
    /// several times as much as emulating it.
    pub single_stepped: bool,
    /// Whether a program of rtrace does that instruction in the kernel's place, which costs little more
    /// than emulating it.
    pub written: bool,
    /// Whether calls that the dynamic linker binds to it are seen at a stub instead, which costs as
    /// much as emulating; other calls are still seen at its entry site.
    pub stub: bool,
    /// The file of the sources that holds it, if debug information tells, and it was called.
    pub source_file: Option<String>,
    /// The line of its first instruction there, from 1 on.
    pub source_line: Option<u32>,
    /// What it does, if a table of signatures that was used says it.
    pub event: Option<FunctionEvent>,
}

impl Region {
    /// The name by which the linker knows it: with its version where that is what tells functions of one name apart.
    pub fn symbol(&self) -> Cow<'_, str> {
        let Some(SymbolName { symbol, version }) = self.symbols.first() else { return Cow::Borrowed(&self.name) };
        let is_told =
            |version: &&String| self.name.strip_suffix(version.as_str()).is_some_and(|name| name.ends_with('@'));
        match version.as_ref().filter(is_told) {
            Some(version) => Cow::Owned(format!("{symbol}@{version}")),
            None => Cow::Borrowed(symbol),
        }
    }
}

/// The lifetime of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id as rtrace's user sees it.
    pub pid: u32,
    /// Process id of its parent, where known.
    pub parent: Option<u32>,
    /// When it began, where known: the fork, or its start time.
    pub start: Timestamp,
    /// When it ended, where that was seen.
    pub end: Option<Timestamp>,
    /// Path of its executable, of the last one after an exec.
    pub executable: String,
    /// Its command line, of the last executable.
    pub command_line: Vec<String>,
    /// Its wait status in the form shells use: the exit code, or 128 + signal.
    pub exit_code: Option<i32>,
    /// Its rank in a parallel job, where its launcher has put that into its environment.
    pub rank: Option<u32>,
}

impl Process {
    /// How its program was called, without the folder: a link has its own name, and what a program says of itself after its
    /// name, as `redis-server *:6379` does, is no part of it.
    pub fn name(&self) -> &str {
        let word = self.command_line.first().map_or("", String::as_str);
        if last(word) == last(&self.executable) {
            return last(word);
        }
        let called = word.split_whitespace().next().filter(|called| !called.starts_with("/proc/")).unwrap_or_default();
        let called = last(called).trim_start_matches('-').trim_end_matches(':');
        if called.is_empty() { last(&self.executable) } else { called }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The lifetime of one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Its id.
    pub id: LocationId,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// When the thread began.
    pub start: Timestamp,
    /// When it ended, where that was seen.
    pub end: Option<Timestamp>,
    /// The thread's name (`comm`), not escaped.
    pub name: String,
    /// Enters seen on this location: call ids 1 to this number were given out. Known at the
    /// thread's or the recording's end.
    pub calls_entered: Option<u64>,
}

/// Something that calls refer to, told to sinks before the first call that refers to it.
///
/// A definition with the id (for processes: pid and start) of an earlier one replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// A library.
    Library(Library),
    /// A region.
    Region(Region),
    /// A process.
    Process(Process),
    /// A location.
    Location(Location),
    /// A metric.
    Metric(Metric),
    /// A call site.
    CallSite(CallSite),
    /// What led to calls.
    Context(Context),
    /// A value that the calls of a region have.
    ValueColumn(ValueColumn),
    /// Where CPU time was spent.
    CpuSamples(CpuSamples),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(words: &[&str]) -> String {
        let process = Process {
            pid: 1,
            parent: None,
            start: Timestamp(0),
            end: None,
            executable: "/usr/bin/redis-check-rdb".to_owned(),
            command_line: words.iter().map(|&word| word.to_owned()).collect(),
            exit_code: None,
            rank: None,
        };
        process.name().to_owned()
    }

    #[test]
    fn programs_have_the_name_by_which_they_were_called() {
        assert_eq!(called(&["/usr/bin/redis-server *:6379"]), "redis-server");
        assert_eq!(called(&["nginx: worker process"]), "nginx");
        assert_eq!(called(&["-bash"]), "bash");
        assert_eq!(called(&["python3", "x.py"]), "python3");
        for nothing in [&[][..], &[""], &["/"], &[" "], &["/proc/self/exe --type=zygote"]] {
            assert_eq!(called(nothing), "redis-check-rdb", "{nothing:?}");
        }
    }

    #[test]
    fn a_symbol_has_the_version_that_tells_it_apart() {
        let region = |name: &str, version: Option<&str>| {
            let symbols = vec![SymbolName { symbol: "calc".to_owned(), version: version.map(str::to_owned) }];
            Region { name: name.to_owned(), symbols, ..Region::default() }
        };
        assert_eq!(region("calc@VER_1", Some("VER_1")).symbol(), "calc@VER_1");
        assert_eq!(region("calc@@VER_2", Some("VER_2")).symbol(), "calc@VER_2");
        assert_eq!(region("calc", Some("VER_2")).symbol(), "calc");
        assert_eq!(region("calc (a.c)", None).symbol(), "calc");
        assert_eq!(Region { name: "f".to_owned(), ..Region::default() }.symbol(), "f");
    }

    #[test]
    fn exits_have_names() {
        for policy in ExitPolicy::ALL {
            assert_eq!(ExitPolicy::from_name(policy.name()), Some(policy));
        }
        assert_eq!(ExitPolicy::from_name("unknown"), None);
    }
}
