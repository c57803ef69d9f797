//! A made-up report at many widths. `RTRACE_BLESS=1 cargo test -p rtrace-report` writes the golden files anew: read the
//! difference first.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use rtrace_model::{Call, Ending};

use super::*;
use crate::about::About;
use crate::stats::{FIGURES, Stats};

const NAMES: [(&str, &str); 8] = [
    ("libQt5Gui.so.5.15.8", "QPen::QPen(QBrush const&, double, Qt::PenStyle, Qt::PenCapStyle, Qt::PenJoinStyle)"),
    ("libQt5Gui.so.5.15.8", "QPen::QPen(QColor const&)"),
    ("libQt5Widgets.so.5.15.8", "QWidgetPrivate::paintSiblingsRecursive(QPaintDevice*, QList<QObject*> const&, int)"),
    ("libfftw3.so.3.6.10", "fftw_dft_solve"),
    ("libfftw3.so.3.6.10", "fftw_malloc_plain"),
    (
        "libstdc++.so.6.0.30",
        "std::map<std::string, std::vector<int, std::allocator<int> > >::operator[](std::string&&)",
    ),
    ("exe", "evil\u{1b}[31m漢字"),
    ("exe", "never_timed"),
];

/// Functions from the one with most time to one without a time.
fn functions() -> Table {
    let stats: Vec<Stats> = (0..NAMES.len() as u64)
        .map(|number| {
            let mut stats = Stats::default();
            for call in 0..1_500 / (number + 1) {
                let duration = 10_u64.pow(6 - number.min(6) as u32) + call * 100;
                let is_timed = number + 1 < NAMES.len() as u64;
                let call = Call {
                    duration: is_timed.then_some(duration),
                    child: duration / 4,
                    ending: if is_timed { Ending::Returned } else { Ending::Unseen },
                    ..Call::default()
                };
                stats.sums.add_call(&call, true);
            }
            stats
        })
        .collect();
    let total = stats.iter().filter_map(Stats::exclusive).sum();
    let counters = [("page-faults", "page-faults", 5), ("page-faults-excl", "page-faults excl", 3)];
    let counters = counters.map(|(key, title, rank)| Column::new(key, title).rank(rank));
    let labels = [Column::label("library", "library").rank(4), Column::name("function", "function")];
    let columns = FIGURES.iter().chain(&counters).chain(&labels).copied().collect();
    let row = |(stats, (library, function)): (&Stats, (&str, &str))| {
        let mut row = stats.values(total);
        row.extend([Datum::Count(1_234_567), Datum::Count(7)]);
        row.extend([library, function].map(|name| Datum::Name(name.to_owned())));
        row
    };
    let mut table = Table { columns, rows: stats.iter().zip(NAMES).map(row).collect(), ..Table::default() };
    table.show("timed", Shown::Always);
    let place = table.columns.iter().position(|column| column.key == "exclusive_ns").unwrap();
    if let Datum::Time(time) = table.rows[5][place] {
        table.rows[5][place] = Datum::Traced(time);
    }
    table.keep("exclusive");
    table
}

/// A chain of calls, each deeper than the one before.
fn chain(depth: usize) -> Table {
    let columns = vec![Column::new("calls", "calls"), Column::name("function", "function")];
    let row = |depth: usize| vec![Datum::Count(1), Datum::Nested(depth, format!("level_{depth}_of_the_tree"))];
    Table { columns, rows: (0..depth).map(row).collect(), ..Table::default() }
}

fn shown(table: Table, look: Look) -> String {
    let complete = Note::warning(
        "278,126 calls to 994 functions on 3 threads. Incomplete: 2 calls lost (ring full: 2). 12 not timed (0.1 %).",
    );
    written(table, vec![Note::plain("90 more rows").kept(), complete.kept()], look)
}

