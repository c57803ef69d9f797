//! What is traced: processes and their code, the files that they map, and who may look at them. Nothing here knows of probes
//! that rtrace places.

pub(crate) mod address_spaces;
pub mod cgroups;
pub(crate) mod code;
pub mod command;
pub(crate) mod copies;
pub mod descendants;
pub(crate) mod files;
pub mod mapped_files;
pub(crate) mod mapping_history;
pub mod memory;
pub mod names;
pub mod overlays;
pub mod presence;
pub mod privilege;
pub mod proc_files;
pub(crate) mod python;
pub mod source_files;
pub(crate) mod stop;
pub(crate) mod subject;
pub mod translators;
pub mod user;

pub use subject::*;
