//! What is probed and how its exits are seen; what is not probed, and why.

use std::cmp::Reverse;

use ratatui::layout::Rect;
use rtrace_model::{ExitPolicy, RegionId};

use crate::app::App;
use crate::canvas::{Canvas, Cell, TableColumn, TableFrame};
use crate::list::{List, Rows};
use crate::panel::{Panel, PanelSubject};
use crate::state::State;
use crate::state::function::Function;
use crate::text::{count, counted};

/// The view.
#[derive(Debug, Default)]
pub struct PlanView {
    rows: List<PlanRow>,
}

/// A row of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanRow {
    /// A function that was left out: its place in the log.
    Refused(usize),
    /// A function with probes.
    Probed(RegionId),
}

const COLUMNS: [TableColumn; 5] = [
    TableColumn::words("exit", 11, 0),
    TableColumn::number("bytes", 9, 70),
    TableColumn::number("calls", 9, 50),
    TableColumn::rest("function"),
    TableColumn::words("library, or why it is not probed", 44, 120),
];

impl Panel for PlanView {
    fn title(&self) -> &'static str {
        "plan"
    }

    /// Lists what is probed, the most called first, then what was left out.
    fn arrange(&mut self, app: &mut App, state: &State) {
        let wanted = app.filter.to_lowercase();
        let passes = |names: &[&str]| App::passes(&wanted, names);
        let shown =
            |function: &&Function| passes(&[&function.name, state.library(function.library), function.exit.name()]);
        let mut probed: Vec<&Function> = state.functions().filter(shown).collect();
        // Those that are called as often stay in the order of their addresses.
        probed.sort_by_key(|function| Reverse(function.calls));
        let refusals = state
            .log
            .refusals
            .iter()
            .enumerate()
            .filter(|(_, refusal)| passes(&[&refusal.function, &refusal.library, &refusal.reason, "refused"]));
        let probed = probed.into_iter().map(|function| PlanRow::Probed(function.region));
        self.rows.set(probed.chain(refusals.map(|(place, _)| PlanRow::Refused(place))).collect());
    }

    /// Draws how many, and the table.
    fn draw(&mut self, canvas: &mut Canvas<'_>, area: Rect, app: &mut App, state: &State) {
        let theme = app.theme;
        let with = |exit: ExitPolicy| state.functions().filter(|function| function.exit == exit).count();
        let policies =
            ExitPolicy::ALL.into_iter().map(|exit| (with(exit), exit.name())).filter(|&(count, _)| count > 0);
        let policies: Vec<String> = policies.map(|(count, name)| format!("{count} {name}")).collect();
        let probed = [format!("{} probed", state.functions().count()), policies.join(", ")];
        let probed = probed.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(": ");
        let summary = format!("{probed}; {} refused", state.log.refused);
        canvas.put(area.x, area.y, area.width, &summary, theme.accent());
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let area = canvas.put_below(area, &self.rows.key().map_or_else(String::new, |row| in_full(row, state)));
        let row = |row: PlanRow| match row {
            PlanRow::Refused(place) => {
                let Some(refusal) = state.log.refusals.get(place) else { return Vec::new() };
                vec![
                    Cell::from("refused").styled(theme.bad()),
                    Cell::default(),
                    Cell::default(),
                    Cell::name(refusal.function.as_str()),
                    refusal.reason.as_str().into(),
                ]
            }
            PlanRow::Probed(region) => {
                let Some(function) = state.function(region) else { return Vec::new() };
                let exit = Cell::from(function.exit.name());
                vec![
                    if function.exit == ExitPolicy::EntryOnly { exit.styled(theme.accent()) } else { exit },
                    count(function.size).into(),
                    count(function.calls).into(),
                    Cell::name(&*function.name),
                    state.library(function.library).into(),
                ]
            }
        };
        canvas.table(TableFrame::plain(area, &COLUMNS), &mut self.rows, row);
        if self.rows.rows().is_empty() {
            canvas.put_empty(area, app.why_empty("no function is probed yet"));
        }
    }

    fn rows<'a>(&'a mut self, _app: &'a mut App) -> &'a mut dyn Rows {
        &mut self.rows
    }

    fn chosen_function(&self, _app: &App, _state: &State) -> Option<RegionId> {
        match self.rows.key()? {
            PlanRow::Probed(region) => Some(region),
            PlanRow::Refused(_) => None,
        }
    }

    fn opens(&self) -> Option<PanelSubject> {
        Some(PanelSubject::Function)
    }
}

/// A row in words.
fn in_full(row: PlanRow, state: &State) -> String {
    match row {
        PlanRow::Refused(place) => state.log.refusals.get(place).map_or_else(String::new, |refusal| {
            format!("{} of {} is not probed: {}", refusal.function, refusal.library, refusal.reason)
        }),
        PlanRow::Probed(region) => state.function(region).map_or_else(String::new, |function| {
            let library = state.library(function.library);
            format!("{} of {library}, {}: {}", function.name, counted(function.size, "byte"), seen(function.exit))
        }),
    }
}

/// How exits are seen, in words.
fn seen(exit: ExitPolicy) -> &'static str {
    match exit {
        ExitPolicy::ReturnSite => "its calls are probed where they return to",
        ExitPolicy::EntryOnly => "its calls are counted, not timed",
    }
}
