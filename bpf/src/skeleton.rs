//! The skeleton that libbpf-cargo generates from the compiled programs.
#![allow(missing_docs, unused_imports, clippy::all, clippy::restriction, reason = "generated code")]

include!(concat!(env!("OUT_DIR"), "/rtrace.skel.rs"));
