//! The single checks: each reads one thing of the machine and judges it.
//!
//! Reading and judging are apart, so that the judgements are tested without the machine.

use std::fs::File;
use std::io;

use rtrace::target::privilege::{self, Capabilities, Capability};
use rtrace::target::user::User;
use rtrace_bpf::Mechanism;
use rustix::process::{Resource, Rlimit, getrlimit};

use super::{Check, Diagnosis, OTHER_USERS};

const NEWER_KERNEL: &str = "boot Linux 6.1 or newer, or a 5.15 that is not preemptible, with CONFIG_BPF_SYSCALL, \
     CONFIG_UPROBES and CONFIG_DEBUG_INFO_BTF";
const MORE_RIGHTS: &str = "run rtrace as root, or with CAP_BPF and CAP_PERFMON in the first user namespace";
const NO_FILTER: &str = "a seccomp filter may forbid bpf and perf_event_open; in a container, start it with \
     --security-opt seccomp=unconfined, or with a profile that allows them";
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Looks at everything.
pub fn diagnose() -> Diagnosis {
    let system = rustix::system::uname();
    let mut checks = vec![kernel(&system.release().to_string_lossy(), &system.machine().to_string_lossy())];
    let rights = match privilege::is_filtered() {
        true => NO_FILTER,
        false => MORE_RIGHTS,
    };
    let capabilities = Capabilities::effective();
    let may_ptrace_all = capabilities.as_ref().is_ok_and(|capabilities| capabilities.allow(Capability::SysPtrace));
    checks.extend(match capabilities {
        Ok(capabilities) => capabilities_of(capabilities),
        Err(error) => vec![Check::no("capabilities", error.to_string())],
    });
    checks.extend([
        yama(read_setting("/proc/sys/kernel/yama/ptrace_scope"), may_ptrace_all),
        namespace(privilege::check_namespace()),
        btf(File::open(BTF).map(drop)),
        jit(read_setting("/proc/sys/net/core/bpf_jit_enable")),
        tables(rtrace_bpf::fills_tables()),
        unprivileged_bpf(read_setting("/proc/sys/kernel/unprivileged_bpf_disabled")),
        perf_paranoia(read_setting("/proc/sys/kernel/perf_event_paranoid")),
        lockdown(read_setting("/sys/kernel/security/lockdown")),
        locked_memory(getrlimit(Resource::Memlock)),
        hardware_counters(rtrace::perf::count_cycles().map(drop)),
    ]);
    let abilities = rtrace_bpf::probe();
    let mechanism = abilities.best().map(Mechanism::name);
    let steps = mechanism.map(|_| registers(rtrace_bpf::may_step()));
    checks.extend(
        abilities.mechanisms.into_iter().map(|(tried, result)| attaching(tried, result, mechanism.is_some(), rights)),
    );
    checks.extend(steps);
    Diagnosis::new(User::own_name(), mechanism, checks)
}

/// A mechanism that does not work matters only where no other does; `rights`: what helps if it is forbidden.
fn attaching(tried: Mechanism, result: Result<(), String>, any_works: bool, rights: &str) -> Check {
    match result {
        Ok(()) => Check::ok(tried.name(), "records a call"),
        Err(error) if any_works => Check::note(tried.name(), error),
        Err(error) if is_forbidden(&error) => Check::no(tried.name(), error).remedy(rights),
        Err(error) => Check::no(tried.name(), error).remedy(NEWER_KERNEL),
    }
}

/// Whether the kernel refused because a privilege is missing (EPERM, EACCES).
fn is_forbidden(error: &str) -> bool {
    ["(os error 1)", "(os error 13)"].iter().any(|number| error.contains(number))
}

/// Optional: without it, probes on some instructions are slower.
fn registers(may_step: Result<(), String>) -> Check {
    match may_step {
        Ok(()) => {
            Check::ok("registers", "BPF programs may write them: rtrace emulates `ret`, `endbr64` and `sub rsp` itself")
        }
        Err(reason) => {
            Check::note("registers", format!("{reason}: the kernel single-steps `ret`, `endbr64` and `sub rsp`"))
        }
    }
}

fn kernel(release: &str, machine: &str) -> Check {
    match machine {
        "x86_64" => Check::ok("kernel", format!("{release} {machine}")),
        _ => Check::no("kernel", format!("{release} {machine}: rtrace supports x86_64 only")),
    }
}

