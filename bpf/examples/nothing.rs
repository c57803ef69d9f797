//! Places probes that do nothing until standard input is closed: `nothing PID FILE SITE…`, where a site
//! is an offset in the file, or `hook:OFFSET` for an entry at which the return is hooked, too.
//!
//! `cargo xtask bench` measures with it what the kernel itself takes for traced calls.

use std::io::Read as _;
use std::path::PathBuf;

use rtrace_bpf::{AttachTarget, Role, Site, attach_nothing};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().ok_or("a process id is missing")?.parse()?;
    let path = PathBuf::from(arguments.next().ok_or("a file is missing")?);
    let (mut hooked, mut alone) = (Vec::new(), Vec::new());
    for site in arguments {
        let (sites, offset) = match site.strip_prefix("hook:") {
            Some(offset) => (&mut hooked, offset),
            None => (&mut alone, site.as_str()),
        };
        sites.push(Site { file_offset: offset.parse()?, cookie: 0 });
    }
    let mut probes = Vec::new();
    for (role, sites) in [(Role::Enter, alone), (Role::EnterAndReturn, hooked)] {
        if !sites.is_empty() {
            probes.push(attach_nothing(role, AttachTarget { path: &path, pid: Some(pid) }, &sites)?);
        }
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
