//! Which functions wait: known by name, whatever library has them.

use crate::{Region, known};

/// What a function waits for. Its time is not work, also where it spins on a CPU meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wait {
    /// Messages of other ranks of a parallel job.
    Communication,
    /// Other threads or ranks that reach the same place.
    Barrier,
    /// A lock that another thread has.
    Lock,
    /// A condition that another thread makes true.
    Condition,
    /// The end of a thread or process.
    Join,
    /// Something to do: ready descriptors, signals.
    Event,
    /// The time to go on.
    Sleep,
    /// A file, device or peer that data goes to or comes from.
    Io,
    /// A GPU that finishes its work.
    Device,
}

impl Wait {
    /// All kinds.
    pub const ALL: [Wait; 9] = [
        Wait::Communication,
        Wait::Barrier,
        Wait::Lock,
        Wait::Condition,
        Wait::Join,
        Wait::Event,
        Wait::Sleep,
        Wait::Io,
        Wait::Device,
    ];

    /// The word used in columns and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Wait::Communication => "communication",
            Wait::Barrier => "barrier",
            Wait::Lock => "lock",
            Wait::Condition => "condition",
            Wait::Join => "join",
            Wait::Event => "event",
            Wait::Sleep => "sleep",
            Wait::Io => "io",
            Wait::Device => "device",
        }
    }

    /// What a function of that name waits for, as a symbol table spells it or demangled; none if it is not known to wait.
    pub fn of(name: &str) -> Option<Wait> {
        let bare = name.trim_start_matches('_');
        let bare = bare.strip_suffix("_chk").unwrap_or(bare);
        known("waits", bare).and_then(Wait::named)
    }

    /// The one with this [name](Wait::name).
    pub fn named(name: &str) -> Option<Wait> {
        Wait::ALL.into_iter().find(|wait| wait.name() == name)
    }
}

impl Region {
    /// What its calls wait for: known by one of its names.
    pub fn waits_for(&self) -> Option<Wait> {
        let symbols = self.symbols.iter().map(|symbol| symbol.symbol.as_str());
        symbols.chain([self.name.as_str()]).find_map(Wait::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RegionId, SymbolName};

    #[test]
    fn functions_that_wait_are_known_by_their_names() {
        for (name, wait) in [
            ("MPI_Allreduce", Some(Wait::Communication)),
            ("PMPI_Barrier", Some(Wait::Communication)),
            ("mpi_send_", Some(Wait::Communication)),
            ("__poll_chk", Some(Wait::Event)),
            ("__libc_start_main", None),
            ("_IO_file_read", None),
            ("std::condition_variable::wait(std::unique_lock<std::mutex>&)", Some(Wait::Condition)),
            ("std::condition_variable::notify_all()", None),
            ("readdir", None),
            ("mpiexec", None),
            ("", None),
            ("__", None),
        ] {
            assert_eq!(Wait::of(name), wait, "{name}");
        }
    }

    #[test]
    fn any_of_its_names_says_what_a_function_waits_for() {
        let symbol = |symbol: &str| SymbolName { symbol: symbol.to_owned(), version: None };
        let region = Region {
            id: RegionId(0),
            name: "internal".to_owned(),
            symbols: vec![symbol("internal"), symbol("__nanosleep")],
            size: 1,
            ..Region::default()
        };
        assert_eq!(region.waits_for(), Some(Wait::Sleep));
        assert_eq!(Region { symbols: Vec::new(), ..region }.waits_for(), None);
    }
}
