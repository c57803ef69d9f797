//! Metrics beside the calls: what is read once a second of each process and of the machine, and
//! what [`plugin`]s say.

mod machine;
pub mod plugin;
mod process;

use rtrace_model::{Base, Metric, MetricId, Sample, Scope, Span};

use crate::host;
use crate::target::user::User;
use plugin::Plugin;

/// What a metric measures: the part of [`Metric`] that does not depend on the recording.
#[derive(Clone, Copy, Debug)]
struct MetricKind {
    name: &'static str,
    unit: &'static str,
    /// A value times ten to this power is in the unit.
    exponent: i32,
    scope: Scope,
    span: Span,
}

/// Everything that is measured beside the calls of a recording.
#[derive(Debug, Default)]
pub struct Samplers {
    metrics: Vec<Metric>,
    /// The first id of the metrics of processes, if they are measured.
    processes: Option<MetricId>,
    sensors: Vec<(MetricId, machine::Sensor)>,
    plugins: Vec<Plugin>,
}

impl Samplers {
    /// Starts the plug-ins, and finds what can be read here if `system` is set. Ids count up from
    /// `first`.
    ///
    /// # Errors
    /// A plug-in does not start, or does not declare its metrics.
    pub fn start(
        first: MetricId,
        system: bool,
        commands: &[String],
        user: Option<&User>,
    ) -> Result<Samplers, plugin::Error> {
        let mut samplers = Samplers::default();
        if system {
            samplers.processes = Some(samplers.next(first));
            for read in &process::METRICS {
                samplers.add(first, read.kind);
            }
            for sensor in machine::sensors() {
                let id = samplers.add(first, sensor.kind());
                samplers.sensors.push((id, sensor));
            }
        }
        for command in commands {
            let plugin = Plugin::start(command, user, samplers.next(first))?;
            samplers.metrics.extend_from_slice(plugin.metrics());
            samplers.plugins.push(plugin);
        }
        Ok(samplers)
    }

    /// What is measured.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Reads the machine and these processes.
    pub fn sample(&mut self, pids: &[u32]) -> Vec<Sample> {
        let time = host::now();
        let mut samples = Vec::new();
        if let Some(first) = self.processes {
            for &pid in pids {
                let values = process::METRICS.iter().zip(first.0..).filter_map(|(read, id)| {
                    Some(Sample { metric: MetricId(id), time, instance: pid, value: read.value(pid)? })
                });
                samples.extend(values);
            }
        }
        for (metric, sensor) in &mut self.sensors {
            if let Some(value) = sensor.value() {
                samples.push(Sample { metric: *metric, time, instance: sensor.instance(), value });
            }
        }
        samples
    }

    /// What the plug-ins have said since the last call.
    pub fn heard(&mut self) -> (Vec<Sample>, Vec<plugin::Trouble>) {
        let (mut samples, mut troubles) = (Vec::new(), Vec::new());
        for plugin in &mut self.plugins {
            samples.extend(plugin.samples());
            troubles.extend(plugin.trouble());
        }
        (samples, troubles)
    }

    /// Ends the plug-ins; what they said last can still be [`heard`](Samplers::heard).
    pub fn stop(&mut self) {
        for plugin in &mut self.plugins {
            plugin.stop();
        }
    }

    fn next(&self, first: MetricId) -> MetricId {
        MetricId(first.0 + u32::try_from(self.metrics.len()).expect("metrics are few"))
    }

    fn add(&mut self, first: MetricId, kind: MetricKind) -> MetricId {
        let id = self.next(first);
        let MetricKind { name, unit, exponent, scope, span } = kind;
        let (name, unit) = (name.to_owned(), unit.to_owned());
        self.metrics.push(Metric { id, name, unit, base: Base::Decimal, exponent, scope, span });
        id
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn our_own_process_is_measured_with_ids_from_the_first_on() {
        let mut samplers = Samplers::start(MetricId(3), true, &[], None).unwrap();
        let samples = samplers.sample(&[std::process::id(), u32::MAX]);
        let resident = samples.iter().find(|sample| sample.metric == MetricId(3)).unwrap();
        assert_eq!(samplers.metrics()[0].name, "process/resident");
        assert_eq!(resident.instance, std::process::id());
        assert!(resident.value > 1e6, "{resident:?}");
        assert!(samples.iter().all(|sample| sample.instance != u32::MAX));
        for (place, metric) in samplers.metrics().iter().enumerate() {
            assert_eq!(metric.id.index(), 3 + place);
        }
    }
}
