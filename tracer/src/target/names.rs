//! Running processes by name, as `pidof` and `pgrep` know them.
//!
//! A process goes by three names: what the kernel calls it (`comm`, of at most 15 bytes), the file name of its program,
//! and that of the word by which it was started. All three may be chosen by the process itself: they select, and prove
//! nothing.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rtrace_model::{text_of, text_of_os};
use rtrace_symbolizer::select::{self, near_names};

use crate::host;
use crate::target::descendants;
use crate::target::privilege::shell_quote;
use crate::target::proc_files::comm;

/// Bytes of a name that the kernel keeps (`TASK_COMM_LEN` without the final zero).
const COMM_BYTES: usize = 15;

/// So many ids are listed one by one.
const LISTED: usize = 8;

/// Ids of processes as people list them.
pub fn list(pids: &[u32]) -> String {
    let listed = if pids.len() > LISTED { LISTED - 1 } else { pids.len() };
    let ids = pids[..listed].iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    match pids.len() - listed {
        0 => ids,
        more => format!("{ids} and {more} more"),
    }
}

/// A running process with its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedProcess {
    /// Its id.
    pub pid: u32,
    /// What the kernel calls it; maybe cut.
    pub comm: String,
    /// Path of its program, if it may be looked at.
    pub program: Option<String>,
    /// The words by which it was started, or what it has put in their place.
    pub command_line: Vec<String>,
}

impl NamedProcess {
    /// A process that has memory of its own; `None` for threads of the kernel and for those that have ended.
    fn of(pid: u32) -> Option<NamedProcess> {
        descendants::parent_of(pid)?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command_line: Vec<String> = words.split(|&byte| byte == 0).map(|word| text_of(word).into_owned()).collect();
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let process = NamedProcess {
            pid,
            comm: comm(pid),
            program: program.map(|path| text_of_os(&path).into_owned()),
            command_line: command_line.into_iter().filter(|word| !word.is_empty()).collect(),
        };
        (process.program.is_some() || !process.command_line.is_empty()).then_some(process)
    }

    /// What people call it: `comm`, or where the kernel has cut that, the name by which it was started.
    pub fn name(&self) -> &str {
        let started = self.started_as().unwrap_or_default();
        let is_cut = self.comm.len() >= COMM_BYTES && started.starts_with(&self.comm);
        if is_cut { started } else { &self.comm }
    }

    fn started_as(&self) -> Option<&str> {
        // A login shell is marked by a dash.
        self.command_line.first().map(|word| file_name(word.trim_start_matches('-')))
    }

    fn program_name(&self) -> Option<&str> {
        // What the kernel adds to the path of a file that was removed or replaced.
        self.program.as_deref().map(|path| file_name(path.trim_end_matches(" (deleted)")))
    }

    /// Whether people who say `name` mean this one; a name with a `/` is the path of a program.
    fn is_named(&self, name: &str) -> bool {
        if name.contains('/') {
            let path = fs::canonicalize(select::path_of(name)).unwrap_or_else(|_| name.into());
            return self.program.as_deref().is_some_and(|program| program == text_of_os(&path));
        }
        // A name that is longer than what the kernel keeps is known from the others.
        [Some(self.comm.as_str()), self.program_name(), self.started_as()].contains(&Some(name))
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(OsStr::to_str).unwrap_or(path)
}

/// No process goes by a name.
#[derive(Debug, thiserror::Error)]
#[error("failed to find a process named `{name}`")]
pub struct NotRunning {
    name: String,
    near: Vec<String>,
}

impl NotRunning {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self.near.as_slice() {
            [] => format!(
                "`pgrep -a PATTERN` lists processes; let rtrace start it: rtrace run --lib LIB -- {}",
                shell_quote(&self.name)
            ),
            near => format!("did you mean {}?", near.join(", ")),
        }
    }
}

/// The processes of that name, in the order of their ids; never rtrace itself, nor what it has started.
///
/// # Errors
/// There are none.
pub fn find(name: &str) -> Result<Vec<NamedProcess>, NotRunning> {
    let all = all();
    let found: Vec<NamedProcess> = all.iter().filter(|process| process.is_named(name)).cloned().collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let mut names: Vec<&str> = all
        .iter()
        .flat_map(|process| [Some(process.name()), process.program_name(), process.started_as()])
        .flatten()
        // What a process has put in place of its command line is a title, and no name.
        .filter(|name| !name.contains(' '))
        .collect();
    names.sort_unstable();
    names.dedup();
    Err(NotRunning { name: name.to_owned(), near: near_names(name, &names) })
}

