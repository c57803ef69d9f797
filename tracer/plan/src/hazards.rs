//! What may end a program whose return addresses are replaced, beside what it does itself.

/// Why this kernel may end programs at a replaced return address, if it does.
///
/// The system call by which it takes such a return met seccomp filters that did not know it, and the program was
/// killed (CVE-2025-21834). To try it would take a program with such a filter, and any traced program may
/// install one at any time.
pub fn of_kernel(release: &str) -> Option<String> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().ok());
    let mut number = || numbers.next().flatten().unwrap_or(0);
    let version: [u32; 3] = [number(), number(), number()];
    let kills = ([6, 11, 0]..=[6, 12, 13]).contains(&version) || ([6, 13, 0]..=[6, 13, 2]).contains(&version);
    kills.then(|| format!("Linux {release} kills programs with a seccomp filter at a replaced return address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_kill_filtered_programs() {
        for release in ["6.11.0", "6.12-rc1", "6.12.13", "6.13.2-generic"] {
            assert!(of_kernel(release).is_some_and(|hazard| hazard.contains(release)), "{release}");
        }
        for release in ["6.1.0-42-amd64", "6.10.9", "6.12.14", "6.12.41+deb13-amd64", "6.13.3", "6.18.44", "7.2.0", ""]
        {
            assert_eq!(of_kernel(release), None, "{release}");
        }
    }
}
