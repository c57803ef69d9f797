//! Tests that need a compiler: what signatures say, compared with what compiled programs do.

mod abi;
mod conventions;
mod headers;
mod hostile;
mod libraries;
mod machine;
mod text;
