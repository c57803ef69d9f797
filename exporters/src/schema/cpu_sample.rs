//! `cpu_samples.parquet`: a row per process and place at which its CPU time was sampled.

use rtrace_model::CpuSamples;

use super::cell::row;

row!(CpuSamples, "cpu_samples.parquet", {
    "pid": pid,
    "call_site": call_site,
    "context": context,
    "samples": samples,
});
