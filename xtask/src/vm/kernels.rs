//! The list of kernels, `tests/vm/kernels.toml`.

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::files;

/// All kernels, and what runs in each.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Parts of the names of the tests that run.
    pub tests: Vec<String>,
    kernel: Vec<Kernel>,
}

/// One kernel, and what rtrace must find in it.
#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The version, as far as its suite keeps it.
    pub name: String,
    /// The suite of Debian or Ubuntu that has it.
    pub suite: String,
    /// How rtrace attaches its probes; `None` where it must refuse.
    pub mechanism: Option<String>,
    /// The emulated processor, where qemu's own choice will not do.
    pub cpu: Option<String>,
}

impl Matrix {
    /// Reads the list.
    pub fn read() -> Result<Matrix> {
        let path = crate::root().join("tests/vm/kernels.toml");
        let text = files::read(&path)?;
        toml::from_str(&text).with_context(|| format!("failed to parse `{}`", path.display()))
    }

    /// The kernels of these names; all, if there are none.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&Kernel>> {
        if names.is_empty() {
            return Ok(self.kernel.iter().collect());
        }
        names.iter().map(|name| self.find(name)).collect()
    }

    fn find(&self, name: &str) -> Result<&Kernel> {
        let Some(kernel) = self.kernel.iter().find(|kernel| kernel.name == name) else {
            let known: Vec<&str> = self.kernel.iter().map(|kernel| kernel.name.as_str()).collect();
            bail!("failed to find kernel `{name}`: the list has {}", known.join(", "));
        };
        Ok(kernel)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn kernels_are_chosen_by_name() {
        let matrix = Matrix::read().unwrap();
        let names = |chosen: Vec<&Kernel>| chosen.iter().map(|kernel| kernel.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(matrix.choose(&["6.12".into(), "6.1".into()]).unwrap()), ["6.12", "6.1"]);
        assert_eq!(names(matrix.choose(&[]).unwrap()).len(), matrix.kernel.len());
        let error = matrix.choose(&["2.4".into()]).unwrap_err().to_string();
        assert!(error.starts_with("failed to find kernel `2.4`: the list has 5.10, "), "{error}");
    }

    #[test]
    fn a_kernel_without_mechanism_is_to_be_refused() {
        let matrix: Matrix = toml::from_str("tests = []\n[[kernel]]\nname = \"5.10\"\nsuite = \"bullseye\"").unwrap();
        assert_eq!(matrix.kernel[0].mechanism, None);
        assert!(toml::from_str::<Matrix>("tests = []\nkernels = []").is_err());
    }
}
