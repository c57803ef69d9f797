//! The names that compilers at run time leave in `/tmp/perf-PID.map`: a line per function, with its address and size in
//! hexadecimal, as perf reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use crate::read_text;

/// The largest map that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// Functions by address, each with the address behind it.
#[derive(Debug, Default)]
pub(crate) struct PerfMap(BTreeMap<u64, (u64, String)>);

impl PerfMap {
    /// That of a process that has ended, written since then: another process may have had its id before. Empty where there is
    /// none.
    pub(crate) fn of_ended(pid: u32, since: SystemTime) -> PerfMap {
        let path = format!("/tmp/perf-{pid}.map");
        let written = Path::new(&path).symlink_metadata().and_then(|data| Ok((data.is_file(), data.modified()?)));
        let is_its = written.is_ok_and(|(is_file, written)| is_file && written >= since);
        if !is_its || Path::new(&format!("/proc/{pid}")).exists() {
            return PerfMap::default();
        }
        read_text(Path::new(&path), LARGEST).map(|text| PerfMap::of(&text)).unwrap_or_default()
    }

    fn of(text: &str) -> PerfMap {
        let function = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
            let (start, size) = (number()?, number()?);
            Some((start, (start.checked_add(size)?, parts.next()?.to_owned())))
        };
        PerfMap(text.lines().filter_map(function).collect())
    }

    /// The function at an address, with its own address: the last that was written where code was replaced.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &str)> {
        let (start, (end, name)) = self.0.range(..=address).next_back()?;
        (address < *end).then_some((*start, name.as_str()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn functions_are_found_by_address() {
        let map =
            PerfMap::of("1000 20 JS:~f a.js:1:2\nx y z\n1000 10 JS:*f a.js:1:2\n0x2000 8 g\nffffffffffffffff 2 h\n");
        assert_eq!(map.at(0x100f), Some((0x1000, "JS:*f a.js:1:2")));
        assert_eq!(map.at(0x2007), Some((0x2000, "g")));
        assert!([0xfff, 0x1010, 0x2008, u64::MAX].iter().all(|&address| map.at(address).is_none()));
    }

    #[test]
    fn a_process_that_has_ended_leaves_its_map() {
        let before = SystemTime::now() - Duration::from_secs(1);
        let mut ended = Command::new("true").spawn().unwrap();
        let path = format!("/tmp/perf-{}.map", ended.id());
        ended.wait().unwrap();
        std::fs::write(&path, "1000 20 f\n").unwrap();
        let of = |since| PerfMap::of_ended(ended.id(), since).at(0x1001).map(|(start, name)| (start, name.to_owned()));
        let (found, older) = (of(before), of(SystemTime::now() + Duration::from_secs(60)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((found, older), (Some((0x1000, "f".to_owned())), None));
    }
}
