//! The skeletons that libbpf-cargo generates from the compiled programs.
#![allow(missing_docs, unused_imports, clippy::all, clippy::restriction, reason = "generated code")]

/// The programs that record.
pub mod rtrace {
    include!(concat!(env!("OUT_DIR"), "/rtrace.skel.rs"));
}

/// The program that tries to do an instruction.
pub mod step {
    include!(concat!(env!("OUT_DIR"), "/step.skel.rs"));
}

/// The program that notes where processes spend CPU time.
pub mod sampling {
    include!(concat!(env!("OUT_DIR"), "/sampling.skel.rs"));
}

/// The programs that need nothing of the kernel's types.
pub mod plain {
    include!(concat!(env!("OUT_DIR"), "/plain.skel.rs"));
}