fn capabilities_of(capabilities: Capabilities) -> Vec<Check> {
    let missing = capabilities.missing_for_tracing();
    let names = missing.iter().map(|capability| capability.name()).collect::<Vec<_>>().join(", ");
    let tracing = match missing.is_empty() {
        true => Check::ok("capabilities", "may load BPF programs and place probes"),
        false => Check::no("capabilities", format!("missing {names}")).remedy(privilege::enable()),
    };
    let optional = |name, capability: Capability, with, without| match capabilities.allow(capability) {
        true => Check::ok(name, with),
        false => Check::note(name, format!("{without}: missing {capability}")),
    };
    vec![
        tracing,
        optional(
            OTHER_USERS,
            Capability::SysPtrace,
            "processes of other users can be traced",
            "only your own processes can be traced",
        ),
        optional(
            "containers",
            Capability::CheckpointRestore,
            "libraries in other mount namespaces and deleted libraries are accessible",
            "libraries in other mount namespaces and deleted libraries are not accessible",
        ),
    ]
}

/// What the security module Yama leaves of the right to ptrace: `attach` asks the kernel for that.
fn yama(setting: io::Result<String>, may_ptrace_all: bool) -> Check {
    let scope = setting.unwrap_or_default();
    let is_open = match scope.as_str() {
        "3" => false,
        "1" | "2" => may_ptrace_all,
        _ => true,
    };
    if is_open {
        return Check::ok("attach", "running processes can be traced");
    }
    let check = Check::note(
        "attach",
        format!(
            "running processes cannot be traced, only what `rtrace run` starts: kernel.yama.ptrace_scope is {scope}"
        ),
    );
    match scope.as_str() {
        // It stays until the machine is booted again.
        "3" => check.remedy("set kernel.yama.ptrace_scope to 1 in /etc/sysctl.d, and boot"),
        _ => check.remedy("sudo sysctl kernel.yama.ptrace_scope=0"),
    }
}

fn namespace(checked: Result<(), privilege::Error>) -> Check {
    match checked {
        Ok(()) => Check::ok("process ids", "those of /proc"),
        Err(error) => {
            let check = Check::no("process ids", error.to_string());
            error.hint().map_or(check.clone(), |hint| check.remedy(hint))
        }
    }
}

fn btf(opened: io::Result<()>) -> Check {
    match opened {
        Ok(()) => Check::ok("kernel types", BTF),
        Err(error) => Check::no("kernel types", format!("failed to open `{BTF}`: {error}"))
            // Types out of a file do not replace them: the kernel itself looks up its tracepoints there.
            .remedy("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions build theirs"),
    }
}

fn jit(setting: io::Result<String>) -> Check {
    match setting.as_deref() {
        Ok("0") => {
            Check::no("BPF compiler", "off: the kernel interprets no programs with callbacks, as those of rtrace are")
                .remedy("sudo sysctl net.core.bpf_jit_enable=1")
        }
        Ok(_) => Check::ok("BPF compiler", "on"),
        Err(error) => unreadable("BPF compiler", "net.core.bpf_jit_enable", error),
    }
}

/// Optional: room for the calls of many threads.
fn tables(fills_tables: bool) -> Check {
    match fills_tables {
        true => Check::ok("tables", "take memory as threads need it"),
        false => Check::note(
            "tables",
            "have a fixed size before Linux 6.1: 256 threads at a time can be more than 47 traced calls deep, and further \
             calls of others are counted as lost",
        ),
    }
}

fn unprivileged_bpf(setting: io::Result<String>) -> Check {
    match setting.as_deref() {
        Ok("0") => Check::ok("unprivileged BPF", "allowed; rtrace does not need it"),
        Ok(_) => Check::ok("unprivileged BPF", "disabled; rtrace does not need it"),
        Err(error) => unreadable("unprivileged BPF", "kernel.unprivileged_bpf_disabled", error),
    }
}

fn perf_paranoia(setting: io::Result<String>) -> Check {
    match setting.as_deref() {
        Ok(level) => {
            Check::ok("unprivileged perf", format!("perf_event_paranoid is {level}; CAP_PERFMON overrides it"))
        }
        Err(error) => unreadable("unprivileged perf", "kernel.perf_event_paranoid", error),
    }
}

fn lockdown(setting: io::Result<String>) -> Check {
    let setting = match setting {
        Ok(setting) => setting,
        Err(_) => {
            return Check::note("lockdown", "unknown: securityfs is not mounted")
                .remedy("sudo mount -t securityfs securityfs /sys/kernel/security");
        }
    };
    let mode = setting.split(['[', ']']).nth(1).unwrap_or("unknown");
    match mode {
        "none" => Check::ok("lockdown", "none"),
        "integrity" => Check::ok("lockdown", "integrity: forbids nothing that rtrace needs"),
        "confidentiality" => Check::no("lockdown", "confidentiality: BPF programs may not read kernel memory")
            .remedy("boot without lockdown=confidentiality"),
        other => Check::note("lockdown", other),
    }
}

fn locked_memory(limit: Rlimit) -> Check {
    let detail = match limit.current {
        None => "unlimited".to_owned(),
        Some(bytes) => format!("{} KiB; counts only before Linux 5.11", bytes / 1024),
    };
    Check::ok("locked memory", detail)
}

