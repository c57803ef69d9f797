//! A flame graph as one SVG file that needs nothing else: a box per call path, as wide as its time,
//! under the box of its caller. It fills its window, and labels stay inside their boxes, in viewers without scripts, too.
//! In a browser, a click zooms in, Escape out, a field searches and says which part of the time matches, and the
//! address leads back to the zoom and the search.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use rtrace_model::{Library, LibraryId, escape, format_ns};

use super::super::format::{Form, Format};
use super::super::paths::{Path, Paths, Roots, readable, remarkable};
use super::super::remarks::remarks;
use super::super::step::Step;
use super::super::{ExportError, Source};

pub(super) const FORMAT: Format = Format {
    name: "flamegraph",
    summary: "Flame graph: an SVG file that zooms and searches",
    extension: "svg",
    opens_in: "any browser",
    keeps: "time without tracing and number of calls of every call path, by process, threads together; endings; losses in the caption",
    omits: "threads, times of single calls, counters; paths narrower than a tenth of a pixel",
    untimed: "counted, a box as wide as their timed callees",
    form: Form::File(write),
};

/// Fitting labels, zooming and searching.
const SCRIPT: &str = include_str!("flamegraph/zoom.js");

const STYLE: &str = include_str!("flamegraph/style.css");

/// Lengths in pixels. The graph is as wide as its window; a viewer without scripts gets labels that fit at this width.
const WIDTH: f64 = 1200.0;
const ROW: usize = 18;
const NARROWEST: f64 = 0.1;

/// Height of title, remarks, search and legend.
const HEAD: usize = 112;

/// Width of a letter of the font in use, at the most.
const LETTER: f64 = 7.4;

/// Hues of libraries; what follows from a library's name is where it begins to look for one that is free.
const HUES: [u32; 12] = [212, 30, 152, 262, 348, 92, 186, 48, 236, 12, 126, 288];

/// Libraries that the legend names.
const NAMED: usize = 6;

