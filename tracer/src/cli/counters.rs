//! `rtrace counters`: what can be counted on every call on this machine.

use comfy_table::Table;
use rtrace::counters::{self, Finding};
use rtrace_model::escape;

use super::args::Counters;
use super::message::tell;
use super::{Outcome, print, terminal_columns};

/// Prints a line for each counter that works, or for each.
pub fn counters(options: &Counters) -> anyhow::Result<Outcome> {
    let (works, refused): (Vec<Finding>, Vec<Finding>) =
        counters::survey().into_iter().partition(|finding| finding.refusal.is_none());
    let shown = if options.all { works.iter().chain(&refused).collect() } else { works.iter().collect::<Vec<_>>() };
    print(render(&shown, options.all, terminal_columns()).as_bytes())?;
    if let (false, Some(first)) = (options.all, refused.first()) {
        let reason = first.refusal.as_deref().unwrap_or_default();
        tell!("{} more do not work here, such as {}: {reason}; see --all", refused.len(), first.name);
    }
    Ok(Outcome::Complete)
}

fn render(findings: &[&Finding], reasons: bool, width: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = width {
        table.set_content_arrangement(comfy_table::ContentArrangement::Dynamic).set_width(width);
    }
    let mut header = vec!["kind", "counter", "counts"];
    header.extend(reasons.then_some("does not work here because"));
    table.set_header(header);
    for finding in findings {
        let alias = finding.alias.map(|alias| format!(" or {alias}")).unwrap_or_default();
        let name = format!("{}{alias}", escape(&finding.name));
        let mut row = vec![finding.group.name().to_owned(), name, escape(&finding.what).into_owned()];
        row.extend(reasons.then(|| escape(finding.refusal.as_deref().unwrap_or("")).into_owned()));
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use rtrace::counters::Group;

    use super::*;

    #[test]
    fn a_counter_is_a_line_with_its_names_and_why_it_does_not_work() {
        let finding = Finding {
            group: Group::Hardware,
            name: "cpu-cycles".to_owned(),
            alias: Some("cycles"),
            what: "cycles".to_owned(),
            refusal: Some("no\u{1b}".to_owned()),
        };
        assert_eq!(
            render(&[&finding], true, None),
            "\
kind      counter               counts  does not work here because
hardware  cpu-cycles or cycles  cycles  no\\x1b
"
        );
    }
}
