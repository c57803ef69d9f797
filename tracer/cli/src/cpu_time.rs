//! Samples of CPU time in words.

use rtrace::sampling::Sampled;
use rtrace_model::{counted, grouped};
use serde_json::{Value, json};

/// How far a share of some samples may be from the truth in 95 of 100 cases, in standard deviations.
const DEVIATIONS: f64 = 1.96;
/// How often no sample at all may come of a share that is told as the least one that was not met.
const UNLIKELY: f64 = 0.05;

/// The title of the column of shares.
pub const COLUMN: &str = "CPU TIME";

/// The share of the CPU time that so many of the samples are; of none, what it is less than.
pub fn share(sampled: &Sampled, samples: u64) -> String {
    match (samples, sampled.samples()) {
        (_, 0) => "-".to_owned(),
        (0, all) => format!("<{:.1} %", (1.0 - UNLIKELY.powf(1.0 / all as f64)) * 100.0),
        (some, all) => format!("{:.1} %", some as f64 / all as f64 * 100.0),
    }
}

/// The same as a number, from 0 to 1.
pub fn fraction(sampled: &Sampled, samples: u64) -> Option<f64> {
    (sampled.samples() > 0).then(|| samples as f64 / sampled.samples() as f64)
}

/// How many samples there are, and how right shares of them are.
pub fn basis(sampled: &Sampled) -> String {
    let time = format!("{:.1} s", sampled.time.as_secs_f64());
    let lost = match sampled.lost {
        0 => String::new(),
        lost => format!("; it is not known where {} more were", grouped(lost)),
    };
    match sampled.samples() {
        0 => format!("the processes were idle: no sample of CPU time in {time}{lost}"),
        samples => {
            let points = DEVIATIONS * 50.0 / (samples as f64).sqrt();
            let samples = counted(samples, "sample");
            format!("{samples} of CPU time in {time}: shares are right to {points:.1} points (95 %){lost}")
        }
    }
}

/// What is in no library, as far as there is any: the name of its row, the samples, what it is.
pub fn elsewhere(sampled: &Sampled) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
    let rows = [
        ("(kernel)", sampled.in_kernel, "what the kernel does for the processes"),
        ("(no file)", sampled.in_no_file, "code that is in no library, as that which is made at run time"),
        ("(unknown)", sampled.unknown, "what was mapped there came and went, or changed meanwhile"),
    ];
    rows.into_iter().filter(|(_, samples, _)| *samples > 0)
}

/// All of that for a script; null where nothing was sampled.
pub fn as_json(sampled: Option<&Sampled>) -> Value {
    sampled.map_or(Value::Null, |sampled| {
        json!({
            "time_s": sampled.time.as_secs_f64(),
            "samples": sampled.samples(),
            "kernel": sampled.in_kernel,
            "no_file": sampled.in_no_file,
            "unknown": sampled.unknown,
            "lost": sampled.lost,
        })
    })
}
