//! Tests that need a compiler: what signatures say, compared with what compiled programs do.

mod abi;
mod headers;
mod libraries;
mod machine;
mod text;
