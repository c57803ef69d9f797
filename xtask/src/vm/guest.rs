//! One kernel, booted in an emulator; what the guest prints is shown as it comes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::kernels::Kernel;
use super::verdict::GuestReport;
use crate::process;

/// Emulated, a guest runs some twenty times slower than this machine.
const TIMEOUT: &str = "60m";

/// Both processors take turns on one thread. With a thread for each, qemu 7.2 goes on with old code
/// after the kernel put another instruction into the slot where it steps over a probed one.
const ACCELERATOR: &str = "tcg,thread=single";

/// Boots the kernel with the image and reads what comes until it ends.
///
/// `parameters`: what the kernel hands to the guest's first program.
pub fn boot(kernel: &Kernel, file: &Path, image: &Path, parameters: &[(&str, String)]) -> Result<GuestReport> {
    let mut emulator = emulator(kernel, file, image, parameters);
    println!("$ {}", process::shown(&emulator));
    let mut child = emulator.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("failed to start qemu")?;
    let mut report = GuestReport::default();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n') {
        let line = line.context("failed to read what the guest prints")?;
        let line = String::from_utf8_lossy(&line);
        println!("{}", line.trim_end());
        report.read(line.trim_end());
    }
    child.wait().context("failed to wait for qemu")?;
    Ok(report)
}

fn emulator(kernel: &Kernel, file: &Path, image: &Path, handed: &[(&str, String)]) -> Command {
    let messages = super::folder().join(&kernel.name).join("console.log");
    // A panic ends it, as does the guest itself.
    let mut parameters = "console=ttyS0 panic=-1 mitigations=off".to_owned();
    for (variable, value) in handed {
        parameters += &format!(" {variable}={value}");
    }
    let mut command = Command::new("timeout");
    command.args([TIMEOUT, "qemu-system-x86_64", "-accel", ACCELERATOR, "-smp", "2", "-m", "2G"]);
    if let Some(cpu) = &kernel.cpu {
        command.args(["-cpu", cpu]);
    }
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.arg("-serial").arg(format!("file:{}", messages.display())).args(["-serial", "stdio"]);
    command.arg("-kernel").arg(file).arg("-initrd").arg(image).args(["-append", &parameters]);
    command
}
