//! Which further functions wait, and which do not, though their names say so.

use rtrace_exporters::TraceSet;
use rtrace_model::{Library, Region, Wait};
use rtrace_plan::Pattern;
use rtrace_report::Waits;

/// What the program itself is called among its libraries.
const PROGRAM: &str = "exe";

/// A function in a library, and what it waits for.
#[derive(Clone, Debug)]
pub struct Rule {
    library: Pattern,
    function: Pattern,
    waits_for: Option<Wait>,
}

/// Reads `LIBRARY:NAME=KIND`, without `=KIND` a function that waits for something to do.
pub fn parse_waiting(text: &str) -> Result<Rule, String> {
    let (place, kind) = text.rsplit_once('=').unwrap_or((text, Wait::Event.name()));
    let known = || Wait::ALL.map(Wait::name).join(", ");
    rule(place, Some(Wait::from_name(kind).ok_or_else(|| format!("nothing waits for `{kind}`: use {}", known()))?))
}

/// Reads `LIBRARY:NAME`, a function that does not wait.
pub fn parse_working(text: &str) -> Result<Rule, String> {
    rule(text, None)
}

fn rule(place: &str, waits_for: Option<Wait>) -> Result<Rule, String> {
    let expected = "expected LIBRARY:NAME, as in `exe:select` or `libmine.so*:queue_*`";
    let (library, function) = place.split_once(':').ok_or(expected)?;
    if library.is_empty() || function.is_empty() {
        return Err(expected.to_owned());
    }
    let pattern = |text: &str| text.parse::<Pattern>().map_err(|error| error.to_string());
    Ok(Rule { library: pattern(library)?, function: pattern(function)?, waits_for })
}

impl Rule {
    fn is_of(&self, trace: &TraceSet, region: &Region) -> bool {
        let is_program = |library: &Library| trace.processes().iter().any(|process| process.executable == library.path);
        let is_library = |library: &Library| {
            self.library.matches(library.name())
                || self.library.matches(&library.path)
                || (self.library.matches(PROGRAM) && is_program(library))
        };
        let symbols = region.symbols.iter().map(|name| name.symbol.as_str());
        trace.library(region.library).is_some_and(is_library)
            && symbols.chain([region.name.as_str()]).any(|name| self.function.matches(name))
    }
}

/// The functions that these are about. What waits is said before what does not, which decides.
pub fn waits(rules: &[Rule], trace: &TraceSet) -> Waits {
    let of_rule = |rule: &'_ Rule| {
        let regions = trace.regions().iter().filter(|region| rule.is_of(trace, region)).map(|region| region.id);
        regions.map(|id| (id, rule.waits_for)).collect::<Vec<_>>()
    };
    rules.iter().flat_map(of_rule).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn what_is_wrong_with_a_rule_is_said() {
        let error = |text| parse_waiting(text).map(|_| ()).unwrap_err();
        assert!(error("select").starts_with("expected LIBRARY:NAME"));
        assert!(error(":select").starts_with("expected LIBRARY:NAME"));
        assert!(error("exe:select=tea").starts_with("nothing waits for `tea`: use receive, "));
        assert_eq!(parse_waiting("exe:a::b=lock").map(|rule| rule.waits_for), Ok(Some(Wait::Lock)));
        assert_eq!(parse_waiting("exe:a").map(|rule| rule.waits_for), Ok(Some(Wait::Event)));
        assert_eq!(parse_working("exe:a").map(|rule| rule.waits_for), Ok(None));
    }
}
