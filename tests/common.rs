//! What tests are written with: programs to trace, a recorder, trees of calls, and oracles.

pub mod launch;
pub mod oracle;
pub mod profile;
pub mod python;
pub mod recording;
pub mod rtrace;
pub mod running;
pub mod scenario;
pub mod skip;
pub mod sources;
pub mod spans;
pub mod target;
pub mod terminal;
pub mod text;
pub mod tree;
pub mod tries;
pub mod truth;
pub mod workload;
