//! The derived figures of counters, as the dashboard asks for them.

use rtrace_report::derived::{self, Input};
use rtrace_tui::Derived;

/// Those that counters of these names have.
pub fn derive(counters: &[&str]) -> Vec<Derived> {
    let figures = derived::of(counters).into_iter();
    let shown = figures.map(|(derived, inputs)| {
        Derived::new(derived.title.clone(), move |duration, counts| {
            let input = |input| match input {
                Input::Duration | Input::Computing => duration,
                Input::Counter(place) => counts.get(place).copied().unwrap_or(0),
            };
            derived.value(inputs.map(input))
        })
    });
    shown.collect()
}
