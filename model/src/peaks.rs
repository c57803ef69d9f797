//! What a machine can do at most, as measured on it.

use serde::{Deserialize, Serialize};

/// The peaks of a machine, against which calls are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// The machine.
    pub host: String,
    /// Threads of the measurement of all CPUs.
    pub cpus: usize,
    /// 10⁹ operations in double precision per second.
    pub gigaflops: PeakRates,
    /// 10⁹ bytes per second to and from memory.
    pub gigabytes: PeakRates,
    /// How the operations were counted, for people.
    pub operations: String,
    /// How the bytes were counted, for people.
    pub bytes: String,
}

/// A rate of one CPU and of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeakRates {
    /// Of one thread alone.
    pub one: f64,
    /// Of a thread on each CPU at the same time, together.
    pub all: f64,
}
