//! What the state looks like: two lines of facts, the functions, one line of keys.
//!
//! Nothing depends on colour: what it says is also said in words or by weight.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Row, Table, TableState};
use rtrace_model::escape;

use crate::app::{App, KEYS};
use crate::column::{COLUMNS, Column, Width, count};

/// Draws the whole screen. `first` is the first row of the table that is shown; it moves as little
/// as the chosen row allows.
pub fn draw(frame: &mut Frame<'_>, app: &App, first: &mut usize) {
    let line = Constraint::Length(1);
    let [title, facts, functions, foot] = Layout::vertical([line, line, Constraint::Fill(1), line]).areas(frame.area());
    draw_title(frame, app, title);
    frame.render_widget(facts_line(app), facts);
    draw_functions(frame, app, functions, first);
    frame.render_widget(foot_line(app), foot);
}

fn draw_title(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let paused = if app.paused() { "PAUSED " } else { "" };
    let time = Line::styled(format!("{paused}{}", clock(app.elapsed())), Modifier::BOLD);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(time.width() as u16)]).spacing(1).areas(area);
    let title = Line::from(vec![Span::styled("rtrace ", Modifier::BOLD), Span::raw(escape(app.target()))]);
    frame.render_widget(title, left);
    frame.render_widget(time, right);
}

fn facts_line(app: &App) -> Line<'_> {
    let snapshot = app.snapshot();
    let rate = count(app.rate().round() as u64);
    let facts = format!("{} calls  {rate} calls/s  {} threads  ", snapshot.calls, snapshot.threads);
    let lost = match snapshot.lost() {
        0 => Span::raw("0 lost"),
        lost => {
            let reasons: Vec<String> =
                snapshot.losses.iter().map(|(reason, count)| format!("{}: {count}", reason.name())).collect();
            Span::styled(
                format!("{lost} lost ({})", reasons.join(", ")),
                Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            )
        }
    };
    Line::from(vec![Span::raw(facts), lost])
}

fn draw_functions(frame: &mut Frame<'_>, app: &App, area: Rect, first: &mut usize) {
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    *first = (*first).clamp((app.selected() + 1).saturating_sub(height), app.selected());

    let shown = || COLUMNS.iter().enumerate().filter(|(_, column)| column.from <= area.width);
    let titles = shown().map(|(index, column)| {
        let marked = if index == app.order() { Modifier::REVERSED } else { Modifier::empty() };
        cell(column, Span::styled(column.title, marked))
    });
    let rows = app
        .rows()
        .skip(*first)
        .take(height)
        .map(|row| Row::new(shown().map(move |(_, column)| cell(column, Span::raw((column.text)(row))))));
    let widths = shown().map(|(_, column)| match column.width {
        Width::Number(cells) => Constraint::Length(cells),
        Width::Text(share) => Constraint::Fill(share),
    });
    let table =
        Table::new(rows, widths).header(Row::new(titles).style(Modifier::BOLD)).row_highlight_style(Modifier::REVERSED);
    let mut chosen = TableState::new().with_selected(app.selected() - *first);
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn cell<'a>(column: &Column, text: Span<'a>) -> Line<'a> {
    match column.width {
        Width::Number(_) => Line::from(text).right_aligned(),
        Width::Text(_) => Line::from(text),
    }
}

fn foot_line(app: &App) -> Line<'_> {
    let filter = escape(app.filter());
    if app.typing() {
        return Line::from(format!("filter: {filter}_  Enter keep  Esc clear"));
    }
    let mut words = vec![format!("by {}", COLUMNS[app.order()].title)];
    if !filter.is_empty() {
        words.push(format!("filter: {filter}"));
    }
    words.push("|".to_owned());
    words.extend(KEYS.iter().map(|(key, does)| format!("{key} {does}")));
    Line::from(words.join("  "))
}

fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use rtrace_model::{LossReason, RegionId};

    use super::*;
    use crate::app::Flow;
    use crate::snapshot::{Function, Snapshot, Totals};

    fn function(id: u32, name: &str, totals: Totals) -> Function {
        Function { region: RegionId(id), name: Arc::from(name), library: Arc::from("libfftw3.so.3"), totals }
    }

    fn recording() -> Snapshot {
        let plan = Totals { calls: 2, timed: 2, inclusive: 5_000_000, exclusive: 1_500_000, max: 4_000_000 };
        let execute = Totals { calls: 1500, timed: 1500, inclusive: 3_000_000, exclusive: 3_000_000, max: 9_500 };
        let unseen = Totals { calls: 7, ..Totals::default() };
        let functions = vec![
            function(0, "fftw_plan_dft_1d", plan),
            function(1, "fftw_execute", execute),
            function(2, "evil\u{1b}[31m", unseen),
        ];
        Snapshot { calls: 1509, threads: 4, losses: Vec::new(), functions }
    }

    fn app() -> App {
        let mut app = App::new("fft_demo (4711)");
        app.update(recording(), Duration::from_secs(3));
        app
    }

    fn press(app: &mut App, keys: &str) {
        for key in keys.chars() {
            let code = if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) };
            assert_eq!(app.press(KeyEvent::new(code, KeyModifiers::NONE)), Flow::Continue);
        }
    }

    fn terminal(app: &App, width: u16, height: u16, first: &mut usize) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app, first)).unwrap();
        terminal
    }

    fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
        let terminal = terminal(app, width, height, &mut 0);
        let cells = terminal.backend().buffer().content();
        cells
            .chunks(usize::from(width))
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn eighty_columns_show_facts_functions_and_keys() {
        assert_eq!(
            screen(&app(), 80, 7),
            [
                "rtrace fft_demo (4711)                                                  00:00:03",
                "1509 calls  503 calls/s  4 threads  0 lost",
                "   calls  calls/s  inclusive  exclusive       mean function",
                "    1500      500   3.000 ms   3.000 ms   2.000 us fftw_execute",
                "       2        1   5.000 ms   1.500 ms   2.500 ms fftw_plan_dft_1d",
                "       7        2          -          -          - evil\\x1b[31m",
                "by exclusive  |  q quit  arrows move  s sort  space pause  / filter",
            ]
        );
    }

    #[test]
    fn a_wide_terminal_shows_all_columns() {
        let lines = screen(&app(), 120, 6);
        assert!(lines[2].contains("max function"), "{}", lines[2]);
        assert!(lines[3].contains("9.500 us fftw_execute"), "{}", lines[3]);
        assert!(lines[3].ends_with("libfftw3.so.3"), "{}", lines[3]);
    }

    #[test]
    fn losses_stand_out_and_name_their_reason() {
        let mut app = app();
        app.update(Snapshot { losses: vec![(LossReason::RingFull, 12)], ..recording() }, Duration::from_secs(4));
        assert_eq!(screen(&app, 80, 6)[1], "1509 calls  0 calls/s  4 threads  12 lost (ring full: 12)");
        let terminal = terminal(&app, 80, 6, &mut 0);
        let (x, _) =
            (0..80).map(|x| (x, &terminal.backend().buffer()[(x, 1)])).find(|(_, c)| c.fg == Color::Red).unwrap();
        assert_eq!(x, 34);
    }

    #[test]
    fn typing_filters_at_once_and_escape_clears() {
        let mut app = app();
        press(&mut app, "/PLAN");
        let lines = screen(&app, 80, 6);
        assert!(lines[3].ends_with("fftw_plan_dft_1d"), "{}", lines[3]);
        assert_eq!(lines[4], "");
        assert_eq!(lines[5], "filter: PLAN_  Enter keep  Esc clear");
        press(&mut app, "\n");
        assert!(screen(&app, 80, 6)[5].starts_with("by exclusive  filter: PLAN  |"));
        app.press(KeyEvent::from(KeyCode::Esc));
        assert_eq!(app.rows().len(), 3);
    }

    #[test]
    fn sorting_walks_through_the_columns() {
        let mut app = app();
        let first = |app: &App| app.rows().next().unwrap().function.name.to_string();
        assert_eq!(first(&app), "fftw_execute");
        press(&mut app, "s");
        assert_eq!(first(&app), "fftw_plan_dft_1d");
        assert!(screen(&app, 80, 6)[5].starts_with("by mean  |"));
        press(&mut app, "ss");
        assert_eq!(first(&app), "evil\u{1b}[31m");
    }

    #[test]
    fn a_pause_says_so() {
        let mut app = app();
        press(&mut app, " ");
        assert!(app.paused());
        assert!(screen(&app, 80, 6)[0].ends_with("PAUSED 00:00:03"));
    }

    #[test]
    fn the_table_scrolls_with_the_chosen_row_and_no_further() {
        let mut app = app();
        let functions = (0..50).map(|id| {
            let exclusive = u64::from(1000 - id);
            function(id, &format!("f{id}"), Totals { calls: 1, timed: 1, exclusive, ..Totals::default() })
        });
        app.update(Snapshot { functions: functions.collect(), ..recording() }, Duration::from_secs(3));
        let mut first = 0;
        press(&mut app, &"j".repeat(30));
        terminal(&app, 80, 24, &mut first);
        assert_eq!(first, 11);
        press(&mut app, &"k".repeat(10));
        terminal(&app, 80, 24, &mut first);
        assert_eq!(first, 11);
        press(&mut app, &"k".repeat(10));
        terminal(&app, 80, 24, &mut first);
        assert_eq!(first, 10);
        app.press(KeyEvent::from(KeyCode::End));
        assert_eq!(app.selected(), 49);
    }

    #[test]
    fn a_filter_that_leaves_less_keeps_the_choice_on_the_screen() {
        let mut app = app();
        app.press(KeyEvent::from(KeyCode::End));
        let mut first = 2;
        press(&mut app, "/execute");
        terminal(&app, 80, 24, &mut first);
        assert_eq!((app.selected(), first), (0, 0));
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (3, 2), (10, 3), (20, 4)] {
            screen(&app(), width, height);
        }
    }

    #[test]
    fn leaving_takes_q_or_control_c() {
        let mut app = app();
        assert_eq!(app.press(KeyEvent::from(KeyCode::Char('q'))), Flow::Quit);
        press(&mut app, "/q");
        assert_eq!(app.filter(), "q");
        assert_eq!(app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Flow::Quit);
    }
}
