//! What sysfs reports about the machine, if it does: the energy of each socket (RAPL) and the CPUs'
//! frequency.

use std::fs;
use std::path::{Path, PathBuf};

use rtrace_model::{Scope, Span};

use super::MetricKind;

/// Something that can be read.
#[derive(Debug)]
pub(super) enum Sensor {
    /// Energy that a socket has used, in microjoules, from a counter that begins anew at `range`.
    Energy { file: PathBuf, socket: u32, range: f64, last: f64, total: f64 },
    /// The mean of all CPUs' frequencies, in kilohertz.
    Frequency { files: Vec<PathBuf> },
}

impl Sensor {
    pub(super) fn kind(&self) -> MetricKind {
        match self {
            Sensor::Energy { .. } => MetricKind {
                name: "socket/energy",
                unit: "J",
                exponent: -6,
                scope: Scope::Socket,
                span: Span::SinceStart,
            },
            Sensor::Frequency { .. } => {
                MetricKind { name: "node/frequency", unit: "Hz", exponent: 3, scope: Scope::Node, span: Span::Point }
            }
        }
    }

    /// Which socket; 0 for the machine.
    pub(super) fn instance(&self) -> u32 {
        match self {
            Sensor::Energy { socket, .. } => *socket,
            Sensor::Frequency { .. } => 0,
        }
    }

    /// The value now.
    pub(super) fn value(&mut self) -> Option<f64> {
        match self {
            Sensor::Energy { file, range, last, total, .. } => {
                let now = number(file)?;
                *total += if now >= *last { now - *last } else { now + *range - *last };
                *last = now;
                Some(*total)
            }
            Sensor::Frequency { files } => {
                let values: Vec<f64> = files.iter().filter_map(|file| number(file)).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            }
        }
    }
}

/// What this machine has.
pub(super) fn sensors() -> Vec<Sensor> {
    sensors_in(Path::new("/sys"))
}

fn sensors_in(sys: &Path) -> Vec<Sensor> {
    let mut sensors: Vec<Sensor> = list(&sys.join("class/powercap")).iter().filter_map(|zone| energy(zone)).collect();
    let cpus = list(&sys.join("devices/system/cpu"));
    let files = cpus.iter().map(|cpu| cpu.join("cpufreq/scaling_cur_freq")).filter(|file| number(file).is_some());
    let files: Vec<PathBuf> = files.collect();
    if !files.is_empty() {
        sensors.push(Sensor::Frequency { files });
    }
    sensors
}

/// The zone of a whole socket: `intel-rapl:0`, not its part `intel-rapl:0:1`.
fn energy(zone: &Path) -> Option<Sensor> {
    let (_, socket) = zone.file_name()?.to_str()?.split_once(':')?;
    let socket = socket.parse().ok()?;
    let range = number(&zone.join("max_energy_range_uj"))?;
    let file = zone.join("energy_uj");
    let last = number(&file)?;
    Some(Sensor::Energy { file, socket, range, last, total: 0.0 })
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn number(file: &Path) -> Option<f64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn write(sys: &Path, name: &str, content: &str) {
        let path = sys.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn energy_goes_on_when_its_counter_begins_anew() {
        let sys = tempfile::tempdir().unwrap();
        for zone in ["intel-rapl:1", "intel-rapl:1:0"] {
            write(sys.path(), &format!("class/powercap/{zone}/max_energy_range_uj"), "1000\n");
            write(sys.path(), &format!("class/powercap/{zone}/energy_uj"), "900\n");
        }
        let mut sensors = sensors_in(sys.path());
        assert_eq!(sensors.len(), 1);
        assert_eq!((sensors[0].instance(), sensors[0].value()), (1, Some(0.0)));
        write(sys.path(), "class/powercap/intel-rapl:1/energy_uj", "50\n");
        assert_eq!(sensors[0].value(), Some(150.0));
    }

    #[test]
    fn frequency_is_the_mean() {
        let sys = tempfile::tempdir().unwrap();
        assert!(sensors_in(sys.path()).is_empty());
        write(sys.path(), "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1000000\n");
        write(sys.path(), "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n");
        write(sys.path(), "devices/system/cpu/cpuidle/x", "");
        assert_eq!(sensors_in(sys.path())[0].value(), Some(2_000_000.0));
    }
}
