//! Which functions wait: known by name, whatever library has them. The table is at the end; to teach rtrace another
//! function, add its name there.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::Region;

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
        let by_prefix = || PREFIXES.iter().find(|(prefix, _)| bare.starts_with(prefix)).map(|&(_, wait)| wait);
        NAMES.get(bare).copied().or_else(by_prefix)
    }
}

impl Region {
    /// What its calls wait for: known by one of its names.
    pub fn waits_for(&self) -> Option<Wait> {
        let symbols = self.symbols.iter().map(|symbol| symbol.symbol.as_str());
        symbols.chain([self.name.as_str()]).find_map(Wait::of)
    }
}

/// The names in the table, for a search.
static NAMES: LazyLock<HashMap<&str, Wait>> =
    LazyLock::new(|| TABLE.iter().flat_map(|&(wait, names)| names.iter().map(move |&name| (name, wait))).collect());

/// Beginnings of names, without leading underscores; the first that fits decides.
const PREFIXES: &[(&str, Wait)] = &[
    ("MPI_", Wait::Communication),
    ("PMPI_", Wait::Communication),
    ("MPIX_", Wait::Communication),
    ("mpi_", Wait::Communication),
    ("pmpi_", Wait::Communication),
    ("shmem_barrier", Wait::Barrier),
    ("shmem_sync", Wait::Barrier),
    ("shmem_wait", Wait::Communication),
    ("gomp_barrier_wait", Wait::Barrier),
    ("gomp_team_barrier_wait", Wait::Barrier),
    ("std::condition_variable::wait", Wait::Condition),
    ("std::condition_variable_any::wait", Wait::Condition),
    ("std::this_thread::__sleep_for", Wait::Sleep),
    ("std::__atomic_futex_unsigned_base::_M_futex_wait", Wait::Condition),
    ("QWaitCondition::wait", Wait::Condition),
    ("QThread::wait", Wait::Join),
    ("QThread::sleep", Wait::Sleep),
    ("QThread::msleep", Wait::Sleep),
    ("QThread::usleep", Wait::Sleep),
    ("QMutex::lock", Wait::Lock),
    ("QBasicMutex::lockInternal", Wait::Lock),
    ("QSemaphore::acquire", Wait::Lock),
];

