//! What a recording may take of the machine if its caller may not ptrace every process: others use the machine, too.

use rtrace_bpf::ProbeLimit;

/// Probes and processes with probes. A probe takes the kernel about 0.4 KB, which it charges to nobody: 50 MB.
pub const PROBES: ProbeLimit = ProbeLimit { sites: 1 << 17, processes: 1 << 10 };

/// Size of each CPU's ring in bytes.
pub const RING_BYTES: u32 = 8 << 20;
