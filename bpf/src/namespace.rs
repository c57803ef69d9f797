//! The namespace in which this process knows others by numbers.

/// The host's: `PROC_PID_INIT_INO` of the kernel.
const HOST: u32 = 0xEFFF_FFFC;

/// What the programs are told of it: its number, or 0 where it is the host's or is not known.
pub(crate) fn of_ids() -> u32 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    // `pid:[NUMBER]`
    let number = link.to_str().and_then(|link| link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok());
    number.filter(|&number| number != HOST).unwrap_or(0)
}