fn written(table: Table, notes: Vec<Note>, look: Look) -> String {
    let report = Report { about: vec![("trace", About::made_up())], table, notes, ..Report::default() };
    let mut out = Vec::new();
    super::table(&report, &look, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn at(width: usize) -> Look {
    Look { width: Some(width), ..Look::default() }
}

#[test]
fn reports_look_as_they_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/people/golden");
    let piped = ("piped", shown(functions(), Look::default()));
    let ascii = ("80-ascii", shown(functions(), Look { is_ascii: true, ..at(80) }));
    let widths = [("60", 60), ("80", 80), ("100", 100), ("120", 120), ("200", 200), ("250", 250)];
    let at_widths = widths.map(|(name, width)| (name, shown(functions(), at(width))));
    for (name, text) in at_widths.into_iter().chain([piped, ascii]) {
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("RTRACE_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_and_no_name_is_cut_to_nothing() {
    for width in 40..=250 {
        let text = shown(functions(), at(width));
        let lines: Vec<&str> = text.lines().collect();
        let widest = lines.iter().map(|line| line.width()).max().unwrap();
        assert!(widest <= width.max(60), "{widest} cells on {width}:\n{text}");
        for name in ["fftw_dft_solve", "fftw_malloc_plain", "evil\\x1b[31m漢字", "never_timed"] {
            assert!(lines.iter().any(|line| line.ends_with(&format!("  {name}"))), "{name} at {width}:\n{text}");
        }
    }
}

#[test]
fn what_has_no_room_is_said() {
    let text = shown(functions(), Look { notes: true, ..at(80) });
    let said = text.split("\n\n").nth(2).unwrap();
    assert!(said.starts_with("no room for: ") && said.contains("--columns"), "{text}");
    for column in ["p99", "max", "library"] {
        assert!(said.split("; ").next().unwrap().contains(column), "{column} in {text}");
    }
    assert!(!shown(functions(), Look { notes: true, ..at(250) }).contains("no room for"));
}

#[test]
fn notes_that_are_not_of_the_rows_wait_until_they_are_asked_for() {
    let report = |notes: bool, width: Option<usize>| {
        let warning = Note::warning("libraries ran before their probes were placed");
        let of_all = vec![Note::plain("7 calls. Complete.").kept(), Note::plain("a window"), warning];
        written(functions(), of_all, Look { notes, width, ..Look::default() })
    };
    let brief = report(false, Some(250));
    assert!(brief.ends_with("\n\n7 calls. Complete.\n2 more notes, with 1 warning: --notes\n"), "{brief}");
    for all in [report(true, Some(250)), report(false, None)] {
        assert!(all.contains("\na window\nlibraries ran") && !all.contains("--notes"), "{all}");
    }
}

#[test]
fn overloads_keep_the_arguments_that_tell_them_apart() {
    let text = shown(functions(), at(250));
    assert!(text.contains("  QPen::QPen(QColor const&)\n"), "{text}");
    assert!(text.contains("  QWidgetPrivate::paintSiblingsRecursive(…)\n"), "{text}");
    let full = shown(functions(), Look { full_names: true, ..at(60) });
    assert!(NAMES.iter().all(|(_, name)| full.contains(&*escape(name))), "{full}");
}

#[test]
fn elsewhere_than_on_a_terminal_nothing_is_cut() {
    let text = shown(functions(), Look::default());
    assert!(
        NAMES.iter().all(|(library, name)| text.contains(&format!("  {library}")) && text.contains(&*escape(name)))
    );
    assert!(
        text.contains("1234567") && !text.contains('…') && !text.contains('█') && !text.contains("no room"),
        "{text}"
    );
}

#[test]
fn colours_change_no_text() {
    let plain = shown(functions(), at(120));
    let coloured = shown(functions(), Look { colours: true, ..at(120) });
    assert!(!plain.contains('\u{1b}') && coloured.contains("\u{1b}[1m"));
    let mut stripped = String::new();
    for (number, part) in coloured.split("\u{1b}[").enumerate() {
        stripped.push_str(if number == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(stripped, plain);
}

#[test]
fn deep_calls_keep_their_names() {
    for width in [40, 60, 80] {
        let text = shown(chain(120), at(width));
        for depth in [0, 7, 30, 119] {
            assert!(text.contains(&format!("level_{depth}_of_the_tree")), "{depth} at {width}:\n{text}");
        }
        assert!(text.lines().all(|line| line.width() <= width.max(60)), "{text}");
    }
    assert!(shown(chain(120), Look::default()).contains(&format!("{}level_119", "  ".repeat(119))));
}

#[test]
fn nothing_to_show_is_no_table() {
    let text = shown(Table { rows: Vec::new(), ..functions() }, at(80));
    assert!(!text.contains("exclusive") && text.contains("90 more rows"), "{text}");
}

#[test]
fn lines_are_broken_between_words() {
    assert_eq!(wrapped("one two three", Some(7), 2), ["one two", "  three"]);
    assert_eq!(wrapped("one two three", None, 2), ["one two three"]);
    assert_eq!(wrapped("about 15.9 % of it", Some(12), 0), ["about 15.9 %", "of it"]);
    assert_eq!(wrapped("a_long_word_first b", Some(4), 1), ["a_long_word_first", " b"]);
    assert_eq!(wrapped("", Some(4), 1), [""]);
}
