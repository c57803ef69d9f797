//! Places probes that do nothing until standard input is closed: `nothing PID FILE OFFSET…`, where an
//! offset in the file is that of an instruction.
//!
//! `cargo xtask bench` measures with it what the kernel itself takes for traced calls.

use std::io::Read as _;
use std::path::PathBuf;

use rtrace_bpf::{AttachTarget, Site, attach_nothing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().ok_or("a process id is missing")?.parse()?;
    let path = PathBuf::from(arguments.next().ok_or("a file is missing")?);
    let site = |offset: String| Ok::<_, std::num::ParseIntError>(Site::new(offset.parse()?, 0));
    let sites: Vec<Site> = arguments.map(site).collect::<Result<_, _>>()?;
    let _probes = attach_nothing(AttachTarget { path: &path, pid }, &sites)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
