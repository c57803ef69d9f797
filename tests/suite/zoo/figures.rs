//! What rtrace has recorded, as `rtrace report` and the last line of a recording tell it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::common::rtrace;

/// Calls of a function.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Calls {
    pub calls: u64,
    pub returned: u64,
    pub unwound: u64,
    pub unseen: u64,
    pub lost: u64,
}

/// A recording.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    functions: BTreeMap<String, Calls>,
}

#[derive(Deserialize)]
struct Report {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    function: String,
    #[serde(flatten)]
    calls: Calls,
}

impl Figures {
    /// Reads a trace.
    pub fn of(trace: &Path) -> Result<Figures> {
        let mut report = rtrace::command();
        report.arg("report").arg(trace).args(["--format", "json", "--columns", "calls,returned,unwound,unseen,lost"]);
        Figures::parse(&super::output(&mut report)?)
    }

    fn parse(text: &str) -> Result<Figures> {
        let Report { rows } = serde_json::from_str(text).context("failed to understand a report")?;
        let mut figures = Figures::default();
        for Row { function, calls } in rows {
            let sum = figures.functions.entry(function).or_default();
            *sum = Calls::sum([*sum, calls]);
        }
        Ok(figures)
    }

    /// The calls of a function.
    pub fn function(&self, name: &str) -> Calls {
        self.functions.get(name).copied().unwrap_or_default()
    }

    /// All calls.
    pub fn all(&self) -> Calls {
        Calls::sum(self.functions.values().copied())
    }
}

impl Calls {
    fn sum(of: impl IntoIterator<Item = Calls>) -> Calls {
        of.into_iter().fold(Calls::default(), |sum, calls| Calls {
            calls: sum.calls + calls.calls,
            returned: sum.returned + calls.returned,
            unwound: sum.unwound + calls.unwound,
            unseen: sum.unseen + calls.unseen,
            lost: sum.lost + calls.lost,
        })
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A recording of one function.
    pub fn of(name: &str, calls: Calls) -> Figures {
        Figures { functions: [(name.to_owned(), calls)].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_one_name_add_up() {
        let row = |lost| {
            format!(
                r#"{{"calls":3,"returned":1,"unwound":1,"open":0,"unseen":1,"lost":{lost},"region":6,"library":"l","function":"f"}}"#
            )
        };
        let figures = Figures::parse(&format!(r#"{{"title":"t","rows":[{},{}],"notes":[]}}"#, row(0), row(4)));
        let wanted = Calls { calls: 6, returned: 2, unwound: 2, unseen: 2, lost: 4 };
        assert_eq!(figures.expect("it is well formed").function("f"), wanted);
    }
}
