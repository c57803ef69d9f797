//! `rtrace counters`: what can be counted on every call on this machine.

use rtrace::counters::{self, Finding};
use rtrace_model::escape;

use super::args::CountersArgs;
use super::columns::TextColumns;
use super::message::tell;
use super::{Outcome, print};

/// Prints a line for each counter that works, or for each.
pub fn counters(options: &CountersArgs) -> anyhow::Result<Outcome> {
    let (works, refused): (Vec<Finding>, Vec<Finding>) =
        counters::survey().into_iter().partition(|finding| finding.refusal.is_none());
    let shown = if options.all { works.iter().chain(&refused).collect() } else { works.iter().collect::<Vec<_>>() };
    print(render(&shown, options.all).as_bytes())?;
    if let (false, Some(first)) = (options.all, refused.first()) {
        let reason = first.refusal.as_deref().unwrap_or_default();
        tell!("{} more do not work here, such as {}: {reason}; see --all", refused.len(), first.name);
    }
    Ok(Outcome::Complete)
}

fn render(findings: &[&Finding], reasons: bool) -> String {
    let reason = reasons.then_some("does not work here because");
    let mut columns = TextColumns::new(["kind", "counter", "counts"].into_iter().chain(reason), 2, |_| false);
    for finding in findings {
        let alias = finding.alias.map(|alias| format!(" or {alias}")).unwrap_or_default();
        let name = format!("{}{alias}", escape(&finding.name));
        let mut row = vec![finding.group.name().to_owned(), name, escape(&finding.what).into_owned()];
        row.extend(reasons.then(|| escape(finding.refusal.as_deref().unwrap_or("")).into_owned()));
        columns.add(row);
    }
    // Nothing is cut: each word is needed.
    columns.text(None)
}

#[cfg(test)]
mod tests {
    use rtrace::counters::CounterGroup;

    use super::*;

    #[test]
    fn a_counter_is_a_line_with_its_names_and_why_it_does_not_work() {
        let finding = Finding {
            group: CounterGroup::Hardware,
            name: "cpu-cycles".to_owned(),
            alias: Some("cycles"),
            what: "cycles".to_owned(),
            refusal: Some("no\u{1b}".to_owned()),
        };
        assert_eq!(
            render(&[&finding], true),
            "\
kind      counter               counts  does not work here because
hardware  cpu-cycles or cycles  cycles  no\\x1b
"
        );
    }
}
