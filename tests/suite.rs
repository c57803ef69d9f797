//! The tests, by what they need.

mod cli;
mod filters;
mod kernel;
mod oracles;
mod targets;
mod zoo;