fn write(source: &Source<'_>, output: &mut dyn Write) -> Result<(), ExportError> {
    let paths = Paths::with_untraced(source, Roots::Process)?;
    let graph = Graph::new(source, &paths);
    let height = HEAD + ROW * (graph.depth + 1) + 8;
    writeln!(
        output,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" font-family="system-ui, sans-serif" font-size="12">
<style>{STYLE}</style>
<rect class="page" width="100%" height="100%"/>"#
    )?;
    let (host, programs) = (source.header().host.as_str(), programs(source, &paths, &graph.roots));
    let title = format!("{programs}: {} of traced calls on {host}", format_ns(graph.whole));
    writeln!(output, r#"<text x="10" y="24" font-size="16" font-weight="600">{}</text>"#, text(&title))?;
    let summary = remarks(source)?.into_iter().find(|(name, _)| *name == "summary");
    let summary = summary.map(|(_, line)| line).unwrap_or_default();
    writeln!(output, r#"<text class="soft" x="10" y="43">{}</text>"#, text(&summary))?;
    // Viewers without scripts show neither field nor buttons.
    writeln!(output, r#"<g id="tools"/><text class="soft" id="told" x="10" y="{}"/>"#, HEAD - 10)?;
    graph.write_legend(source, output)?;
    writeln!(output, r#"<g id="graph">"#)?;
    graph.write(source, &paths, output)?;
    writeln!(output, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")?;
    Ok(())
}

/// The programs whose calls are drawn.
fn programs(source: &Source<'_>, paths: &Paths, roots: &[usize]) -> String {
    let mut names: Vec<&str> = roots
        .iter()
        .filter_map(|&root| match paths.all[root].step {
            Step::Program(place) => Some(source.threads.programs[place].name.as_str()),
            _ => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => "no program".to_owned(),
        [first, second, third, others @ ..] if !others.is_empty() => {
            format!("{first}, {second}, {third} and {} more", others.len())
        }
        few => few.join(", "),
    }
}

/// Widths and places of the boxes, in ns.
struct Graph {
    /// Time of each path with all that it begins.
    widths: Vec<u64>,
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
    whole: u64,
    depth: usize,
    /// Libraries by the time that they took by themselves, the largest first, each with its time and hue.
    libraries: Vec<(LibraryId, u64, u32)>,
}

impl Graph {
    fn new(source: &Source<'_>, paths: &Paths) -> Graph {
        let mut widths: Vec<u64> = paths.all.iter().map(Path::own).collect();
        let (mut children, mut roots) = (vec![Vec::new(); widths.len()], Vec::new());
        let (mut depths, mut depth) = (vec![0; widths.len()], 0);
        for (place, path) in paths.all.iter().enumerate() {
            match path.parent {
                Some(parent) => {
                    children[parent].push(place);
                    depths[place] = depths[parent] + 1;
                    depth = depth.max(depths[place]);
                }
                None => roots.push(place),
            }
        }
        // A path comes after the one that it continues.
        for (place, path) in paths.all.iter().enumerate().rev() {
            if let Some(parent) = path.parent {
                widths[parent] = widths[parent].saturating_add(widths[place]);
            }
        }
        let whole = roots.iter().map(|&root| widths[root]).fold(0, u64::saturating_add);
        Graph { widths, children, roots, whole, depth, libraries: libraries(source, paths) }
    }

    /// The libraries with most time, each with its colour and share.
    fn write_legend(&self, source: &Source<'_>, output: &mut dyn Write) -> io::Result<()> {
        let whole = self.libraries.iter().fold(0_u64, |sum, &(_, time, _)| sum.saturating_add(time)).max(1);
        let mut x = 10.0;
        for &(id, time, hue) in self.libraries.iter().take(NAMED) {
            let library = source.library(id).map_or("not defined", Library::name);
            let entry = format!("{} {:.1} %", escape(library), 100.0 * time as f64 / whole as f64);
            let colour = colour(hue, LIGHT);
            writeln!(
                output,
                r#"<rect x="{x}" y="56" width="11" height="11" rx="3" fill="{colour}"/><text class="soft" x="{}" y="66">{}</text>"#,
                x + 17.0,
                text(&entry)
            )?;
            x += 17.0 + LETTER * (entry.chars().count() as f64) + 12.0;
        }
        if let Some(others) = self.libraries.len().checked_sub(NAMED).filter(|&others| others > 0) {
            writeln!(output, r#"<text class="soft" x="{x}" y="66">and {others} more libraries</text>"#)?;
        }
        Ok(())
    }

    fn write(&self, source: &Source<'_>, paths: &Paths, output: &mut dyn Write) -> io::Result<()> {
        let whole = self.whole.max(1) as f64;
        let mut left = 0;
        let mut todo = Vec::new();
        for &root in &self.roots {
            todo.push((root, left, 0));
            left += self.widths[root];
        }
        let hues: HashMap<LibraryId, u32> = self.libraries.iter().map(|&(id, _, hue)| (id, hue)).collect();
        while let Some((place, left, row)) = todo.pop() {
            let (from, part) = (left as f64 / whole, self.widths[place] as f64 / whole);
            let width = part * WIDTH;
            if width < NARROWEST {
                continue;
            }
            let path = &paths.all[place];
            let name = source.step(path.step);
            let fill = match path.step {
                Step::Function(region) => {
                    let hue = source.region(region).and_then(|region| hues.get(&region.library)).copied();
                    hue.map_or(GREY.to_owned(), |hue| colour(hue, LIGHT - 4 + hash(source.function(region)) % 9))
                }
                _ => GREY.to_owned(),
            };
            // An inner `svg` cuts what is wider than itself.
            writeln!(
                output,
                r#"<svg class="box" data-at="{from:.9} {part:.9} {row}" x="{:.5}%" y="{}" width="{:.5}%" height="{}"><title>{}: {}</title><rect width="100%" height="100%" fill="{fill}"/><text x="4" y="12.5">{}</text></svg>"#,
                from * 100.0,
                HEAD + row * ROW,
                part * 100.0,
                ROW - 1,
                text(&name),
                text(&self.described(paths, place)),
                text(&label(&name, width)),
            )?;
            let mut left = left;
            for &child in &self.children[place] {
                todo.push((child, left, row + 1));
                left += self.widths[child];
            }
        }
        Ok(())
    }

    fn described(&self, paths: &Paths, place: usize) -> String {
        let (path, width) = (&paths.all[place], self.widths[place]);
        let share = 100.0 * width as f64 / self.whole.max(1) as f64;
        let mut said = format!("{} ({share:.2} %)", format_ns(width));
        if let Step::Function(_) = path.step {
            said.push_str(&format!(", {} own, {} calls", readable(path.own(), path.endings), path.calls()));
            remarkable(path.endings).for_each(|(ending, calls)| said.push_str(&format!(", {calls} {ending}")));
        }
        said
    }
}

/// The libraries with time, the largest first. A library keeps its hue from graph to graph, save where two would share one.
fn libraries(source: &Source<'_>, paths: &Paths) -> Vec<(LibraryId, u64, u32)> {
    let mut times = HashMap::<LibraryId, u64>::new();
    for path in &paths.all {
        if let Step::Function(id) = path.step
            && let Some(region) = source.region(id)
        {
            let time = times.entry(region.library).or_default();
            *time = time.saturating_add(path.own());
        }
    }
    let mut sorted: Vec<(LibraryId, u64)> = times.into_iter().collect();
    sorted.sort_by_key(|&(id, time)| (Reverse(time), id));
    let mut is_taken = [false; HUES.len()];
    let mut coloured = Vec::new();
    for (id, time) in sorted {
        let name = source.library(id).map_or("", Library::name);
        let first = hash(name.split(".so").next().unwrap_or(name)) as usize;
        let slots = (0..HUES.len()).map(|step| (first + step) % HUES.len());
        let slot = slots.clone().find(|&slot| !is_taken[slot]).unwrap_or(first % HUES.len());
        is_taken[slot] = true;
        coloured.push((id, time, HUES[slot]));
    }
    coloured
}

/// Lightness of a library's colour in percent; those of its functions differ a little.
const LIGHT: u32 = 76;

const GREY: &str = "hsl(220,4%,82%)";

fn colour(hue: u32, light: u32) -> String {
    format!("hsl({hue},38%,{light}%)")
}

fn hash(text: &str) -> u32 {
    text.chars().fold(5_381_u32, |hash, letter| hash.wrapping_mul(33) ^ letter as u32)
}

/// As much of a name as fits a box, with a mark where it was cut.
fn label(name: &str, width: f64) -> String {
    let letters = ((width - 8.0) / LETTER).max(0.0) as usize;
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    if letters < 4 {
        return String::new();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}

/// A text inside an element.
fn text(text: &str) -> String {
    escape(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
