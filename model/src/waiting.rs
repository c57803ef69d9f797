//! Which functions wait: known by name, whatever library has them.

use crate::{Region, known, words};

words! {
    /// What a function waits for. Its time is not work, also where it spins on a CPU meanwhile.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    Wait {
        /// A message of another rank of a parallel job, or a request for one: often of a sender that is late.
        Receive = "receive",
        /// An exchange in which all ranks of a group take part.
        Collective = "collective",
        /// Messages of other ranks of a parallel job otherwise: sends, setup.
        Communication = "communication",
        /// Other threads or ranks that reach the same place.
        Barrier = "barrier",
        /// A lock that another thread has.
        Lock = "lock",
        /// A condition that another thread makes true.
        Condition = "condition",
        /// The end of a thread or process.
        Join = "join",
        /// Something to do: ready descriptors, signals.
        Event = "event",
        /// The time to go on.
        Sleep = "sleep",
        /// A file, device or peer that data goes to or comes from.
        Io = "io",
        /// A GPU that finishes its work.
        Device = "device",
    }
}

impl Wait {
    /// What a function of that name waits for, as a symbol table spells it or demangled; none if it is not known to wait.
    pub fn of(name: &str) -> Option<Wait> {
        let bare = name.trim_start_matches('_');
        let bare = bare.strip_suffix("_chk").unwrap_or(bare);
        known("waits", bare).and_then(Wait::from_name)
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
            ("MPI_Allreduce", Some(Wait::Collective)),
            ("PMPI_Barrier", Some(Wait::Barrier)),
            ("MPI_Recv_c", Some(Wait::Receive)),
            ("mpi_barrier_", Some(Wait::Barrier)),
            ("pmpi_waitall_f08_", Some(Wait::Receive)),
            ("MPI_Waitsome", Some(Wait::Receive)),
            ("mpi_send_", Some(Wait::Communication)),
            ("MPI_Reduce_local", Some(Wait::Communication)),
            ("MPI_File_write_at", Some(Wait::Io)),
            ("mpi_", None),
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
