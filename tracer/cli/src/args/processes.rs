//! Which running processes: by id or by name.

use clap::Args;
use rtrace::target::cgroups::GroupName;

/// The options that choose processes.
#[derive(Clone, Debug, Default, Args)]
pub struct Processes {
    /// Processes, by id or by name (every match, as with pidof)
    ///
    /// The name is that of the process (comm), of its program's file, or of the word by which it was started; with a
    /// `/` it is the path of the program. rtrace itself is never among them.
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Processes by name; may be repeated
    #[arg(long = "name", value_name = "NAME")]
    named: Vec<String>,

    /// Process by id, with all its threads; a list, or repeated
    ///
    /// The ids are separated by commas or spaces, as `$(pidof nginx)` gives them.
    #[arg(short = 'p', long = "pid", value_name = "PID", num_args = 1.., value_parser = parse_pids)]
    pids: Vec<Pids>,

    /// Processes of a control group and those below it; may be repeated
    ///
    /// The path is one of the file system, or begins at the root of the control groups. `attach` also records the
    /// processes that join later, with their children: it looks for them every 100 ms, and reports the time before
    /// that as a blind window. A process that joins and ends between two looks, and is no child of a recorded one, is not
    /// recorded.
    #[arg(long = "cgroup", value_name = "PATH")]
    cgroups: Vec<String>,

    /// Processes of a container, by name or ID, as with --cgroup; may be repeated
    ///
    /// Containers of Docker, Podman and containerd are found by their control groups and the files of these programs. No
    /// daemon is asked. Of an ID, the first 8 digits are enough.
    #[arg(long = "container", value_name = "NAME|ID")]
    containers: Vec<String>,

    /// Processes of a unit of systemd, as with --cgroup; may be repeated
    ///
    /// A name without a dot is that of a service.
    #[arg(long = "unit", value_name = "NAME")]
    units: Vec<String>,

    /// Take the ranks of the parallel job that these processes have started on this node
    ///
    /// A rank is a process below a launcher, such as mpirun or mpiexec, whose environment says its rank.
    #[arg(long, conflicts_with_all = ["cgroups", "containers", "units"])]
    job: bool,
}

impl Processes {
    /// The processes chosen by id, each once.
    pub fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.pids.iter().flat_map(|pids| &pids.0).copied().collect();
        pids.extend(self.names.iter().filter_map(|name| as_pid(name)));
        let mut met = std::collections::HashSet::new();
        pids.retain(|&pid| met.insert(pid));
        pids
    }

    /// The names by which processes are chosen.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let words = self.names.iter().filter(|name| as_pid(name).is_none());
        words.chain(&self.named).map(String::as_str)
    }

    /// The control groups that are chosen.
    pub fn groups(&self) -> impl Iterator<Item = GroupName> {
        let paths = self.cgroups.iter().cloned().map(GroupName::Path);
        let containers = self.containers.iter().cloned().map(GroupName::Container);
        paths.chain(containers).chain(self.units.iter().cloned().map(GroupName::Unit))
    }

    /// Whether the processes are launchers, whose ranks are meant.
    pub fn is_job(&self) -> bool {
        self.job
    }

    /// Whether none is chosen.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.named.is_empty() && self.pids.is_empty() && self.groups().next().is_none()
    }
}

/// A word of digits alone is an id.
fn as_pid(word: &str) -> Option<u32> {
    word.parse().ok().filter(|_| !word.starts_with('+'))
}

/// The ids in one word of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pids(pub Vec<u32>);

/// Splits a list of ids at commas and white space.
pub fn parse_pids(list: &str) -> Result<Pids, String> {
    let words = list.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|word| !word.is_empty());
    let parse = |word| as_pid(word).ok_or_else(|| format!("`{word}` is no process id; --name takes names"));
    let pids: Vec<u32> = words.map(parse).collect::<Result<_, _>>()?;
    // `$(pidof …)` in quotes, of a program that does not run.
    if pids.is_empty() { Err("it has no process id".to_owned()) } else { Ok(Pids(pids)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_lists_of_any_kind() {
        assert_eq!(parse_pids("1,2 3\n4, 5"), Ok(Pids(vec![1, 2, 3, 4, 5])));
        assert_eq!(parse_pids(""), Err("it has no process id".to_owned()));
        for wrong in ["nginx", "1,-2", "+1", "99999999999", "1;2"] {
            assert!(parse_pids(wrong).is_err_and(|error| error.contains("--name takes names")), "{wrong}");
        }
    }

    #[test]
    fn names_of_digits_are_ids_unless_they_are_said_to_be_names() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let chosen = Processes {
            names: words(&["7", "redis"]),
            named: words(&["8"]),
            pids: vec![Pids(vec![9, 7])],
            ..Processes::default()
        };
        assert_eq!(chosen.pids(), [9, 7]);
        assert_eq!(chosen.names().collect::<Vec<_>>(), ["redis", "8"]);
        assert!(!chosen.is_empty() && Processes::default().is_empty());
    }
}
