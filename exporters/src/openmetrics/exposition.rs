//! The figures as metric families of OpenMetrics, which the field's client library writes.
//!
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>

use std::fmt::{self, Write};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rtrace_model::{HISTOGRAM_BUCKETS, Known, LossReason};
use rtrace_profile::Sums;
use rustix::time::{ClockId, clock_gettime};

use super::figures::{FunctionFigures, ShownFigures};

/// The media type of what is written.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The buckets that have a line of their own, by the power of two below which their durations lie: up to 127 ns,
/// up to 255 ns, and so on up to 17 s. All functions have the same, so that they can be added up.
const BOUNDS: std::ops::RangeInclusive<usize> = 7..=34;

const NS_PER_SECOND: f64 = 1e9;

/// Writes all families.
///
/// # Errors
/// Those of the writer.
pub(super) fn write(shown: ShownFigures, writer: &mut dyn Write) -> fmt::Result {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(shown)));
    encode(&mut { writer }, &registry)
}

#[derive(Debug)]
struct Families(ShownFigures);

impl Collector for Families {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = ExpositionWriter(encoder);
        families.recorder(&self.0)?;
        families.calls(&self.0.functions)?;
        families.missing(&self.0)?;
        families.throttled(&self.0.functions)
    }
}

struct ExpositionWriter<'a>(DescriptorEncoder<'a>);

impl ExpositionWriter<'_> {
    /// The recorder itself. The names of `process_…` are those that client libraries agree on.
    fn recorder(&mut self, shown: &ShownFigures) -> fmt::Result {
        let help = "1 while calls are recorded, 0 while probes are being placed.";
        self.family("rtrace_up", help, MetricType::Gauge)?.encode_gauge(&u32::from(shown.header.is_some()))?;
        if let Some(header) = &shown.header {
            let budget = header.budget.map_or_else(String::new, |budget| budget.to_string());
            let labels = [
                ("version", header.rtrace_version.as_str()),
                ("mechanism", header.mechanism.as_str()),
                ("aggregated", if shown.is_folded { "true" } else { "false" }),
                ("budget", budget.as_str()),
            ];
            self.family("rtrace_recording", "How calls are recorded.", MetricType::Info)?.encode_info(&labels)?;
        }
        if let Some(overhead) = shown.overhead {
            let help =
                "By how much tracing makes the programs' CPU time longer, as a part of what they take for themselves.";
            self.family("rtrace_overhead_ratio", help, MetricType::Gauge)?
                .encode_gauge(&(overhead.in_percent() / 100.0))?;
        }
        let help = "CPU time of the recorder.";
        let seconds = cpu_seconds();
        counter(self.family("process_cpu_seconds", help, MetricType::Counter)?, seconds)?;
        let Some(bytes) = resident_bytes() else { return Ok(()) };
        let help = "Resident memory of the recorder.";
        self.family("process_resident_memory_bytes", help, MetricType::Gauge)?.encode_gauge(&bytes)
    }

    fn calls(&mut self, functions: &[FunctionFigures]) -> fmt::Result {
        let help = "Calls recorded, of any ending.";
        let mut family = self.family("rtrace_calls", help, MetricType::Counter)?;
        functions.iter().try_for_each(|function| counter(of(&mut family, function)?, function.sums.calls))?;

        let help = "Of the calls recorded, those that were not timed, as their return was not observed.";
        let mut family = self.family("rtrace_untimed_calls", help, MetricType::Counter)?;
        functions.iter().try_for_each(|function| counter(of(&mut family, function)?, function.sums.untimed()))?;

        let help = "Time from entry to return, of the calls that were timed and ended.";
        let mut family = self.family("rtrace_call_duration_seconds", help, MetricType::Histogram)?;
        functions.iter().try_for_each(|function| histogram(of(&mut family, function)?, &function.sums))
    }

    fn missing(&mut self, shown: &ShownFigures) -> fmt::Result {
        let help = "Calls, events and values known to be missing.";
        let mut family = self.family("rtrace_lost", help, MetricType::Counter)?;
        for reason in LossReason::ALL {
            let labels = [("reason", word(reason))];
            counter(family.encode_family(&labels)?, shown.losses.get(&reason).copied().unwrap_or(0))?;
        }
        let help = "Libraries that ran for a time without their probes: calls may be missing.";
        counter(self.family("rtrace_blind_windows", help, MetricType::Counter)?, shown.blind_windows)
    }

    /// What a budget leaves out. What is not known is no 0: it is absent.
    fn throttled(&mut self, functions: &[FunctionFigures]) -> fmt::Result {
        if functions.iter().all(|function| function.is_throttled.is_none() && function.without_record.is_none()) {
            return Ok(());
        }
        let help = "Whether the budget has the probes of the function out now.";
        let mut family = self.family("rtrace_throttled", help, MetricType::Gauge)?;
        for function in functions {
            let Some(is_throttled) = function.is_throttled else { continue };
            of(&mut family, function)?.encode_gauge(&u32::from(is_throttled))?;
        }
        let help = "Further calls that the budget left without a record, by estimate.";
        let mut family = self.family("rtrace_throttled_calls", help, MetricType::Gauge)?;
        for function in functions {
            if let Some((counted, Known::About(calls))) = function.calls_without_record() {
                of(&mut family, function)?.encode_gauge(&(counted + calls))?;
            }
        }
        let help = "Where no estimate can be made: there are at least so many such calls.";
        let mut family = self.family("rtrace_throttled_calls_min", help, MetricType::Gauge)?;
        for function in functions {
            match function.calls_without_record() {
                Some((counted, Known::AtLeast(calls))) => {
                    of(&mut family, function)?.encode_gauge(&(counted + calls))?
                }
                Some((counted, Known::Nothing)) => of(&mut family, function)?.encode_gauge(&counted)?,
                Some((_, Known::About(_))) | None => {}
            }
        }
        Ok(())
    }

    fn family<'s>(&'s mut self, name: &'s str, help: &str, kind: MetricType) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }
}