/// All processes that have memory of their own, but rtrace itself and what it has started.
pub fn all() -> Vec<NamedProcess> {
    let own = std::process::id();
    let ours = descendants::of(&[own]);
    let mut pids = host::processes();
    pids.retain(|pid| *pid != own && !ours.contains(pid));
    pids.sort_unstable();
    pids.into_iter().filter_map(NamedProcess::of).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::{Child, Command, Stdio};

    use super::*;

    fn process(comm: &str, program: &str, word: &str) -> NamedProcess {
        let program = Some(program.to_owned()).filter(|program| !program.is_empty());
        NamedProcess { pid: 1, comm: comm.to_owned(), program, command_line: vec![word.to_owned()] }
    }

    #[test]
    fn of_many_ids_some_are_listed() {
        assert_eq!(list(&[3]), "3");
        assert_eq!(list(&[3, 4, 5, 6, 7, 8, 9, 10]), "3, 4, 5, 6, 7, 8, 9, 10");
        assert_eq!(list(&Vec::from_iter(1..=200)), "1, 2, 3, 4, 5, 6, 7 and 193 more");
    }

    #[test]
    fn a_process_goes_by_each_of_its_names() {
        let redis = process("redis-server", "/usr/bin/redis-check-rdb", "redis-server *:6379");
        assert!(redis.is_named("redis-server") && redis.is_named("redis-check-rdb"));
        assert!(redis.is_named("/usr/bin/redis-check-rdb"));
        for other in ["redis", "redis-server *:6379x", "/usr/bin/redis-server-2", "", "REDIS-SERVER"] {
            assert!(!redis.is_named(other), "{other}");
        }
        assert_eq!(redis.name(), "redis-server");
        let shell = process("bash", "/usr/bin/bash (deleted)", "-bash");
        assert!(shell.is_named("bash") && shell.is_named("/usr/bin/bash (deleted)"));
    }

    #[test]
    fn long_names_are_told_apart_though_the_kernel_cuts_them() {
        let long = process("systemd-network", "/lib/systemd/systemd-networkd", "/lib/systemd/systemd-networkd");
        assert_eq!(long.name(), "systemd-networkd");
        assert!(long.is_named("systemd-networkd") && long.is_named("systemd-network"));
        assert!(!long.is_named("systemd-networker"));
    }

    /// Started under a name of its own.
    struct Sleeper(Child, tempfile::TempDir);

    impl Sleeper {
        fn named(name: &str) -> Sleeper {
            let folder = tempfile::tempdir().unwrap();
            let link = folder.path().join(name);
            std::os::unix::fs::symlink("/bin/sleep", &link).unwrap();
            // A child of a shell that ends at once is none of ours.
            let script = "\"$0\" 1000 >/dev/null 2>&1 & echo $!";
            let output = Command::new("sh").args(["-c", script]).arg(&link).stdin(Stdio::null()).output().unwrap();
            let pid: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            let child = Command::new("tail").args(["--pid", &pid.to_string(), "-f", "/dev/null"]).spawn().unwrap();
            Sleeper(child, folder)
        }
    }

    #[test]
    fn what_runs_is_found_and_what_does_not_is_named_with_what_resembles_it() {
        let name = format!("rt-nap-{}", std::process::id());
        let mut sleeper = Sleeper::named(&name);
        let found = find(&name).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name(), name);
        assert_eq!(find(&format!("{name}x")).unwrap_err().near, [name.as_str()]);
        // SAFETY: sends a signal to a process of this test.
        unsafe { libc::kill(found[0].pid.cast_signed(), libc::SIGKILL) };
        sleeper.0.wait().unwrap();
        assert!(sleeper.1.path().exists());
        assert!(find(&name).is_err());
    }

    #[test]
    fn we_and_our_children_are_never_among_them() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let found = all();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.iter().all(|process| process.pid != std::process::id() && process.pid != child.id()));
    }
}
