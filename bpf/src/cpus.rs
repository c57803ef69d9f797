//! The CPUs of this machine.

use std::path::PathBuf;

use crate::Error;

/// CPUs on line, from the kernel's list such as `0-3,8`.
///
/// # Errors
/// [`Error::Read`] where sysfs cannot be read.
pub fn online_cpus() -> Result<Vec<u32>, Error> {
    let path = PathBuf::from("/sys/devices/system/cpu/online");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    Ok(parse_cpu_list(&text))
}

/// The CPUs on which the calling thread may run, by `Cpus_allowed_list` of proc_pid_status(5): launchers bind processes to
/// some.
pub(crate) fn allowed_cpus() -> Result<Vec<u32>, Error> {
    let path = PathBuf::from("/proc/thread-self/status");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(parse_cpu_list(list.unwrap_or_default()))
}

fn parse_cpu_list(text: &str) -> Vec<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(parse_cpu_list("0\n"), [0]);
    }
}