/// Names without leading underscores and the `_chk` of fortified functions.
const TABLE: &[(Wait, &[&str])] = &[
    (
        Wait::Communication,
        &["shmem_quiet", "shmem_fence", "ncclGroupEnd", "opal_progress", "ucp_worker_wait", "ucp_worker_progress"],
    ),
    (
        Wait::Barrier,
        &[
            "pthread_barrier_wait",
            "uv_barrier_wait",
            "GOMP_barrier",
            "GOMP_barrier_cancel",
            "GOMP_loop_end",
            "GOMP_loop_end_cancel",
            "GOMP_sections_end",
            "GOMP_sections_end_cancel",
            "GOMP_taskwait",
            "GOMP_taskwait_depend",
            "GOMP_taskgroup_end",
            "kmpc_barrier",
            "kmpc_cancel_barrier",
            "kmpc_barrier_master",
            "kmpc_omp_taskwait",
            "kmpc_end_taskgroup",
        ],
    ),
    (
        Wait::Lock,
        &[
            "pthread_mutex_lock",
            "pthread_mutex_timedlock",
            "pthread_mutex_clocklock",
            "pthread_spin_lock",
            "pthread_rwlock_rdlock",
            "pthread_rwlock_wrlock",
            "pthread_rwlock_timedrdlock",
            "pthread_rwlock_timedwrlock",
            "pthread_rwlock_clockrdlock",
            "pthread_rwlock_clockwrlock",
            "mtx_lock",
            "mtx_timedlock",
            "sem_wait",
            "sem_timedwait",
            "sem_clockwait",
            "semop",
            "semtimedop",
            "lll_lock_wait",
            "lll_lock_wait_private",
            "flock",
            "lockf",
            "lockf64",
            "GOMP_critical_start",
            "GOMP_critical_name_start",
            "GOMP_atomic_start",
            "GOMP_ordered_start",
            "GOMP_doacross_wait",
            "omp_set_lock",
            "omp_set_nest_lock",
            "kmpc_critical",
            "kmpc_critical_with_hint",
            "kmpc_ordered",
            "g_mutex_lock",
            "g_rec_mutex_lock",
            "g_rw_lock_reader_lock",
            "g_rw_lock_writer_lock",
            "uv_mutex_lock",
            "uv_rwlock_rdlock",
            "uv_rwlock_wrlock",
            "uv_sem_wait",
            "PyEval_RestoreThread",
            "PyEval_AcquireThread",
            "PyGILState_Ensure",
            "PyThread_acquire_lock",
            "PyThread_acquire_lock_timed",
        ],
    ),
    (
        Wait::Condition,
        &[
            "pthread_cond_wait",
            "pthread_cond_timedwait",
            "pthread_cond_clockwait",
            "cnd_wait",
            "cnd_timedwait",
            "g_cond_wait",
            "g_cond_wait_until",
            "g_async_queue_pop",
            "g_async_queue_timeout_pop",
            "uv_cond_wait",
            "uv_cond_timedwait",
            "aio_suspend",
            "aio_suspend64",
        ],
    ),
    (
        Wait::Join,
        &[
            "pthread_join",
            "pthread_timedjoin_np",
            "pthread_clockjoin_np",
            "thrd_join",
            "std::thread::join()",
            "g_thread_join",
            "uv_thread_join",
            "wait",
            "wait3",
            "wait4",
            "waitid",
            "waitpid",
            "pclose",
        ],
    ),
    (
        Wait::Event,
        &[
            "poll",
            "ppoll",
            "select",
            "pselect",
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "g_poll",
            "io_getevents",
            "io_uring_wait_cqe",
            "io_uring_wait_cqes",
            "pause",
            "sigwait",
            "sigwaitinfo",
            "sigtimedwait",
            "sigsuspend",
            "mq_receive",
            "mq_timedreceive",
            "msgrcv",
            "accept",
            "accept4",
        ],
    ),
    (
        Wait::Sleep,
        &[
            "sleep",
            "usleep",
            "nanosleep",
            "clock_nanosleep",
            "thrd_sleep",
            "sched_yield",
            "pthread_yield",
            "g_usleep",
            "uv_sleep",
            "SDL_Delay",
        ],
    ),
    (
        Wait::Io,
        &[
            "read",
            "readv",
            "pread",
            "pread64",
            "preadv",
            "preadv64",
            "preadv2",
            "preadv64v2",
            "write",
            "writev",
            "pwrite",
            "pwrite64",
            "pwritev",
            "pwritev64",
            "pwritev2",
            "pwritev64v2",
            "sendfile",
            "sendfile64",
            "splice",
            "tee",
            "vmsplice",
            "copy_file_range",
            "send",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "recv",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "connect",
            "fsync",
            "fdatasync",
            "sync",
            "syncfs",
            "sync_file_range",
            "msync",
            "mq_send",
            "mq_timedsend",
            "msgsnd",
            "getaddrinfo",
            "tcdrain",
        ],
    ),
    (
        Wait::Device,
        &[
            "cudaDeviceSynchronize",
            "cudaStreamSynchronize",
            "cudaEventSynchronize",
            "cuCtxSynchronize",
            "cuStreamSynchronize",
            "cuEventSynchronize",
            "hipDeviceSynchronize",
            "hipStreamSynchronize",
            "hipEventSynchronize",
            "clFinish",
            "clWaitForEvents",
        ],
    ),
];

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

    #[test]
    fn each_name_stands_once_and_can_be_met() {
        let all: Vec<&str> = TABLE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        assert_eq!(NAMES.len(), all.len(), "a name stands twice");
        for (wait, names) in TABLE {
            assert!(names.iter().all(|name| Wait::of(name) == Some(*wait)), "{wait:?}");
        }
        assert!(Wait::ALL.iter().all(|wait| Wait::ALL.iter().filter(|other| other.name() == wait.name()).count() == 1));
    }
}
