//! Performance monitoring units, as `/sys/bus/event_source/devices` describes them: the bits of
//! their codes (`format/`) and events with a name (`events/`).
//!
//! The formats are those of the kernel's `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::EventCode;

const DEVICES: &str = "/sys/bus/event_source/devices";

/// What is wrong with the terms of an event.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("this machine has no unit `{0}`; it has {1}")]
    NoUnit(String, String),
    #[error("it counts for a whole socket or machine, not for a thread")]
    NotPerThread,
    #[error("the unit has no event or term `{0}`")]
    NoTerm(String),
    #[error("the value of `{0}` is no number that fits")]
    Value(String),
}

/// A unit.
#[derive(Debug)]
pub(super) struct PmuUnit {
    folder: PathBuf,
}

impl PmuUnit {
    /// The unit of that name.
    pub(super) fn find(name: &str) -> Result<PmuUnit, Problem> {
        PmuUnit::find_in(Path::new(DEVICES), name)
    }

    fn find_in(devices: &Path, name: &str) -> Result<PmuUnit, Problem> {
        let folder = devices.join(name);
        let is_plain = !name.is_empty() && !name.contains(['/', '.']);
        if !is_plain || !folder.join("type").exists() {
            return Err(Problem::NoUnit(name.to_owned(), list(devices).join(", ")));
        }
        Ok(PmuUnit { folder })
    }

    /// The event that terms such as `event=0x3c,umask=1`, or the name of an event, stand for.
    pub(super) fn event(&self, terms: &str) -> Result<EventCode, Problem> {
        if self.folder.join("cpumask").exists() {
            return Err(Problem::NotPerThread);
        }
        let kind = self.read("type").ok().and_then(|kind| kind.parse().ok());
        let mut event = EventCode::new(kind.ok_or_else(|| Problem::Value("type".to_owned()))?, 0);
        for term in terms.split(',').filter(|term| !term.is_empty()) {
            match self.read(&format!("events/{}", plain(term)?)) {
                Ok(terms) => terms.split(',').try_for_each(|term| self.set(&mut event, term))?,
                Err(_) => self.set(&mut event, term)?,
            }
        }
        Ok(event)
    }

    /// The names of its events; many units name none.
    pub(super) fn events(&self) -> Vec<String> {
        let is_attribute =
            |name: &String| [".scale", ".unit", ".snapshot", ".per-pkg"].iter().any(|of| name.ends_with(of));
        list(&self.folder.join("events")).into_iter().filter(|name| !is_attribute(name)).collect()
    }

    /// Sets one term: `name=value`, or a name alone, which is 1.
    fn set(&self, event: &mut EventCode, term: &str) -> Result<(), Problem> {
        let (name, value) = term.trim().split_once('=').unwrap_or((term.trim(), "1"));
        let unknown = || Problem::NoTerm(name.to_owned());
        let wrong = || Problem::Value(name.to_owned());
        let value = parse_number(value).ok_or_else(wrong)?;
        let format = match name {
            "config" | "config1" | "config2" => format!("{name}:0-63"),
            _ => self.read(&format!("format/{}", plain(name)?)).map_err(|_| unknown())?,
        };
        let (register, bits) = format.split_once(':').ok_or_else(unknown)?;
        let scattered = scatter(value, bits).ok_or_else(wrong)?;
        match register {
            "config" => event.config |= scattered,
            "config1" => event.config1 |= scattered,
            "config2" => event.config2 |= scattered,
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.folder.join(name))?.trim().to_owned())
    }
}

/// The units of this machine.
pub(super) fn units() -> Vec<String> {
    list(Path::new(DEVICES))
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// A name that stays in its folder.
fn plain(name: &str) -> Result<&str, Problem> {
    if name.contains('/') || name.starts_with('.') { Err(Problem::NoTerm(name.to_owned())) } else { Ok(name) }
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Puts the bits of a value where a format such as `0-7,32-35` says, the lowest first; `None` if
/// they do not fit.
fn scatter(mut value: u64, format: &str) -> Option<u64> {
    let mut scattered = 0;
    for range in format.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        for bit in first..=last.min(63) {
            scattered |= (value & 1) << bit;
            value >>= 1;
        }
    }
    (value == 0).then_some(scattered)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// A unit as an Intel core has it.
    fn machine() -> tempfile::TempDir {
        let devices = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("cpu/type", "4"),
            ("cpu/format/event", "config:0-7,32-35"),
            ("cpu/format/umask", "config:8-15"),
            ("cpu/format/ldlat", "config1:0-15"),
            ("cpu/format/any", "config:21"),
            ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
            ("cpu/events/mem-loads.scale", "1"),
            ("uncore/type", "17"),
            ("uncore/cpumask", "0"),
        ] {
            let path = devices.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        devices
    }

    #[test]
    fn terms_are_put_where_the_format_says() {
        let machine = machine();
        let cpu = PmuUnit::find_in(machine.path(), "cpu").unwrap();
        let event = cpu.event("event=0x1c2,umask=3,any").unwrap();
        assert_eq!((event.kind, event.config), (4, 0x1_0020_03c2));
        let event = cpu.event("mem-loads").unwrap();
        assert_eq!((event.config, event.config1), (0x1cd, 3));
        assert_eq!(cpu.event("mem-loads,umask=2").unwrap().config, 0x3cd);
        assert_eq!(cpu.event("config=0xffffffffffffffff").unwrap().config, u64::MAX);
        assert_eq!(cpu.events(), ["mem-loads"]);
    }

    #[test]
    fn what_a_unit_does_not_have_is_named() {
        let machine = machine();
        let cpu = PmuUnit::find_in(machine.path(), "cpu").unwrap();
        assert_eq!(cpu.event("edge"), Err(Problem::NoTerm("edge".to_owned())));
        assert_eq!(cpu.event("../uncore/type"), Err(Problem::NoTerm("../uncore/type".to_owned())));
        assert_eq!(cpu.event("umask=0x100"), Err(Problem::Value("umask".to_owned())));
        assert_eq!(cpu.event("umask=many"), Err(Problem::Value("umask".to_owned())));
        assert_eq!(PmuUnit::find_in(machine.path(), "uncore").unwrap().event(""), Err(Problem::NotPerThread));
        for name in ["gpu", "", "..", "cpu/format"] {
            let problem = PmuUnit::find_in(machine.path(), name).unwrap_err();
            assert_eq!(problem.to_string(), format!("this machine has no unit `{name}`; it has cpu, uncore"));
        }
    }

    #[test]
    fn hostile_formats_are_no_numbers() {
        for format in ["", "a-b", "3-", "-1", "99999999999"] {
            assert_eq!(scatter(1, format), None, "{format}");
        }
        assert_eq!(scatter(1, "70-4294967295"), None);
        assert_eq!(scatter(0, "5-2"), Some(0));
    }
}