fn hardware_counters(opened: io::Result<()>) -> Check {
    let Err(error) = opened else { return Check::ok("counters", "cycles can be counted") };
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            Check::note("counters", "virtual machine without PMU: cycles cannot be counted, times can")
        }
        Some(libc::EACCES | libc::EPERM) => Check::note("counters", "not permitted").remedy(privilege::become_able()),
        _ => Check::note("counters", format!("failed to open a cycle counter: {error}")),
    }
}

fn read_setting(path: &str) -> io::Result<String> {
    Ok(std::fs::read_to_string(path)?.trim().to_owned())
}

fn unreadable(name: &'static str, setting: &str, error: &io::Error) -> Check {
    Check::note(name, format!("failed to read `{setting}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::CheckResult;
    use super::*;

    fn absent<T>() -> io::Result<T> {
        Err(io::Error::from_raw_os_error(libc::ENOENT))
    }

    #[test]
    fn what_stops_tracing_says_no_and_what_to_do() {
        assert_eq!(kernel("6.1.0", "aarch64").state, CheckResult::No);
        assert_eq!(btf(absent()).state, CheckResult::No);
        assert!(btf(absent()).remedy.is_some());
        assert_eq!(kernel("6.1.0", "x86_64").state, CheckResult::Ok);
        assert_eq!(btf(Ok(())).state, CheckResult::Ok);
    }

    #[test]
    fn one_mechanism_is_enough() {
        let refused = || Err("refused".to_owned());
        assert_eq!(attaching(Mechanism::Single, refused(), true, MORE_RIGHTS).state, CheckResult::Note);
        let none_works = attaching(Mechanism::Single, refused(), false, MORE_RIGHTS);
        assert_eq!((none_works.state, none_works.remedy.as_deref()), (CheckResult::No, Some(NEWER_KERNEL)));
        let forbidden = || Err("failed: Operation not permitted (os error 1)".to_owned());
        for rights in [MORE_RIGHTS, NO_FILTER] {
            assert_eq!(attaching(Mechanism::Multi, forbidden(), false, rights).remedy.as_deref(), Some(rights));
        }
        assert_eq!(attaching(Mechanism::Multi, Ok(()), true, MORE_RIGHTS).state, CheckResult::Ok);
    }

    #[test]
    fn expensive_returns_are_no_obstacle() {
        assert_eq!(registers(Ok(())).state, CheckResult::Ok);
        let check = registers(Err("the kernel refuses".to_owned()));
        assert_eq!(check.state, CheckResult::Note);
        assert!(check.detail.starts_with("the kernel refuses: the kernel single-steps `ret`"));
    }

    #[test]
    fn lockdown_is_read_between_the_brackets() {
        let mode = |text: &str| lockdown(Ok(text.to_owned()));
        assert_eq!(mode("[none] integrity confidentiality").state, CheckResult::Ok);
        assert_eq!(mode("none [integrity] confidentiality").state, CheckResult::Ok);
        let confidential = mode("none integrity [confidentiality]");
        assert_eq!(confidential.state, CheckResult::No);
        assert!(confidential.detail.starts_with("confidentiality: ") && confidential.remedy.is_some());
        assert_eq!(mode("").detail, "unknown");
        assert!(lockdown(absent()).detail.contains("securityfs is not mounted"));
    }

    #[test]
    fn yama_takes_attach_away_from_those_without_the_capability() {
        let of = |scope: &str, may_ptrace_all| yama(Ok(scope.to_owned()), may_ptrace_all);
        assert_eq!(yama(absent(), false).state, CheckResult::Ok);
        assert_eq!((of("0", false).state, of("1", true).state), (CheckResult::Ok, CheckResult::Ok));
        let limited = of("1", false);
        assert_eq!(limited.state, CheckResult::Note);
        assert_eq!(limited.remedy.as_deref(), Some("sudo sysctl kernel.yama.ptrace_scope=0"));
        assert!(of("3", true).remedy.is_some_and(|remedy| remedy.ends_with("and boot")));
    }

    #[test]
    fn a_machine_without_counters_is_no_obstacle() {
        let check = hardware_counters(absent());
        assert_eq!(check.state, CheckResult::Note);
        assert!(check.detail.starts_with("virtual machine without PMU"));
        assert_eq!(hardware_counters(Ok(())).state, CheckResult::Ok);
    }

    #[test]
    fn an_interpreter_does_not_do() {
        assert_eq!(jit(Ok("0".to_owned())).state, CheckResult::No);
        assert_eq!(jit(Ok("1".to_owned())).state, CheckResult::Ok);
        assert_eq!(jit(absent()).state, CheckResult::Note);
        assert_eq!((tables(true).state, tables(false).state), (CheckResult::Ok, CheckResult::Note));
    }
}
