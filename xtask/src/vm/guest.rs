//! One kernel, booted in an emulator; what the guest prints is shown as it comes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

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
    let mut report = GuestReport::default();
    process::listen(emulator(kernel, file, image, parameters).stdin(Stdio::null()), |line| report.read(line))?;
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
