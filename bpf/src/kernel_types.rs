//! What the types of the running kernel say that it has.

use std::os::fd::{FromRawFd as _, OwnedFd};

use libbpf_rs::btf::types::{Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, ReferencesType as _};
use libbpf_rs::libbpf_sys::{BPF_PROG_TYPE_TRACING, BPF_TRACE_FENTRY, bpf_prog_load, bpf_prog_load_opts};

/// That by which programs make entries of hash tables as they go, since Linux 6.1.
const ALLOCATOR: &str = "bpf_mem_alloc";

/// The tracepoint in front of an exec's point of no return, since Linux 6.10, and the function that it is in.
const EXEC_IS_COMING: &str = "btf_trace_sched_prepare_exec";
const EXEC: &str = "begin_new_exec";

/// The tracepoint of a thread's end, and a function that the kernel calls before the thread leaves its memory.
const EXIT_IS_COMING: &str = "btf_trace_sched_process_exit";
const EXIT: &str = "exit_signals";
/// What the tracepoint gives its programs since Linux 6.17, when it was put before that, too: what it was attached with,
/// the thread, and whether it is the last one.
const ARGUMENTS_OF_EXIT: usize = 3;

/// The tracepoint behind the loading of a thread's vector registers.
const REGISTERS: &str = "btf_trace_x86_fpu_regs_activated";

/// The tracepoint in front of the lock of a process's memory.
const LOCKS: &str = "btf_trace_mmap_lock_start_locking";
/// What it gives its programs: what it was attached with, the memory, and whether it is to be written.
const ARGUMENTS_OF_LOCKS: usize = 3;

/// In the version of a kernel that takes the CPU from threads that are in it, or may, as is chosen when it boots.
const PREEMPTIBLE: &str = "PREEMPT";

/// The system calls that make memory writable.
const WRITERS: [&str; 2] = ["__x64_sys_mprotect", "__x64_sys_pkey_mprotect"];

/// What the running kernel has; nothing where it does not describe its types.
#[derive(Clone, Copy, Debug)]
pub struct KernelTypes {
    /// Where programs can run in front of an exec's point of no return.
    pub sees_exec_coming: Sees,
    /// Where programs can run before a thread that ends leaves its memory.
    pub sees_exit_coming: Sees,
    /// Whether this kernel lets programs run where it loads the vector registers of a thread.
    pub sees_registers: bool,
    /// Whether hash tables may take memory as programs fill them. An older kernel warns of that in its log, and forbids
    /// it to programs of performance events.
    pub fills_tables: bool,
    /// Where they can run before a process makes its code writable.
    pub sees_writers: SeesWriters,
}

/// Whether hash tables take memory as programs fill them; else they have a fixed size, and room for fewer entries.
pub fn fills_tables() -> bool {
    KernelTypes::of_this_kernel().fills_tables
}

/// Whether the kernel may leave out hits of probes with a perf event each. Before Linux 6.0 it does so on a CPU where a
/// system call is at a table of BPF programs, so none is left out where no other thread can run meanwhile.
pub fn leaves_out_hits() -> bool {
    // What cannot be read may be.
    let version = std::fs::read_to_string("/proc/sys/kernel/version").unwrap_or_else(|_| PREEMPTIBLE.to_owned());
    let chosen = std::fs::read_to_string("/sys/kernel/debug/sched/preempt").ok();
    !fills_tables() && is_preemptible(&version, chosen.as_deref())
}

fn is_preemptible(version: &str, chosen: Option<&str>) -> bool {
    version.contains(PREEMPTIBLE) && chosen.is_none_or(|chosen| chosen.contains("(full)"))
}

impl KernelTypes {
    /// Reads the types of the running kernel.
    pub fn of_this_kernel() -> KernelTypes {
        let btf = Btf::from_vmlinux().ok();
        let has = |tracepoint| btf.as_ref().is_some_and(|btf| btf.type_by_name::<Typedef<'_>>(tracepoint).is_some());
        let gives = |tracepoint, count| btf.as_ref().and_then(|btf| arguments(btf, tracepoint)) == Some(count);
        let may_run_at = |function| btf.as_ref().is_some_and(|btf| may_run_at(btf, function));
        let sees = |has_tracepoint, function| match has_tracepoint {
            true => Sees::Tracepoint,
            false if may_run_at(function) => Sees::Function,
            false => Sees::Not,
        };
        KernelTypes {
            sees_exec_coming: sees(has(EXEC_IS_COMING), EXEC),
            sees_exit_coming: sees(gives(EXIT_IS_COMING, ARGUMENTS_OF_EXIT), EXIT),
            sees_registers: has(REGISTERS),
            fills_tables: btf.as_ref().is_some_and(|btf| btf.type_by_name::<Struct<'_>>(ALLOCATOR).is_some()),
            sees_writers: btf.as_ref().map_or(SeesWriters::Not, writers),
        }
    }
}

/// Where programs can run before something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// At a tracepoint.
    Tracepoint,
    /// At a function of the kernel.
    Function,
    Not,
}

/// How many arguments a tracepoint gives its programs.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let pointer: Ptr<'_> = btf.type_by_id(btf.type_by_name::<Typedef<'_>>(tracepoint)?.referenced_type_id())?;
    Some(btf.type_by_id::<FuncProto<'_>>(pointer.referenced_type_id())?.len())
}

/// Where programs can run before a process makes its code writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeesWriters {
    /// Where that is all that a thread does.
    Calls,
    /// Where any thread locks its memory.
    Locks,
    Not,
}

/// Those who make nothing writable pay nothing for system calls. Before Linux 6.14, the tracepoint makes every lock of
/// memory on the machine look up the name of a cgroup, under a lock of all CPUs: then it is not taken.
fn writers(btf: &Btf<'_>) -> SeesWriters {
    if WRITERS.into_iter().all(|call| may_run_at(btf, call)) {
        return SeesWriters::Calls;
    }
    if arguments(btf, LOCKS) == Some(ARGUMENTS_OF_LOCKS) { SeesWriters::Locks } else { SeesWriters::Not }
}

/// Whether a program may run where this function of the kernel begins. Some machines refuse that.
fn may_run_at(btf: &Btf<'_>, function: &str) -> bool {
    let Some(function) = btf.type_by_name::<Func<'_>>(function) else { return false };
    // r0 = 0; exit
    let code = [0xb7_u64, 0x95];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as u64,
        expected_attach_type: BPF_TRACE_FENTRY,
        attach_btf_id: function.type_id().into(),
        ..Default::default()
    };
    // SAFETY: the names are strings, the two instructions are as many as is said, and the options have their size.
    let fd = unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_TRACING,
            c"rt_try".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            2,
            &raw mut options,
        )
    };
    if fd >= 0 {
        // SAFETY: the kernel has just made it, for us alone.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    fd >= 0
}

#[cfg(test)]
mod tests {
    use super::is_preemptible;

    #[test]
    fn what_is_chosen_at_boot_decides() {
        assert!(!is_preemptible("#214-Ubuntu SMP Fri Nov 6 00:52:52 UTC 2026", None));
        assert!(is_preemptible("#117-Ubuntu SMP PREEMPT Thu Nov 12 23:12:01 UTC 2026", None));
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Mon Jan 2 2023";
        assert!(is_preemptible(dynamic, None) && is_preemptible(dynamic, Some("none voluntary (full)")));
        assert!(!is_preemptible(dynamic, Some("none (voluntary) full")));
    }
}
