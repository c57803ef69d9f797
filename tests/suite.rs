//! The tests, by what they need.

mod cli;
mod kernel;
mod oracles;
mod targets;