/// The labels of a function.
impl EncodeLabelSet for FunctionFigures {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let (function, library) = &self.labels;
        [("function", &**function), ("library", &**library)].encode(encoder)
    }
}

fn of<'s>(family: &'s mut MetricEncoder<'_>, function: &'s FunctionFigures) -> Result<MetricEncoder<'s>, fmt::Error> {
    family.encode_family(function)
}

fn counter(mut metric: MetricEncoder<'_>, value: impl EncodeCounterValue) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn histogram(mut metric: MetricEncoder<'_>, sums: &Sums) -> fmt::Result {
    let (first, last) = (*BOUNDS.start(), *BOUNDS.end());
    let mut calls = [0; HISTOGRAM_BUCKETS];
    sums.latency.buckets().into_iter().for_each(|(bucket, of_bucket)| calls[bucket] = of_bucket);
    let count = |buckets: &[u64]| buckets.iter().sum::<u64>();
    let mut buckets = Vec::with_capacity(last - first + 2);
    buckets.push((bound(first), count(&calls[..=first])));
    buckets.extend((first + 1..=last).map(|bucket| (bound(bucket), calls[bucket])));
    buckets.push((f64::INFINITY, count(&calls[last + 1..])));
    let seconds = sums.ended as f64 / NS_PER_SECOND;
    metric.encode_histogram::<NoLabelSet>(seconds, count(&calls), &buckets, None)
}

/// The longest duration in a bucket, in seconds: calls of just that long are in it.
fn bound(bucket: usize) -> f64 {
    ((1_u64 << bucket) - 1) as f64 / NS_PER_SECOND
}

/// The word that traces use.
fn word(reason: LossReason) -> String {
    match serde_json::to_value(reason) {
        Ok(serde_json::Value::String(word)) => word,
        _ => reason.name().to_owned(),
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / NS_PER_SECOND
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
